"""The watch over queues: the log says when an agent's tasks wait too long to be run, and when they do no more.

Invariant: one line when a queue has grown old and one when it is young again, however long that lasts.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from dragoman.model.ids import Clock
from dragoman.store.api import Store, StoreError
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.counts import WorkerPool

log = logging.getLogger("dragoman.queues")

LOOKS = 4
"""How often the store is looked at while a queue grows from empty to old."""


class Queue(Struct, frozen=True):
    """`tasks` wait to be run, the oldest for `oldest_s`."""

    tasks: int
    oldest_s: float


class QueueWatch:
    """Watches the queues of agents: those in the store, and those for `workers`. Only agents that are `served` count.

    A queue is old when its oldest task has waited `old_s`.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        served: Callable[[], Collection[str]],
        workers: Callable[[], Mapping[str, WorkerPool]],
        old_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._served = served
        self._workers = workers
        self._old_s = old_s
        self._old: set[str] = set()

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await self.look()
            await asyncio.sleep(self._old_s / LOOKS)

    async def look(self) -> None:
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

    async def _queues(self) -> dict[str, Queue]:
        """The queues that are not empty, by agent. Raises StoreError."""
        figures, now_ms, served = await self._store.figures(), self._clock.now_ms(), self._served()
        queues = {
            tasks.agent: Queue(tasks.queued, (now_ms - tasks.queued_since_ms) / 1000)
            for tasks in figures.open_tasks
            if tasks.agent in served and tasks.queued_since_ms is not None
        }
        for agent, pool in self._workers().items():
            if pool.queued:
                stored = queues.get(agent, Queue(0, 0.0))
                queues[agent] = Queue(stored.tasks + pool.queued, max(stored.oldest_s, pool.oldest_s))
        return queues
