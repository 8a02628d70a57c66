"""Server-sent events without I/O: an encoder of frames, and a parser that takes bytes as they come.

Source: the WHATWG HTML standard, §9.2.5 and §9.2.6. Invariant: the events do not depend on how the stream is cut into
pieces.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from dragoman.model.errors import InvalidAgentResponse

CONTENT_TYPE = "text/event-stream"

PIECE_BYTES = 128 * 1024
"""How much of a stream is encoded for one write."""

FRAME_BYTES = 64
"""Roughly the bytes of a frame beside its data."""

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Most bytes that a parser holds for one event: a sender above that is broken or malicious."""

_BOM = b"\xef\xbb\xbf"
_DIGITS = frozenset("0123456789")

_NUMBERED = re.compile(r"(?m)^id: ([^\n\0]*)\ndata: ([^\n]*)\n\n")
_BARE = re.compile(r"(?m)^data: ([^\n]*)\n\n")
"""Matches nearly every event, of servers that number their events and of those that do not."""


def frame(data: bytes, event_id: str | None = None) -> bytes:
    """Encode one event. `data` may have several lines, though some clients keep only the last; our JSON has one."""
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    if event_id is None:
        return b"data: " + data + b"\n\n"
    return b"id: " + event_id.encode() + b"\ndata: " + data + b"\n\n"


def frames(events: Iterable[tuple[str | None, bytes]], prefix: bytes = b"", suffix: bytes = b"") -> bytes:
    """Encode several events for one write: each is an id and its JSON on one line, between `prefix` and `suffix`."""
    lines: list[bytes] = []
    for event_id, data in events:
        if event_id is not None:
            lines += (b"id: ", event_id.encode(), b"\n")
        lines += (b"data: ", prefix, data, suffix, b"\n\n")
    return b"".join(lines)


def pieces(events: Iterable[tuple[str | None, bytes]], prefix: bytes = b"", suffix: bytes = b"") -> Iterator[bytes]:
    """Encode several events as `frames` does, in pieces of at most about `PIECE_BYTES`, each made when it is taken.

    A large event is cut without ever being copied as a whole, so that all its readers share its data.
    """
    ready: list[tuple[str | None, bytes]] = []
    size = 0
    for event_id, data in events:
        if len(data) <= PIECE_BYTES:
            ready.append((event_id, data))
            size += len(data) + len(prefix) + FRAME_BYTES
        if ready and (size >= PIECE_BYTES or len(data) > PIECE_BYTES):
            yield frames(ready, prefix, suffix)
            ready, size = [], 0
        if len(data) > PIECE_BYTES:
            around = frames(((event_id, b""),), prefix, suffix)
            end = len(around) - len(suffix) - len(b"\n\n")
            yield around[:end]
            for start in range(0, len(data), PIECE_BYTES):
                yield data[start : start + PIECE_BYTES]
            yield around[end:]
    if ready:
        yield frames(ready, prefix, suffix)


def comment(text: str = "") -> bytes:
    """Encode a line that clients ignore, to keep proxies from cutting a silent stream. `text` has no line breaks."""
    return b": " + text.encode() + b"\n\n" if text else b":\n\n"


def retry(milliseconds: int) -> bytes:
    """Tell clients how long to wait before they reconnect. They heed the line itself, as the standard says.

    No empty line follows, since httpx-sse (0.4.3) gives an event without data for it.
    """
    return b"retry: %d\n" % milliseconds


class ServerSentEvent(Struct, frozen=True, gc=False):
    """One received event. `id` is the last id that the stream has set so far, empty if none; likewise `retry_ms`."""

    data: str
    event: str = "message"
    id: str = ""
    retry_ms: int | None = None


UsualEvents = tuple[list[str], list[str]]
"""The ids and the data of several events, which have neither a name nor anything else."""


def read_usual(body: bytes) -> UsualEvents | None:
    """Parse a whole stream as `Parser` does, if all of its events have the usual form; else return None."""
    if len(body) > MAX_EVENT_BYTES or not body.endswith(b"\n\n") or b"\r" in body or body.startswith(_BOM):
        return None
    return _split(body.decode("utf-8", "replace"), "")


