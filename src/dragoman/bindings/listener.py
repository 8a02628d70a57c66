"""The listener: uvicorn on httptools, set up for what is served here.

Invariant: the bytes of an answer leave in the order in which they were written, and none stays behind. Requests of one
connection are answered one after the other, in the order in which they came.
"""

import asyncio
import logging
import re
import socket
import sys
from collections.abc import Collection
from contextlib import nullcontext, suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Literal

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dragoman.bindings.door import Door
from dragoman.bindings.limits import SLOWEST_BYTES_PER_S

BACKLOG = 2048
"""Connections that may wait to be accepted: a few thousand clients come back at once after a restart."""

KEEP_ALIVE_S = 75
"""How long an idle connection is kept. Longer than the 60 s of common proxies, or they would reuse a closed one."""

HEAD_BYTES_MAX = 65_536
"""Longest head of a request, after its first `SLICE_BYTES`; other servers allow 8 to 64 KB. What else is no body may be
as long: trailers, which are kept in memory, a chunk extension (RFC 9112 §7.1), empty lines before a request."""

SLICE_BYTES = 8192
"""The parser reads at most this much before it is asked whether requests wait for their turn: so at most some 300 do,
of the shortest there are, which is 1 MB. A packet may have 256 KB (uvloop 0.23)."""

READER_PAUSE_S = 60.0
"""How long a reader may take nothing, unless a setting says otherwise."""

CUT_S = 0.3
"""How long requests may still take whose connections were cut. uvicorn (0.54) looks every 0.1 s what is left."""

JOINED_BYTES = 65_536
"""Joining copies: what is longer than this goes out alone."""

HOST = re.compile(
    rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~%-]+)?\])(?::[0-9]{0,5})?", re.ASCII
)
"""`uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2), but not empty: every URL of this server has a host."""

NO_HOST = "The request has no Host header: send the host of the URL (RFC 9112, section 3.2)."
TWO_HOSTS = "The request has more than one Host header: send one (RFC 9112, section 3.2)."
WRONG_HOST = "The Host header is empty or malformed: send a host name or address, and a port where there is one."
NO_PROXY = "CONNECT is not served here: this server is no proxy."
LONG_HEAD = "The head of the request is too large."
LONG_REST = "The trailers, a chunk extension or the empty lines of the request are too large."
MALFORMED = "Invalid HTTP request received."

TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 40\r\n"
    b"connection: close\r\n\r\nThe head of the request came too slowly."
)
"""The answer to a head that did not come in time (RFC 9110 §15.5.9)."""


class Malformed(Exception):
    """A request that HTTP forbids. The text is for its sender."""


