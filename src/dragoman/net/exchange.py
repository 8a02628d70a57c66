"""HTTP/1.1 without input and output: the bytes of a request, and an answer from the bytes that come.

Invariant: nothing that is given to a request becomes a line of its own in it; an answer is `clean` only if the last
byte that came completed it, so that nothing is left with which the next answer could begin.
"""

import enum
import re
import sys
from collections.abc import Mapping
from functools import lru_cache

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from dragoman import __version__
from dragoman.net.errors import BadUrl
from dragoman.net.target import Target

HEAD_BYTES_MAX = 64 * 1024
"""Of all heads of an answer together, those of interim answers too; nobody has so much to say."""

DISCARDED_BYTES_MAX = 64 * 1024
"""Of a body that nobody wants, so much is read; a new connection costs less than reading more."""

_BEGINNING = b"HTTP/"
"""RFC 9112 §2.3. The parser would take RTSP and ICE for it too, and skip empty lines before it."""

_PORTS = {"http": 80, "https": 443}
_BODIES = frozenset({"POST", "PUT", "PATCH"})
"""What has a length even without a body (RFC 9110 §8.6)."""

_METHOD = re.compile(r"[A-Z]+", re.ASCII)
_PATH = re.compile(r"/[!-~]*", re.ASCII)
_HOST = re.compile(r"[0-9a-z._:-]+", re.ASCII)

_PLAIN = ("chunked", "identity")

_OURS = "connection|content-length|expect|host|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade"
"""What says where a request ends and what becomes of its connection is not for the caller to say."""

_NAMES = re.compile(rf"(?:(?!(?:{_OURS})\n)[!#$%&'*+.^_`|~0-9a-z-]+\n)*", re.ASCII | re.IGNORECASE)
"""Names of headers, one to a line (RFC 9110 §5.1)."""

_OWN = (
    ("\nuser-agent\n", f"User-Agent: dragoman/{__version__}\r\n"),
    ("\naccept\n", "Accept: */*\r\n"),
    ("\naccept-encoding\n", "Accept-Encoding: identity\r\n"),
)
"""What is said of every request, unless the caller says otherwise."""

STARTS_MAX = 512
"""Beginnings of requests that are remembered: whoever asks asks the same again and again."""

_UNSENDABLE = re.compile(r"[^\t\x20-\x7e\x80-\U0010ffff]")
"""What a header's value cannot hold (RFC 9110 §5.5); a line break would begin another header."""


def requested(to: Target, headers: Mapping[str, str], body: bytes | None, method: str = "POST") -> bytes:
    """A request in full. Raises BadUrl if something of it cannot be written as what it is."""
    start = _start(to, method, tuple(headers))
    if _UNSENDABLE.search("".join(headers.values())) is not None:
        raise BadUrl(to.shown, "a header of the request holds a line break or another control character")
    length = f"Content-Length: {len(body or b'')}\r\n" if body is not None or method in _BODIES else ""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    try:
        return f"{start}{length}{lines}\r\n".encode() + (body or b"")
    except UnicodeEncodeError as error:  # half a pair of surrogates
        raise BadUrl(to.shown, "a header of the request holds what is not text") from error


@lru_cache(STARTS_MAX)
def _start(to: Target, method: str, names: tuple[str, ...]) -> str:
    """What is the same for all requests to a target with headers of these names. Raises BadUrl."""
    path, host = to.url[to.url.find("/", len(to.scheme) + 3) :], to.host.removesuffix(".")
    if _PATH.fullmatch(path) is None or _HOST.fullmatch(host) is None or _METHOD.fullmatch(method) is None:
        raise BadUrl(repr(to.shown), "its host or path holds what cannot be sent")
    written = "".join([f"{name}\n" for name in names])
    if _NAMES.fullmatch(written) is None or written.count("\n") != len(names):
        raise BadUrl(to.shown, "a header of the request has a name that cannot be sent")
    place = f"[{host}]" if ":" in host else host
    if to.port != _PORTS[to.scheme]:  # RFC 9110 §4.2.3: the default port is left out
        place = f"{place}:{to.port}"
    given = f"\n{written.lower()}"
    own = "".join([line for name, line in _OWN if name not in given])
    return f"{method} {path} HTTP/1.1\r\nHost: {place}\r\n{own}"


