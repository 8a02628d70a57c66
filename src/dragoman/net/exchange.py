"""HTTP/1.1 without I/O: encodes a request, and parses an answer from the bytes that come.

Invariant: no argument can add a line to a request. An answer is `clean` only if the last byte received completed it, so
that nothing is left over that could begin the next answer.
"""

import enum
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from dragoman import __version__
from dragoman.net.errors import BadUrl
from dragoman.net.http1 import CONTROL_CHARACTER, HEAD_BYTES_MAX, transfer_codings
from dragoman.net.target import Target

DISCARDED_BYTES_MAX = 64 * 1024
"""Most bytes of an unwanted body that are read; a new connection costs less than reading more."""

_BEGINNING = b"HTTP/"
"""The beginning of an answer (RFC 9112 §2.3). The parser would also accept RTSP and ICE, and skip leading empty lines.
"""

_PORTS = {"http": 80, "https": 443}
_BODIES = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests have a length even without a body (RFC 9110 §8.6)."""

_METHOD = re.compile(r"[A-Z]+", re.ASCII)
_PATH = re.compile(r"/[!-~]*", re.ASCII)
_HOST = re.compile(r"[0-9a-z._:-]+", re.ASCII)

_LISTS = frozenset({"content-encoding", "transfer-encoding"})
"""Headers whose values are one list, in however many lines they come (RFC 9110 §5.3)."""

_PLAIN: tuple[list[str], ...] = ([], ["chunked"], ["identity"])
"""The transfer codings that leave the bytes of a body as they are. `identity` is one of HTTP/1.1's first edition."""

_OURS = "connection|content-length|expect|host|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade"
"""Headers that callers may not set: they decide where a request ends and what becomes of its connection."""

_NAMES = re.compile(rf"(?:(?!(?:{_OURS})\n)[!#$%&'*+.^_`|~0-9a-z-]+\n)*", re.ASCII | re.IGNORECASE)
"""Names of headers, one to a line (RFC 9110 §5.1)."""

_OWN = (
    ("\nuser-agent\n", f"User-Agent: dragoman/{__version__}\r\n"),
    ("\naccept\n", "Accept: */*\r\n"),
    ("\naccept-encoding\n", "Accept-Encoding: identity\r\n"),
)
"""Headers of every request, unless the caller sets them."""

ANSWER_BYTES_MAX = 512
"""The largest answer that is remembered: receivers of webhooks send the same few bytes again and again."""

ANSWERS_MAX = 256
"""How many answers are remembered, and how many heads of answers."""

HEAD_BYTES_KNOWN = 1024
"""The largest head that is remembered: a server sends the same head again and again, for a second at least."""

_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
"""The head that a parser gets for a known one: the body that follows is read alike (RFC 9112 §7.1)."""

STARTS_MAX = 512
"""How many beginnings of requests are remembered: clients send similar requests again and again."""


def encode_request(to: Target, headers: Mapping[str, str], body: bytes | None, method: str = "POST") -> bytes:
    """Encode a whole request. Raises BadUrl if a part of it cannot be encoded."""
    start = _start(to, method, tuple(headers))
    values = "".join(headers.values())
    if not values.isprintable() and CONTROL_CHARACTER.search(values) is not None:
        raise BadUrl(to.shown, "a header of the request holds a line break or another control character")
    length = f"Content-Length: {len(body or b'')}\r\n" if body is not None or method in _BODIES else ""
    lines = "\r\n".join([*map(": ".join, headers.items()), "", ""])
    try:
        return f"{start}{length}{lines}".encode() + (body or b"")
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise BadUrl(to.shown, "a header of the request is not valid Unicode text") from error


@lru_cache(STARTS_MAX)
def _start(to: Target, method: str, names: tuple[str, ...]) -> str:
    """Build the part that all requests to a target with headers of these names share. Raises BadUrl."""
    path, host = to.url[to.url.find("/", len(to.scheme) + 3) :], to.host.removesuffix(".")
    if _PATH.fullmatch(path) is None or _HOST.fullmatch(host) is None or _METHOD.fullmatch(method) is None:
        raise BadUrl(repr(to.shown), "its host or path has characters that cannot be sent")
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
    """The bytes are not an answer in HTTP/1.1 or 1.0, or its head is too large."""