class Corked:
    """A transport that sends what is written in one turn of the loop with one system call, if that is little.

    uvicorn (0.54) writes the head of an answer and its body one by one, and uvloop (0.23) makes a system call of each,
    which is a third of what a short answer costs.
    """

    __slots__ = (
        "_held",
        "_loop",
        "_transport",
        "answered",
        "head_bytes",
        "head_until",
        "heading",
        "hosts",
        "refusal",
        "stalled",
        "unread",
    )

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None
        self.heading = False
        """Whether the head of a request is under way, how much came since it began or since the last byte of a body
        (`head_bytes`) and until when all of the head must have come (`head_until`), kept here because the protocol's
        instances have as many attributes as Python stores compactly: one more costs 1.5 KB a connection."""
        self.head_bytes = 0
        self.head_until = 0.0
        self.answered: RequestResponseCycle | None = None
        """The request that is being answered, while later ones wait for their turn; else None, as it is the newest."""
        self.hosts: list[bytes] | None = None
        """The Host that the last request had."""
        self.unread = b""
        """Bytes that came behind the requests that wait. Nothing is read from the socket meanwhile."""
        self.refusal = ""
        """What is wrong with the bytes behind the requests that wait. It is told after their answers."""
        self.stalled: asyncio.TimerHandle | None = None
        """Will look whether the reader has taken anything since; there while something waits for it."""

    def pause_reading(self) -> None:
        """Read no more for now. uvloop raises if the connection is closed."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless there are bytes that came and nobody has read."""
        if not self.unread and not self.refusal and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send `data`; the head of an answer waits for what is written next, at most until the loop's next turn.

        Nothing is sent once the connection is closing: uvloop (0.23) raises RuntimeError.
        """
        held = self._held
        if held is None and data.startswith(b"HTTP/1.1 "):
            self._held = data
            self._loop.call_soon(self._flush)
            return
        self._held = None
        if self._transport.is_closing():
            return
        if held is None:
            self._transport.write(data)
        elif len(data) > JOINED_BYTES:
            self._transport.write(held)
            self._transport.write(data)
        else:
            self._transport.write(held + data)

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)

    def is_closing(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def close(self) -> None:
        """Close after what was written is sent."""
        self._flush()
        self._transport.close()

    @property
    def written_all(self) -> bool:
        """Whether the system has all that was written; else closing waits for the reader."""
        return self._transport.get_write_buffer_size() == 0

    def unread_bytes(self) -> int:
        """How much waits here, and in the system, for the reader to take it. On other systems than Linux only here."""
        unread = self._transport.get_write_buffer_size()
        if sys.platform == "linux" and (found := self._transport.get_extra_info("socket")) is not None:
            with suppress(OSError):
                unread += int.from_bytes(ioctl(found.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
        return unread

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


class ListenerConfig(uvicorn.Config):
    """uvicorn's settings, and how long a reader may take nothing."""

    reader_pause_s = READER_PAUSE_S


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a corked transport, with the bounds and the rules of HTTP that it and httptools lack.

    The head of a request may have about `HEAD_BYTES_MAX`. One that takes longer than the keep-alive time must come at
    `SLOWEST_BYTES_PER_S`, or is answered with 408; a client that connects and is silent for as long is cut. So is a
    reader that takes nothing of what waits for it. A request has one Host. An offer to change the protocol is declined
    by ignoring it. Pipelined requests wait in bounded memory.
    """

    transport: Corked  # type: ignore[assignment]  # all that uvicorn uses
    config: ListenerConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client connected."""
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]
        self.transport.head_until = self.loop.time() + self.timeout_keep_alive
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left. uvicorn tells only the newest request; an older one may be the one that is answered."""
        transport = self.transport
        answered, transport.answered, transport.unread = transport.answered, None, b""
        self.pipeline.clear()
        if answered is not None:
            answered.disconnected = True
            answered.message_event.set()
        super().connection_lost(exc)
        self._expect_nothing()

    def on_message_begin(self) -> None:
        """A request begins."""
        transport = self.transport
        transport.heading = True
        transport.head_bytes = 0
        transport.head_until = self.loop.time() + self.timeout_keep_alive
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is complete. Raises Malformed."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise Malformed(NO_PROXY)
            return  # the head is read again without the offer: see _decline_upgrade
        transport = self.transport
        hosts = [value for name, value in self.headers if name == b"host"]
        if hosts != transport.hosts:  # mostly that of the connection's last request
            transport.hosts = self._checked(hosts)
        transport.heading = False
        before = self.cycle
        super().on_headers_complete()
        self.headers = []  # trailers come to on_header, too, and are no headers (RFC 9110 §6.5.1)
        if self.pipeline and transport.answered is None:
            transport.answered = before

    def on_body(self, body: bytes) -> None:
        """Some of its body came."""
        self.transport.head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is complete, unless httptools has skipped its body (see _decline_upgrade); else as uvicorn has it."""
        cycle = self.cycle
        if not self.parser.should_upgrade() and not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """It is answered: the next one's turn."""
        transport = self.transport
        if transport.answered is not None:
            following = self.pipeline[-1][0]
            transport.answered = None if following is self.cycle else following
        super().on_response_complete()
        if transport.is_closing():
            self._expect_flush()
        elif (transport.unread or transport.refusal) and not self.pipeline:
            self._read_on()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        transport = self.transport
        if transport.refusal:
            return
        if self.pipeline or transport.unread:
            transport.unread += data
            transport.pause_reading()
        else:
            self._read(data)

    def _read_on(self) -> None:
        """Read the bytes that waited, or refuse what came instead of a request."""
        transport = self.transport
        unread, transport.unread = transport.unread, b""
        if unread:
            transport.head_until = self.loop.time() + self.timeout_keep_alive
            self._read(unread)
            if not self.flow.read_paused:
                transport.resume_reading()
        elif self.cycle.response_complete:
            self.send_400_response(transport.refusal)

    def _read(self, data: bytes) -> None:
        """Parse the bytes up to the first request that has to wait."""
        self._unset_keepalive_if_required()
        transport = self.transport
        if len(data) <= SLICE_BYTES:
            if not self._parse(data):
                return
        else:
            view = memoryview(data)
            for start in range(0, len(data), SLICE_BYTES):
                if self.pipeline:
                    transport.unread = data[start:]
                    transport.pause_reading()
                    return
                if not self._parse(view[start : start + SLICE_BYTES]):
                    return
        if self.cycle is None or self.cycle.response_complete:
            if not transport.heading:
                transport.head_until = self.loop.time() + self.timeout_keep_alive  # line ends before a head begin none
            self._expect_more()

    def _parse(self, data: bytes | memoryview) -> bool:
        """Parse some bytes; False if they are refused."""
        transport = self.transport
        transport.head_bytes += len(data)
        if transport.heading:
            transport.head_until += len(data) / SLOWEST_BYTES_PER_S
        if transport.head_bytes > HEAD_BYTES_MAX:
            self._refuse(LONG_HEAD if transport.heading else LONG_REST)
            return False
        try:
            self.parser.feed_data(data)
            return True
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :]
        except httptools.HttpParserError as error:
            return self._refuse_malformed(error)
        try:
            self._decline_upgrade()
        except httptools.HttpParserError as error:
            return self._refuse_malformed(error)
        return self._parse(rest)  # not deep: a slice has some 130 such heads at most

    def _refuse_malformed(self, error: httptools.HttpParserError) -> Literal[False]:
        wrong = error.__context__  # where httptools puts an exception of ours
        self._refuse(str(wrong) if isinstance(wrong, Malformed) else MALFORMED)
        return False

    def _decline_upgrade(self) -> None:
        """Read the head again without its Upgrade header, with a new parser, which then reads the body.

        A server may ignore the offer (RFC 9110 §7.8); curl --http2 and Java's HttpClient make it with every request.
        httptools (0.9) stops at such a head and takes the body for another protocol's
        (github.com/MagicStack/httptools/issues/124), so uvicorn loses it (github.com/Kludex/uvicorn/issues/2722). This
        can go with a version of httptools that lets a protocol decline, or of uvicorn that delivers the body.
        """
        head = [b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        head += [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets it
        self.parser.feed_data(b"".join([*head, b"\r\n"]))

    def _checked(self, hosts: list[bytes]) -> list[bytes] | None:
        """The one Host; None where HTTP/1.0 has none (RFC 9112 §3.2). Raises Malformed."""
        if len(hosts) > 1:
            raise Malformed(TWO_HOSTS)
        if hosts:
            if HOST.fullmatch(hosts[0]) is None:
                raise Malformed(WRONG_HOST)
            return hosts
        if self.parser.get_http_version() not in ("1.0", "0.9"):
            raise Malformed(NO_HOST)
        return None

    def _refuse(self, why: str) -> None:
        """Answer 400 and close, after the requests that came before are answered."""
        transport, newest = self.transport, self.cycle
        if newest is None or newest.response_complete:
            self.send_400_response(why)
        elif not newest.more_body:
            self._refuse_later(why)
        elif transport.answered is not None:  # the body of one that waits is malformed
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else transport.answered
            if not self.pipeline:
                transport.answered = None
            self._refuse_later(why)
        elif newest.response_started:
            transport.close()
        else:
            self.send_400_response(why)

    def _refuse_later(self, why: str) -> None:
        self.transport.refusal = why
        self.transport.pause_reading()

    def shutdown(self) -> None:
        """The server stops: what is answered goes out. Nobody waits for the rest of a request.

        Its client sees the connection close before an answer, as with any server that restarts.
        """
        newest = self.cycle
        half = newest is not None and newest.more_body and not newest.response_complete
        if half and self.transport.answered is None:
            self.transport.close()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for too long, or not all of a head."""
        if self.transport.heading and not self.transport.is_closing():
            self.transport.write(TOO_SLOW)
        super().timeout_keep_alive_handler()
        self._expect_flush()

    def send_400_response(self, msg: str) -> None:
        """Refuse what came, and close."""
        super().send_400_response(msg)
        self._expect_flush()

    def pause_writing(self) -> None:
        """Enough waits for the reader."""
        super().pause_writing()
        self._expect_reading(self.transport.unread_bytes())

    def resume_writing(self) -> None:
        """The reader has taken most of it."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._expect_nothing()

    def _expect_flush(self) -> None:
        """The connection is about to close, once its reader has taken what waits here, however little that is."""
        transport = self.transport
        if transport.stalled is None and not transport.written_all:
            self._expect_reading(transport.unread_bytes())

    def _expect_reading(self, unread: int) -> None:
        pause_s = self.config.reader_pause_s
        self.transport.stalled = self.loop.call_later(pause_s, self._cut_unless_less_than, unread)

    def _expect_nothing(self) -> None:
        timer, self.transport.stalled = self.transport.stalled, None
        if timer is not None:
            timer.cancel()

    def _cut_unless_less_than(self, unread: int) -> None:
        """Cut a reader that has taken nothing since so much waited for it: closing would wait for it for ever."""
        left = self.transport.unread_bytes()
        if left < unread:
            self._expect_reading(left)
        else:
            self.transport.abort()

    def _expect_more(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(self.transport.head_until, self.timeout_keep_alive_handler)


def listener(app: Door, reader_pause_s: float = READER_PAUSE_S) -> uvicorn.Server:
    """A server for sockets that are bound already. It takes no signals: whoever runs it drains first."""
    server = uvicorn.Server(
        config := ListenerConfig(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # its warnings are one line for every request of a scanner
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    )
    config.reader_pause_s = reader_pause_s
    server.capture_signals = nullcontext  # type: ignore[assignment, method-assign]
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancel)
    return server


async def close_listener(server: uvicorn.Server, serving: "asyncio.Task[None]", within_s: float) -> None:
    """Take no more connections, and wait for the answers that are under way; then cut their connections.

    Returns within `within_s`, or after `2 * CUT_S` if that is longer.
    """
    state = server.server_state
    server.should_exit = True
    await _wait((serving,), max(0.0, within_s - 2 * CUT_S))
    for connection in tuple(state.connections):
        connection.transport.abort()
    await _wait((serving,), CUT_S)
    for request in tuple(state.tasks):
        request.cancel()
    await _wait(state.tasks, CUT_S)
    serving.cancel()


async def _wait(tasks: Collection["asyncio.Task[None]"], timeout_s: float) -> None:
    if any(not task.done() for task in tasks):
        await asyncio.wait(tuple(tasks), timeout=timeout_s)


def _is_no_cancel(record: logging.LogRecord) -> bool:
    """A filter. Requests are canceled by the end of the server alone, and uvicorn (0.54) logs each with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has the address, but does not listen yet. Raises OSError if it cannot have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it answers wait 40 ms for a delayed ACK.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
