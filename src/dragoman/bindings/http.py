"""What ASGI gives and takes, a request on its way through the bindings, and how an answer leaves.

Invariant: an answer leaves as one start message and body messages of at most `SLICE_BYTES`, so that flow control holds.
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
"""Twice uvicorn's high-water mark: a send waits once a slice is in the transport's buffer, and slices stay few."""

LINGER_BYTES = 8 * 1024 * 1024
LINGER_S = 2.0
"""How much, and for how long, is read and thrown away after a refusal, so that the caller can read the answer first."""

QUERY_FIELDS = 100
"""More fields than this in a query are refused; ListTasks has nine."""


class Gone(Exception):
    """The client left before it was answered: there is nobody to answer."""


class Answer(Struct, frozen=True):
    """A plain answer. With `lingers` the rest of the request's body is read and thrown away while the answer leaves.

    `refused` is called if there is no room for the answer to wait for its reader.
    """

    status: int
    headers: list[Header]
    body: bytes
    lingers: bool = False
    refused: Callable[[], None] | None = None


class Pieces(Struct, frozen=True):
    """An answer whose body is read as it is sent; its headers say how long it is."""

    status: int
    headers: list[Header]
    body: AsyncGenerator[bytes, None]


class Streaming(Struct, frozen=True):
    """An answer that goes on: the stream, how its items are spelled, and what the caller already has.

    `seen` is (seq, frame): of the event `seq` the frames up to that number were seen.
    """

    stream: Stream
    dialect: Dialect
    prefix: bytes
    suffix: bytes
    headers: list[Header]
    seen: tuple[int, int] = (0, 0)


class Request:
    """A request on its way. `dialect` and `id` (the JSON-RPC id as it came) are filled in as they become known.

    They say in whose words an error is told. `principal` is who sent it, once that was asked; `size` is that of its
    body in bytes, once it was read; `held` is how much of its answer is counted as unread. `done`: what it asks for was
    done, and only the answer is refused.
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
        """Have room for an answer of that size, until it is made. Raises TooManyRequests or Unavailable."""
        if self.unread is not None:
            self.unread.take(self.principal.id, size)
            self.reserved += size

    def release(self) -> None:
        """Give up what was reserved."""
        if self.reserved and self.unread is not None:
            self.unread.release(self.principal.id, self.reserved)
            self.reserved = 0

    @property
    def peer(self) -> str:
        """The address that it came from, without port."""
        client = self.scope.get("client")
        return client[0] if client else ""

    def text(self, name: bytes) -> str | None:
        """A header's value; of one sent twice the last."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def values(self, name: bytes) -> tuple[str, ...]:
        """The items of a comma list, from all headers of that name (RFC 9110 §5.3)."""
        if name not in self.headers:
            return ()
        joined = b",".join(value for key, value in self.scope["headers"] if key == name)
        return tuple(dict.fromkeys(item for part in joined.decode("latin-1").split(",") if (item := part.strip())))

    def query(self) -> dict[str, str]:
        """The fields of the query; of one given twice the last. Raises InvalidParams if there are too many."""
        raw = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=QUERY_FIELDS)
        except ValueError as error:
            raise InvalidParams("query", f"has more than {QUERY_FIELDS} fields: send fewer") from error
        return dict(pairs)


def plain(status: int, body: bytes, *headers: Header) -> Answer:
    """An answer of JSON with its length."""
    return Answer(status, [JSON, (b"content-length", b"%d" % len(body)), *headers], body)


def refusal(error: A2AError, status: int, content_type: bytes, body: bytes) -> Answer:
    """The answer for an error: its body as spelled by a dialect, and the headers that HTTP asks for with it."""
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
            headers.append(CLOSE)  # the rest of the request may still come, and belongs to no other
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
        body = b""  # which is sent once all before it has gone
    await send({"type": "http.response.body", "body": body})


async def respond_in_pieces(answer: Pieces, receive: Receive, send: Send) -> None:
    """Send an answer piece by piece, as fast as its reader takes it; one who left ends it."""
    gone = asyncio.ensure_future(_left(receive))
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


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _linger(receive: Receive) -> None:
    """Closing with unread bytes would reset the connection, and the caller might never see why (RFC 9112 §9.6)."""
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
