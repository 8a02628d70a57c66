"""Retention: the ages at which rows expire, and how many a sweep deletes at once.

Invariant: a batch delays writers no longer than a busy batch of their own does.
"""

from msgspec import Struct

from dragoman.store.usage import DAY_MS

BATCH_TASKS = 50
"""Tasks deleted in one transaction, which takes about as long as a busy batch of appends."""

BATCH_ROWS = 500
"""Calls, days and counters deleted in one transaction; each is one small row."""

INTERRUPTED, ENDED, PRUNED = 0, 1, 2
"""The kinds of tasks that expire; a pruned one has ended and lost its log. The statements of sweeps know them."""


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
