"""The watch over queues: the log says when an agent's tasks wait too long to be run, and when they do no more.

Invariant: one line when a queue has grown old and one when it is young again, however long that lasts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from msgspec import Struct

from dragoman.model.ids import Clock
from dragoman.store.api import StoreError
from dragoman.store.figures import StoreFigures
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.queues")

LOOKS = 4
"""How often the store is looked at while a queue grows from empty to old."""


class QueueLength(Struct, frozen=True):
    """`tasks` wait to be run, the oldest for `oldest_s`."""

    tasks: int
    oldest_s: float


class QueueWatch:
    """Watches the queues of agents by the `figures`. Only agents that are `served` count.

    A queue is old when its oldest task has waited `old_s`.
    """

    def __init__(
        self,
        figures: Callable[[], Awaitable[StoreFigures]],
        clock: Clock,
        served: Callable[[], Collection[str]],
        old_s: float,
    ) -> None:
        self._figures = figures
        self._clock = clock
        self._served = served
        self._old_s = old_s
        self._old: set[str] = set()

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await self.check()
            await asyncio.sleep(self._old_s / LOOKS)

    async def check(self) -> None:
        """Look at the queues once. While the store does not answer, nothing is known of them."""
        try:
            queues = await self._queues()
        except StoreError:
            return  # the log says so elsewhere
        old = {agent for agent, queue in queues.items() if queue.oldest_s >= self._old_s}
        for agent in sorted(old - self._old):
            queue = queues[agent]
            log.warning(
                "agent %s: %d %s to be run, the oldest for %.0f s",
                agent,
                queue.tasks,
                "task waits" if queue.tasks == 1 else "tasks wait",
                queue.oldest_s,
                extra=about(agent, agent=agent),
            )
        for agent in sorted(self._old - old):
            log.info("agent %s: no task waits for long any more", agent, extra=about(agent, agent=agent))
        self._old = old

    async def _queues(self) -> dict[str, QueueLength]:
        """The queues that are not empty, by agent. Raises StoreError."""
        figures, now_ms, served = await self._figures(), self._clock.now_ms(), self._served()
        return {
            tasks.agent: QueueLength(tasks.queued, (now_ms - tasks.queued_since_ms) / 1000)
            for tasks in figures.open_tasks
            if tasks.agent in served and tasks.queued_since_ms is not None
        }
