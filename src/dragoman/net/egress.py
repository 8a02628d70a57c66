"""The doors to other hosts: Egress sends requests and streams their answers; Poster makes webhook calls, where only the
status counts.

Invariant: no redirect is followed, no cookie is kept, and no proxy or password comes from the environment. No answer is
larger than the limit, and no address is dialled unless the policy allowed it (invariant 13). Pieces of a stream come in
order, unchanged, and it ends without an error only if the peer ended it. No more of it is held than the connection's
limit: a slow reader slows down the sender.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from dragoman.net.address import Resolves
from dragoman.net.connection import Begin, Destination, HttpConnection
from dragoman.net.dialer import (
    CONNECT_TIMEOUT_S,
    IDLE_S,
    Dialer,
    Exempts,
    IdleConnections,
    Policy,
    RequestLimit,
    connect_timeout,
    exempts_nobody,
    missing_answer,
    operator_named,
)
from dragoman.net.errors import BadUrl, Compressed, TooLarge
from dragoman.net.exchange import HttpAnswer, Want, encode_request, is_compressed
from dragoman.net.target import Target, parse_operator_url
from dragoman.net.tls import MACHINE_TLS, ClientTls, TlsSession

if TYPE_CHECKING:
    from dragoman.net.grpc import GrpcEgress

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

WEBHOOKS_IDLE_PER_HOST_MAX = 64
"""As many as the calls to one host at once."""

WEBHOOKS_IDLE_MAX = 256
"""Most kept connections of a Poster."""

WEBHOOK_ANSWER_BYTES_MAX = 16 * 1024
"""Most bytes of a body that are kept."""


class Flow:
    """An answer whose head has arrived and whose body is on its way. Header names are in lower case.

    Read it once, by `pieces`, by `body`, or by `take` and `more`, and release it.
    """

    __slots__ = (
        "_answer", "_coded", "_connection", "_idle_s", "_max_bytes", "_release", "_shown", "headers", "status",
    )  # fmt: skip

    def __init__(
        self,
        connection: HttpConnection,
        answer: HttpAnswer,
        release: Callable[[HttpConnection], None],
        *,
        shown: str,
        idle_s: float,
        max_bytes: int,
    ) -> None:
        self.status: int = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._coded = is_compressed(answer.headers)
        self._connection = connection
        self._answer = answer
        self._shown = shown
        self._idle_s = idle_s
        self._max_bytes = max_bytes
        self._release = release

    @property
    def ok(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300

    @property
    def over(self) -> bool:
        """Whether the whole answer has come, and all of it was read."""
        return self._answer.whole and not self._answer.held

    @property
    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body in pieces of any size, none empty, until the peer ends it.

        Raises TimedOut if nothing comes for `idle_s`, Broken if the connection ends before the answer does.
        """
        return self._pieces()

    async def body(self) -> bytes:
        """Read the rest of the body. Raises TooLarge, or as `pieces`."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self._pieces():
            size += len(piece)
            if size > self._max_bytes:
                raise TooLarge(self._shown, self._max_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def gathering(self, begin: Begin) -> "asyncio.Future[None] | None":
        """Return a future to await before `gathered`: it covers the next piece and `begin`'s window. None: do not wait.

        When the piece has begun, `begin` is called with a future that it resolves to end the window. The window ends at
        once when the answer does. This is for readers that use neither `pieces` nor `body`, and that await each future
        to its end.
        """
        return self._connection.gathering(begin, self._idle_s)

    def gathered(self) -> bytes:
        """Return everything that has come since; empty at the end of the body. Raises as `pieces`."""
        self._connection.gathered()
        if self._coded:
            raise Compressed(self._shown)
        answer = self._answer
        if answer.held:
            return answer.take()
        if answer.whole:
            return b""
        raise missing_answer(self._connection, self._shown, self._idle_s)

    def take(self) -> bytes | None:
        """Return what has come of the body since; empty at its end, None if `more` has to be awaited. Raises as
        `pieces`."""
        answer = self._answer
        if answer.held and not self._coded:
            return answer.take()
        if self._coded:
            raise Compressed(self._shown)
        if answer.whole:
            return b""
        if answer.over or self._connection.end is not None:
            raise missing_answer(self._connection, self._shown, self._idle_s)
        return None

    def more(self) -> Coroutine[Any, Any, None]:
        """Wait until `take` has something, or raises. A wait that is canceled changes nothing."""
        return self._connection.more(self._idle_s)

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        while (piece := self.take()) != b"":
            if piece is None:
                await self.more()
            else:
                yield piece

    def release(self) -> None:
        """Give the connection back, which is closed if the answer has not come whole. Call it once."""
        self._release(self._connection)


class _Call(Struct, frozen=True):
    """A parsed URL. `headers` hold the credentials that the URL contains."""

    to: Target
    destination: Destination
    shown: str
    headers: Mapping[str, str]


class ClaimedConnection:
    """A kept connection on which one request can be sent at once, without any wait before it.

    Call `send` once, then `open` or `release`. Afterwards `answer` is what has come so far, as for `Egress.open`.
    """

    __slots__ = ("_call", "_connection", "_idle_s", "_max_bytes", "_release", "_timeout_s", "_waiting", "answer")

    def __init__(
        self, call: _Call, connection: HttpConnection, release: Callable[[HttpConnection], None], max_bytes: int
    ) -> None:
        self.answer = HttpAnswer(want=Want.PIECES)
        self._call = call
        self._connection = connection
        self._release = release
        self._max_bytes = max_bytes
        self._timeout_s = self._idle_s = 0.0
        self._waiting: asyncio.Future[None] | None = None

    def send(
        self, headers: Mapping[str, str], body: bytes, *, head_timeout_s: float, idle_timeout_s: float
    ) -> "asyncio.Future[None] | None":
        """POST `body`, and return a future that is done when the head of the answer has come, or the connection has
        ended; None if it had ended before anything was sent. The timeouts are those of `Egress.open`.

        A wait that is canceled changes nothing: `open` goes on with it.
        """
        call, connection = self._call, self._connection
        said = {**call.headers, **headers} if call.headers else headers
        request = encode_request(call.to, said, body)
        self._timeout_s, self._idle_s = head_timeout_s, idle_timeout_s
        self._waiting = connection.begin(request, self.answer, connection.loop.time() + head_timeout_s)
        return self._waiting

    async def open(self) -> Flow:
        """Wait for the head of the answer, and return it as `Egress.open` does. The caller releases it, and not this.

        Raises EgressError; then nothing is left to release.
        """
        connection, waiting = self._connection, self._waiting
        if waiting is not None and waiting.cancelled():
            waiting = connection.wait_again()
        try:
            if waiting is not None and not waiting.done():
                await waiting
        except BaseException:
            self.release()
            raise
        connection.note_answered()
        if not self.answer.status:
            self.release()
            raise missing_answer(connection, self._call.shown, self._timeout_s)
        return Flow(
            connection,
            self.answer,
            self._release,
            shown=self._call.shown,
            idle_s=self._idle_s,
            max_bytes=self._max_bytes,
        )

    @property
    def whole(self) -> HttpAnswer | None:
        """The answer, if all of it has come and is not compressed, else None. Nothing is taken of it."""
        answer = self.answer
        return answer if answer.whole and not is_compressed(answer.headers) else None

    def release(self) -> None:
        """Give the connection back, which is closed if the answer has not come whole."""
        self._connection.note_answered()
        self._release(self._connection)


class HttpReply(Struct, frozen=True):
    """An answer of any status. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300


