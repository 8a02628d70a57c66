"""Deadline: how long an agent may work at a stretch.

Invariant: the time counts from when the task was taken on, which may have been another run. While a question is open or
the agent sleeps no time counts; after that the time begins anew.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dragoman.engine.runs.services import RunServices


class Deadline:
    """The time limit of a run: `limit_s` seconds, after which `expire` is called.

    `began_ms` is when the task was taken on, if that was before.
    """

    __slots__ = ("_began_ms", "_expire", "_held", "_services", "_timer", "limit_s")

    def __init__(self, expire: Callable[[], None], limit_s: float, began_ms: int | None, services: RunServices) -> None:
        self.limit_s = limit_s
        self._began_ms = began_ms
        self._services = services
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None
        self._held = 0
        """How many sleeps of the run go on."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Count no time in the block, and begin anew after it."""
        self._held += 1
        self.stop()
        try:
            yield
        finally:
            self._held -= 1
        self.begin()  # not after a cancel

    def begin(self) -> None:
        """Count, unless the time counts already: the agent is at work."""
        if self._timer is None and not self._held:
            self.restart()

    def restart(self) -> None:
        """Count from the beginning, or from when the task was taken on if nothing has counted yet."""
        now_ms = self._services.clock.now_ms()
        began_ms = self._began_ms or now_ms
        self._began_ms = None
        self.stop()
        if self._held:
            return
        left_s = self.limit_s - max(0, now_ms - began_ms) / 1000
        self._timer = self._services.loop.call_later(max(0.0, left_s), self._expire)

    def stop(self) -> None:
        """Count no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
