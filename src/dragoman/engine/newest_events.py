"""NewestEvents: the newest events of a task, in memory for those who follow it.

Invariant: they have no gap, and take about `RECENT_BYTES_MAX` at most.
"""

from collections.abc import Sequence

from dragoman.model.events import ArtifactChunk, Event, Logged, MessageReceived, Submitted
from dragoman.model.message import Part

RECENT_BYTES_MAX = 1_000_000
"""How much of a followed log stays in memory. Beyond it the older half is dropped; slow readers read the store."""


class NewestEvents:
    """The newest events of a task, without a gap. They are kept as long as the task has `followers`."""

    __slots__ = ("_bytes", "_events", "followers")

    def __init__(self) -> None:
        self.followers = 0
        self._events: list[Logged] = []
        self._bytes = 0

    def enter(self) -> None:
        """Count one more who follows the task."""
        self.followers += 1

    def leave(self) -> None:
        """Undo one `enter`."""
        self.followers -= 1

    def drop(self) -> None:
        """Drop all events: nobody reads them any more."""
        self._events.clear()
        self._bytes = 0

    def keep(self, seq: int, event: Event, size: int) -> None:
        """Add the next event, which takes `size` bytes of the log, not counting the bytes of its files."""
        parts: Sequence[Part] = ()  # callers never see the files of a delegation
        if isinstance(event, ArtifactChunk):
            parts = event.artifact.parts
        elif isinstance(event, Submitted | MessageReceived):
            parts = event.message.parts
        for part in parts:
            if part.raw is not None:
                size += len(part.raw)
        self._events.append(Logged(seq, event, size))
        self._bytes += size
        if self._bytes > RECENT_BYTES_MAX:
            self._trim()

    def extend(self, following: Sequence[Logged]) -> None:
        """Add events that others wrote. If they leave a gap, the earlier events are dropped."""
        if self._events and (not following or following[0].seq != self._events[-1].seq + 1):
            self.drop()
        self._events.extend(following)
        self._bytes += sum(logged.size for logged in following)
        if self._bytes > RECENT_BYTES_MAX:
            self._trim()

    def _trim(self) -> None:
        """Drop the older half of the bytes, but never the newest event."""
        drop = 0
        while self._bytes > RECENT_BYTES_MAX // 2 and drop < len(self._events) - 1:
            self._bytes -= self._events[drop].size
            drop += 1
        del self._events[:drop]

    def after(self, seq: int, limit: int, limit_bytes: int) -> list[Logged] | None:
        """The events after `seq`, at least one; None if the next one is not kept."""
        if not self._events or self._events[0].seq > seq + 1:
            return None
        start = seq + 1 - self._events[0].seq
        if len(self._events) - start <= limit and self._bytes <= limit_bytes:
            return self._events[start:]
        batch: list[Logged] = []
        total = 0
        for index in range(start, min(len(self._events), start + limit)):
            logged = self._events[index]
            total += logged.size
            if batch and total > limit_bytes:
                break
            batch.append(logged)
        return batch
