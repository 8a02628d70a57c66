"""RecentTasks: the tasks that were read last, decoded.

Invariant: an entry is dropped before anybody learns of a write to its task, so that it equals a read of the file.
"""

from collections.abc import Iterable

from dragoman.store.api import Stored
from dragoman.store.sqlite.writes import Deletion, Registering, Removal, Stop, Sweep, TaskClaim, Write
from dragoman.store.writes import Addition

RECENT_MAX = 1024
"""How many tasks are kept."""

RECENT_BYTES_MAX = 16_384
"""A larger task is not cached, nor one with a conversation in its head. So the cache stays below 16 MB, a little more
once decoded."""


class RecentTasks:
    """A cache of decoded tasks by id; the least recently read one is dropped first. Only for the loop.

    An entry is dropped before anybody learns of a write to its task, so that it equals a read of the file. This process
    is the only one that writes to the file (`connection.ProcessLock`).
    """

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[str, Stored] = {}

    def get(self, task_id: str) -> Stored | None:
        """The task as last read; None if it is not cached or was written to since."""
        stored = self._tasks.pop(task_id, None)
        if stored is not None:
            self._tasks[task_id] = stored  # now the newest
        return stored

    def has(self, task_id: str) -> bool:
        """Whether `get` would find it."""
        return task_id in self._tasks

    def keep(self, stored: Stored) -> None:
        """Remember a task that was just read."""
        if stored.snapshot_bytes + stored.log_bytes_since <= RECENT_BYTES_MAX and not stored.head.earlier:
            self._tasks[stored.head.id] = stored
            if len(self._tasks) > RECENT_MAX:
                del self._tasks[next(iter(self._tasks))]

    def seen(self, task_id: str, seq: int) -> None:
        """Drop an entry older than `seq`. A reader thread may see a commit before the loop hears of it."""
        kept = self._tasks.get(task_id)
        if kept is not None and kept.seq < seq:
            del self._tasks[task_id]

    def written(self, writes: Iterable[Write]) -> None:
        """Drop the entries of the tasks that these writes have changed, or may have."""
        for write in writes if self._tasks else ():
            if isinstance(write, Addition | Stop | Registering | Removal):
                self._tasks.pop(write.id, None)
            elif isinstance(write, Deletion):
                for task_id in write.ids:
                    self._tasks.pop(task_id, None)
            elif isinstance(write, Sweep):
                for victim in (*write.whole, *write.logs):
                    self._tasks.pop(victim.id, None)
            elif isinstance(write, TaskClaim):
                self._tasks.clear()
