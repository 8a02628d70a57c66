"""HTTP: the request and its body, and the sending of answers over ASGI.

Invariant: at most `max_body_bytes` and one piece of a body are held. An answer is sent as one start message and body
messages of at most `SLICE_BYTES`, so that flow control works.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from dragoman.bindings.limits import LARGE_BYTES, SLOWEST_BYTES_PER_S, SMALL_BYTES, Limits
from dragoman.bindings.request import Header, Request
from dragoman.bindings.streams import Batches, Parkable
from dragoman.bindings.traffic import StreamVisit
from dragoman.dialects import sse
from dragoman.dialects.api import STREAM_HEADERS, Dialect
from dragoman.model.errors import (
    A2AError,
    MethodNotAllowed,
    PayloadTooLarge,
    RequestTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
)

Scope = Mapping[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]

T = TypeVar("T")

JSON: Header = (b"content-type", b"application/json")
CLOSE: Header = (b"connection", b"close")
NOT_SNIFFED: Header = (b"x-content-type-options", b"nosniff")

PLAIN_JSON = frozenset({b"application/json", b"application/a2a+json", b"application/json; charset=utf-8"})

SLICE_BYTES = sse.PIECE_BYTES
"""Twice the high-water mark of a transport: after a slice `send` waits until the buffer drains, and slices stay few."""

LINGER_BYTES = 8 * 1024 * 1024
LINGER_S = 2.0
"""How much is read and discarded after a refusal, and for how long, so that the caller can read the answer first."""

STALLED = "the body stalled"


class Gone(Exception):
    """The client left before it was answered."""


class HttpRequest(Request, eq=False, kw_only=True):
    """A request over HTTP. Errors are encoded with `dialect` and `id` (the JSON-RPC id as received), once known.

    `body` is the whole body, if it is here already and has not been read. `held` is how many bytes of the answer are
    counted as unread. `done`: the operation was carried out, and only its answer is refused.
    """

    path: str
    receive: Receive
    body: bytes | None = None
    dialect: Dialect | None = None
    id: bytes = b"null"
    held: int = 0
    done: bool = False

    @property
    def shown_path(self) -> str:
        """See `Request.shown_path`."""
        return self.path

    async def wait_until_left(self) -> None:
        """Wait until the client leaves. The rest of the body is discarded."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


class HttpResponse(Struct, frozen=True):
    """A plain answer. With `lingers` what has not arrived of the request's body is discarded while the answer is sent.

    `refused` is called if the answer cannot be sent because `Unread` has no room for it.
    """

    status: int
    headers: list[Header]
    body: bytes
    lingers: bool = False
    refused: Callable[[], None] | None = None


class StreamingResponse(Struct, frozen=True):
    """An answer whose body is read while it is sent. Its headers include the Content-Length."""

    status: int
    headers: list[Header]
    body: AsyncGenerator[bytes, None]


class EventsResponse(Struct, frozen=True):
    """An answer of Server-Sent Events: `encode` turns each batch of the stream into bytes that are ready to be sent.

    `parkable` is the stream, if it can be parked. With `joined_comments` no empty line follows a comment that comes
    after an event with an id.
    """

    stream: Batches
    encode: Callable[[Sequence[Any]], Iterable[bytes]]
    headers: Sequence[Header] = STREAM_HEADERS
    parkable: Parkable | None = None
    joined_comments: bool = False


Answer = HttpResponse | StreamingResponse | EventsResponse


# -- the request's body ----------------------------------------------------------------------------------------------


async def read_json(request: HttpRequest, limits: Limits, *, empty_allowed: bool = False) -> bytes:
    """Read the body of a POST. With `empty_allowed` the body may be empty; then any type except a form's is accepted.

    Raises UnsupportedMediaType unless its Content-Type is JSON. So no web form can post: a page of another origin can
    send a JSON type only after a CORS preflight. Raises PayloadTooLarge if the body exceeds `max_body_bytes`,
    Unavailable if too many bodies are arriving, RequestTimeout if nothing arrives for `body_pause_s`, or if the body
    takes longer than that and arrives at less than `SLOWEST_BYTES_PER_S` on average, Gone if the client leaves.
    """
    content_type = request.headers.get(b"content-type", b"")
    json = content_type in PLAIN_JSON or is_json(content_type)
    if not json and (not empty_allowed or _is_form_type(content_type)):
        raise UnsupportedMediaType(content_type.decode("latin-1"))
    declared = request.headers.get(b"content-length")
    if declared is not None and int(declared) > limits.max_body_bytes:
        raise PayloadTooLarge(limits.max_body_bytes)
    body, request.body = request.body, None
    if body is not None:
        if len(body) > limits.max_body_bytes:
            raise PayloadTooLarge(limits.max_body_bytes)
    else:
        body = await _receive_body(request, limits)
    if body and not json:
        raise UnsupportedMediaType(content_type.decode("latin-1"))
    request.size = len(body)
    return body


