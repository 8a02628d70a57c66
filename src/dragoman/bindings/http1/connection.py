"""ServerConnection: the HTTP/1.1 of one client's connection.

Three things have states. The bytes that come next (`_heading`, `_newest.arriving`, `_refusal`, `_unread`):

    BETWEEN ── a byte ──► HEAD ── whole ──► BODY ── whole ──► BETWEEN
      │                   │  │               │
      │ idle for too long │  └─ malformed ───┴──► REFUSED: no more is parsed; the error follows the answers to the
      ▼                   │ too slow: 408                  requests before it, and the connection closes
    closed ◄──────────────┘
    HELD, in any of them but REFUSED: while a request waits, bytes are kept unparsed, and the socket is not read.

A request, once its head is whole (`_waiting`, `_answering`, `started`, `complete`, `disconnected`). Its body arrives
meanwhile; what comes of it after the answer is thrown away:

    WAITING ── its turn ──► ANSWERING ── head sent ──► STARTED ── body sent ──► COMPLETE
      │ body malformed       │ body malformed: 400      │ body malformed, or no whole answer: the connection closes
      ▼                      │ no answer: 500           │
    dropped, then REFUSED    └──────────────────────────┴─ the client leaves: DISCONNECTED, the application is told

The connection (`keep_alive` of the newest request, `_shared.retiring`, the transport's own closing):

    OPEN ── an answer is to be the last: its request says so, or `retire`, or `shutdown` ──► LAST ── answered ──┐
      │                                                                                                         ▼
      └── idle for too long, an error was sent, or it retires with nothing under way ───────────────────────► CLOSING
                             lost ◄── aborted, if its reader takes nothing for `reader_pause_s` ── or flushed ──┘

It begins with a `Seat`, which decides whether it is served, reserved for a probe, or refused, and never changes.

The machines do not cover the parsing of messages (httptools), TLS (`bindings.tls`), how long a body may take (the
application), nor the pace of writing (`write_paused`: senders wait in `drain`).

Invariant: the requests of a connection are answered one after the other, in the order in which they arrived, and each
in full. A connection holds a bounded number of bytes.
"""

import asyncio
import logging
import re
import sys
import urllib.parse
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from fcntl import ioctl
from http import HTTPStatus
from termios import TIOCOUTQ
from typing import Any, Protocol, runtime_checkable

import httptools
from msgspec import Struct

from dragoman.bindings.http import Asgi
from dragoman.bindings.http1.bounds import RESERVE_HEAD_BYTES, RESERVE_HEAD_S, ConnectionCounter, Seat
from dragoman.bindings.http1.exchange import (
    NO_REQUEST_TARGET,
    STATUS_LINES,
    Address,
    AsgiExchange,
    RequestTarget,
)
from dragoman.bindings.limits import SLOWEST_BYTES_PER_S
from dragoman.bindings.request import Header, RepeatedHeaders
from dragoman.engine.timer_wheel import Bucket, TimerWheel
from dragoman.net.http1 import HEAD_BYTES_MAX, transfer_codings
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

SLICE_BYTES = 8192
"""The parser reads at most this much before the connection checks whether requests are waiting. So at most some 300 of
the shortest requests wait, which is 1 MB. A packet may have 256 KB (uvloop 0.23)."""

REST_S = 0.25
"""After how long without a byte a connection drops what its next request makes anew: 2 KB."""

LENGTH_DIGITS_MAX = 9
"""The most digits of a Content-Length in a head that is recognised."""

LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,9})\r\n", re.IGNORECASE)

HOP_HEADERS = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
"""Headers by which a request is more than its head and the bytes that its Content-Length counts."""

HOST = re.compile(
    rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~%-]+)?\])(?::[0-9]{0,5})?", re.ASCII
)
"""`uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2). It may not be empty: every URL of this server has a host."""

