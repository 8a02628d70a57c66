"""Deadlines of waits for requests, with one timer for all of them.

Invariant: a wait ends at its deadline or within `STEP_S` after it. `asyncio.timeout` would make and cancel a timer for
each call, which costs more than most waits take.
"""

import asyncio
from typing import Any

STEP_S = 0.25
"""How often deadlines are looked at, while there are any."""

Waiting = asyncio.Task[Any]


class Deadlines:
    """Cancels tasks that wait for too long. Such a task asks `is_late`, to tell this from being canceled by others."""

    def __init__(self) -> None:
        self._until: dict[Waiting, float] = {}
        self._late: set[Waiting] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, task: Waiting, wait_s: float) -> None:
        """Cancel the task in `wait_s` seconds, unless `end` comes before."""
        loop = asyncio.get_running_loop()
        self._until[task] = loop.time() + wait_s
        if self._timer is None:
            self._timer = loop.call_later(min(STEP_S, wait_s), self._look)

    def end(self, task: Waiting) -> None:
        """The task waits no more."""
        self._until.pop(task, None)
        self._late.discard(task)

    def is_late(self, task: Waiting) -> bool:
        """Whether the task was canceled for waiting too long, and for no other reason."""
        return task in self._late and task.uncancel() == 0

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for task in [task for task, until_s in self._until.items() if until_s <= now_s]:
            del self._until[task]
            self._late.add(task)
            task.cancel()
        if self._until:
            self._timer = loop.call_later(min(STEP_S, min(self._until.values()) - now_s), self._look)
