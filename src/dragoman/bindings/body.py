"""The request's body: counted while it is read, and JSON by its Content-Type.

Invariant: at most `max_body_bytes` and one piece are held. The content types of web forms are refused unread.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from dragoman.bindings.http import Gone, Message, Request
from dragoman.bindings.limits import SLOWEST_BYTES_PER_S, Limits
from dragoman.bindings.offload import LARGE_BYTES
from dragoman.model.errors import PayloadTooLarge, RequestTimeout, UnsupportedMediaType

T = TypeVar("T")

STALLED = "the body stalled"

PLAIN_JSON = frozenset({b"application/json", b"application/a2a+json", b"application/json; charset=utf-8"})


async def read_json(request: Request, limits: Limits, *, empty_allowed: bool) -> bytes:
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
    body = await _read(request, limits)
    if body and not json:
        raise UnsupportedMediaType(content_type.decode("latin-1"))
    request.size = len(body)
    return body


async def decode_body(request: Request, limits: Limits, job: Callable[[], T]) -> T:
    """Run `job`, which decodes the request's body, and return its result.

    A large body is decoded on the thread and counts as arriving until that is done. Raises Unavailable if too many
    bodies are arriving, and whatever `job` raises.
    """
    size = request.size
    if size < LARGE_BYTES:
        return job()
    limits.arriving.take(size)
    try:
        return await limits.offload.run(job)
    finally:
        limits.arriving.release(size)


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


async def _read(request: Request, limits: Limits) -> bytes:
    message = await _receive_within(limits.body_pause_s, request, limits.body_pause_s)
    if message["type"] != "http.request":
        raise Gone
    piece: bytes = message.get("body", b"")
    if len(piece) > limits.max_body_bytes:
        raise PayloadTooLarge(limits.max_body_bytes)
    return piece if not message.get("more_body") else await _read_on(request, limits, piece)


async def _read_on(request: Request, limits: Limits, first: bytes) -> bytes:
    """Read the rest of a body that has more than one piece."""
    pieces, size, taken, began_s = [first], len(first), 0, request.loop.time()
    try:
        while True:
            limits.arriving.take(size - taken)
            taken = size
            wait_s = began_s + limits.body_pause_s + size / SLOWEST_BYTES_PER_S - request.loop.time()
            message = await _receive_within(max(0.0, min(limits.body_pause_s, wait_s)), request, limits.body_pause_s)
            if message["type"] != "http.request":
                raise Gone
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > limits.max_body_bytes:
                raise PayloadTooLarge(limits.max_body_bytes)
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)
    finally:
        limits.arriving.release(taken)


async def _receive_within(wait_s: float, request: Request, pause_s: float) -> Message:
    """Receive one message within `wait_s`. Raises RequestTimeout.

    It does by hand what `asyncio.timeout` does, because that costs a sixth of a short request.
    """
    loop = request.loop
    task = asyncio.current_task(loop)
    assert task is not None
    timer = loop.call_later(wait_s, task.cancel, STALLED)
    try:
        return await request.receive()
    except asyncio.CancelledError as error:
        if error.args != (STALLED,) or task.uncancel() > 0:
            raise  # the cancellation came from elsewhere
        raise RequestTimeout(
            f"the body stopped arriving for {pause_s:g} s, or came at less than {SLOWEST_BYTES_PER_S} bytes a second: "
            "send it again"
        ) from error
    finally:
        timer.cancel()
