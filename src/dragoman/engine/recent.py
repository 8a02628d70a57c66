"""Recent: the newest events of a task, kept in memory for those who follow it.

Invariant: what is kept is committed, in order and without a gap; who lags further reads the store.
"""

from dragoman.model.events import ArtifactChunk, Delegated, Event, Logged, Noted, StatusChanged

RECENT_BYTES_MAX = 1_000_000
"""How much of a task's log is kept; beyond it the older half goes."""


class Recent:
    """The end of a task's log, as long as it has `followers`."""

    __slots__ = ("_bytes", "_events", "followers")

    def __init__(self) -> None:
        self.followers = 0
        self._events: list[Logged] = []
        self._bytes = 0

    def keep(self, seq: int, event: Event, size: int) -> None:
        """Take in the next event, which took `size` bytes of the log beside the bytes of its files."""
        logged = Logged(seq, event, size + _file_bytes(event))
        self._events.append(logged)
        self._bytes += logged.size

    def trim(self) -> None:
        """Let go of what is too much, but for the newest event."""
        if self._bytes <= RECENT_BYTES_MAX:
            return
        drop = 0
        while self._bytes > RECENT_BYTES_MAX // 2 and drop < len(self._events) - 1:
            self._bytes -= self._events[drop].size
            drop += 1
        del self._events[:drop]

    def after(self, seq: int, limit: int, limit_bytes: int) -> list[Logged] | None:
        """The events that follow `seq`, at least one; None when the next one is not kept."""
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


def _file_bytes(event: Event) -> int:
    if isinstance(event, StatusChanged | Delegated | Noted):  # what was delegated, nobody is told
        return 0
    parts = event.artifact.parts if isinstance(event, ArtifactChunk) else event.message.parts
    return sum(len(part.raw) for part in parts if part.raw is not None)
