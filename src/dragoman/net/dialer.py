"""Makes and keeps connections for Egress and Poster.

Invariant: before each dial the policy is asked about the address (invariant 13); no proxy is used.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from dragoman.net.address import Resolves, parsed
from dragoman.net.connection import Connection, End, Pool
from dragoman.net.errors import AddressRefused, BadUrl, Broken, EgressError, TimedOut, Unreachable, Unresolved
from dragoman.net.exchange import Answer
from dragoman.net.target import Target

Policy = Callable[[str], str | None]
"""Judges an IP address just before it is dialled: None allows it, a text says why it is refused."""

CONNECT_TIMEOUT_S = 5.0
"""How long making a connection may take."""

ADDRESS_S = 1.0
"""The least time for one address while others are left to try, so that a silent one does not use up the time of all."""

IDLE_S = 15.0
"""How long an unused connection is kept; most servers keep theirs for longer."""


class Dialer:
    """Connections under one policy. Without a `resolver` the C library resolves names, on threads.

    Belongs to the event loop of its first request; close it there.
    """

    __slots__ = ("_connect_timeout_s", "_idle", "_open", "_policy", "_resolver", "_tls")

    def __init__(self, policy: Policy, resolver: Resolves | None, *, connect_timeout_s: float, idle: Pool) -> None:
        self._policy = policy
        self._resolver = resolver
        self._connect_timeout_s = connect_timeout_s
        self._idle = idle
        self._open: set[Connection] = set()
        self._tls: ssl.SSLContext | None = None

    async def ask(
        self, to: Target, request: bytes, answer: Answer, until_s: float, *, again: bool, others_max: int | None = None
    ) -> Connection:
        """Send a request on a kept connection or a new one, and wait as `Connection.ask` does.

        With `again` the request is sent once more, on a new connection, if the other side ended the kept one before any
        byte of the answer. Before a new connection is dialled, all but `others_max` kept ones are closed. The caller
        gives the returned connection back with `release`. If the answer has no status, `silence` says why.

        Raises EgressError if there is no connection.
        """
        kept = self._idle.take((to.scheme, to.host, to.port))
        if kept is None and others_max is not None:
            self._idle.shrink(others_max)
        connection = kept or await self._dial(to, until_s)
        await self._ask(connection, request, answer, until_s)
        if kept is not None and again and kept.end is End.LOST and not answer.begun:
            try:
                connection = await self._dial(to, until_s)
            except EgressError as error:
                raise Broken(to.shown, "the kept connection broke, and a new one could not be made") from error
            await self._ask(connection, request, answer, until_s)
        return connection

    async def reach(self, to: Target, until_s: float) -> None:
        """Open a connection and close it again. Raises EgressError."""
        (await self._dial(to, until_s)).close()

    def release(self, connection: Connection) -> None:
        """Keep a connection if its answer is complete, else close it. Nothing more is read of the answer."""
        connection.finish()
        if connection.end is None:
            self._idle.keep(connection)

    async def close(self) -> None:
        """Close every connection, which ends the requests that use them. A later request opens new ones."""
        self._idle.close()
        ending = [connection.lost for connection in self._open]
        for connection in self._open:
            connection.close()
        if ending:
            await asyncio.wait(ending)

    async def _ask(self, connection: Connection, request: bytes, answer: Answer, until_s: float) -> None:
        try:
            await connection.ask(request, answer, until_s)
        except BaseException:  # canceled
            self.release(connection)
            raise

    async def _dial(self, to: Target, until_s: float) -> Connection:
        try:
            async with asyncio.timeout_at(until_s):
                addresses = (to.host,) if parsed(to.host) is not None else await self._addresses(to.host)
                async with asyncio.timeout(self._connect_timeout_s) as connecting:
                    end_s = connecting.when()
                    assert end_s is not None
                    dialled = await self._connect(to, addresses, min(end_s, until_s))
                    return await self._open_connection(dialled, to)
        except TimeoutError as error:
            raise late(to.shown) from error
        except Unresolved as error:
            raise Unreachable(to.shown, f"its host {error}") from error
        except ssl.SSLError as error:
            raise Unreachable(to.shown, "no TLS connection: check its certificate") from error
        except UnicodeError as error:  # the name can be written neither in DNS nor in TLS
            raise BadUrl(to.shown, "its host is not a name that can be called") from error
        except OSError as error:
            raise Unreachable(to.shown, "no connection: is it listening there?") from error

    async def _addresses(self, host: str) -> Sequence[str]:
        if self._resolver is not None:
            return await self._resolver.addresses(host)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        except socket.gaierror as error:
            raise Unresolved("does not exist, or has no address: check its name") from error
        return [f"{place[0]}%{place[3]}" if len(place) == 4 and place[3] else str(place[0]) for *_, place in found]

    async def _connect(self, to: Target, addresses: Sequence[str], until_s: float) -> socket.socket:
        """Return a socket to the first address that accepts. Raises OSError; AddressRefused if one was refused."""
        loop = asyncio.get_running_loop()
        refused: str | None = None
        failed: OSError = Unresolved("has no address")
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            if (reason := self._policy(address)) is not None:
                refused = refused or reason
                continue
            now_s = loop.time()
            try:
                async with asyncio.timeout_at(min(until_s, now_s + max(ADDRESS_S, (until_s - now_s) / left))):
                    return await _connect_socket(address, to.port)
            except OSError as error:  # a timeout is one too
                failed = error
        if refused is not None:
            raise AddressRefused(to.shown, f"its host stands for {refused}, which may not be called from here")
        raise failed

    async def _open_connection(self, dialled: socket.socket, to: Target) -> Connection:
        """Open a Connection over a socket. For https it goes through TLS, verified for the host that the URL names."""
        try:
            over: dict[str, Any] = {}
            if to.scheme == "https":
                if self._tls is None:
                    self._tls = await asyncio.to_thread(_make_tls_context)
                over = {
                    "ssl": self._tls,
                    "server_hostname": to.host.removesuffix("."),  # RFC 6066 §3
                    "ssl_handshake_timeout": self._connect_timeout_s,
                    "ssl_shutdown_timeout": 1.0,
                }
            loop, place = asyncio.get_running_loop(), (to.scheme, to.host, to.port)
            _, connection = await loop.create_connection(lambda: Connection(place, self._gone), sock=dialled, **over)
        except BaseException:
            dialled.close()
            raise
        if not connection.lost.done():
            self._open.add(connection)
        return connection

    def _gone(self, connection: Connection) -> None:
        self._idle.drop(connection)
        self._open.discard(connection)


def late(shown: str) -> EgressError:
    """Return the error for a connection that was not made in time."""
    return Unreachable(shown, "no connection in time: is it listening, and does a firewall let it be reached?")


def silence(connection: Connection, shown: str, timeout_s: float) -> EgressError:
    """Return the error that says why there is no answer, or no more of it."""
    if connection.end is End.LATE:
        return TimedOut(shown, timeout_s)
    return Broken(shown, "the connection broke before the answer was complete, or what came is not HTTP")


async def _connect_socket(address: str, port: int) -> socket.socket:
    """Return a socket that is connected to exactly this address."""
    dialled = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        dialled.setblocking(False)
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(dialled, (address, port))
    except BaseException:
        dialled.close()
        raise
    return dialled


def _make_tls_context() -> ssl.SSLContext:
    """Load the certificates that this machine trusts; reading the files takes a while."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
