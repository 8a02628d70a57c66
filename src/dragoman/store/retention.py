"""Retention: the ages at which rows expire, and how many a sweep deletes at once.

Invariant: a batch delays writers no longer than a busy batch of their own does. One that finds no more than it may take
is small; batches grow while more is left.
"""

from msgspec import Struct

from dragoman.store.usage import DAY_MS

BATCH_TASKS = 50
"""The fewest tasks to which a batch is limited. Deleting them takes about as long as a busy batch of appends."""

BATCH_ROWS = 500
"""The fewest calls, days and counters to which a batch is limited; each is one small row."""

INTERRUPTED, ENDED, PRUNED = 0, 1, 2
"""The kinds of tasks that expire; a pruned one has ended and lost its log. The statements of sweeps know them."""


class BatchSize:
    """The limit of the next batch: from `least` to `most`, so that it takes about `limit_s` at most."""

    def __init__(self, least: int, most: int, limit_s: float) -> None:
        self.limit = self._least = least
        self._most = most
        self._limit_s = limit_s

    def note(self, took_s: float, *, full: bool) -> None:
        """Note how long a batch took, and whether it deleted as much as it might: then more is probably left."""
        if took_s > self._limit_s:
            self.limit = max(self._least, self.limit // 2)
        elif full and took_s < self._limit_s / 2:
            self.limit = min(self._most, self.limit * 2)


class Horizon(Struct, frozen=True):
    """The ages at which rows expire, counted from `now_ms`. An age below 0 is never reached."""

    now_ms: int
    task_age_ms: int
    log_age_ms: int
    waiting_age_ms: int

    @property
    def ages(self) -> tuple[tuple[int, int], ...]:
        """The ages of whole tasks by kind, in the order in which they are deleted."""
        return (PRUNED, self.task_age_ms), (ENDED, self.task_age_ms), (INTERRUPTED, self.waiting_age_ms)

    @property
    def yesterday(self) -> int:
        """The first day whose quotas are still counted. A server whose clock is behind may be there."""
        return self.now_ms // DAY_MS - 1
