"""CodeVersions: hands tasks on to replicas with the code that they began with, and ends those for which there is none.

Invariant: a task that began with a `steps_version` is run by an agent of that version, or of none. Nobody works on it
while it waits, and its log does not grow.

The head of a task names the version of an agent that runs in this process, or in another replica. An agent of workers
has none of its own: the worker that is the first to take a task notes its version in the task's log. The queue of
workers passes on what does not fit, and nobody has a task meanwhile.
"""

import logging
from zlib import crc32

from dragoman.engine.ends import TaskEnds
from dragoman.engine.leases import Neighbours, TaskLeases
from dragoman.engine.log import Log, read_whole
from dragoman.engine.rules import VERSION_NOTE
from dragoman.engine.runs.endings import STEPS_VERSION_ABSENT, version_absent_text
from dragoman.engine.served_agents import version_name
from dragoman.model.events import StatusChanged
from dragoman.model.ids import Clock
from dragoman.model.task import TaskState
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.runs")

ASIDE_MS = 1_000
"""How long a task is put aside at least. Then it is looked for a replica with its code again."""

APART_MS = 20
"""The least time between the wakes of two tasks that are put aside here, so that many cost few writes a second."""


def version_begun(task: Log) -> str:
    """The version of its agent's code with which a task has begun; empty if it began with none."""
    return task.head.steps_version or task.fold.note_of(VERSION_NOTE)


class CodeVersions:
    """Decides by the agents that `leases` serve. A task waits `absent_s` for its code, before it fails.

    It waits from the last of three moments: a replica with that code was last seen, the task could run, or the eldest
    of the replicas that are alive has started. A store that only one process opens does not keep the first of them.
    """

    def __init__(
        self, leases: TaskLeases, ends: TaskEnds, neighbours: Neighbours, clock: Clock, absent_s: float
    ) -> None:
        self._leases = leases
        self._ends = ends
        self._neighbours = neighbours
        self._clock = clock
        self.absent_s = absent_s
        self._wakes_ms = 0
        """When the last task wakes that was put aside here."""

    def fit(self, task: Log) -> bool:
        """Whether the agent here, if there is one, may go on with the task."""
        began = version_begun(task)
        return not began or self._served(task) in ("", began)

    async def hand_on(self, task: Log, epoch: int) -> None:
        """Offer a task that is leased here under `epoch` to a replica with its code, put it aside, or let it fail.

        Raises StoreError.
        """
        head, now_ms = task.head, self._clock.now_ms()
        name = version_name(head.agent, version_begun(task))
        if servers := await self._neighbours.find_servers(name):
            await self._leases.hand_over(task, epoch, servers[crc32(head.id.encode()) % len(servers)])
        elif await self.waits(task):
            self._wakes_ms = max(now_ms + ASIDE_MS, self._wakes_ms + APART_MS)
            await self._leases.put_aside(task, epoch, self._wakes_ms)
        else:
            await self.give_up(task, self._served(task), epoch=epoch)

    async def give_up(self, task: Log, served: str, *, epoch: int | None = None) -> None:
        """Let a task fail that has waited for its code, while there is `served`. `epoch` is as in `TaskEnds.end`.

        Raises StoreError.
        """
        began, agent = version_begun(task), task.head.agent
        log.warning(
            "task %s: it began with steps_version %s of agent %s, which nobody has served for %g s; %s is served. "
            "Serve %s until its tasks have ended, or keep the version and let changes ask ctx.patched",
            *(task.head.id, began, agent, self.absent_s, served, began),
            extra=about(agent),
        )
        text = version_absent_text(began, served, self.absent_s)
        await self._ends.end(task, TaskState.FAILED, text, STEPS_VERSION_ABSENT, epoch=epoch)

    def _served(self, task: Log) -> str:
        """The version of the agent here; empty if it names none, or is not served."""
        runner = self._leases.served.runners.get(task.head.agent)
        return "" if runner is None else runner.traits.steps_version

    async def waits(self, task: Log) -> bool:
        """Whether the task may wait longer for its code, which no replica serves now.

        Its log is read only if nothing else says so. Raises StoreError.
        """
        since_ms = self._clock.now_ms() - self.absent_s * 1000
        started_ms = await self._neighbours.first_start_ms()
        if task.row.status_ms > since_ms or started_ms is None or started_ms > since_ms:
            return True
        name = version_name(task.head.agent, version_begun(task))
        return await self._neighbours.miss(name) or await _woke_ms(task) > since_ms


async def _woke_ms(task: Log) -> int:
    """When the sleep of the task has ended, if that is its last status; else 0. Raises StoreError."""
    for logged in reversed(await read_whole(task)):
        if isinstance(event := logged.event, StatusChanged):
            return 0 if event.placed is None else event.placed.wakes_ms or 0
    return 0
