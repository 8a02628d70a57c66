"""ASGI types, the request as the bindings pass it on, and the sending of answers.

Invariant: an answer is sent as one start message and body messages of at most `SLICE_BYTES`, so that flow control
works.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from dragoman.bindings.routes import Route
from dragoman.bindings.unread import SMALL_BYTES, Unread
from dragoman.dialects.api import Dialect
from dragoman.engine.handler import Stream
from dragoman.model.errors import (
    A2AError,
    InvalidParams,
    MethodNotAllowed,
    PayloadTooLarge,
    RequestTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dragoman.model.principal import ANONYMOUS

Scope = Mapping[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

NOWHERE = Route("rest", {})
JSON: Header = (b"content-type", b"application/json")
CLOSE: Header = (b"connection", b"close")
NOT_SNIFFED: Header = (b"x-content-type-options", b"nosniff")

SLICE_BYTES = 128 * 1024
"""Twice uvicorn's high-water mark: after a slice `send` waits until the buffer drains, and slices stay few."""

LINGER_BYTES = 8 * 1024 * 1024
LINGER_S = 2.0
"""How much is read and discarded after a refusal, and for how long, so that the caller can read the answer first."""

QUERY_FIELDS = 100
"""Most fields that a query may have; ListTasks has nine."""


class Gone(Exception):
    """The client left before it was answered."""


class Answer(Struct, frozen=True):
    """A plain answer. With `lingers` the rest of the request's body is read and discarded while the answer is sent.

    `refused` is called if the answer cannot be sent because `Unread` has no room for it.
    """

    status: int
    headers: list[Header]
    body: bytes
    lingers: bool = False
    refused: Callable[[], None] | None = None


class Pieces(Struct, frozen=True):
    """An answer whose body is read while it is sent. Its headers include the Content-Length."""

    status: int
    headers: list[Header]
    body: AsyncGenerator[bytes, None]


class Streaming(Struct, frozen=True):
    """An answer that is a stream: the stream, how its items are encoded, and what the caller has already seen.

    `seen` is (seq, frame): the caller has seen the frames of the event `seq` up to that number.
    """

    stream: Stream
    dialect: Dialect
    prefix: bytes
    suffix: bytes
    headers: list[Header]
    seen: tuple[int, int] = (0, 0)


class Request:
    """A request. `dialect` and `id` (the JSON-RPC id as received) are set once they are known; errors are encoded with
    them.

    `principal` is set by authentication. `size` is the body's size in bytes, once it was read. `held` is how many bytes
    of the answer are counted as unread. `done`: the operation was carried out, and only its answer is refused.
    """

    __slots__ = (
        "dialect",
        "done",
        "headers",
        "held",
        "id",
        "loop",
        "method",
        "principal",
        "receive",
        "reserved",
        "route",
        "scope",
        "size",
        "unread",
    )

    def __init__(
        self, scope: Scope, receive: Receive, loop: asyncio.AbstractEventLoop, unread: Unread | None = None
    ) -> None:
        self.loop = loop
        self.scope = scope
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.receive = receive
        self.route = NOWHERE
        self.dialect: Dialect | None = None
        self.id = b"null"
        self.principal = ANONYMOUS
        self.size = 0
        self.held = 0
        self.reserved = 0
        self.unread = unread
        self.done = False

    def reserve(self, size: int) -> None:
        """Reserve room for an answer of `size` bytes until it is made. Raises TooManyRequests or Unavailable."""
        if self.unread is not None:
            self.unread.take(self.principal.id, size)
            self.reserved += size

    def release(self) -> None:
        """Release what `reserve` took."""
        if self.reserved and self.unread is not None:
            self.unread.release(self.principal.id, self.reserved)
            self.reserved = 0

    @property
    def peer(self) -> str:
        """The client's address, without port; empty if it is unknown."""
        client = self.scope.get("client")
        return client[0] if client else ""

    def text(self, name: bytes) -> str | None:
        """A header's value; the last one, if the header was sent twice."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def values(self, name: bytes) -> tuple[str, ...]:
        """The distinct items of a comma-separated list, from all headers of that name (RFC 9110 §5.3)."""
        if name not in self.headers:
            return ()
        joined = b",".join(value for key, value in self.scope["headers"] if key == name)
        return tuple(dict.fromkeys(item for part in joined.decode("latin-1").split(",") if (item := part.strip())))

    def query(self) -> dict[str, str]:
        """The fields of the query; the last value, if a field is repeated. Raises InvalidParams for too many fields."""
        raw = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS)
        except ValueError as error:
            raise InvalidParams("query", f"has more than {QUERY_FIELDS} fields: send fewer") from error
        return dict(pairs)


def plain(status: int, body: bytes, *headers: Header) -> Answer:
    """Make an answer of JSON with its Content-Length."""
    return Answer(status, [JSON, (b"content-length", b"%d" % len(body)), *headers], body)


def refusal(error: A2AError, status: int, content_type: bytes, body: bytes) -> Answer:
    """Make the answer for an error: `body` is encoded by a dialect; HTTP's headers for the error are added here."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), NOT_SNIFFED]
    match error:
        case MethodNotAllowed():
            headers.append((b"allow", ", ".join(error.allowed).encode()))
        case Unauthorized():
            wrong = b"" if error.missing else b', error="invalid_token"'  # RFC 6750 §3.1
            headers.append((b"www-authenticate", error.scheme.encode() + b' realm="dragoman"' + wrong))
        case Unavailable() | TooManyRequests():
            headers.append((b"retry-after", b"%d" % error.retry_after_s))
        case RequestTimeout():
            headers.append(CLOSE)  # the rest of this request may still arrive and must not be read as the next one
        case PayloadTooLarge():
            headers.append(CLOSE)
            return Answer(status, headers, body, lingers=True)
        case _:
            pass
    return Answer(status, headers, body)


async def respond(answer: Answer, receive: Receive, send: Send) -> None:
    """Send a plain answer."""
    body = answer.body
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    if answer.lingers:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await _linger(receive)
        body = b""
    elif len(body) > SMALL_BYTES:
        for start in range(0, len(body), SLICE_BYTES):
            await send({"type": "http.response.body", "body": body[start : start + SLICE_BYTES], "more_body": True})
        body = b""  # an empty last message ends the answer
    await send({"type": "http.response.body", "body": body})


async def respond_in_pieces(answer: Pieces, receive: Receive, send: Send) -> None:
    """Send an answer piece by piece, as fast as its reader takes it. It stops when the reader leaves."""
    gone = asyncio.ensure_future(_wait_until_gone(receive))
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        async with aclosing(answer.body) as pieces:
            async for piece in pieces:
                if gone.done():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _linger(receive: Receive) -> None:
    """Read and discard the rest of the body, up to `LINGER_BYTES` and `LINGER_S`.

    Closing with unread bytes would reset the connection, and the caller might never see the answer (RFC 9112 §9.6).
    """
    left = LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                left -= len(message.get("body", b""))
    except TimeoutError:
        return
