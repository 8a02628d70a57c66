"""Streams of a task's events as Server-Sent Events, and the streams that are open.

Invariant: each event is encoded once per dialect and spliced into each subscriber's envelope. The memory for one reader
is bounded by one piece and the transport's buffer, however slowly it reads: all readers share the encoded bytes.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from dragoman.dialects import sse
from dragoman.dialects.api import Dialect
from dragoman.engine.handler import Direct, Snapshot, Stream, StreamItem, Waker
from dragoman.engine.timer_wheel import TimerWheel
from dragoman.model.events import ArtifactChunk, Logged
from dragoman.model.lifecycle import Fold
from dragoman.model.task import TaskHead
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)


class Batches(Protocol):
    """A stream for a transport to send, of events or of frames: see `engine.handler.Stream`."""

    @property
    def retry(self) -> bool:
        """Whether the stream ended because the server is stopping, so that its reader should come back."""
        ...

    async def next(self, wait_s: float | None = None) -> Sequence[Any] | None:
        """The items since the last call; empty if nothing came for the keep-alive interval; None at the end.

        Items of which the reader is shown nothing are returned too, and encoded to nothing: the transport does not know
        otherwise how long it has been silent.
        """
        ...

    def close(self) -> None:
        """End the stream because its reader has left."""
        ...


class Parkable(Protocol):
    """A stream that can be waited for without an asyncio task: see `engine.handler.OpenStream`."""

    def park(self, waker: Waker) -> bool:
        """Let `waker` be told once `next` has something to give. Returns False if it may have something now."""
        ...

    def unpark(self) -> None:
        """Tell nobody."""
        ...

    @property
    def unheard(self) -> bool:
        """Whether the task may be deleted without the waker's being told."""
        ...

    async def deleted(self) -> bool:
        """Whether the task has been deleted."""
        ...


class EncodedSnapshot:
    """The JSON of a snapshot's frames. It lives as long as some stream is sending it."""

    __slots__ = ("__weakref__", "frames")

    def __init__(self, *frames: bytes) -> None:
        self.frames = frames


class Streams:
    """The streams of one server. `open` is their number. Readers of the same snapshot at one time share its bytes.

    `readers_cut` counts the readers that were cut off because they took nothing of an answer, streams or not.
    `keepalive_s`: after this long without a byte a comment is sent.
    """

    def __init__(self, keepalive_s: float = 15.0) -> None:
        self.open = 0
        self.readers_cut = 0
        self.keepalive_s = keepalive_s
        self.wheel: TimerWheel = TimerWheel(keepalive_s)
        """The streams that are parked, by the time of their next keep-alive."""
        self._by_key: dict[str, set[Batches]] = {}
        self._snapshots: WeakValueDictionary[tuple[str, int, str, int | None, bool], EncodedSnapshot] = (
            WeakValueDictionary()
        )

    def enter(self, stream: Batches, key: str) -> None:
        """Count a stream that opens, of a caller who sent the key with that id; empty: another credential, or none."""
        self.open += 1
        if key:
            self._by_key.setdefault(key, set()).add(stream)

    def leave(self, stream: Batches, key: str) -> None:
        """Count a stream as closed."""
        self.open -= 1
        if key:
            theirs = self._by_key[key]
            theirs.remove(stream)
            if not theirs:
                del self._by_key[key]

    def end(self, keys: Collection[str]) -> int:
        """End the streams that these keys opened. Returns how many there were."""
        ended = 0
        for key in keys:
            for stream in tuple(self._by_key.get(key, ())):
                stream.close()
                ended += 1
        return ended

    def by_key(self) -> dict[str, int]:
        """How many streams each key has open."""
        return {key: len(theirs) for key, theirs in self._by_key.items()}

    def cut(self, peer: str, pause_s: float) -> None:
        """Note that the reader at `peer` is cut off, because it took nothing for `pause_s`."""
        self.readers_cut += 1
        log.warning(
            "a reader at %s is cut off: it took nothing of its answer for %g s", peer, pause_s, extra=about(peer)
        )

    def encode_whole(self, dialect: Dialect, item: Snapshot | Direct) -> tuple[int, EncodedSnapshot]:
        """Encode an item that is no event. Returns the seq at which it stands, or 0, and its frames."""
        if isinstance(item, Direct):
            return 0, EncodedSnapshot(dialect.encode_message(item.message))
        record = item.record
        subscribed = item.subscribed and dialect.encode_subscription is not None
        key = (record.head.id, record.seq, dialect.key, item.history_length, subscribed)
        encoded = None if item.own else self._snapshots.get(key)
        if encoded is None:
            if subscribed and dialect.encode_subscription is not None:
                encoded = EncodedSnapshot(*dialect.encode_subscription(record))
            else:
                frame = dialect.encode_snapshot(record, item.history_length)
                encoded = EncodedSnapshot(frame) if frame else EncodedSnapshot()
            if not item.own:
                self._snapshots[key] = encoded
        return record.seq, encoded


