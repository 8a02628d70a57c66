"""Deadline: how long an agent may work at a stretch.

Invariant: the time counts from when the task was taken on, which may have been another run. While a question is open no
time counts; after its answer the time begins anew.
"""

import asyncio
from typing import Protocol

from dragoman.model.ids import Clock


class Timed(Protocol):
    """The run whose time is limited."""

    def stop_overdue(self) -> None:
        """Take note that the time is over."""
        ...


class Deadline:
    """The time limit of a `run`: `limit_s` seconds. `began_ms` is when the task was taken on, if that was before."""

    __slots__ = ("_began_ms", "_clock", "_loop", "_run", "_timer", "limit_s")

    def __init__(
        self, run: Timed, limit_s: float, began_ms: int | None, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.limit_s = limit_s
        self._began_ms = began_ms
        self._clock = clock
        self._loop = loop
        self._run = run
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Count, unless the time counts already: the agent is at work."""
        if self._timer is None:
            self.restart()

    def restart(self) -> None:
        """Count from the beginning, or from when the task was taken on if nothing has counted yet."""
        now_ms = self._clock.now_ms()
        began_ms = self._began_ms or now_ms
        self._began_ms = None
        self.stop()
        left_s = self.limit_s - max(0, now_ms - began_ms) / 1000
        self._timer = self._loop.call_later(max(0.0, left_s), self._run.stop_overdue)

    def stop(self) -> None:
        """Count no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
