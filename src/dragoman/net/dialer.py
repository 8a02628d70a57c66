"""Makes, keeps and limits the connections of Egress and Poster.

Invariant: before each dial the policy is asked about the address (invariant 13); no proxy is used. Every request that
enters leaves once; nobody waits while there is room for them.
"""

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dragoman.net.address import Resolves, parse_address
from dragoman.net.connection import ConnectionEnd, Destination, HttpConnection
from dragoman.net.errors import (
    AddressRefused,
    BadUrl,
    Broken,
    CertificateWanted,
    EgressError,
    TimedOut,
    Unreachable,
    Unresolved,
)
from dragoman.net.exchange import HttpAnswer
from dragoman.net.target import Target
from dragoman.net.tls import MACHINE_TLS, ClientTls, TlsSession, is_not_tls, make_tls_context, refuses_certificate

Policy = Callable[[str], str | None]
"""Judges an IP address just before it is dialled: None allows it, a text says why it is refused."""


def operator_named(address: str) -> str | None:
    """The policy for hosts that the operator named: every address may be dialled."""
    return None


Exempts = Callable[[str], bool]
"""Whether a host is exempt from the policy, because the operator named it."""


def exempts_nobody(host: str) -> bool:
    """Whether a host is exempt from the policy: none is."""
    return False


CONNECT_TIMEOUT_S = 5.0
"""How long making a connection may take."""

ADDRESS_S = 1.0
"""The least time for one address while others are left to try, so that a silent one does not use up the time of all."""

IDLE_S = 15.0
"""How long an unused connection is kept; most servers keep theirs for longer."""


class RequestLimit:
    """Waiters for one destination enter in order of arrival; the destinations take turns. A limit of 0 means none."""

    __slots__ = ("_destinations", "_inside", "_max", "_per_destination_max", "_waiting")

    def __init__(self, *, in_all_max: int, per_destination_max: int) -> None:
        self._max = in_all_max or sys.maxsize
        self._per_destination_max = per_destination_max or sys.maxsize
        self._inside = 0
        self._destinations: dict[Destination, int] = {}
        self._waiting: dict[Destination, dict[asyncio.Future[None], None]] = {}

    @property
    def free(self) -> int:
        """How many more may enter."""
        return self._max - self._inside

    def enter_at_once(self, destination: Destination) -> bool:
        """Enter if there is room and nobody waits for it. Returns whether it did."""
        inside = self._destinations.get(destination, 0)
        if self._inside >= self._max or inside >= self._per_destination_max or destination in self._waiting:
            return False
        self._inside += 1
        self._destinations[destination] = inside + 1
        return True

    async def enter(self, destination: Destination, until_s: float) -> None:
        """Wait for room. Raises TimeoutError at `until_s`, a time of the loop."""
        if self.enter_at_once(destination):
            return
        free = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(destination, {})[free] = None
        try:
            async with asyncio.timeout_at(until_s):
                await free
        except BaseException:
            if free.done() and not free.cancelled():
                self.leave(destination)
            elif (waiting := self._waiting.get(destination)) is not None:
                waiting.pop(free, None)
                if not waiting:
                    del self._waiting[destination]
            raise

    def leave(self, destination: Destination) -> None:
        """Leave, and let the next waiter in."""
        self._inside -= 1
        inside = self._destinations[destination] - 1
        if inside:
            self._destinations[destination] = inside
        else:
            del self._destinations[destination]
        while self._waiting and self.free > 0 and (turn := next(filter(self._fits, self._waiting), None)) is not None:
            waiting = self._waiting.pop(turn)
            free = next(iter(waiting))
            del waiting[free]
            if waiting:
                self._waiting[turn] = waiting
            if not free.done():
                self._inside += 1
                self._destinations[turn] = self._destinations.get(turn, 0) + 1
                free.set_result(None)

    def _fits(self, destination: Destination) -> bool:
        return self._inside < self._max and self._destinations.get(destination, 0) < self._per_destination_max