class EventEncoder:
    """Encodes the batches of a task's stream for one reader, in its dialect.

    `around` is the envelope of each frame. `seen` is (seq, frame): the reader has the frames of the event `seq` up to
    that number, and the stream begins with the rest of them.
    """

    __slots__ = ("_dialect", "_head", "_prefix", "_seen", "_streams", "_suffix")

    def __init__(
        self,
        head: TaskHead | None,
        dialect: Dialect,
        streams: Streams,
        around: tuple[bytes, bytes] = (b"", b""),
        seen: tuple[int, int] = (0, 0),
    ) -> None:
        self._head = head
        self._dialect = dialect
        self._streams = streams
        self._prefix, self._suffix = around
        self._seen = seen

    def encode(self, batch: Sequence[StreamItem]) -> Iterable[bytes]:
        """Encode a batch as SSE. The `id:` of a frame is the event's seq; of several frames all but the last add theirs
        (`7.1`, `7.2`, `7`).
        """
        dialect, head = self._dialect, self._head
        events: list[tuple[str | None, bytes]] = []
        size = 0
        shared: EncodedSnapshot | None = None
        for item in batch:
            seen = 0
            if isinstance(item, Logged):
                seq, frames = item.seq, item.frames.get(dialect.key)
                if frames is None:
                    assert head is not None  # a stream of events has a task
                    frames = item.frames[dialect.key] = dialect.encode_event(head, item.event, None)
                if seq == self._seen[0] and item is batch[0]:
                    seen = self._seen[1]
            else:
                seq, shared = self._streams.encode_whole(dialect, item)
                frames = shared.frames
            for frame in frames:
                size += len(frame) + len(self._prefix) + sse.FRAME_BYTES
            if len(frames) == 1:
                events.append((str(seq) if seq else None, frames[0]))
                continue
            for number, frame in enumerate(frames, 1):
                if number == len(frames):
                    events.append((str(seq), frame))
                elif number > seen:
                    events.append((f"{seq}.{number}", frame))
        self._seen = (0, 0)  # only the first event can have frames that the reader has seen
        if size <= sse.PIECE_BYTES:  # as nearly always
            return (sse.frames(events, self._prefix, self._suffix),)
        pieces = sse.pieces(events, self._prefix, self._suffix)
        return pieces if shared is None else _holding(shared, pieces)


UNSEEN: Sequence[bytes] = (b"",)
"""The batch of a stream of frames whose events have none."""


def encode_frames(batch: Sequence[bytes]) -> Iterable[bytes]:
    """Encode frames that a stream brings with it as SSE, without ids: such a stream cannot be resumed."""
    return batch if batch is UNSEEN else sse.pieces([(None, frame) for frame in batch])


def _holding(shared: EncodedSnapshot, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces, and keep `shared` alive until they have been sent."""
    yield from pieces


class FoldedStream:
    """A stream whose events are encoded with the task folded up to them, as `dialect.folds` asks for.

    With `dialect.coalesce_s` artifact chunks are sent at most that often, the first one at once. A chunk still held
    back when the task ends is not sent, because the final event includes it.
    """

    __slots__ = ("_dialect", "_due", "_fold", "_held", "_loop", "_stream", "base", "head")

    def __init__(self, stream: Stream, dialect: Dialect) -> None:
        self.head = stream.head
        self.base = stream.base
        self._stream = stream
        self._dialect = dialect
        self._loop = asyncio.get_running_loop()
        self._fold = None if stream.head is None else Fold(stream.head, stream.base)
        self._held: Logged | None = None
        self._due = 0.0

    @property
    def retry(self) -> bool:
        """See `engine.handler.Stream.retry`."""
        return self._stream.retry

    def close(self) -> None:
        """End the stream because the caller has left."""
        self._stream.close()

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """Return the next batch, with its events encoded. `wait_s` is ignored."""
        while True:
            left = None if self._held is None else self._due - self._loop.time()
            if left is not None and left <= 0:
                return [self._release()]
            batch = await self._stream.next(left)
            if batch is None:
                return None if self._held is None else [self._release()]
            if not batch and self._held is None:
                return ()  # no event during the keep-alive interval
            ready: list[StreamItem] = []
            for item in batch:
                self._take(item, ready)
            if ready:
                return ready

    def _take(self, item: StreamItem, ready: list[StreamItem]) -> None:
        if isinstance(item, Direct):
            ready.append(item)
            return
        if isinstance(item, Snapshot):
            self._fold = Fold(item.record.head, item.record)
            ready.append(item)
            return
        chunk = isinstance(item.event, ArtifactChunk)
        if self._held is not None and not chunk:
            if item.terminal:
                self._held = None
            else:
                ready.append(self._release())
        assert self._fold is not None  # a stream of events has a task
        replaces = self._fold.replaces(item.event)
        self._fold.add(item.seq, item.event)
        if not (chunk and self._dialect.coalesce_s):
            ready.append(self._encode_item(item, replaces=replaces))
            return
        self._held = item
        if self._loop.time() >= self._due:
            ready.append(self._release())

    def _release(self) -> Logged:
        """Encode the chunk that was held back. The fold stands exactly there."""
        item, self._held = self._held, None
        assert item is not None
        self._due = self._loop.time() + self._dialect.coalesce_s
        return self._encode_item(item)

    def _encode_item(self, item: Logged, *, replaces: bool = False) -> Logged:
        dialect, fold = self._dialect, self._fold
        assert fold is not None
        assert self.head is not None
        if dialect.key not in item.frames:
            record = fold.record() if replaces or dialect.wants_record(item.event) else None
            item.frames[dialect.key] = dialect.encode_event(self.head, item.event, record)
        return item