class Want(enum.Enum):
    """The part of an answer that the caller needs."""

    STATUS = "the status is enough, whatever becomes of the body; the part of it that came is kept"
    ALL = "the whole body, given up if it is too large or compressed"
    PIECES = "the body as it comes, however long"


class HttpAnswer:
    """An answer that is parsed as its bytes come.

    `status` is 0 until the whole head has come; 1xx answers before it are skipped. At most `body_max` bytes of the body
    are held at once. `over`: nothing more is worth waiting for. `whole`: all of it has come. `clean`: another request
    may follow on the same connection. `large`, `coded`: it is over because its body is too large or compressed.
    """

    __slots__ = (
        "_beginning",
        "_bodiless",
        "_body_end",
        "_body_max",
        "_closed",
        "_discardable",
        "_head_room",
        "_keeps",
        "_parser",
        "_pieces",
        "begun",
        "clean",
        "headers",
        "held",
        "is_compressed",
        "large",
        "on_body",
        "over",
        "status",
        "want",
        "whole",
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
        self.is_compressed = False
        self._body_max = body_max
        self._pieces: list[bytes] = []
        self._body_end = 0
        self.on_body = self._pieces.append
        """Called by the parser with each piece, of which a stream has one for each event: no function of ours."""
        self._beginning = b""
        self._head_room = HEAD_BYTES_MAX
        self._discardable = DISCARDED_BYTES_MAX if want is Want.STATUS else sys.maxsize
        self._bodiless = method == "HEAD"
        self._keeps = False
        self._closed = False
        self._parser: HttpResponseParser | None = None
        """Made when the first bytes have come, if these are not known."""

    @property
    def body(self) -> bytes:
        """The part of the body that is held."""
        return b"".join(self._pieces)

    def take(self) -> bytes:
        """Return the held part of the body, and release it."""
        pieces, self.held = self._pieces, 0
        taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return taken

    def receive(self, data: bytes) -> None:
        """Parse the next bytes. Raises NotHttp if there is no status in them, and none will come."""
        if self._closed:  # nothing more was expected
            self.begun, self.clean = True, False
            return
        if not self.begun:
            self.begun = True
            known = None
            if self.want is Want.STATUS and len(data) <= ANSWER_BYTES_MAX <= self._body_max and not self._bodiless:
                known = parse_whole(data)
            if known is not None:
                self._repeat(known)
                return
            if self.want is Want.PIECES and not self._bodiless:
                rest = self._begin_known(data)
                if rest is not None:
                    data = rest
        parser = self._parser
        if parser is None:
            parser = self._parser = HttpResponseParser(self)
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
        """Note that the other side has closed. That ends a body without a declared length (RFC 9112 §6.3)."""
        endless = "content-length" not in self.headers and not self._closed
        if self.status and endless and "chunked" not in transfer_codings(self.headers.get("transfer-encoding", "")):
            self.over = self.whole = True
            self.close()

    def close(self) -> None:
        """Stop parsing. The parser refers back to this object, so it is dropped to leave no cycle."""
        self._closed, self._parser = True, None

    def _repeat(self, known: "HttpAnswer") -> None:
        """Take over what was parsed from the same bytes."""
        self.status, self.headers = known.status, dict(known.headers)
        self._pieces, self.held = [known.body] if known.held else [], known.held
        self.over = self.whole = self.clean = self._closed = True

    def _begin_known(self, data: bytes) -> bytes | None:
        """Take over a head that is known, and return what follows it in `data`; None if it is not known.

        The parser gets a short head in its place, and calls no function of ours for it.
        """
        end = data.find(b"\r\n\r\n") + 4
        if not 4 <= end <= HEAD_BYTES_KNOWN or (known := parse_head(data[:end])) is None:
            return None
        self.status, self.headers, self._keeps = known.status, dict(known.headers), True
        self._beginning = _BEGINNING
        self._parser = HttpResponseParser(_BodyOnly(self.on_body, self.on_message_complete))
        self._parser.feed_data(_CHUNKED)
        return data[end:]

    def _take(self, parser: HttpResponseParser, data: bytes) -> None:
        if len(self._beginning) < len(_BEGINNING):
            self._beginning += data[: len(_BEGINNING) - len(self._beginning)]
            if not _BEGINNING.startswith(self._beginning):
                raise NotHttp
        pieces = self._pieces
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
            before = len(pieces)
            try:
                # The parser does not tell where an answer ended, so the last byte is fed alone: the answer must end
                # there.
                if len(piece) > 1:
                    parser.feed_data(piece[:-1])
                early = self.whole
                if not early:
                    parser.feed_data(piece[-1:])
            finally:
                if len(pieces) > before:
                    self._count(before)
            if self.whole:
                self.over = True
                self.clean = self._keeps and not early and not data
                return
            if self._discardable < 0 or self.is_compressed or (self.large and self.want is Want.ALL):
                self.over = True
                return

    def _count(self, before: int) -> None:
        """Count the pieces that have come behind the first `before`, and cut the held body to its limit."""
        pieces = self._pieces
        if self.whole:
            del pieces[self._body_end :]  # a second answer has begun
        self.held += sum(map(len, pieces[before:] if before else pieces))
        if self.held <= self._body_max:
            return
        self.large = True
        while self.held > self._body_max:
            piece = pieces.pop()
            self.held -= len(piece)
            if kept := piece[: max(0, self._body_max - self.held)]:
                pieces.append(kept)
                self.held += len(kept)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for the head, and for trailers, which are ignored."""
        if not self.status:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in _LISTS and key in self.headers else text

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        parser = self._parser
        assert parser is not None
        if self.whole:  # a second answer has begun
            return
        status, version = parser.get_status_code(), parser.get_http_version()
        if version not in ("1.1", "1.0") or status < 100 or status == 101:  # no request asks for another protocol
            raise NotHttp
        if status < 200:
            return
        self.status = status
        self._keeps = version == "1.1" and parser.should_keep_alive()
        if self._bodiless:  # RFC 9110 §9.3.2; the parser itself knows that 204 and 304 have no body
            self.whole = True
        elif self.want is Want.ALL:
            self.is_compressed = is_compressed(self.headers)
            self.large = int(self.headers.get("content-length") or 0) > self._body_max

    def on_message_complete(self) -> None:
        """Called by the parser, for interim answers too, and for a second answer."""
        if self.whole:
            return
        if self.status:
            self.whole = True
            self._body_end = len(self._pieces)
        else:
            self.headers.clear()


@lru_cache(ANSWERS_MAX)
def parse_whole(data: bytes) -> HttpAnswer | None:
    """The answer that these bytes are from beginning to end, after which another request may follow; None otherwise."""
    answer = HttpAnswer()
    answer.begun = True
    with suppress(NotHttp):
        answer.receive(data)
    return answer if answer.clean else None


class _BodyOnly:
    """The functions that a parser calls for an answer whose head is known."""

    __slots__ = ("on_body", "on_message_complete")

    def __init__(self, on_body: Callable[[bytes], None], on_message_complete: Callable[[], None]) -> None:
        self.on_body = on_body
        self.on_message_complete = on_message_complete


@lru_cache(ANSWERS_MAX)
def parse_head(data: bytes) -> HttpAnswer | None:
    """The answer whose head these bytes are, if its body comes in chunks and another request may follow; else None."""
    answer = HttpAnswer(want=Want.PIECES)
    try:
        answer.receive(data[:-1])
        early = answer.status
        answer.receive(data[-1:])
    except NotHttp:
        return None
    usual = answer._keeps and not (early or answer.over or answer.held)
    answer.close()
    return answer if usual and answer.headers.get("transfer-encoding") == "chunked" else None


def is_compressed(headers: Mapping[str, str]) -> bool:
    """Whether a body is compressed."""
    if "content-encoding" not in headers and headers.get("transfer-encoding", "chunked") == "chunked":
        return False  # nearly all
    return (
        headers.get("content-encoding", "identity").strip(" \t").lower() != "identity"
        or transfer_codings(headers.get("transfer-encoding", "")) not in _PLAIN
    )