def _split(text: str, last_id: str) -> UsualEvents | None:
    """Parse whole lines, if all of their events have the usual form; else return None. `last_id` stands before them."""
    if text.startswith("id: "):
        found = _NUMBERED.split(text)
        between, ids, data = found[::3], found[1::3], found[2::3]
    else:
        found = _BARE.split(text)
        between, data = found[::2], found[1::2]
        ids = [last_id] * len(data)
    return None if any(between) or not ids else (ids, data)


class Parser:
    """Parses bytes into events. Bytes that are not UTF-8 become U+FFFD, as the standard requires."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._max_event_bytes = max_event_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._begun = False
        self._after_cr = False
        self._data: list[str] = []
        self._event_bytes = 0
        self._event = ""
        self._id = ""

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Return the events that `piece` completes. Raises InvalidAgentResponse if one grows over the bound."""
        retry_ms = self.retry_ms
        usual, events = self.feed_columns(piece)
        if usual is None:
            return events
        return [
            ServerSentEvent(data, "message", event_id, retry_ms) for event_id, data in zip(*usual, strict=True)
        ] + events

    def feed_columns(self, piece: bytes) -> tuple[UsualEvents | None, list[ServerSentEvent]]:
        """As `feed`: the ids and the data of the first events if they have the usual form, and the others.

        The former are plain messages. Most pieces hold nothing else, and need no object for each event.
        """
        if self._after_cr and piece:
            self._after_cr = False
            if piece[0] == 0x0A:
                piece = piece[1:]
        if not piece:
            return None, []
        if b"\n" not in piece and b"\r" not in piece:
            self._hold(piece)
            return None, []
        self._after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._pending:
            piece = b"".join([*self._pending, piece])
            self._pending.clear()
            self._pending_bytes = 0
        if not self._begun:
            self._begun = True
            piece = piece.removeprefix(_BOM)
        usual: UsualEvents | None = None
        events: list[ServerSentEvent] = []
        data = self._data
        if not (data or self._event) and len(piece) <= self._max_event_bytes:  # then no event in it is over the bound
            end = piece.rfind(b"\n\n")
            if piece.find(b"\n\n", 0, end) >= 0 and (usual := self._usual(piece[: end + 2])) is not None:
                piece = piece[end + 2 :]
                if not piece:
                    return usual, events
        lines = piece.split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line[:6] == b"data: ":
                if self._event_bytes + len(line) > self._max_event_bytes:
                    self._check_bound(len(line))
                data.append(line[6:].decode("utf-8", "replace"))
                self._event_bytes += len(line) + 1
            elif line[:4] == b"id: " and b"\0" not in line:
                self._id = line[4:].decode("utf-8", "replace")
            elif line:
                self._field(line)
            elif data:
                self.last_id = self._id
                whole = data[0] if len(data) == 1 else "\n".join(data)
                events.append(ServerSentEvent(whole, self._event or "message", self._id, self.retry_ms))
                data.clear()
                self._event, self._event_bytes = "", 0
            else:
                self.last_id = self._id
                self._event = ""
        if rest:
            self._hold(rest)
        return usual, events

    def _usual(self, whole: bytes) -> UsualEvents | None:
        """Parse `whole`, which consists of whole lines, if all of its events have the usual form; else return None.

        For several events this takes a third of the time of the line-by-line loop; for one event it would take longer.
        """
        usual = _split(whole.decode("utf-8", "replace"), self._id)
        if usual is not None:
            self._id = self.last_id = usual[0][-1]
        return usual

    def _hold(self, piece: bytes) -> None:
        self._pending.append(piece)
        self._pending_bytes += len(piece)
        self._check_bound(self._pending_bytes)

    def _check_bound(self, more: int) -> None:
        if self._event_bytes + more > self._max_event_bytes:
            raise InvalidAgentResponse(f"an event of the stream is larger than {self._max_event_bytes} bytes")

    def _field(self, line: bytes) -> None:
        self._check_bound(len(line))
        name, _, rest = line.partition(b":")
        value = rest.removeprefix(b" ").decode("utf-8", "replace")
        match name:
            case b"data":
                self._data.append(value)
                self._event_bytes += len(line) + 1
            case b"event":
                self._event = value
            case b"id":
                if "\0" not in value:
                    self._id = value
            case b"retry":
                if value and len(value) <= 9 and _DIGITS.issuperset(value):
                    self.retry_ms = int(value)
