"""Where connections come from, and where they are kept: what Egress and Poster have in common.

Invariant: no address is dialled that the policy was not asked about just then (invariant 13); no proxy is used.
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
"""Whether an IP address, as the socket is about to dial it, may be dialled: None, or what speaks against it."""

CONNECT_TIMEOUT_S = 5.0
"""How long a connection may take to come about; one that takes longer is as good as none."""

ADDRESS_S = 1.0
"""The least time for one address while there are others to try: one that is silent is not to take the time of all."""

IDLE_S = 15.0
"""So long a connection is kept that nobody uses; most servers keep theirs for longer."""


class Dialer:
    """Connections under one policy. Without a `resolver` the C library is asked for addresses, on threads.

    Belongs to the event loop of its first request, and is to be closed there.
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
        """Make a request on a connection that was kept, or a new one, and wait as `Connection.ask` does.

        With `again`, if a kept one was ended by the other side before a byte of an answer came, it is made once more,
        on a new one. Before one is dialled, all but `others_max` that are kept are closed. What is returned is to be
        given back by `release`; an answer without a status on it is told by `silence`.

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
                raise Broken(to.shown, "the connection that was kept broke, and there is no other") from error
            await self._ask(connection, request, answer, until_s)
        return connection

    async def reach(self, to: Target, until_s: float) -> None:
        """Make a connection and end it again. Raises EgressError."""
        (await self._dial(to, until_s)).close()

    def release(self, connection: Connection) -> None:
        """Keep a connection whose answer nobody reads any further; or end it, unless the answer has come to its end."""
        connection.finish()
        if connection.end is None:
            self._idle.keep(connection)

    async def close(self) -> None:
        """End every connection, and the requests that use them. A later request opens new ones."""
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
        except UnicodeError as error:  # of a name that neither DNS nor TLS can ask for
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
        """A connection to the first address that takes one. Raises OSError; AddressRefused if one was refused."""
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
        """What speaks over a socket: where the URL says so through TLS, to the host that the URL names."""
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
    """There was no connection in time."""
    return Unreachable(shown, "no connection in time: is it listening, and does a firewall let it be reached?")


def silence(connection: Connection, shown: str, timeout_s: float) -> EgressError:
    """Why there is no answer, or no more of it."""
    if connection.end is End.LATE:
        return TimedOut(shown, timeout_s)
    return Broken(shown, "the connection broke before the answer was complete, or what came is not HTTP")


async def _connect_socket(address: str, port: int) -> socket.socket:
    """A socket that is connected to this very address."""
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
    """What this machine trusts; read from files, which takes a while."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
