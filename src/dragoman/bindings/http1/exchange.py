"""AsgiExchange: one request on a connection and its answer, as the application sees them, over ASGI or without.

Two sides go on independently of each other, until the client leaves (`disconnected`):

    request    ARRIVING ── `end_body` ──► WHOLE, untold ── `receive` ──► WHOLE      `arriving`, `_end_untold`
    answer     NONE ── `http.response.start` ──► STARTED ── the last body ──► COMPLETE      `started`, `complete`
                 its head is kept until some of the body is there, or the loop's next turn for one without a length

A message that does not follow from the state of the answer raises. `connection` draws what becomes of the others.

Invariant: the bytes of an answer are written in the order in which they were sent, and are as many as its head says.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from dragoman.bindings.http import Message
from dragoman.bindings.request import Header
from dragoman.net.http1 import CONTROL_BYTE

HELD_BYTES = 65_536
"""Reading pauses while more of a body than this waits to be received."""

JOINED_BYTES = 65_536
"""Data longer than this is written by itself, because joining copies it."""

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
JSON_LINES: Mapping[Header, bytes] = {
    (b"content-type", kind): b"content-type: %s\r\ncontent-length: " % kind
    for kind in (b"application/json", b"application/a2a+json")
}
"""The lines of an answer of JSON by its first header, as far as the digits of its length, which is its second one."""

BODILESS = frozenset({204, 304})
"""Statuses whose answers have no body (RFC 9110 §6.4.1)."""

DISCONNECTED: Message = {"type": "http.disconnect"}

ASGI = {"version": "3.0", "spec_version": "2.3"}

Address = tuple[str, int]
"""A host with its port."""


class RequestTarget(Struct, frozen=True):
    """The target of a request (RFC 9112 §3.2): `url` as received, `path` decoded, and `raw_path` with its %-escapes."""

    url: bytes
    path: str
    raw_path: bytes
    query: bytes


NO_REQUEST_TARGET = RequestTarget(b"", "", b"", b"")
NO_HEADERS: Mapping[bytes, bytes] = MappingProxyType({})


class ExchangeConnection(Protocol):
    """The connection of an exchange. Nothing is written once it is closing."""

    write_paused: bool

    @property
    def date(self) -> bytes:
        """The Date of an answer, as a line of its head."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes."""
        ...

    async def drain(self) -> None:
        """Wait until the reader has taken most of what was written, or has left."""
        ...

    def resume_reading(self) -> None:
        """Read on, unless there are other reasons to wait."""
        ...

    def rest(self) -> bool:
        """Drop what the next request makes anew. Returns False, and does nothing, in the middle of a request."""
        ...

    def resume(self, exchange: "AsgiExchange", rest: Coroutine[Any, Any, None]) -> None:
        """Go on with an answer that was parked."""
        ...

    def answered(self, exchange: "AsgiExchange") -> None:
        """The answer has been written to its end."""
        ...


class ReaderWatch(Protocol):
    """Wants to know when the client leaves."""

    def left(self) -> None:
        """The client has left."""
        ...