NO_HOST = "The request has no Host header: send the host of the URL (RFC 9112, section 3.2)."
TWO_HOSTS = "The request has more than one Host header: send one (RFC 9112, section 3.2)."
WRONG_HOST = "The Host header is empty or malformed: send a host name or address, with a port if the URL has one."
NO_PROXY = "CONNECT is not served here: this server is not a proxy."
WRONG_VERSION = "This version of HTTP is not served on such a connection: use HTTP/1.1."
LONG_HEAD = "The head of the request is too large."
LONG_REST = "The trailers, a chunk extension or the empty lines of the request are too large."
MALFORMED = "Invalid HTTP request received."
UNKNOWN_CODING = "The Transfer-Encoding is not understood here: send the body as it is, or chunked."
NOT_CHUNKED = "The last Transfer-Encoding is not chunked: the end of the body cannot be found (RFC 9112, section 6.3)."
CHUNKED_TWICE = "The body is chunked more than once (RFC 9112, section 6.1)."

TOO_SLOW = "The head of the request came too slowly."
BUSY = "The server has as many connections as it takes: try again soon."

PROBES = frozenset({"/health", "/healthz"})
"""The paths that are answered on a connection of the reserve."""


class Malformed(Exception):
    """A request that breaks the rules of HTTP, or asks for what is not implemented. The text is sent to the client."""

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(text)
        self.status = status


class KnownHead(Struct):
    """A head that was parsed and checked, as the bytes `before` and `after` the digits of its Content-Length.

    Clients send the same head with every request, but for those digits. `hits` counts how often it came again.
    """

    before: bytes
    after: bytes
    method: str
    target: RequestTarget
    header_list: list[Header]
    headers: RepeatedHeaders
    hits: int = 0

    def find_body(self, data: bytes) -> int:
        """Where the body begins, if `data` is one request with this head and the whole body; else 0."""
        before, after = self.before, self.after
        if not data.startswith(before):
            return 0
        begin = len(before)
        end = data.find(b"\r", begin, begin + LENGTH_DIGITS_MAX + 1)
        if end < 0 or not data.startswith(after, end):
            return 0
        digits, body = data[begin:end], end + len(after)
        return body if digits.isdigit() and int(digits) == len(data) - body else 0

    def headers_of(self, length: bytes) -> tuple[list[Header], dict[bytes, bytes]]:
        """The headers of a request that comes again with this head, and that Content-Length."""
        self.hits += 1
        if length != self.headers[b"content-length"]:
            self.headers = RepeatedHeaders({**self.headers, b"content-length": length})
            self.header_list = [(name, self.headers[name]) for name, _ in self.header_list]
        return self.header_list, self.headers


def learn_head(data: bytes, exchange: AsgiExchange) -> KnownHead | None:
    """The head of a request that is all of `data`, if another one may be recognised by it."""
    headers, head_end = exchange.headers, data.find(b"\r\n\r\n") + 4
    if exchange.version != "1.1" or not exchange.keep_alive or HOP_HEADERS & headers.keys():
        return None
    if len(headers) < len(exchange.header_list) or (length := LENGTH.search(data, 0, head_end)) is None:
        return None
    if headers.get(b"content-length") != length[1] or int(length[1]) != len(data) - head_end:
        return None
    before, after = data[: length.start(1)], data[length.end(1) : head_end]
    return KnownHead(before, after, exchange.method, exchange.target, exchange.header_list, RepeatedHeaders(headers))


class Refusal(Struct, frozen=True):
    """The answer to bytes that are no request that could be answered."""

    status: HTTPStatus
    text: str


NO_HEADER_LIST: list[Header] = []
"""The headers of no request: each that begins has a list of its own."""


def read_target(url: bytes) -> RequestTarget:
    """Take the target of a request apart. Raises httptools.HttpParserInvalidURLError or UnicodeDecodeError."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path or b"/"  # a whole URL may have none (RFC 9112 §3.2.2)
    path = raw_path.decode("ascii")
    return RequestTarget(url, urllib.parse.unquote(path) if "%" in path else path, raw_path, parsed.query or b"")


AnswerExchange = Callable[[AsgiExchange, Address | None, Address | None, str], Coroutine[Any, Any, None]]
"""Answers a request that came from a client to an address of this server, by `http` or `https`."""


@runtime_checkable
class ExchangeApp(Protocol):
    """An application that answers exchanges themselves, which costs less than ASGI's messages."""

    def answer_exchange(
        self, exchange: AsgiExchange, client: Address | None, server: Address | None, scheme: str
    ) -> Coroutine[Any, Any, None]:
        """See `AnswerExchange`."""
        ...


