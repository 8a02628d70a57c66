"""Egress: sends all HTTP requests except webhook calls, which go through Poster.

Invariant: no redirect is followed, no cookie is kept, and no proxy or password comes from the environment. No answer is
larger than the limit, and no address is dialled unless the policy allowed it (invariant 13).
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from dragoman.net.address import Resolves
from dragoman.net.connection import Connection, Place, Pool
from dragoman.net.dialer import CONNECT_TIMEOUT_S, IDLE_S, Dialer, Policy, late, silence
from dragoman.net.errors import BadUrl, TooLarge
from dragoman.net.exchange import Answer, Want, requested
from dragoman.net.flow import Flow, compressed
from dragoman.net.room import Room
from dragoman.net.target import Target, named

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""The same limit as for a request to this server."""

CONNECTIONS_MAX = 100
"""Most connections of one Egress at once; further requests wait for one."""

IDLE_MAX = 1000
"""Most kept connections if the number of connections is unlimited."""

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""The idempotent methods of RFC 9110 §9.2.2."""

_READ_MAX = 64
"""How many parsed URLs are remembered; an Egress calls few hosts, but with many different task URLs."""


def operator_named(address: str) -> str | None:
    """The policy for hosts that the operator named: every address may be dialled."""
    return None


class Reply(Struct, frozen=True):
    """An answer of any status. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300


class _Call(Struct, frozen=True):
    """A parsed URL. `headers` hold the credentials that the URL contains."""

    to: Target
    place: Place
    shown: str
    headers: Mapping[str, str]


class Egress:
    """One pool of connections, under one policy; pools of different policies share no connection.

    `resolver` finds the addresses of hosts, and is not closed with the pool; without one the C library is used, on
    threads. A DNS answer is used for one connection. A kept connection was checked when it was made.

    Belongs to the event loop of its first request; close it there.
    """

    def __init__(
        self,
        policy: Policy = operator_named,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_host_max: int = 0,
        resolver: Resolves | None = None,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._room = Room(in_all_max=connections_max, per_place_max=connections_per_host_max)
        idle_max = connections_max or IDLE_MAX
        idle = Pool(per_place_max=idle_max, in_all_max=idle_max, idle_s=IDLE_S)
        self._dialer = Dialer(policy, resolver, connect_timeout_s=connect_timeout_s, idle=idle)
        self._read: dict[str, _Call] = {}

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """Send a request, and return the whole answer, whatever its status. `timeout_s` covers everything, including
        the wait for a connection.

        A request of an idempotent method (RFC 9110 §9.2.2), and of no other, is sent once more if it went out on a kept
        connection that ended before the answer began.

        Raises EgressError, whose `sent` says whether the other side may have carried the request out.
        """
        call, answer = self._parse_url(url), Answer(self._max_answer_bytes, Want.ALL, method=method)
        connection = await self._send(call, method, headers, body, answer, timeout_s)
        self._release(connection)
        if answer.coded:
            raise compressed(call.shown)
        if answer.large:
            raise TooLarge(call.shown, self._max_answer_bytes)
        if not answer.whole:
            raise silence(connection, call.shown, timeout_s)
        return Reply(answer.status, answer.headers, answer.body)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[Flow]:
        """Send a request, and yield the answer, whatever its status, once its head has come; its body is read as it
        comes.

        `head_timeout_s` covers everything up to then, `idle_timeout_s` each wait for more of the body; the total time
        has no limit. A request is repeated as in `request`. If the block ends before the answer does, the connection is
        closed.

        Raises EgressError as `request` does; so does reading.
        """
        call, answer = self._parse_url(url), Answer(want=Want.PIECES, method=method)
        connection = await self._send(call, method, headers, body, answer, head_timeout_s)
        try:
            if not answer.status:
                raise silence(connection, call.shown, head_timeout_s)
            flow = Flow(connection, answer, shown=call.shown, idle_s=idle_timeout_s, max_bytes=self._max_answer_bytes)
            try:
                yield flow
            finally:
                flow.close()
        finally:
            self._release(connection)

    async def reach(self, url: str | Target, *, timeout_s: float) -> None:
        """Open a connection as for a request, under the same policy, without sending one. Raises EgressError."""
        await self._dialer.reach(self._parse_url(url).to, asyncio.get_running_loop().time() + timeout_s)

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        await self._dialer.close()

    async def _send(
        self,
        call: _Call,
        method: str,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        answer: Answer,
        timeout_s: float,
    ) -> Connection:
        """Send a request and wait for its answer, or its head; return the connection, which the caller must release."""
        said = {**call.headers, **(headers or {})} if call.headers else headers or {}
        request = requested(call.to, said, body, method)
        until_s = asyncio.get_running_loop().time() + timeout_s
        try:
            await self._room.enter(call.place, until_s)
        except TimeoutError as error:
            raise late(call.shown) from error
        try:
            return await self._dialer.ask(
                call.to, request, answer, until_s, again=method in _IDEMPOTENT, others_max=self._room.free
            )
        except BaseException:
            self._room.leave(call.place)
            raise

    def _release(self, connection: Connection) -> None:
        self._dialer.release(connection)
        self._room.leave(connection.place)

    def _parse_url(self, url: str | Target) -> _Call:
        """Parse a URL and remember it. Raises BadUrl."""
        if isinstance(url, Target):
            return _Call(url, (url.scheme, url.host, url.port), url.shown, {})
        if (call := self._read.get(url)) is None:
            if len(self._read) >= _READ_MAX:
                self._read.clear()
            shown = checked(url)
            to, user = named(url, shown)
            headers = {"Authorization": f"Basic {b64encode(user.encode()).decode()}"} if user else {}
            call = self._read[url] = _Call(to, (to.scheme, to.host, to.port), shown, headers)
        return call


def checked(url: str) -> str:
    """Return the URL as it may be shown, without credentials and query. Raises BadUrl if it is not http or https."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadUrl(repr(url[:200]), "is not a URL: use http://host:port/path or https://…") from None
    if parts.scheme not in ("http", "https") or not host:
        raise BadUrl(repr(url[:200]), "is not a URL that can be called: use http://host:port/path or https://…")
    place = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, place if port is None else f"{place}:{port}", parts.path, "", ""))
