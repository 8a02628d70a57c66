"""One POST by HTTP/1.1 without input and output: the bytes of a request, and an answer from the bytes that come.

Invariant: nothing that is given to a request becomes a line of its own in it; an answer is `clean` only if the last
byte that came completed it, so that nothing is left with which the next answer could begin.
"""

import re
from collections.abc import Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from dragoman import __version__
from dragoman.net.errors import BadUrl
from dragoman.net.target import Target

HEAD_BYTES_MAX = 64 * 1024
"""Of all heads of an answer together, those of interim answers too; nobody who takes webhooks has so much to say."""

DISCARDED_BYTES_MAX = 64 * 1024
"""Of a body that nobody wants, so much is read; a new connection costs less than reading more."""

_BEGINNING = b"HTTP/"
"""RFC 9112 §2.3. The parser would take RTSP and ICE for it too, and skip empty lines before it."""

_PORTS = {"http": 80, "https": 443}
_PATH = re.compile(r"/[!-~]*", re.ASCII)
_HOST = re.compile(r"[0-9a-z._:-]+", re.ASCII)

_OURS = "connection|content-length|expect|host|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade"
"""What says where a request ends and what becomes of its connection is not for the caller to say."""

_NAMES = re.compile(rf"(?:(?!(?:{_OURS})\n)[!#$%&'*+.^_`|~0-9a-z-]+\n)*", re.ASCII | re.IGNORECASE)
"""Names of headers, one to a line (RFC 9110 §5.1)."""

_UNSENDABLE = re.compile(r"[^\t\x20-\x7e\x80-\U0010ffff]")
"""What a header's value cannot hold (RFC 9110 §5.5); a line break would begin another header."""


def requested(to: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """A request in full. Raises BadUrl if something of it cannot be written as what it is."""
    path, host = to.url[to.url.find("/", len(to.scheme) + 3) :], to.host.removesuffix(".")
    if _PATH.fullmatch(path) is None or _HOST.fullmatch(host) is None:
        raise BadUrl(repr(to.shown), "its host or path holds what cannot be sent")
    names = "".join([f"{name}\n" for name in headers])
    if _NAMES.fullmatch(names) is None or names.count("\n") != len(headers):
        raise BadUrl(to.shown, "a header of the request has a name that cannot be sent")
    if _UNSENDABLE.search("".join(headers.values())) is not None:
        raise BadUrl(to.shown, "a header of the request holds a line break or another control character")
    place = f"[{host}]" if ":" in host else host
    if to.port != _PORTS[to.scheme]:  # RFC 9110 §4.2.3: the default port is left out
        place = f"{place}:{to.port}"
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: dragoman/{__version__}\r\nAccept: */*\r\n"
        f"Accept-Encoding: identity\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    )
    try:
        return head.encode() + body
    except UnicodeEncodeError as error:  # half a pair of surrogates
        raise BadUrl(to.shown, "a header of the request holds what is not text") from error


class NotHttp(Exception):
    """What came is not an answer by HTTP/1.1 or 1.0, or its head is too large."""


class Answer:
    """An answer as it comes. What counts is its status: all is well once that is there, whatever the body is.

    `status` is 0 until the whole head has come; answers of 1xx before it are skipped. Of the body there is as much as
    came, at most `body_max` bytes. `over`: nothing more is worth waiting for. `clean`: another request may follow it
    on the same connection.
    """

    __slots__ = (
        "_beginning", "_body_max", "_complete", "_discardable", "_head_room", "_keeps", "_parser",
        "begun", "body", "clean", "headers", "over", "status",
    )  # fmt: skip

    def __init__(self, body_max: int) -> None:
        self.begun = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.over = False
        self.clean = False
        self._body_max = body_max
        self._beginning = b""
        self._head_room = HEAD_BYTES_MAX
        self._discardable = DISCARDED_BYTES_MAX
        self._complete = False
        self._keeps = False
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    def receive(self, data: bytes) -> None:
        """Take what came next. Raises NotHttp if there is no status in it, and none will come."""
        self.begun = True
        parser = self._parser
        if parser is None:  # nobody was asked for more
            self.clean = False
            return
        try:
            self._take(parser, data)
        except (HttpParserError, HttpParserUpgrade, NotHttp) as error:
            self.over = True
            if not self.status:
                raise NotHttp from error
        finally:
            if self.over:
                self._parser = None  # it holds this object: nothing is to be left to the garbage collector

    def _take(self, parser: HttpResponseParser, data: bytes) -> None:
        if len(self._beginning) < len(_BEGINNING):
            self._beginning += data[: len(_BEGINNING) - len(self._beginning)]
            if not _BEGINNING.startswith(self._beginning):
                raise NotHttp
        while data:
            if self.status:
                piece = data
                self._discardable -= len(piece)
            else:
                piece = data[: self._head_room]
                self._head_room -= len(piece)
                if not piece:
                    raise NotHttp
            data = data[len(piece) :]
            # The parser does not tell where an answer ended: it must be at the last byte, and not before.
            if len(piece) > 1:
                parser.feed_data(piece[:-1])
            early = self._complete
            if not early:
                parser.feed_data(piece[-1:])
            if self._complete:
                self.over = True
                self.clean = self._keeps and not early and not data
                return
            if self._discardable < 0:
                self.over = True
                return

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's: of the head, or of what follows a body in chunks, which counts for nothing."""
        if not self.status:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The parser's."""
        parser = self._parser
        assert parser is not None
        if self._complete:  # of a second answer
            return
        status, version = parser.get_status_code(), parser.get_http_version()
        if version not in ("1.1", "1.0") or status < 100 or status == 101:  # to other protocols nobody asked to go
            raise NotHttp
        if status >= 200:
            self.status = status
            self._keeps = version == "1.1" and parser.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        """The parser's."""
        if len(self.body) < self._body_max and not self._complete:
            self.body += piece[: self._body_max - len(self.body)]

    def on_message_complete(self) -> None:
        """The parser's: of interim answers too."""
        if self.status:
            self._complete = True
        else:
            self.headers.clear()
