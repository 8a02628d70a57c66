"""Poster: how webhook calls leave. A small HTTP/1.1 client for one thing: a POST of which the status counts.

It exists because a call costs the server 16 to 18 µs of processor time so, and 56 to 59 through aiohttp: of a thousand
a second, the difference would be missing to those who send messages (docs/performance.md).
Whatever else asks something of another host goes through Egress.

Invariant: no address is dialled that the policy was not asked about just then (invariant 13); no redirect is followed,
no cookie kept, no proxy used; of no answer more is read than is bounded.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.net.address import Resolves, parsed
from dragoman.net.connection import Connection, End, Pool
from dragoman.net.egress import CONNECT_TIMEOUT_S, Policy, Reply
from dragoman.net.errors import AddressRefused, BadUrl, Broken, EgressError, TimedOut, Unreachable, Unresolved
from dragoman.net.exchange import Answer, requested
from dragoman.net.target import Target

IDLE_S = 15.0
"""So long a connection is kept that nobody uses; most receivers keep theirs for longer."""

IDLE_PER_HOST_MAX = 64
"""As many as there are calls to one host at once."""

IDLE_MAX = 256

ADDRESS_S = 1.0
"""The least time for one address while there are others to try: one that is silent is not to take the time of all."""

ANSWER_BYTES_MAX = 16 * 1024
"""Of a body, so much is kept."""


class Poster:
    """Connections under one policy; posters of different policies share none.

    `resolver` finds the addresses of hosts, for each connection anew, and is not closed with it. A connection that is
    kept was checked when it was made. How many calls are under way at once is for the caller to bound; each has a
    connection of its own.

    Belongs to the event loop of its first call, and is to be closed there.
    """

    def __init__(
        self,
        policy: Policy,
        resolver: Resolves,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_answer_bytes: int = ANSWER_BYTES_MAX,
        idle_per_host_max: int = IDLE_PER_HOST_MAX,
        idle_max: int = IDLE_MAX,
        idle_s: float = IDLE_S,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._connect_timeout_s = connect_timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._idle = Pool(per_place_max=idle_per_host_max, in_all_max=idle_max, idle_s=idle_s)
        self._open: set[Connection] = set()
        self._tls: ssl.SSLContext | None = None

    async def post(self, to: Target, *, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Reply:
        """Tell a host something; the answer is there once its head is, and its body is read or given up.

        Of the body there is as much as came, at most `max_answer_bytes`, as it came: an answer that is too large,
        breaks off, or is compressed is an answer. `timeout_s` is for all of it.

        A connection that was kept may have been ended by the other side just now: a call that ends with it, before a
        byte of an answer has come, is made once more, on a new connection. So what is posted must be such that it may
        come twice, as a webhook call may, whose `webhook-id` is the same.

        Raises EgressError, whose `sent` says whether the other side may have taken the call; never TooLarge.
        """
        request = requested(to, headers, body)
        until_s = asyncio.get_running_loop().time() + timeout_s
        kept = self._idle.take((to.scheme, to.host, to.port))
        answer = Answer(self._max_answer_bytes)
        connection = kept or await self._dial(to, until_s)
        await self._ask(connection, request, answer, until_s)
        if kept is not None and kept.end is End.LOST and not answer.begun:
            try:
                connection = await self._dial(to, until_s)
            except EgressError as error:
                raise Broken(to.shown, "the connection that was kept broke, and there is no other") from error
            await self._ask(connection, request, answer, until_s)
        if answer.status:
            return Reply(answer.status, answer.headers, answer.body)
        if connection.end is End.LATE:
            raise TimedOut(to.shown, timeout_s)
        raise Broken(to.shown, "the connection broke before the answer was complete, or what came is not HTTP")

    async def close(self) -> None:
        """End every connection, and the calls that use them. A later call opens new ones."""
        self._idle.close()
        ending = [connection.lost for connection in self._open]
        for connection in self._open:
            connection.close()
        if ending:
            await asyncio.wait(ending)

    async def _ask(self, connection: Connection, request: bytes, answer: Answer, until_s: float) -> None:
        try:
            await connection.ask(request, answer, until_s)
        finally:
            if connection.end is None:
                self._idle.keep(connection)

    async def _dial(self, to: Target, until_s: float) -> Connection:
        try:
            async with asyncio.timeout_at(until_s):
                literal = parsed(to.host) is not None
                addresses = (to.host,) if literal else await self._resolver.addresses(to.host)
                async with asyncio.timeout(self._connect_timeout_s) as connecting:
                    end_s = connecting.when()
                    assert end_s is not None
                    dialled = await self._connected(to, addresses, min(end_s, until_s))
                    return await self._joined(dialled, to)
        except TimeoutError as error:
            raise Unreachable(
                to.shown, "no connection in time: is it listening, and does a firewall let it be reached?"
            ) from error
        except Unresolved as error:
            raise Unreachable(to.shown, f"its host {error}") from error
        except ssl.SSLError as error:
            raise Unreachable(to.shown, "no TLS connection: check its certificate") from error
        except UnicodeError as error:  # of a name that TLS cannot ask for
            raise BadUrl(to.shown, "its host is not a name that can be called") from error
        except OSError as error:
            raise Unreachable(to.shown, "no connection: is it listening there?") from error

    async def _connected(self, to: Target, addresses: Sequence[str], until_s: float) -> socket.socket:
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
                    return await _dialled(address, to.port)
            except OSError as error:  # a timeout is one too
                failed = error
        if refused is not None:
            raise AddressRefused(to.shown, f"its host stands for {refused}, which may not be called from here")
        raise failed

    async def _joined(self, dialled: socket.socket, to: Target) -> Connection:
        """What speaks over a socket: where the URL says so through TLS, to the host that the URL names."""
        try:
            over: dict[str, Any] = {}
            if to.scheme == "https":
                if self._tls is None:
                    self._tls = await asyncio.to_thread(_trusting)
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


async def _dialled(address: str, port: int) -> socket.socket:
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


def _trusting() -> ssl.SSLContext:
    """What this machine trusts; read from files, which takes a while."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