class AsgiExchange:
    """`receive` and `send` are ASGI's; one coroutine at a time may wait in `receive`. Short requests need neither:
    their body is here when they begin (`take_body`), and `send_whole` takes the answer. The rest is for the connection.

    `headers` are those of the request by name, of a repeated one the last, and `header_list` has them all.

    The head of an answer waits for the first bytes of its body, as ASGI allows, and leaves with them in one system
    call: a second one costs a third of a short answer. The head of a stream, which has no length, waits at most until
    the loop's next turn.
    """

    __slots__ = (
        "_body",
        "_body_size",
        "_carrier",
        "_chunked",
        "_continues",
        "_end_untold",
        "_head",
        "_left",
        "_loop",
        "_waiter",
        "_watch",
        "arriving",
        "complete",
        "disconnected",
        "header_list",
        "headers",
        "keep_alive",
        "method",
        "parked",
        "started",
        "target",
        "version",
    )

    def __init__(
        self,
        carrier: ExchangeConnection,
        loop: asyncio.AbstractEventLoop,
        method: str,
        version: str,
        target: RequestTarget,
        header_list: list[Header],
        headers: Mapping[bytes, bytes],
        *,
        keep_alive: bool,
        continues: bool,
    ) -> None:
        """With `continues` the client waits to be told to send the body (RFC 9110 §10.1.1)."""
        self.method = method
        self.version = version
        self.target = target
        self.header_list = header_list
        self.headers = headers
        self.keep_alive = keep_alive
        """Whether the connection is kept after the answer."""
        self.arriving = True
        """Whether the request's body is incomplete."""
        self.started = False
        """Whether the application has sent the head of its answer."""
        self.complete = False
        self.disconnected = False
        self.parked = False
        """Whether the call of the application is over, and the answer goes on later."""
        self._watch: ReaderWatch | None = None
        self._carrier = carrier
        self._loop = loop
        self._continues = continues
        self._body: list[bytes] = []
        self._body_size = 0
        self._end_untold = False
        """Whether the application has still to hear that the body is complete."""
        self._waiter: asyncio.Future[None] | None = None
        self._head = b""
        """The head of the answer, while it waits for its body."""
        self._left: int | None = None
        """How many bytes of the answer's body are missing; None if its head does not say."""
        self._chunked = False

    # -- for the connection --------------------------------------------------------------------------------------------

    def close_after(self) -> None:
        """Keep the connection no longer than the answer."""
        self.keep_alive = False

    def add(self, body: bytes) -> None:
        """Some of the request's body came."""
        self._body.append(body)
        self._body_size += len(body)
        if self._waiter is not None:
            self._wake()

    @property
    def full(self) -> bool:
        """Whether so much of the body waits to be received that reading should pause."""
        return self._body_size > HELD_BYTES and not self.complete

    def end_body(self) -> None:
        """The request's body is complete."""
        self.arriving = False
        self._end_untold = True
        if self._waiter is not None:
            self._wake()

    def disconnect(self) -> None:
        """The client has left."""
        self.disconnected = True
        if self._waiter is not None:
            self._wake()
        if self._watch is not None:
            self._watch.left()

    def flush(self) -> None:
        """Send the head that waits, if there is one."""
        head, self._head = self._head, b""
        if head:
            self._carrier.write(head)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- without ASGI --------------------------------------------------------------------------------------------------

    def take_body(self) -> bytes | None:
        """Receive the whole body; None if some of it is missing, or the client has left."""
        if self.arriving or self.disconnected:
            return None
        return self._take()

    def send_whole(self, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Send an answer. Returns False if it has to wait for the reader. Raises RuntimeError as `send` does."""
        if self.disconnected:
            return True
        if self._carrier.write_paused:
            return False
        if self.started:
            raise RuntimeError("an answer does not follow what was sent before")
        lines = JSON_LINES.get(headers[0]) if status == 200 and len(headers) == 2 else None
        if lines is not None and self.keep_alive and self.method != "HEAD":
            name, length = headers[1]
            if name == b"content-length" and length == b"%d" % len(body):  # almost every answer: in a third of the time
                self.started = self.complete = True
                self._continues = False
                write, date = self._carrier.write, self._carrier.date
                write(b"".join((STATUS_LINES[200], date, lines, length, b"\r\n\r\n", body)))
                if self._waiter is not None:
                    self._wake()
                self._carrier.answered(self)
                return True
        self._start(status, headers)
        self._send_body(body, more=False)
        return True

    def watch(self, watch: ReaderWatch | None) -> None:
        """Tell `watch` when the client leaves, and nobody else."""
        self._watch = watch
        if watch is not None and self.disconnected:
            watch.left()

    def park(self) -> None:
        """Let the call of the application end without an answer, which goes on with `resume`. Its headers are gone."""
        self.parked = True
        self.header_list, self.headers, self.target = [], NO_HEADERS, NO_REQUEST_TARGET
        self._carrier.rest()

    def resume(self, rest: Coroutine[Any, Any, None]) -> None:
        """Go on with an answer that was parked."""
        self.parked = False
        self._carrier.resume(self, rest)

    def send_now(self, body: bytes) -> bool:
        """Send some of the body, unless it has to wait. Returns whether it was sent."""
        if self._carrier.write_paused or self.disconnected:
            return False
        self._send_body(body, more=True)
        return True

    def _take(self) -> bytes:
        pieces, size = self._body, self._body_size
        self._body, self._body_size, self._end_untold = [], 0, False
        if size > HELD_BYTES:
            self._carrier.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # -- ASGI 3.0 ------------------------------------------------------------------------------------------------------

    def scope(self, client: Address | None, server: Address | None, scheme: str) -> dict[str, Any]:
        """The request, which came from `client` to the address `server`."""
        target = self.target
        return {
            "type": "http",
            "asgi": ASGI,
            "http_version": self.version,
            "method": self.method,
            "scheme": scheme,
            "path": target.path,
            "raw_path": target.raw_path,
            "query_string": target.query,
            "root_path": "",
            "headers": list(self.header_list),
            "client": client,
            "server": server,
        }

    async def receive(self) -> Message:
        """Return what has come of the body, once something has; `http.disconnect` if the client left or is answered."""
        if self._continues:
            self._continues = False
            if self.arriving and not self._body:
                self._carrier.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.disconnected or self.complete):
            if self._body or self._end_untold:
                return {"type": "http.request", "body": self._take(), "more_body": self.arriving}
            self._waiter = self._loop.create_future()
            await self._waiter
        return DISCONNECTED

    async def send(self, message: Message) -> None:
        """Send the head of the answer, or some of its body. To a client that has left nothing is sent.

        Raises RuntimeError if the message does not follow those before it, or does not fit the head's Content-Length.
        """
        if self._carrier.write_paused and not self.disconnected:
            await self._carrier.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.started:
            self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.started and not self.complete:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} does not follow what was sent before")

    def _start(self, status: int, headers: Iterable[Header]) -> None:
        """Keep the head until its body comes. The names of headers are in lower case, as ASGI says."""
        length: int | None = None
        closes = not self.keep_alive
        lines = [STATUS_LINES[status], self._carrier.date]
        for name, value in headers:
            if CONTROL_BYTE.search(value) is not None:
                raise RuntimeError(f"header {name!r} has a forbidden character")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive, closes = False, False
            lines += (name, b": ", value, b"\r\n")
        if closes:
            lines.append(b"connection: close\r\n")
        if self.method == "HEAD" or status in BODILESS:
            self._left = 0
        elif length is not None:
            self._left = length
        elif self.version == "1.1":
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        self.started = True
        self._continues = False
        if self._left is None:
            self._loop.call_soon(self.flush)

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self.method == "HEAD":
            body = b""
        elif self._left is not None:
            left = self._left - len(body)
            if left < 0 or (left and not more):
                raise RuntimeError(f"the body is {'longer' if left < 0 else 'shorter'} than its Content-Length")
            self._left = left
        elif self._chunked:
            chunk = (b"%x\r\n" % len(body), body, b"\r\n") if body else ()
            body = b"".join(chunk if more else (*chunk, b"0\r\n\r\n"))
        head, self._head = self._head, b""
        if head and len(body) > JOINED_BYTES:
            self._carrier.write(head)
            self._carrier.write(body)
        elif head or body:
            self._carrier.write(head + body)
        if not more:
            self.complete = True
            if self._waiter is not None:
                self._wake()
            self._carrier.answered(self)