def over_asgi(app: Asgi) -> AnswerExchange:
    """Let any ASGI application answer."""
    return lambda exchange, client, server, scheme: app(
        exchange.scope(client, server, scheme), exchange.receive, exchange.send
    )


ReaderCut = Callable[[str, float], None]
"""Is told the address of a reader that is cut off, and for how many seconds it took nothing."""


def ignore_cut(peer: str, pause_s: float) -> None:
    """Take no note of a reader that is cut off."""


class Connections:
    """The open connections of a listener, the application that answers on them, and their limits of time."""

    def __init__(
        self,
        app: Asgi,
        keep_alive_s: float,
        reader_pause_s: float,
        reader_cut: ReaderCut = ignore_cut,
        counter: ConnectionCounter | None = None,
    ) -> None:
        self.answer: AnswerExchange = app.answer_exchange if isinstance(app, ExchangeApp) else over_asgi(app)
        self.counter = ConnectionCounter() if counter is None else counter
        self.keep_alive_s = keep_alive_s
        self.reader_pause_s = reader_pause_s
        self.reader_cut = reader_cut
        self.date = b""
        """The Date of all answers (RFC 9110 §6.6.1), as a line of their heads."""
        self.open: set[ServerConnection] = set()
        self.tasks: dict[AsgiExchange, asyncio.Task[None]] = {}
        """The calls of the application. Each leaves when it ends: a callback for that would cost a turn of the loop."""
        self.wheel: TimerWheel = TimerWheel(keep_alive_s)
        """The connections that are idle, by the time at which they are looked at."""
        self.context = copy_context()
        """The context in which answers that were parked go on. The code that wakes one has a context of its own."""
        self.server: Address | None = None
        """The address at which the last connection arrived: nearly all have the same."""
        self.retiring = False
        """Whether each connection is closed after its next answer."""
        self.closing = False
        self.none_left = asyncio.Event()
        """Set once the listener is closing and has no connection."""

    def arrived_at(self, server: Address | None) -> Address | None:
        """Note the address at which a connection arrives. Returns an equal one that many connections share."""
        if server != self.server:
            self.server = server
        return self.server

    def set_date(self, value: str) -> None:
        """Take the Date of all answers from now on."""
        self.date = f"date: {value}\r\n".encode()

    def retire(self) -> None:
        """Close each connection after the answers that are due on it."""
        self.retiring = True
        for connection in tuple(self.open):
            connection.retire()

    def shutdown(self) -> None:
        """Complete the answers under way, and close each connection after that."""
        self.closing = True
        for connection in tuple(self.open):
            connection.shutdown()
        self.left()

    def left(self) -> None:
        """Note that a connection may have been the last one."""
        if self.closing and not self.open:
            self.none_left.set()