async def _receive_body(request: HttpRequest, limits: Limits) -> bytes:
    """Receive a body while it arrives, as `read_json` says."""
    # The timer does by hand what `asyncio.timeout` does, because that costs a sixth of a short request.
    loop, pause_s = asyncio.get_running_loop(), limits.body_pause_s
    task = asyncio.current_task(loop)
    assert task is not None
    timer = loop.call_later(pause_s, task.cancel, STALLED)
    pieces: list[bytes] = []
    size = counted = 0
    began_s = 0.0
    try:
        while True:
            message = await request.receive()
            if message["type"] != "http.request":
                raise Gone
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > limits.max_body_bytes:
                raise PayloadTooLarge(limits.max_body_bytes)
            pieces.append(piece)
            if not message.get("more_body"):
                break
            if len(pieces) == 1:
                began_s = loop.time()
            limits.arriving.take(size - counted)
            counted = size
            wait_s = began_s + pause_s + size / SLOWEST_BYTES_PER_S - loop.time()
            timer.cancel()
            timer = loop.call_later(max(0.0, min(pause_s, wait_s)), task.cancel, STALLED)
        timer.cancel()
        if len(pieces) == 1:
            body = pieces[0]
        elif size < LARGE_BYTES:
            body = b"".join(pieces)
        else:
            body = await limits.offload.run(partial(_join, pieces))
    except asyncio.CancelledError as error:
        if error.args != (STALLED,) or task.uncancel() > 0:
            raise  # the cancellation came from elsewhere
        raise RequestTimeout(
            f"the body stopped arriving for {pause_s:g} s, or came at less than {SLOWEST_BYTES_PER_S} bytes a second: "
            "send it again"
        ) from error
    finally:
        timer.cancel()
        if counted:
            limits.arriving.release(counted)
    return body


def _join(pieces: list[bytes]) -> bytes:
    """Join the pieces and drop them. For 30 MB this takes 20 to 40 ms; other threads run during most of them."""
    body = b"".join(pieces)
    pieces.clear()
    return body


def is_json(content_type: bytes) -> bool:
    """Whether the media type is JSON in UTF-8: `application/json` or any `+json`, with parameters or without."""
    kind, *parameters = content_type.decode("latin-1").lower().split(";")
    kind = kind.strip()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return False
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            return False
    return True


def _is_form_type(content_type: bytes) -> bool:
    """Whether a page of another origin can send the type without a preflight (Fetch standard, CORS-safelisted)."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in (b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain")


# -- answers ---------------------------------------------------------------------------------------------------------


def json_response(status: int, body: bytes, *headers: Header) -> HttpResponse:
    """Make an answer of JSON with its Content-Length."""
    return HttpResponse(status, [JSON, (b"content-length", b"%d" % len(body)), *headers], body)


def error_response(error: A2AError, status: int, content_type: bytes, body: bytes) -> HttpResponse:
    """Make the answer for an error: `body` is encoded by a dialect; HTTP's headers for the error are added here."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), NOT_SNIFFED]
    match error:
        case MethodNotAllowed():
            headers.append((b"allow", ", ".join(error.allowed).encode()))
        case Unauthorized():
            wrong = b"" if error.missing else b', error="invalid_token"'  # RFC 6750 §3.1
            headers.append((b"www-authenticate", error.scheme.encode() + b' realm="dragoman"' + wrong))
        case Unavailable(retry_after_s=int(seconds)) | TooManyRequests(retry_after_s=int(seconds)):
            headers.append((b"retry-after", b"%d" % seconds))
        case RequestTimeout():
            headers.append(CLOSE)  # the rest of this request may still arrive and must not be read as the next one
        case PayloadTooLarge():
            headers.append(CLOSE)
            return HttpResponse(status, headers, body, lingers=True)
        case _:
            pass
    return HttpResponse(status, headers, body)


async def send_response(response: HttpResponse, receive: Receive, send: Send, *, lingers: bool = False) -> None:
    """Send a plain answer. With `lingers` the rest of the request's body is read and discarded before it ends."""
    body = response.body
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    if lingers:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await _linger(receive)
        body = b""
    elif len(body) > SMALL_BYTES:
        for start in range(0, len(body), SLICE_BYTES):
            await send({"type": "http.response.body", "body": body[start : start + SLICE_BYTES], "more_body": True})
        body = b""  # an empty last message ends the answer
    await send({"type": "http.response.body", "body": body})


async def unless_gone(work: Awaitable[T], request: HttpRequest) -> T:
    """Await `work`, but cancel it if the client leaves meanwhile. Raises Gone."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.wait_until_left())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()


async def stream_response(
    response: StreamingResponse, receive: Receive, send: Send, visit: StreamVisit | None = None
) -> None:
    """Send an answer piece by piece, as fast as its reader takes it. It stops when the reader leaves."""
    gone = asyncio.ensure_future(wait_until_gone(receive))
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        async with aclosing(response.body) as pieces:
            async for piece in pieces:
                if gone.done():
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if visit is not None:
                    visit.sent(len(piece))
        await send({"type": "http.response.body", "body": b""})
    finally:
        if visit is not None:
            visit.ended(response.status, left=gone.done())
        gone.cancel()


async def wait_until_gone(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass  # discard the rest of the request's body


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
