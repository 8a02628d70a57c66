"""WorkerWatch: takes tasks from workers that are silent or late, and lets the others end theirs in a drain.

Invariant: a task is taken from its worker under the lease that was found to have run out, or to be late. Any replica
may look: the store lets one of them write.
"""

import asyncio
import logging
from contextlib import suppress

from msgspec.structs import replace

from dragoman.engine.api import Workers
from dragoman.engine.log import Log
from dragoman.engine.rules import Decision, EndWorkerLease, WriteWords
from dragoman.engine.runs.endings import OVERDUE, closing, overdue_text
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.worker_tasks import Overtaken, WorkerTasks
from dragoman.model.task import INTERRUPTED, TaskState
from dragoman.store.api import OutcomeUnknown, Refused, StoreError
from dragoman.store.worker_leases import WORKER, WorkerLease, WorkerLeaseChange
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")

LOOK_S = 0.5
"""How often leases are looked for that have run out, or an eighth of the shortest lease, if that is less."""

LOST_S = 10.0
"""How often it is looked which tasks workers do not have any more that they took here."""

DRAINED_S = 0.05
"""How often a drain looks whether a worker still has a task."""

LOOK_MAX = 100
"""How many such leases of each kind one look finds."""


class WorkerWatch:
    """The agents that are served by workers. `tasks` is the engine's side for them."""

    def __init__(self, tasks: WorkerTasks, supervisor: Supervisor) -> None:
        self.tasks = tasks
        self._supervisor = supervisor
        self._served = supervisor.leases.served
        self._looking: asyncio.Task[None] | None = None

    def start(self, jobs: JobGroup) -> None:
        """Take tasks from silent workers from now on."""
        self._looking = jobs.keep("leases of workers", self._look)

    def drain(self) -> None:
        """Let workers go on until the end of the drain that begins now, if their leases end with this process."""
        if not self.tasks.shared:
            self.tasks.background(self._wait_for_workers())

    async def _wait_for_workers(self) -> None:
        while True:
            if self._supervisor.stopping.begun and not await self._anybody_works():
                return
            await asyncio.sleep(DRAINED_S)

    async def _anybody_works(self) -> bool:
        """Whether any worker works at a task. One that waits for its caller's answer does not."""
        try:
            for task_id in await self.tasks.store.leased(WORKER):
                held = await self.tasks.leases.get(task_id)
                if held is not None and held.runs:
                    return True
        except StoreError:
            return True
        return False

    def stop(self) -> None:
        """Leave the leases as they are: other replicas see to them, or they end with this process."""
        if self._looking is not None:
            self._looking.cancel()
        for workers in self._workers():
            workers.forget_idle(0.0)

    def rewound(self) -> None:
        """Take tasks from the workers whose words the store has lost."""
        for workers in self._workers():
            workers.rewound()

    def _workers(self) -> list[Workers]:
        return [runner.workers for runner in self._served.runners.values() if runner.workers is not None]

    async def _look(self) -> None:
        """Take tasks from silent workers, and end those of late ones, for ever."""
        begun = failing = False
        lost_s = self.tasks.loop.time() + LOST_S
        while True:
            lengths_s = [workers.lease_s / 8 for workers in self._workers()]
            await asyncio.sleep(min((LOOK_S, *lengths_s)))
            leaving = [runner for runner in self._served.leaving.values() if runner.workers is not None]
            begun = begun or bool(self._workers() or leaving)  # workers may have tasks of an agent that is gone
            for workers in self._workers():
                workers.forget_idle()
            if not begun or self._supervisor.leases.fenced:
                continue
            try:
                due = await self.tasks.leases.due(LOOK_MAX)
                if self._supervisor.leases.takes_work:  # else the next start puts tasks back into the queue
                    for lease in due.silent:
                        await self._take_away(lease)
                for lease in due.late:
                    await self._end_overdue(lease)
                if self.tasks.loop.time() >= lost_s:
                    lost_s = self.tasks.loop.time() + LOST_S
                    for workers in self._workers():
                        await workers.note_lost()
                failing = False
            except (StoreError, OutcomeUnknown) as error:
                if not failing:
                    log.warning("silent workers cannot be found: %s", error)
                failing = True

    async def _take_away(self, lease: WorkerLease) -> None:
        """End a lease that has run out. Its task goes back to the queue, unless it waits for its caller."""
        asked = 0
        held = False

        def decide(task: Log) -> Decision | None:
            nonlocal asked, held
            asked += 1
            if task.terminal or asked > 3:
                return None
            held = task.row.holder == WORKER
            return self.tasks.decide(
                task, EndWorkerLease(WorkerLeaseChange(replace(lease, ended="lease"), silent=True))
            )

        async with self.tasks.watch(lease.task_id) as task:
            if task is None:
                return
            with suppress(Refused):
                if not await self.tasks.append(task, decide) or not held:
                    return
                runner = self._served.runners.get(lease.agent)
                if runner is not None and runner.workers is not None:
                    runner.workers.note_silent(lease)
                await self.tasks.requeue(task)

    async def _end_overdue(self, lease: WorkerLease) -> None:
        """End a task whose worker has taken longer than its deadline, unless it has asked or told anything since."""
        async with self.tasks.watch(lease.task_id) as task:
            if task is None or task.terminal or task.state in INTERRUPTED or lease.deadline_s is None:
                return
            text, used = overdue_text(lease.deadline_s), lease.used or task.fold.usage
            end = closing(task.head, TaskState.FAILED, self.tasks.clock.now_ms(), text, OVERDUE, used)
            change = WorkerLeaseChange(replace(lease, version=lease.version + 1))
            with suppress(Refused, Overtaken):  # the next look finds it again
                await self.tasks.write(task, WriteWords((end,), TaskState.FAILED, change))
                log.warning(
                    "task %s: agent %s took longer than deadline_s = %g: it is stopped",
                    lease.task_id,
                    lease.agent,
                    lease.deadline_s,
                    extra=about(lease.agent, agent=lease.agent),
                )