class IdleConnections:
    """Unused connections, the most recently used first. Their number and their time are bounded.

    Belongs to the event loop of its first connection.
    """

    __slots__ = ("_destinations", "_idle_s", "_max", "_per_destination_max", "_since_s", "_timer")

    def __init__(self, *, per_destination_max: int, in_all_max: int, idle_s: float) -> None:
        self._per_destination_max = per_destination_max
        self._max = in_all_max
        self._idle_s = idle_s
        self._destinations: dict[Destination, dict[HttpConnection, None]] = {}
        self._since_s: dict[HttpConnection, float] = {}  # in order of arrival
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since_s)

    def take(self, destination: Destination) -> HttpConnection | None:
        """Take a connection to a destination, None if there is none that has not ended."""
        while (connections := self._destinations.get(destination)) is not None:
            connection = next(reversed(connections))
            self.forget(connection)
            if connection.end is None:
                return connection
        return None

    def keep(self, connection: HttpConnection) -> None:
        """Keep a connection. If that makes one too many, the least recently used one is closed."""
        loop = connection.loop
        if len(connections := self._destinations.get(connection.destination, ())) >= self._per_destination_max:
            self._close(next(iter(connections)))
        elif len(self._since_s) >= self._max:
            self.shrink(self._max - 1)
        self._destinations.setdefault(connection.destination, {})[connection] = None
        self._since_s[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._expire)

    def shrink(self, kept_max: int) -> None:
        """Close the least recently used connections until at most `kept_max` are left."""
        while len(self._since_s) > max(kept_max, 0):
            self._close(next(iter(self._since_s)))

    def forget(self, connection: HttpConnection) -> None:
        """Forget a connection, if it is known."""
        if self._since_s.pop(connection, None) is None:
            return
        connections = self._destinations[connection.destination]
        del connections[connection]
        if not connections:
            del self._destinations[connection.destination]

    def close(self) -> None:
        """Close all of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in tuple(self._since_s):
            self._close(connection)

    def _close(self, connection: HttpConnection) -> None:
        self.forget(connection)
        connection.close()

    def _expire(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        while self._since_s:
            oldest = next(iter(self._since_s))
            end_s = self._since_s[oldest] + self._idle_s
            if end_s > loop.time():
                self._timer = loop.call_at(end_s, self._expire)
                return
            self._close(oldest)


class Dialer:
    """Connections under one policy, but to the hosts that it `exempts`.

    Without a `resolver` the C library resolves names, on threads. Belongs to the event loop of its first request; close
    it there.
    """

    __slots__ = ("_connect_timeout_s", "_exempts", "_idle", "_open", "_policy", "_resolver", "_tls", "_tls_context")

    def __init__(
        self,
        policy: Policy,
        resolver: Resolves | None,
        *,
        connect_timeout_s: float,
        idle: IdleConnections,
        tls: ClientTls = MACHINE_TLS,
        exempts: Exempts = exempts_nobody,
    ) -> None:
        self._policy = policy
        self._exempts = exempts
        self._resolver = resolver
        self._connect_timeout_s = connect_timeout_s
        self._idle = idle
        self._open: set[HttpConnection] = set()
        self._tls = tls
        self._tls_context: ssl.SSLContext | None = None

    async def ask(
        self,
        to: Target,
        request: bytes,
        answer: HttpAnswer,
        until_s: float,
        *,
        again: bool,
        others_max: int | None = None,
    ) -> HttpConnection:
        """Send a request on a kept connection or a new one, and wait as `Connection.ask` does.

        If the other side ended a kept connection before any byte of the answer, the request is sent once more, on a new
        one: with `again` in any case, else if nothing of it was written. Before a new connection is dialled, all but
        `others_max` kept ones are closed. The caller gives the returned connection back with `release`. If the answer
        has no status, `missing_answer` says why.

        Raises EgressError if there is no connection.
        """
        kept = self._idle.take((to.scheme, to.host, to.port))
        if kept is None and others_max is not None:
            self._idle.shrink(others_max)
        connection = kept or await self._dial(to, until_s)
        try:
            await connection.ask(request, answer, until_s)
        except BaseException:  # canceled
            self.release(connection)
            raise
        if kept is not None and kept.end is ConnectionEnd.LOST and not answer.begun and (again or not kept.wrote):
            try:
                connection = await self._dial(to, until_s)
            except EgressError as error:
                if not kept.wrote:
                    raise
                raise Broken(to.shown, "the kept connection broke, and a new one could not be made") from error
            try:
                await connection.ask(request, answer, until_s)
            except BaseException:
                self.release(connection)
                raise
        return connection

    def claim(self, to: Target) -> HttpConnection | None:
        """Take a kept connection, if there is one. The caller gives it back with `release`."""
        return self._idle.take((to.scheme, to.host, to.port))

    async def reach(self, to: Target, until_s: float) -> TlsSession | None:
        """Open a connection and close it again; return its TLS session, None without TLS. Raises EgressError."""
        connection = await self._dial(to, until_s)
        session = connection.tls
        connection.close()
        return session

    def release(self, connection: HttpConnection) -> None:
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

    async def _dial(self, to: Target, until_s: float) -> HttpConnection:
        try:
            end_s = min(until_s, asyncio.get_running_loop().time() + self._connect_timeout_s)
            async with asyncio.timeout_at(end_s):
                addresses = await find_addresses(to.host, self._resolver)
                dialled = await self._connect(to, addresses, end_s)
                return await self._open_connection(dialled, to)
        except TimeoutError as error:
            raise connect_timeout(to.shown) from error
        except Unresolved as error:
            raise Unreachable(to.shown, f"its host {error}") from error
        except ssl.SSLError as error:
            if refuses_certificate(error):
                raise CertificateWanted(to.shown) from error
            if is_not_tls(error):
                raise Unreachable(to.shown, "what listens there does not speak TLS: use http://") from error
            raise Unreachable(to.shown, "no TLS connection: check its certificate") from error
        except UnicodeError as error:  # the name can be written neither in DNS nor in TLS
            raise BadUrl(to.shown, "its host is not a name that can be called") from error
        except OSError as error:
            raise Unreachable(to.shown, "no connection: is it listening there?") from error

    async def _connect(self, to: Target, addresses: Sequence[str], until_s: float) -> socket.socket:
        """Return a socket to the first address that accepts. Raises OSError; AddressRefused if one was refused."""
        loop = asyncio.get_running_loop()
        refused: str | None = None
        failed: OSError = Unresolved("has no address")
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            if (reason := self._refusal(to, address)) is not None:
                refused = refused or reason
                continue
            now_s = loop.time()
            try:
                async with asyncio.timeout_at(min(until_s, now_s + max(ADDRESS_S, (until_s - now_s) / left))):
                    return await _connect_socket(address, to.port)
            except OSError as error:  # a timeout is one too
                failed = error
        if refused is not None:
            raise address_refused(to.shown, refused)
        raise failed

    def _refusal(self, to: Target, address: str) -> str | None:
        """Why an address of a host may not be dialled; None if it may."""
        return None if self._exempts(to.host) else self._policy(address)

    async def _open_connection(self, dialled: socket.socket, to: Target) -> HttpConnection:
        """Open a Connection over a socket. For https it goes through TLS, verified for the host that the URL names."""
        try:
            over: dict[str, Any] = {}
            if to.scheme == "https":
                if self._tls_context is None:
                    self._tls_context = await asyncio.to_thread(make_tls_context, self._tls)
                over = {
                    "ssl": self._tls_context,
                    "server_hostname": to.host.removesuffix("."),  # RFC 6066 §3
                    "ssl_handshake_timeout": self._connect_timeout_s,
                    "ssl_shutdown_timeout": 1.0,
                }
            loop, destination = asyncio.get_running_loop(), (to.scheme, to.host, to.port)
            _, connection = await loop.create_connection(
                lambda: HttpConnection(destination, self), sock=dialled, **over
            )
        except BaseException:
            dialled.close()
            raise
        if not connection.lost.done():
            self._open.add(connection)
        return connection

    def forget(self, connection: HttpConnection) -> None:
        """See `net.connection.ConnectionKeeper`."""
        self._idle.forget(connection)
        self._open.discard(connection)


async def find_addresses(host: str, resolver: Resolves | None) -> Sequence[str]:
    """Return the addresses of a host, or the address that it is. Without a resolver the C library is asked, on a
    thread. Raises Unresolved.
    """
    if parse_address(host) is not None:
        return (host,)
    if resolver is not None:
        return await resolver.addresses(host)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        raise Unresolved("does not exist, or has no address: check its name") from error
    return [f"{place[0]}%{place[3]}" if len(place) == 4 and place[3] else str(place[0]) for *_, place in found]


def address_refused(shown: str, reason: str) -> EgressError:
    """Return the error for a host all of whose other addresses failed, and one of which the policy refused."""
    return AddressRefused(shown, f"its host stands for {reason}, which may not be called from here")


def connect_timeout(shown: str) -> EgressError:
    """Return the error for a connection that was not made in time."""
    return Unreachable(shown, "no connection in time: is it listening, and does a firewall let it be reached?")


def missing_answer(connection: HttpConnection, shown: str, timeout_s: float) -> EgressError:
    """Return the error that says why there is no answer, or no more of it."""
    if not connection.wrote:
        return Unreachable(shown, "the connection ended before anything of the request was written")
    if connection.end is ConnectionEnd.LATE:
        return TimedOut(shown, timeout_s)
    if connection.end is ConnectionEnd.UNCERTIFIED:
        return CertificateWanted(shown)
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
