"""The listener: accepts connections and speaks HTTP/1.1 on them with uvicorn's protocol on httptools, hardened.

`tls` puts TLS between the socket and that protocol.

Invariant: the bytes of an answer are sent in the order in which they were written, and all of them are sent. Requests
of one connection are answered one after the other, in the order in which they arrived.
"""

import asyncio
import logging
import re
import socket
import ssl
import sys
from collections.abc import Collection
from contextlib import suppress
from email.utils import formatdate
from fcntl import ioctl
from termios import TIOCOUTQ

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from dragoman.bindings.http import BODY_ARRIVED, Asgi
from dragoman.bindings.limits import SLOWEST_BYTES_PER_S
from dragoman.bindings.tls import Handshakes, TlsConnection

BACKLOG = 2048
"""Connections that may wait to be accepted: a few thousand clients come back at once after a restart."""

KEEP_ALIVE_S = 75
"""How long an idle connection is kept. Longer than the 60 s of common proxies, or they would reuse a closed one."""

HEAD_BYTES_MAX = 65_536
"""Longest head of a request, after its first `SLICE_BYTES`; other servers allow 8 to 64 KB. The
same limit holds for other bytes outside of bodies: trailers, which are kept in memory, a chunk extension (RFC 9112
§7.1), empty lines before a request."""

SLICE_BYTES = 8192
"""The parser reads at most this much before the protocol checks whether requests are waiting. So at most some 300 of
the shortest requests wait, which is 1 MB. A packet may have 256 KB (uvloop 0.23)."""

READER_PAUSE_S = 60.0
"""How long a reader may take nothing, by default."""

CUT_S = 0.3
"""How long requests may still run after their connections were cut, and again after they were canceled."""

JOINED_BYTES = 65_536
"""Data longer than this is written by itself, because joining copies it."""

HOST = re.compile(
    rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~%-]+)?\])(?::[0-9]{0,5})?", re.ASCII
)
"""`uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2). It may not be empty: every URL of this server has a host."""

NO_HOST = "The request has no Host header: send the host of the URL (RFC 9112, section 3.2)."
TWO_HOSTS = "The request has more than one Host header: send one (RFC 9112, section 3.2)."
WRONG_HOST = "The Host header is empty or malformed: send a host name or address, with a port if the URL has one."
NO_PROXY = "CONNECT is not served here: this server is not a proxy."
LONG_HEAD = "The head of the request is too large."
LONG_REST = "The trailers, a chunk extension or the empty lines of the request are too large."
MALFORMED = "Invalid HTTP request received."

LENGTH = b"\r\ncontent-length: "
"""Where the head of an answer says how long its body is."""

TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 40\r\n"
    b"connection: close\r\n\r\nThe head of the request came too slowly."
)
"""The answer to a head that did not arrive in time (RFC 9110 §15.5.9)."""


class Malformed(Exception):
    """A request that breaks the rules of HTTP. The text is sent to the client."""


