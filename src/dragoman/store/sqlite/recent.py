"""Recent: a cache of tasks that were read lately, decoded.

Invariant: an entry is dropped before anybody learns of a write to its task, so that an entry equals a read of the file.
This process is the only one that writes to the file (`connection.ProcessLock`).
"""

from typing import assert_never

from dragoman.store.api import Stored
from dragoman.store.sqlite.writes import (
    Act,
    Addition,
    Creation,
    Probe,
    Registering,
    Remembrance,
    Removal,
    Settlement,
    Stop,
    Sweep,
    TaskClaim,
    Write,
)

TASKS_MAX = 1024
"""How many tasks are kept."""

TASK_BYTES_MAX = 16_384
"""A larger task is not cached, nor one with a conversation in its head. So the cache stays below 16 MB, a little more
once decoded."""


class Recent:
    """Decoded tasks by id; the least recently read one is dropped first. Only for the loop."""

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
        if stored.snapshot_bytes + stored.log_bytes_since <= TASK_BYTES_MAX and not stored.head.earlier:
            self._tasks[stored.head.id] = stored
            if len(self._tasks) > TASKS_MAX:
                del self._tasks[next(iter(self._tasks))]

    def seen(self, task_id: str, seq: int) -> None:
        """Drop an entry older than `seq`. A reader thread may see a commit before the loop hears of it."""
        kept = self._tasks.get(task_id)
        if kept is not None and kept.seq < seq:
            del self._tasks[task_id]

    def written(self, write: Write) -> None:
        """Drop the entry of a task that a write has changed, or may have."""
        match write:
            case Addition(id=task_id) | Stop(id=task_id) | Registering(id=task_id) | Removal(id=task_id):
                self._tasks.pop(task_id, None)
            case Sweep() | TaskClaim():
                self._tasks.clear()
            case Creation() | Remembrance() | Probe() | Settlement() | Act():
                pass
            case _:
                assert_never(write)