class Egress:
    """One pool of connections, under one policy, but for hosts that it `exempts`. Pools of different policies share no
    connection.

    `resolver` finds the addresses of hosts, and is not closed with the pool; without one the C library is used, on
    threads. `tls` says which certificates are trusted and shown. A DNS answer is used
    for one connection. A kept connection was checked when it was made.

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
        tls: ClientTls = MACHINE_TLS,
        exempts: Exempts = exempts_nobody,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._room = RequestLimit(in_all_max=connections_max, per_destination_max=connections_per_host_max)
        idle_max = connections_max or IDLE_MAX
        idle = IdleConnections(per_destination_max=idle_max, in_all_max=idle_max, idle_s=IDLE_S)
        self._dialer = Dialer(
            policy, resolver, connect_timeout_s=connect_timeout_s, idle=idle, tls=tls, exempts=exempts
        )
        self._read: dict[str | Target, _Call] = {}
        self._policy, self._resolver, self._tls, self._exempts = policy, resolver, tls, exempts
        self._connect_timeout_s = connect_timeout_s
        self._grpc: GrpcEgress | None = None

    @property
    def grpc(self) -> "GrpcEgress":
        """The door for gRPC, under the same policy. It is made when it is first used, and closed with this one."""
        if self._grpc is None:
            from dragoman.net.grpc import GrpcEgress

            self._grpc = GrpcEgress(
                self._policy,
                self._resolver,
                connect_timeout_s=self._connect_timeout_s,
                max_answer_bytes=self._max_answer_bytes,
                tls=self._tls,
                exempts=self._exempts,
            )
        return self._grpc

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpReply:
        """Send a request, and return the whole answer, whatever its status. `timeout_s` covers everything, including
        the wait for a connection.

        A request of an idempotent method (RFC 9110 §9.2.2), and of no other, is sent once more if it went out on a kept
        connection that ended before the answer began.

        Raises EgressError, whose `sent` says whether the other side may have carried the request out.
        """
        call, answer = self._parse_url(url), HttpAnswer(self._max_answer_bytes, Want.ALL, method=method)
        connection = await self._send(call, method, headers, body, answer, timeout_s)
        self._release(connection)
        if answer.is_compressed:
            raise Compressed(call.shown)
        if answer.large:
            raise TooLarge(call.shown, self._max_answer_bytes)
        if not answer.whole:
            raise missing_answer(connection, call.shown, timeout_s)
        return HttpReply(answer.status, answer.headers, answer.body)

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
        """Open an answer as `open` does, for a block. If that ends before the answer does, the connection is closed."""
        flow = await self.open(
            method, url, head_timeout_s=head_timeout_s, idle_timeout_s=idle_timeout_s, headers=headers, body=body
        )
        try:
            yield flow
        finally:
            flow.release()

    async def open(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Flow:
        """Send a request, and return the answer, whatever its status, once its head has come; its body is read as it
        comes. The caller releases it.

        `head_timeout_s` covers everything up to then, `idle_timeout_s` each wait for more of the body; the total time
        has no limit. A request is repeated as in `request`.

        Raises EgressError as `request` does; so does reading.
        """
        call, answer = self._parse_url(url), HttpAnswer(want=Want.PIECES, method=method)
        connection = await self._send(call, method, headers, body, answer, head_timeout_s)
        if not answer.status:
            self._release(connection)
            raise missing_answer(connection, call.shown, head_timeout_s)
        return Flow(
            connection,
            answer,
            self._release,
            shown=call.shown,
            idle_s=idle_timeout_s,
            max_bytes=self._max_answer_bytes,
        )

    def claim(self, url: str | Target) -> ClaimedConnection | None:
        """Claim a kept connection for a request to `url`; None if there is none, or no room for a request."""
        call = self._parse_url(url)
        if not self._room.enter_at_once(call.destination):
            return None
        connection = self._dialer.claim(call.to)
        if connection is None:
            self._room.leave(call.destination)
            return None
        return ClaimedConnection(call, connection, self._release, self._max_answer_bytes)

    async def reach(self, url: str | Target, *, timeout_s: float) -> TlsSession | None:
        """Open a connection as for a request, under the same policy, without sending one.

        Returns what was agreed in TLS; None without TLS. Raises EgressError, whose cause is the `ssl.SSLError` if the
        handshake failed.
        """
        return await self._dialer.reach(self._parse_url(url).to, asyncio.get_running_loop().time() + timeout_s)

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        await self._dialer.close()
        if self._grpc is not None:
            await self._grpc.close()

    async def _send(
        self,
        call: _Call,
        method: str,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        answer: HttpAnswer,
        timeout_s: float,
    ) -> HttpConnection:
        """Send a request and wait for its answer, or its head; return the connection, which the caller must release."""
        said = {**call.headers, **(headers or {})} if call.headers else headers or {}
        request = encode_request(call.to, said, body, method)
        until_s = asyncio.get_running_loop().time() + timeout_s
        if not self._room.enter_at_once(call.destination):
            try:
                await self._room.enter(call.destination, until_s)
            except TimeoutError as error:
                raise connect_timeout(call.shown) from error
        try:
            return await self._dialer.ask(
                call.to, request, answer, until_s, again=method in _IDEMPOTENT, others_max=self._room.free
            )
        except BaseException:
            self._room.leave(call.destination)
            raise

    def _release(self, connection: HttpConnection) -> None:
        self._dialer.release(connection)
        self._room.leave(connection.destination)

    def _parse_url(self, url: str | Target) -> _Call:
        """Parse a URL and remember it. Raises BadUrl."""
        if (call := self._read.get(url)) is None:
            if len(self._read) >= _READ_MAX:
                self._read.clear()
            if isinstance(url, Target):
                call = self._read[url] = _Call(url, (url.scheme, url.host, url.port), url.shown, {})
                return call
            shown = checked(url)
            to, user = parse_operator_url(url, shown)
            headers = {"Authorization": f"Basic {b64encode(user.encode()).decode()}"} if user else {}
            call = self._read[url] = _Call(to, (to.scheme, to.host, to.port), shown, headers)
        return call


class EgressRules(Struct, frozen=True):
    """Rules for the addresses that an Egress may dial: see there. By default it may dial every address of every host.

    An agent makes an Egress of its own by them, whoever named its hosts.
    """

    policy: Policy = operator_named
    exempts: Exempts = exempts_nobody
    resolver: Resolves | None = None

    def make_egress(
        self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, connections_max: int = CONNECTIONS_MAX
    ) -> Egress:
        """Make an Egress under these rules."""
        return Egress(
            self.policy,
            connect_timeout_s=connect_timeout_s,
            connections_max=connections_max,
            resolver=self.resolver,
            exempts=self.exempts,
        )


OPERATORS_RULES = EgressRules()
"""The rules for hosts that the operator of the machine named."""


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


class Poster:
    """Connections under one policy; posters of different policies share none.

    `resolver` finds the addresses of hosts for each new connection, and is not closed with the poster. A kept
    connection was checked when it was made. The caller bounds the number of concurrent calls; each has its own
    connection.

    Belongs to the event loop of its first call; close it there.
    """

    def __init__(
        self,
        policy: Policy,
        resolver: Resolves,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_answer_bytes: int = WEBHOOK_ANSWER_BYTES_MAX,
        idle_per_host_max: int = WEBHOOKS_IDLE_PER_HOST_MAX,
        idle_max: int = WEBHOOKS_IDLE_MAX,
        idle_s: float = IDLE_S,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        idle = IdleConnections(per_destination_max=idle_per_host_max, in_all_max=idle_max, idle_s=idle_s)
        self._dialer = Dialer(policy, resolver, connect_timeout_s=connect_timeout_s, idle=idle)

    async def post(self, to: Target, *, body: bytes, headers: Mapping[str, str], timeout_s: float) -> HttpReply:
        """Send a call. Returns once the answer's head has come and its body has been read or given up.

        The reply's body is as much as came, at most `max_answer_bytes`, unchanged. An answer that is too large, is cut
        off or is compressed counts as an answer. `timeout_s` covers the whole call; after the head, the rest has a
        second (`REST_S`), however slowly it comes.

        The other side may just have ended a kept connection. A call that ends with such a connection, before any byte
        of an answer, is sent once more on a new one. So a call must be safe to repeat. A webhook call is: its
        `webhook-id` stays the same.

        Raises EgressError, whose `sent` says whether the other side may have taken the call; never TooLarge.
        """
        request = encode_request(to, headers, body)
        until_s = asyncio.get_running_loop().time() + timeout_s
        answer = HttpAnswer(self._max_answer_bytes)
        connection = await self._dialer.ask(to, request, answer, until_s, again=True)
        self._dialer.release(connection)
        if not answer.status:
            raise missing_answer(connection, to.shown, timeout_s)
        return HttpReply(answer.status, answer.headers, answer.body)

    async def close(self) -> None:
        """Close every connection, which ends the calls that use them. A later call opens new ones."""
        await self._dialer.close()