class ServerConnection(asyncio.Protocol):
    """A connection of a client. Its requests are parsed as they come; while one is answered, others wait.

    Each phase has a time. A client that connects, or has been answered, has the keep-alive time until its next head
    begins; empty lines and the rest of a body that nobody receives do not prolong it. The head of a request may have
    about `HEAD_BYTES_MAX`. A head that takes longer than the keep-alive time must arrive at `SLOWEST_BYTES_PER_S`, or
    it is answered with 408. The application bounds the time of a body. A reader that takes nothing of the waiting data
    for `reader_pause_s` is cut off. A request has one Host. An offer to change the protocol is ignored. Pipelined
    requests wait in bounded memory.

    A connection of the reserve has `RESERVE_HEAD_S` for one head of `RESERVE_HEAD_BYTES`. A probe is answered, anything
    else with 503, and the connection is closed.

    A connection is not put into the wheel anew for each request: when it is looked at, it is put back for the rest of
    its time. After `REST_S` without a byte it keeps neither a parser nor its last request.
    """

    __slots__ = (
        "_answering",
        "_bucket",
        "_client",
        "_drained",
        "_head_bytes",
        "_head_until",
        "_headers",
        "_heading",
        "_host",
        "_known",
        "_loop",
        "_newest",
        "_own_seat",
        "_parser",
        "_reading",
        "_refusal",
        "_scheme",
        "_seat",
        "_server",
        "_shared",
        "_stalled",
        "_target",
        "_transport",
        "_unread",
        "_url",
        "_waiting",
        "write_paused",
    )

    def __init__(self, shared: Connections, loop: asyncio.AbstractEventLoop, seat: Seat | None = None) -> None:
        """`seat` is the one of a connection that another protocol has entered, and will leave."""
        self._shared = shared
        self._seat = seat or Seat.SERVED
        self._own_seat = seat is None
        self._loop = loop
        self._transport: asyncio.Transport
        self._client: tuple[str, int] | None = None
        self._server: tuple[str, int] | None = None
        self._scheme = "http"
        self._parser: httptools.HttpRequestParser | None = None
        """Made with the first bytes."""
        self._heading = False
        """Whether the head of a request is arriving. `_head_bytes` counts the bytes since it began, or since the last
        byte of a body; `_head_until` is the deadline of the head."""
        self._head_bytes = 0
        self._head_until = 0.0
        """While no request is being answered, the next head has to be here by then."""
        self._url = b""
        self._headers = NO_HEADER_LIST
        self._host: bytes | None = None
        """The Host of the last request, which was checked."""
        self._target = NO_REQUEST_TARGET
        """The target of the last request."""
        self._known: KnownHead | None = None
        """The head of an earlier request. One that comes again is not parsed, which saves a tenth of a GetTask."""
        self._newest: AsgiExchange | None = None
        """The last request whose head has come."""
        self._answering: AsgiExchange | None = None
        self._waiting: tuple[AsgiExchange, ...] = ()
        """The requests that wait until those before them are answered. The last one is `_newest`. Few connections have
        any: an empty deque takes 760 bytes."""
        self._unread = b""
        """Bytes that arrived after the waiting requests. Nothing is read from the socket meanwhile."""
        self._refusal: Refusal | None = None
        """The fault in the bytes after the waiting requests. It is sent after their answers."""
        self._reading = True
        self.write_paused = False
        self._drained: tuple[asyncio.Future[None], ...] = ()
        self._bucket: Bucket | None = None
        """The place in the wheel, which will look at `_head_until`."""
        self._stalled: asyncio.TimerHandle | None = None
        """Will check whether the reader has taken anything since; set while data waits for the reader."""

    def _new_parser(self) -> httptools.HttpRequestParser:
        """A parser that reports to the `on_…` methods.

        It takes requests behind one that asks to close the connection: what became of the first one is decided here.
        """
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # -- the connection ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as a listener has it
        """A client has connected: set the deadline for its first head."""
        self._transport = transport
        if self._own_seat:
            self._seat = self._shared.counter.enter(transport)
            if self._seat is Seat.REFUSED:
                transport.abort()
                return
        self._client = _address(transport.get_extra_info("peername"))
        self._server = self._shared.arrived_at(_address(transport.get_extra_info("sockname")))
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._shared.open.add(self)
        self._expect_head()
        if self._shared.closing:  # it was accepted just before
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered, drop those that wait, and release what refers to this."""
        self._shared.open.discard(self)
        if self._own_seat:
            self._shared.counter.leave(self._seat, self._transport)
        if self._answering is not None:
            if exc is not None and self._answering.started:
                peer = self._peer
                log.info("the connection to %s broke in the middle of an answer: %s", peer, exc, extra=about(peer))
            self._answering.disconnect()
        self._answering = self._newest = None
        self._waiting = ()
        self._unread = b""
        self.resume_writing()
        if self._bucket is not None:
            self._bucket.discard(self)
            self._bucket = None
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self._parser = None  # it refers to this
        self._shared.left()

    def retire(self) -> None:
        """Close after the answers to the requests that have begun to arrive; at once if there are none."""
        if self._answering is not None and self._newest is not None:
            self._newest.close_after()
        elif not self._heading:
            self._close()

    def shutdown(self) -> None:
        """Stop: answers under way are completed, but a request whose body is incomplete is dropped.

        Its client sees the connection close before an answer, as with any server that restarts.
        """
        newest = self._newest
        if newest is None or self._answering is None or (newest is self._answering and newest.arriving):
            self._close()
        else:
            newest.close_after()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _close(self) -> None:
        """Close, after everything written has been sent."""
        if self._answering is not None:
            self._answering.flush()
        self._transport.close()
        self._expect_flush()

    # -- requests: what the parser reports -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse the bytes in slices, up to the first request that has to wait, and keep the rest."""
        if self._refusal is not None or self._seat is Seat.REFUSED:
            return
        if self._waiting or self._unread:
            self._unread += data
            self._pause_reading()
            return
        known, newest = self._known, self._newest
        between = self._answering is None and not (self._heading or (newest is not None and newest.arriving))
        if known is not None and between and len(data) <= SLICE_BYTES and (body := known.find_body(data)):
            self._recognise(known, data, body)
            return
        self._parse(data)
        exchange = self._newest
        if exchange is None or exchange is newest or exchange.arriving or self._waiting or not between:
            return
        if known is None or known.hits:  # heads that never come again are not learned one after the other
            self._known = learn_head(data, exchange) or known

    def _recognise(self, known: KnownHead, data: bytes, body: int) -> None:
        """Answer a request whose head is known, and whose body begins at `body`."""
        header_list, headers = known.headers_of(data[len(known.before) : body - len(known.after)])
        exchange = self._newest = AsgiExchange(
            self,
            self._loop,
            known.method,
            "1.1",
            known.target,
            header_list,
            headers,
            keep_alive=not self._shared.retiring,
            continues=False,
        )
        if body < len(data):
            exchange.add(data[body:])
        exchange.end_body()
        self._head_bytes = 0
        self._answer(exchange)

    def _parse(self, data: bytes) -> None:
        at, view = 0, data if len(data) <= SLICE_BYTES else memoryview(data)
        while at < len(data):
            if self._waiting:
                self._unread = data[at:]
                self._pause_reading()
                return
            piece = view[at : at + SLICE_BYTES]
            self._head_bytes += len(piece)
            if self._heading and self._seat is Seat.SERVED:
                self._head_until += len(piece) / SLOWEST_BYTES_PER_S
            if self._head_bytes > HEAD_BYTES_MAX:  # or trailers, a chunk extension, empty lines before a request
                self._refuse(LONG_HEAD if self._heading else LONG_REST)
                return
            if self._seat is Seat.RESERVED and self._head_bytes > RESERVE_HEAD_BYTES:
                self._refuse(BUSY, HTTPStatus.SERVICE_UNAVAILABLE)
                return
            read, offered = len(piece), False
            try:
                try:
                    if self._parser is None:
                        self._parser = self._new_parser()
                    self._parser.feed_data(piece)
                except httptools.HttpParserUpgrade as offer:
                    read, offered = offer.args[0], True
                if offered:
                    self._decline_upgrade()
                at += read
            except httptools.HttpParserError as error:
                wrong = error.__context__  # httptools keeps our exception here
                if isinstance(wrong, Malformed):
                    self._refuse(str(wrong), wrong.status)
                else:
                    self._refuse(MALFORMED)
                return

    def on_message_begin(self) -> None:
        """A head begins: set its deadline."""
        self._heading = True
        self._head_bytes = 0
        if self._seat is Seat.SERVED:
            self._head_until = self._loop.time() + self._shared.keep_alive_s
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """Some of the target came."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header came, or a trailer, which is no header (RFC 9110 §6.5.1)."""
        if self._heading:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Check the head of a request, and begin to answer it, or let it wait. Raises Malformed."""
        parser = self._parser
        assert parser is not None
        method = parser.get_method()
        if parser.should_upgrade():
            if method == b"CONNECT":
                raise Malformed(NO_PROXY)
            return  # the head is parsed again without the offer: see _decline_upgrade
        version = parser.get_http_version()
        if version != "1.1" and version != "1.0":  # httptools takes 0.9 and 2.0 too
            raise Malformed(WRONG_VERSION)
        headers = dict(self._headers)
        host = headers.get(b"host")
        if host != self._host or host is None or len(headers) < len(self._headers):
            self._check_host(version)  # else it is that of the connection's last request
        if self._url != self._target.url:
            self._target = read_target(self._url)
        target = self._target
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (coding != b"chunked" or len(headers) < len(self._headers)):
            self._check_codings()
        if self._seat is Seat.RESERVED and target.path not in PROBES:
            raise Malformed(BUSY, HTTPStatus.SERVICE_UNAVAILABLE)
        self._heading = False
        exchange = self._newest = AsgiExchange(
            self,
            self._loop,
            method.decode("ascii"),
            version,
            target,
            self._headers,
            headers,
            keep_alive=(
                version != "1.0"
                and not self._shared.retiring
                and self._seat is Seat.SERVED
                and parser.should_keep_alive()
            ),
            continues=headers.get(b"expect", b"").lower() == b"100-continue" and version == "1.1",
        )
        if self._answering is None:
            self._answer(exchange)
        else:
            self._waiting += (exchange,)

    def on_body(self, body: bytes) -> None:
        """Some of a body came. Nobody receives it once the request has been answered."""
        self._head_bytes = 0
        exchange = self._newest
        if exchange is not None and not exchange.complete:
            exchange.add(body)
            if exchange.full:
                self._pause_reading()

    def on_message_complete(self) -> None:
        """A request is complete. One that offers an upgrade has not been read beyond its head: see _decline_upgrade."""
        exchange, parser = self._newest, self._parser
        if exchange is None or parser is None or parser.should_upgrade():
            return
        exchange.end_body()
        if exchange.complete and self._answering is None:
            self._expect_head()  # the body of a request that has been answered before it was whole

    def _decline_upgrade(self) -> None:
        """Parse the head again without its Upgrade header, with a new parser, which then reads the body.

        A server may ignore the offer (RFC 9110 §7.8); curl --http2 and Java's HttpClient make it with every request.
        httptools (0.9) stops at such a head and takes the body for another protocol's
        (github.com/MagicStack/httptools/issues/124). The workaround can go once httptools lets a protocol decline.
        """
        parser = self._parser
        assert parser is not None
        head = [b"%s %s HTTP/%s\r\n" % (parser.get_method(), self._url, parser.get_http_version().encode())]
        head += [b"%s: %s\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        self._parser = parser = self._new_parser()
        parser.feed_data(b"".join([*head, b"\r\n"]))

    def _check_codings(self) -> None:
        """Check that a body is chunked and nothing else. Raises Malformed.

        A server that does not understand a coding answers 501 (RFC 9112 §6.1): its bytes would be taken for the body.
        """
        values = b",".join(value for name, value in self._headers if name == b"transfer-encoding")
        codings = transfer_codings(values.decode("latin-1"))
        if not codings or codings[-1] != "chunked":
            raise Malformed(NOT_CHUNKED)
        if any(coding != "chunked" for coding in codings):
            raise Malformed(UNKNOWN_CODING, HTTPStatus.NOT_IMPLEMENTED)
        if len(codings) > 1:
            raise Malformed(CHUNKED_TWICE)

    def _check_host(self, version: str) -> None:
        """Check that there is one valid Host; HTTP/1.0 may send none (RFC 9112 §3.2). Raises Malformed."""
        hosts = [value for name, value in self._headers if name == b"host"]
        if len(hosts) > 1:
            raise Malformed(TWO_HOSTS)
        if hosts:
            if HOST.fullmatch(hosts[0]) is None:
                raise Malformed(WRONG_HOST)
            self._host = hosts[0]
        elif version != "1.0":
            raise Malformed(NO_HOST)

    def _refuse(self, why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        """Answer with an error and close, after all earlier requests are answered."""
        newest = self._newest
        if newest is None or newest.complete:
            self._send_last(status, why)
        elif not newest.arriving:
            self._refuse_later(Refusal(status, why))
        elif newest is not self._answering:  # the body of a waiting request is malformed
            self._waiting = self._waiting[:-1]
            self._newest = self._waiting[-1] if self._waiting else self._answering
            self._refuse_later(Refusal(status, why))
        elif newest.started:
            self._close()
        else:
            self._send_last(status, why)

    def _refuse_later(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self._pause_reading()

    def _send_last(self, status: HTTPStatus, text: str) -> None:
        """Send an answer of this side's own, and close."""
        head = f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(text)}\r\nconnection: close\r\n"
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            self._shared.counter.answer_busy()
            head += f"retry-after: {RESERVE_HEAD_S:.0f}\r\n"
        self.write(STATUS_LINES[status] + self.date + f"{head}\r\n{text}".encode())
        self._close()

    # -- answers -------------------------------------------------------------------------------------------------------

    @property
    def date(self) -> bytes:
        """The Date of an answer, as a line of its head."""
        return self._shared.date

    def _answer(self, exchange: AsgiExchange) -> None:
        self._answering = exchange
        self._shared.tasks[exchange] = self._loop.create_task(self._run(exchange))

    def resume(self, exchange: AsgiExchange, rest: Coroutine[Any, Any, None]) -> None:
        """Go on with an answer that was parked."""
        run = self._run(exchange, rest)
        self._shared.tasks[exchange] = self._shared.context.run(self._loop.create_task, run)

    async def _run(self, exchange: AsgiExchange, rest: Coroutine[Any, Any, None] | None = None) -> None:
        """Call the application, for the `rest` of an answer that was parked. A call that it leaves without an answer
        costs the connection, unless it parks the answer."""
        try:
            await (self._shared.answer(exchange, self._client, self._server, self._scheme) if rest is None else rest)
        except Exception:
            log.exception("the application raised")
        finally:
            self._shared.tasks.pop(exchange, None)
        if not (exchange.complete or exchange.disconnected or exchange.parked):
            if exchange.started:
                self._close()
            else:
                self._send_last(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error")

    def answered(self, exchange: AsgiExchange) -> None:
        """The answer has been written to its end: go on to the next request of the connection."""
        self._answering = None
        if not exchange.keep_alive:
            self._transport.close()
        if self._transport.is_closing():
            self._expect_flush()
            return
        if self._waiting:
            first, *later = self._waiting
            self._waiting = tuple(later)
            self._answer(first)
        else:
            self._expect_head()
        if not self._reading:
            self._read_on()

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is closing: uvloop (0.23) raises RuntimeError then."""
        if not self._transport.is_closing():
            self._transport.write(data)

    # -- the pace ------------------------------------------------------------------------------------------------------

    def _pause_reading(self) -> None:
        if self._reading and not self._transport.is_closing():  # uvloop raises on a closed connection
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless bytes wait to be parsed, or much of a body to be received.

        Requests that wait to be answered are no reason: whether the client has left is seen by reading.
        """
        full = self._newest is not None and self._newest.full
        if not (self._reading or full or self._unread or self._refusal is not None or self._transport.is_closing()):
            self._reading = True
            self._transport.resume_reading()

    def _read_on(self) -> None:
        """Parse the bytes that were kept, or send the refusal that waited, unless requests wait before them."""
        if self._waiting:
            return
        unread, self._unread = self._unread, b""
        if unread:
            self._head_until = self._loop.time() + self._shared.keep_alive_s
            self.data_received(unread)
        elif self._refusal is not None and self._answering is None:
            self._send_last(self._refusal.status, self._refusal.text)
        self.resume_reading()

    def pause_writing(self) -> None:
        """The write buffer is full: senders wait, and the reader is watched."""
        self.write_paused = True
        self._expect_reading(self._unread_bytes())

    def resume_writing(self) -> None:
        """The reader has taken most of the buffer."""
        self.write_paused = False
        drained, self._drained = self._drained, ()
        for waiter in drained:
            if not waiter.done():
                waiter.set_result(None)
        if self._stalled is not None and not self._transport.is_closing():
            self._stalled.cancel()
            self._stalled = None

    async def drain(self) -> None:
        """Wait until the reader has taken most of what was written, or has left."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._drained += (waiter,)
        await waiter

    def _unread_bytes(self) -> int:
        """How many bytes the reader has not taken: those buffered here and, on Linux, those in the kernel."""
        unread = self._transport.get_write_buffer_size()
        if sys.platform == "linux" and (found := self._transport.get_extra_info("socket")) is not None:
            with suppress(OSError):
                unread += int.from_bytes(ioctl(found.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
        return unread

    def _expect_flush(self) -> None:
        """The connection is about to close, once its reader has taken what waits here, however little that is."""
        if self._stalled is None and self._transport.get_write_buffer_size():
            self._expect_reading(self._unread_bytes())

    def _expect_reading(self, unread: int) -> None:
        self._stalled = self._loop.call_later(self._shared.reader_pause_s, self._cut_unless_less_than, unread)

    def _cut_unless_less_than(self, unread: int) -> None:
        """Cut off a reader if it has taken nothing since `unread` bytes waited. A normal close would wait for ever."""
        left = self._unread_bytes()
        if left < unread:
            self._expect_reading(left)
        else:
            self._shared.reader_cut(self._peer, self._shared.reader_pause_s)
            self._transport.abort()

    @property
    def _peer(self) -> str:
        """The address of the client."""
        return "" if self._client is None else self._client[0]

    @property
    def _head_within_s(self) -> float:
        """How long a client has until its next head begins; on a connection of the reserve, until it is whole."""
        return self._shared.keep_alive_s if self._seat is Seat.SERVED else RESERVE_HEAD_S

    def _expect_head(self) -> None:
        """Let the time for the next head begin. A connection in the wheel is not moved: it looks at the deadline."""
        now_s = self._loop.time()
        self._head_until = now_s + self._head_within_s
        if self._bucket is None:
            self._bucket = self._shared.wheel.add(self, min(self._head_until, now_s + REST_S))

    def look(self, now_s: float) -> None:
        """Close a connection that was idle for too long, or whose head did not arrive in time."""
        self._bucket = None
        if self._answering is not None:
            return  # it is put into the wheel after its answer
        if now_s < self._head_until and not self._transport.is_closing():
            within_s = self._head_within_s
            if not self._heading:
                rests = now_s >= self._head_until - within_s + REST_S and self.rest()
                within_s = within_s if rests else REST_S
            self._bucket = self._shared.wheel.add(self, min(self._head_until, now_s + within_s))
        elif self._seat is Seat.RESERVED:
            self._send_last(HTTPStatus.SERVICE_UNAVAILABLE, BUSY)
        elif self._heading:
            self._send_last(HTTPStatus.REQUEST_TIMEOUT, TOO_SLOW)
        else:
            self._close()

    def rest(self) -> bool:
        """Drop what the next request makes anew. Returns False, and does nothing, in the middle of a request."""
        if self._heading or (self._newest is not None and self._newest.arriving):
            return False
        self._parser = self._host = self._known = None
        self._headers, self._url, self._target = NO_HEADER_LIST, b"", NO_REQUEST_TARGET
        if self._answering is None:
            self._newest = None
        return True


def _address(found: Any) -> tuple[str, int] | None:
    """A host with its port; None for a socket that has none."""
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) > 1 else None