class Corked:
    """A transport that sends the head and the body of a small answer with one system call.

    uvicorn (0.54) writes them one by one, and uvloop (0.23) makes a system call for each write. The second call is a
    third of the cost of a short answer. A head waits for the first bytes of its body, as ASGI allows; that of a stream,
    which has no length, at most until the loop's next turn.
    """

    __slots__ = (
        "_loop",
        "_transport",
        "answered",
        "head_bytes",
        "head_until",
        "heading",
        "held",
        "hosts",
        "is_closing",
        "refusal",
        "stalled",
        "unread",
    )

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self.is_closing = transport.is_closing
        self.held: bytes | None = None
        """The head of an answer that waits for its body."""
        self.heading = False
        """Whether the head of a request is arriving. `head_bytes` counts the bytes since it began, or since the last
        byte of a body; `head_until` is the deadline of the head.

        They are kept here because the protocol's instances already have as many attributes as Python stores compactly:
        one more would cost 1.5 KB a connection."""
        self.head_bytes = 0
        self.head_until = 0.0
        """While no request is being answered, the next head has to be here by then."""
        self.answered: RequestResponseCycle | None = None
        """The request that is being answered, while later ones wait. None: the newest request is being answered."""
        self.hosts: list[bytes] | None = None
        """The Host of the last request."""
        self.unread = b""
        """Bytes that arrived after the waiting requests. Nothing is read from the socket meanwhile."""
        self.refusal = ""
        """The fault in the bytes after the waiting requests. It is sent after their answers."""
        self.stalled: asyncio.TimerHandle | None = None
        """Will check whether the reader has taken anything since; set while data waits for the reader."""

    def pause_reading(self) -> None:
        """Stop reading for now. Without the check, uvloop raises on a closed connection."""
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless bytes that arrived earlier are still unparsed."""
        if not self.unread and not self.refusal and not self.is_closing():
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send `data`, but keep the head of an answer for the next write.

        Nothing is sent once the connection is closing, because uvloop (0.23) raises RuntimeError then.
        """
        held = self.held
        if held is None and data.startswith(b"HTTP/1.1 "):
            self.held = data
            if LENGTH not in data:
                self._loop.call_soon(self.flush)
            return
        self.held = None
        if self.is_closing():
            return
        if held is None:
            self._transport.write(data)
        elif len(data) > JOINED_BYTES:
            self._transport.write(held)
            self._transport.write(data)
        else:
            self._transport.write(held + data)

    def flush(self) -> None:
        """Send the head that waits, if there is one."""
        held, self.held = self.held, None
        if held is not None and not self.is_closing():
            self._transport.write(held)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def close(self) -> None:
        """Close, after everything written has been sent."""
        self.flush()
        self._transport.close()

    @property
    def written_all(self) -> bool:
        """Whether the system has all that was written; else closing waits for the reader."""
        return self._transport.get_write_buffer_size() == 0

    def unread_bytes(self) -> int:
        """How many bytes the reader has not taken: those buffered here and, on Linux, those in the kernel."""
        unread = self._transport.get_write_buffer_size()
        if sys.platform == "linux" and (found := self._transport.get_extra_info("socket")) is not None:
            with suppress(OSError):
                unread += int.from_bytes(ioctl(found.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
        return unread

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


class ListenerConfig(uvicorn.Config):
    """uvicorn's settings, plus how long a reader may take nothing."""

    reader_pause_s = READER_PAUSE_S


class Connected(ServerState):
    """uvicorn's sets of connections and requests, plus whether the listener is closing."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False
        self.none_left = asyncio.Event()
        """Set once the listener is closing and has no connection."""

    def left(self) -> None:
        """Note that a connection may have been the last one."""
        if self.closing and not self.connections:
            self.none_left.set()


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a corked transport, plus the limits and HTTP rules that uvicorn and httptools lack.

    The head of a request may have about `HEAD_BYTES_MAX`. A head that takes longer than the keep-alive time must arrive
    at `SLOWEST_BYTES_PER_S`, or it is answered with 408. A client that connects and stays silent for the keep-alive
    time is cut off, and so is a reader that takes nothing of the waiting data for `reader_pause_s`. A request has one
    Host. An offer to change the protocol is ignored. Pipelined requests wait in bounded memory.

    A request whose whole body has come with its head has `BODY_ARRIVED` in its scope. uvicorn's timer for idle
    connections is not set anew for each request: when it fires, it looks at the deadline, and is set for the rest. That
    and `BODY_ARRIVED` save a tenth of a GetTask.
    """

    transport: Corked  # type: ignore[assignment]  # has everything that uvicorn uses
    config: ListenerConfig
    server_state: Connected

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wrap the transport of a new client, and set the deadline for its first head."""
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]
        self._expect_head()
        if self.server_state.closing:  # it was accepted just before
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered. uvicorn tells only the newest one."""
        transport = self.transport
        answered, transport.answered, transport.unread = transport.answered, None, b""
        self.pipeline.clear()
        if answered is not None:
            answered.disconnected = True
            answered.message_event.set()
        super().connection_lost(exc)
        self._expect_nothing()
        self.server_state.left()

    def on_message_begin(self) -> None:
        """Set the deadline for the head of a request."""
        transport = self.transport
        transport.heading = True
        transport.head_bytes = 0
        transport.head_until = self.loop.time() + self.timeout_keep_alive
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Check the head of a request, then let uvicorn begin to answer it. Raises Malformed."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise Malformed(NO_PROXY)
            return  # the head is parsed again without the offer: see _decline_upgrade
        transport = self.transport
        hosts: list[bytes] = []
        for name, value in self.headers:
            if name == b"host":
                hosts.append(value)
        if hosts != transport.hosts:  # usually they are those of the connection's last request
            transport.hosts = self._check_host(hosts)
        transport.heading = False
        before = self.cycle
        super().on_headers_complete()
        self.headers = []  # on_header also gets trailers, which are no headers (RFC 9110 §6.5.1)
        if self.pipeline and transport.answered is None:
            transport.answered = before

    def on_body(self, body: bytes) -> None:
        """Some of its body came."""
        self.transport.head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Mark the request's body as complete, as uvicorn does.

        An offer to upgrade is skipped, because httptools has not read the body then (see _decline_upgrade).
        """
        cycle = self.cycle
        if not self.parser.should_upgrade() and not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()
            cycle.scope[BODY_ARRIVED] = True  # type: ignore[literal-required]  # ASGI has no name for it

    def on_response_complete(self) -> None:
        """Go on to the next request of the connection."""
        transport = self.transport
        self.server_state.total_requests += 1
        if transport.held is not None:  # an answer to HEAD has no body
            transport.flush()
        if transport.answered is not None:
            following = self.pipeline[-1][0]
            transport.answered = None if following is self.cycle else following
        if transport.is_closing():
            self._expect_flush()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._expect_head()
        if (transport.unread or transport.refusal) and not self.pipeline:
            self._read_on()

    def data_received(self, data: bytes) -> None:
        """Parse the bytes in slices, up to the first request that has to wait, and keep the rest."""
        transport = self.transport
        if transport.refusal:
            return
        if self.pipeline or transport.unread:
            transport.unread += data
            transport.pause_reading()
            return
        at, view = 0, memoryview(data)
        while at < len(data):
            if self.pipeline:
                transport.unread = data[at:]
                transport.pause_reading()
                return
            piece = view[at : at + SLICE_BYTES]
            transport.head_bytes += len(piece)
            if transport.heading:
                transport.head_until += len(piece) / SLOWEST_BYTES_PER_S
            if transport.head_bytes > HEAD_BYTES_MAX:
                self._refuse(LONG_HEAD if transport.heading else LONG_REST)
                return
            upgrade_at: int | None = None
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as offer:
                upgrade_at = offer.args[0]
            except httptools.HttpParserError as error:
                self._refuse_malformed(error)
                return
            if upgrade_at is None:
                at += len(piece)
                continue
            at += upgrade_at
            try:
                self._decline_upgrade()
            except httptools.HttpParserError as error:
                self._refuse_malformed(error)
                return
        if not transport.heading and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()  # empty lines before a head do not begin one

    def _read_on(self) -> None:
        """Parse the bytes that were kept, or send the refusal that waited."""
        transport = self.transport
        unread, transport.unread = transport.unread, b""
        if unread:
            transport.head_until = self.loop.time() + self.timeout_keep_alive
            self.data_received(unread)
            if not self.flow.read_paused:
                transport.resume_reading()
        elif self.cycle.response_complete:
            self.send_400_response(transport.refusal)

    def _refuse_malformed(self, error: httptools.HttpParserError) -> None:
        wrong = error.__context__  # httptools keeps our exception here
        self._refuse(str(wrong) if isinstance(wrong, Malformed) else MALFORMED)

    def _decline_upgrade(self) -> None:
        """Parse the head again without its Upgrade header, with a new parser, which then reads the body.

        A server may ignore the offer (RFC 9110 §7.8); curl --http2 and Java's HttpClient make it with every request.
        httptools (0.9) stops at such a head and takes the body for another protocol's
        (github.com/MagicStack/httptools/issues/124), so uvicorn loses it (github.com/Kludex/uvicorn/issues/2722). The
        workaround can go once httptools lets a protocol decline the offer, or uvicorn delivers the body.
        """
        head = [b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        head += [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn
        self.parser.feed_data(b"".join([*head, b"\r\n"]))

    def _check_host(self, hosts: list[bytes]) -> list[bytes] | None:
        """Check that there is one valid Host; None if HTTP/1.0 sent none (RFC 9112 §3.2). Raises Malformed."""
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
        """Answer 400 and close, after all earlier requests are answered."""
        transport, newest = self.transport, self.cycle
        if newest is None or newest.response_complete:
            self.send_400_response(why)
        elif not newest.more_body:
            self._refuse_later(why)
        elif transport.answered is not None:  # the body of a waiting request is malformed
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
        """Stop: answers under way are completed, but a request whose body is incomplete is dropped.

        Its client sees the connection close before an answer, as with any server that restarts.
        """
        newest = self.cycle
        half = newest is not None and newest.more_body and not newest.response_complete
        if half and self.transport.answered is None:
            self.transport.close()
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long, or whose head did not arrive in time."""
        transport, now_s = self.transport, self.loop.time()
        self.timeout_keep_alive_task = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # a request is being answered; the timer is set after it
        if now_s < transport.head_until and not transport.is_closing():
            self._set_timer(min(transport.head_until, now_s + self.timeout_keep_alive))
            return
        if transport.heading and not transport.is_closing():
            transport.write(TOO_SLOW)
        super().timeout_keep_alive_handler()
        self._expect_flush()

    def send_400_response(self, msg: str) -> None:
        """Refuse what came, and close."""
        super().send_400_response(msg)
        self._expect_flush()

    def pause_writing(self) -> None:
        """Start to watch the reader, because the write buffer is full."""
        super().pause_writing()
        self._expect_reading(self.transport.unread_bytes())

    def resume_writing(self) -> None:
        """Stop watching the reader, because it has taken most of the buffer."""
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
        """Cut off a reader if it has taken nothing since `unread` bytes waited. A normal close would wait for ever."""
        left = self.transport.unread_bytes()
        if left < unread:
            self._expect_reading(left)
        else:
            self.transport.abort()

    def _expect_head(self) -> None:
        """Let the time for the next head begin. A timer that is set is not set later: it looks at the deadline."""
        until_s = self.transport.head_until = self.loop.time() + self.timeout_keep_alive
        if self.timeout_keep_alive_task is None:
            self._set_timer(until_s)

    def _set_timer(self, until_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_at(until_s, self.timeout_keep_alive_handler)


class Listener:
    """Accepts connections on one socket, and answers the requests on them with `app`.

    It does what uvicorn's Server does, but closes within milliseconds: that one looks for its stop, and for the end of
    its connections, every 0.1 s (0.54). It handles no signals: its owner drains the engine first.
    """

    def __init__(
        self,
        app: Asgi,
        *,
        reader_pause_s: float = READER_PAUSE_S,
        keep_alive_s: float = KEEP_ALIVE_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """With `tls` it speaks HTTPS only."""
        self._config = ListenerConfig(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # it warns once for every request of a scanner
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=keep_alive_s,  # type: ignore[arg-type]  # a fraction will do
        )
        self._config.reader_pause_s = reader_pause_s
        self._config.load()
        self._state = Connected()
        self._server: asyncio.Server | None = None
        self._tls = tls
        self._handshakes = Handshakes()
        self._dating: asyncio.TimerHandle | None = None
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancel)

    @property
    def connections(self) -> Collection[object]:
        """The open connections."""
        return self._state.connections

    async def open(self, bound: socket.socket) -> None:
        """Listen on a socket that is already bound."""
        loop = asyncio.get_running_loop()
        self._date()
        made = self._guarded if self._tls is None else self._secured
        self._server = await loop.create_server(made, sock=bound, backlog=BACKLOG)

    def renew(self, tls: ssl.SSLContext) -> None:
        """Take `tls` for new connections. Those that are open go on with theirs."""
        self._tls = tls

    async def close(self, within_s: float) -> None:
        """Accept no more connections and wait for the answers under way; then cut the connections that are left.

        Returns within `within_s`, or after `2 * CUT_S` if that is longer.
        """
        state = self._state
        if self._server is not None:
            self._server.close()
        state.closing = True
        self._handshakes.close()
        for connection in tuple(state.connections):
            connection.shutdown()
        state.left()
        try:
            if not await self._ended(max(0.0, within_s - 2 * CUT_S)):
                for connection in tuple(state.connections):
                    connection.transport.abort()
                if not await self._ended(CUT_S):
                    for request in tuple(state.tasks):
                        request.cancel()
                    await self._ended(CUT_S)
        finally:
            if self._dating is not None:
                self._dating.cancel()

    async def _ended(self, within_s: float) -> bool:
        """Wait until no connection is open and no request runs. Returns False if that takes longer than `within_s`."""
        state = self._state
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await state.none_left.wait()
                if state.tasks:
                    await asyncio.wait(tuple(state.tasks))
                return True
        return False

    def _guarded(self) -> GuardedProtocol:
        return GuardedProtocol(self._config, self._state, {})

    def _secured(self) -> TlsConnection:
        assert self._tls is not None
        return TlsConnection(self._tls, self._guarded, asyncio.get_running_loop(), self._handshakes)

    def _date(self) -> None:
        """Set the Date of all answers (RFC 9110 §6.6.1), now and every second."""
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._dating = asyncio.get_running_loop().call_later(1.0, self._date)


def _is_no_cancel(record: logging.LogRecord) -> bool:
    """Filter out canceled requests: uvicorn (0.54) logs each with a traceback, but only a stop cancels requests."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def bound_socket(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Bind a socket to the address without listening yet. Raises OSError if that fails.

    With `shared` other processes of this user may listen there too; the system spreads connections over them.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is given; without it answers wait 40 ms for a delayed ACK.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