class NotHttp(Exception):
    """What came is not an answer by HTTP/1.1 or 1.0, or its head is too large."""


class Want(enum.Enum):
    """What an answer is read for."""

    STATUS = "all is well once that is there, whatever becomes of the body; of it there is as much as came"
    ALL = "the body too, which is given up if it is too large or compressed"
    PIECES = "the body as it comes, however long"


class Answer:
    """An answer as it comes.

    `status` is 0 until the whole head has come; answers of 1xx before it are skipped. Of the body at most `body_max`
    bytes are held at once. `over`: nothing more is worth waiting for. `whole`: all of it has come. `clean`: another
    request may follow it on the same connection. `large`, `coded`: it is over as its body is not wanted so.
    """

    __slots__ = (
        "_beginning", "_bodiless", "_body_max", "_discardable", "_head_room", "_keeps", "_parser", "_pieces",
        "begun", "clean", "coded", "headers", "held", "large", "over", "status", "want", "whole",
    )  # fmt: skip

    def __init__(self, body_max: int = sys.maxsize, want: Want = Want.STATUS, *, method: str = "POST") -> None:
        self.want = want
        self.begun = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.held = 0
        self.over = False
        self.whole = False
        self.clean = False
        self.large = False
        self.coded = False
        self._body_max = body_max
        self._pieces: list[bytes] = []
        self._beginning = b""
        self._head_room = HEAD_BYTES_MAX
        self._discardable = DISCARDED_BYTES_MAX if want is Want.STATUS else sys.maxsize
        self._bodiless = method == "HEAD"
        self._keeps = False
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    @property
    def body(self) -> bytes:
        """What is held of the body."""
        return b"".join(self._pieces)

    def take(self) -> bytes:
        """The same, which is then held no longer."""
        pieces, self._pieces, self.held = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

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
                self.close()

    def end(self) -> None:
        """The other side says that no more comes: the end of a body that has no other (RFC 9112 §6.3)."""
        endless = "content-length" not in self.headers and self._parser is not None
        if self.status and endless and "chunked" not in self.headers.get("transfer-encoding", "").lower():
            self.over = self.whole = True
            self.close()

    def close(self) -> None:
        """Nothing more is read of it. The parser holds this object: nothing is to be left to the garbage collector."""
        self._parser = None

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
            early = self.whole
            if not early:
                parser.feed_data(piece[-1:])
            if self.whole:
                self.over = True
                self.clean = self._keeps and not early and not data
                return
            if self._discardable < 0 or self.coded or (self.large and self.want is Want.ALL):
                self.over = True
                return

    def _cut(self) -> None:
        """Hold no more than may be held."""
        self.large = True
        piece = self._pieces.pop()
        if kept := piece[: len(piece) - (self.held - self._body_max)]:
            self._pieces.append(kept)
        self.held = self._body_max

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's: of the head, or of what follows a body in chunks, which counts for nothing."""
        if not self.status:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The parser's."""
        parser = self._parser
        assert parser is not None
        if self.whole:  # of a second answer
            return
        status, version = parser.get_status_code(), parser.get_http_version()
        if version not in ("1.1", "1.0") or status < 100 or status == 101:  # to other protocols nobody asked to go
            raise NotHttp
        if status < 200:
            return
        self.status = status
        self._keeps = version == "1.1" and parser.should_keep_alive()
        if self._bodiless:  # RFC 9110 §9.3.2; of 204 and 304 the parser knows itself
            self.whole = True
        elif self.want is Want.ALL:
            self.coded = coded(self.headers)
            self.large = int(self.headers.get("content-length") or 0) > self._body_max

    def on_body(self, piece: bytes) -> None:
        """The parser's."""
        if self.whole:
            return
        self.held += len(piece)
        self._pieces.append(piece)
        if self.held > self._body_max:
            self._cut()

    def on_message_complete(self) -> None:
        """The parser's: of interim answers too."""
        if self.status:
            self.whole = True
        else:
            self.headers.clear()


def coded(headers: Mapping[str, str]) -> bool:
    """Whether a body is not what it stands for, but compressed."""
    return (
        headers.get("content-encoding", "identity").lower() != "identity"
        or headers.get("transfer-encoding", "chunked").lower() not in _PLAIN
    )
