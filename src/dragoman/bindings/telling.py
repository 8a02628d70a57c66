"""Telling: a stream for dialects whose events show the whole task rather than only what was added.

Invariant: every event except artifact chunks is sent, in order. In quick succession of chunks, only the newest is sent,
encoded with the task folded up to it.
"""

import asyncio
from collections.abc import Sequence

from dragoman.dialects.api import Dialect
from dragoman.engine.handler import Direct, Snapshot, Stream, StreamItem
from dragoman.model.events import ArtifactChunk, Event, Logged, StatusChanged
from dragoman.model.lifecycle import SETTLED, Fold


class Telling:
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
            told: list[StreamItem] = []
            for item in batch:
                self._tell(item, told)
            if told:
                return told

    def _tell(self, item: StreamItem, told: list[StreamItem]) -> None:
        if isinstance(item, Direct):
            told.append(item)
            return
        if isinstance(item, Snapshot):
            self._fold = Fold(item.record.head, item.record)
            told.append(item)
            return
        chunk = isinstance(item.event, ArtifactChunk)
        if self._held is not None and not chunk:
            if item.terminal:
                self._held = None
            else:
                told.append(self._release())
        assert self._fold is not None  # a stream of events has a task
        anew = self._replaces(item.event)
        self._fold.add(item.seq, item.event)
        if not (chunk and self._dialect.coalesce_s):
            told.append(self._encode_item(item, anew=anew))
            return
        self._held = item
        if self._loop.time() >= self._due:
            told.append(self._release())

    def _release(self) -> Logged:
        """Encode the chunk that was held back. The fold stands exactly there."""
        item, self._held = self._held, None
        assert item is not None
        self._due = self._loop.time() + self._dialect.coalesce_s
        return self._encode_item(item)

    def _wants_record(self, item: Logged) -> bool:
        """Whether to encode an event with the whole task. That costs as much as the task, so `working` does without."""
        event = item.event
        if isinstance(event, StatusChanged) and event.state not in SETTLED:
            return False
        return type(event) in self._dialect.folds

    def _replaces(self, event: Event) -> bool:
        """Whether an event starts an existing artifact anew, which not every dialect can express in chunks."""
        assert self._fold is not None
        return isinstance(event, ArtifactChunk) and not event.append and self._fold.holds(event.artifact.artifact_id)

    def _encode_item(self, item: Logged, *, anew: bool = False) -> Logged:
        dialect, fold = self._dialect, self._fold
        assert fold is not None
        assert self.head is not None
        if dialect.key not in item.frames:
            record = fold.record() if anew or self._wants_record(item) else None
            item.frames[dialect.key] = dialect.encode_event(self.head, item.event, record)
        return item
