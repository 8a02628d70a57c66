"""WorkerTasks: the engine as it is for agents whose tasks are done by worker processes, and have no runs here.

Invariant: a task that waits for a worker, or that a worker has, costs this process nothing. Its log is in memory only
while a call of its worker, a caller or a delegation needs it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context

from dragoman.engine.api import Runner, Workers
from dragoman.engine.bounds import Bounds
from dragoman.engine.effects import Delegate, Effects, ParentRun
from dragoman.engine.files import Files
from dragoman.engine.observer import Execution, Observer
from dragoman.engine.rules import Decision, EndWorkerLease, Request
from dragoman.engine.runs.endings import OVERDUE, overdue_text
from dragoman.engine.runs.history import History
from dragoman.engine.served_agents import Served
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.task_log import TaskLog
from dragoman.engine.tasks import Tasks
from dragoman.engine.words import Delegation
from dragoman.model.errors import LeaseLost, TaskNotFound, Unavailable
from dragoman.model.events import Delegated, Logged
from dragoman.model.ids import Clock
from dragoman.model.task import INTERRUPTED, TaskState
from dragoman.store.api import Appended, OutcomeUnknown, Refused, Store, StoreError
from dragoman.store.worker_leases import WORKER, HeldLease, WorkerLease, WorkerLeaseChange
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")

LOOK_S = 0.5
"""How often leases are looked for that have run out, or an eighth of the shortest lease, if that is less."""

DRAINED_S = 0.05
"""How often a drain looks whether a worker still has a task."""

LOOK_MAX = 100
"""How many such leases one look finds."""


class WorkerTasks:
    """The tasks of the agents that are served by workers, and the services that their workers' words need."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        served: Served,
        clock: Clock,
        effects: Effects,
        *,
        files: Files,
        past: History,
        bounds: Bounds,
        server: str,
        retry_s: float,
        observer: Observer | None,
    ) -> None:
        self.clock = clock
        self.files = files
        self.past = past
        self.bounds = bounds
        self.server = server
        self._store = store
        self._tasks = tasks
        self._supervisor = supervisor
        self._served = served
        self._effects = effects
        self.retry_s = retry_s
        self._observer = observer
        self._renewals: dict[int, dict[tuple[str, str], asyncio.Future[int | None]]] = {}
        """The renewals that wait for the next statement, by the time for which leases last."""
        self._looking: asyncio.Task[None] | None = None

    def start(self, jobs: JobGroup) -> None:
        """Take tasks from silent workers from now on."""
        self._looking = jobs.keep("leases of workers", self._look)

    def drain(self) -> None:
        """Let workers go on until the end of the drain that begins now, if their leases end with this process."""
        if not self.shared:
            self.background(self._wait_for_workers())

    async def _wait_for_workers(self) -> None:
        while True:
            if self._supervisor.stopping.begun and not await self._anybody_works():
                return
            await asyncio.sleep(DRAINED_S)

    async def _anybody_works(self) -> bool:
        """Whether any worker works at a task. One that waits for its caller's answer does not."""
        try:
            for task_id in await self._store.leased(WORKER):
                held = await self._store.worker_leases.get(task_id)
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

    def serve(self, runners: Iterable[Runner]) -> None:
        """Let the workers of these agents take tasks."""
        for runner in runners:
            if runner.workers is not None:
                runner.workers.serve(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The engine's loop."""
        return self._supervisor.loop

    @property
    def stopping(self) -> bool:
        """Whether the server is about to end, so that nobody waits for anything."""
        return self._supervisor.stopping.done

    @property
    def shared(self) -> bool:
        """Whether other replicas may serve the same workers."""
        return self._store.replicas.shared

    # -- logs ----------------------------------------------------------------------------------------------------------

    async def pin(self, task_id: str) -> TaskLog | None:
        """A task as it stands, kept in memory until its `unpin`; None if there is none. Raises StoreError."""
        return await self._tasks.pin_known(task_id)

    @asynccontextmanager
    async def watch(self, task_id: str) -> AsyncIterator[TaskLog | None]:
        """A task that is kept up to date in the block; None if there is none."""
        task = await self.pin(task_id)
        try:
            yield task
        finally:
            if task is not None:
                task.unpin()

    async def state(self, task_id: str) -> TaskState | None:
        """The state of a task; None if there is none."""
        found = await self._store.head(task_id)
        return None if found is None else found[2]

    async def read(self, task: TaskLog, after: int) -> tuple[Logged, ...]:
        """The events of a task after a seq, with the bytes of its callers' files."""
        return await self.files.log(await self._store.read(task.head.id, after, 1 << 40))

    async def catch_up(self, task: TaskLog) -> None:
        """Read what other replicas wrote to a task. Raises StoreError, or LeaseLost if it has been deleted."""
        try:
            await self._tasks.catch_up(task)
        except TaskNotFound as error:
            raise LeaseLost from error

    async def append(self, task: TaskLog, decide: Callable[[TaskLog], Decision | None]) -> bool:
        """Write what is decided. Returns False if that is nothing.

        Raises StoreError, Refused or what `decide` raises.
        """
        return isinstance(await task.writes.append(task, decide, patient=False), Appended)

    async def end(self, task: TaskLog, state: TaskState, text: str, reason: str) -> None:
        """End a task. Raises StoreError or Unknown."""
        await self._supervisor.end(task, state, text, reason)

    async def orphaned(self, task: TaskLog) -> bool:
        """Whether the task was delegated by one that has ended."""
        return await self._tasks.orphaned(task.head)

    # -- leases --------------------------------------------------------------------------------------------------------

    def refusal(self) -> Unavailable | None:
        """Why no task can be leased at present; None if one can."""
        return None if self._supervisor.leases.takes_work else self._supervisor.refusal()

    async def queued(self, agent: str, limit: int) -> tuple[str, ...]:
        """The ids of the tasks that nobody has, oldest first."""
        return await self._store.queued(agent, limit)

    def announce(self, task: TaskLog) -> None:
        """Tell all that serve its agent that a task waits in the queue."""
        self._supervisor.leases.tell(task, None)

    def take_on(self, task: TaskLog) -> None:
        """A worker has taken a task, so that whoever waits for a first sign of its agent has it."""
        if not task.taken_on:
            task.note_contact()

    def decide(self, task: TaskLog, request: Request) -> Decision | None:
        """What the rules say to a request, as the task stands. Raises what they raise."""
        return self._supervisor.leases.decide(request, task)

    async def lease(self, task_id: str) -> HeldLease | None:
        """The newest lease of a task, if it is known. Raises StoreError."""
        return await self._store.worker_leases.get(task_id)

    async def leases(self, agent: str) -> tuple[HeldLease, ...]:
        """The leases of an agent that run. Raises StoreError."""
        return await self._store.worker_leases.of_agent(agent)

    async def note(self, lease: WorkerLease) -> bool:
        """See `WorkerLeases.note`."""
        return await self._store.worker_leases.note(lease)

    async def renew(self, task_id: str, token: str, lease_s: float) -> int | None:
        """Let a lease run for `lease_s` more. Returns how many questions its worker has put; None if it has run out.

        All renewals of a moment are one statement.
        """
        ttl_ms = round(lease_s * 1000)
        waiting = self._renewals.get(ttl_ms)
        if waiting is not None:
            future = waiting.get((task_id, token))
            if future is None:
                future = waiting[task_id, token] = self.loop.create_future()
            return await asyncio.shield(future)
        waiting = self._renewals[ttl_ms] = {}
        try:
            await asyncio.sleep(0)  # lets others join
        finally:
            del self._renewals[ttl_ms]
            renewed: Mapping[str, int] | None = None
            try:
                renewed = await self._store.worker_leases.renew(sorted({(task_id, token), *waiting}), ttl_ms)
            finally:
                for (_, other), future in waiting.items():
                    if renewed is None:
                        future.set_exception(StoreError("the leases could not be renewed"))
                        future.exception()  # its caller may have left
                    else:
                        future.set_result(renewed.get(other))
        return renewed.get(token)

    # -- delegations, observation, other work --------------------------------------------------------------------------

    def delegate(self, parent: ParentRun, number: int, order: Delegation) -> "asyncio.Future[Delegated]":
        """Make the task of a delegation, unless it exists. The future gets its outcome."""
        outcome: asyncio.Future[Delegated] = self.loop.create_future()
        self._effects.put(Delegate(parent, number, order, None, outcome, copy_context()))
        return outcome

    def executing(self, task: TaskLog) -> Execution | None:
        """A worker begins with a task; None if nobody observes it."""
        observer, head = self._observer, task.head
        return None if observer is None else observer.executing(head.agent, head.id, head.traceparent)

    def background(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside all calls, until the end of a drain."""
        self._supervisor.errands.background(work)

    # -- silent and late workers ---------------------------------------------------------------------------------------

    def _workers(self) -> list[Workers]:
        return [runner.workers for runner in self._served.runners.values() if runner.workers is not None]

    async def _look(self) -> None:
        """Take tasks from silent workers, and end those of late ones, for ever."""
        failing = False
        while True:
            lengths_s = [workers.lease_s / 8 for workers in self._workers()]
            await asyncio.sleep(min((LOOK_S, *lengths_s)))
            for workers in self._workers():
                workers.forget_idle()
            if not lengths_s or self._supervisor.leases.fenced:
                continue
            try:
                if self._supervisor.leases.takes_work:  # else the next start puts tasks back into the queue
                    for lease in await self._store.worker_leases.silent(LOOK_MAX):
                        await self._take_away(lease)
                for lease in await self._store.worker_leases.overdue(LOOK_MAX):
                    await self._end_overdue(lease)
                failing = False
            except (StoreError, OutcomeUnknown) as error:
                if not failing:
                    log.warning("silent workers cannot be found: %s", error)
                failing = True

    async def _take_away(self, lease: WorkerLease) -> None:
        """End a lease that has run out. Its task goes back to the queue, unless it waits for its caller."""
        asked = 0
        held = False

        def decide(task: TaskLog) -> Decision | None:
            nonlocal asked, held
            asked += 1
            if task.terminal or asked > 3:
                return None
            held = task.holder == WORKER
            return self.decide(task, EndWorkerLease(WorkerLeaseChange(lease, silent=True)))

        async with self.watch(lease.task_id) as task:
            if task is None:
                return
            with suppress(Refused):
                if not await self.append(task, decide) or not held:
                    return
                runner = self._served.runners.get(lease.agent)
                if runner is not None and runner.workers is not None:
                    runner.workers.note_silent(lease)
                self.announce(task)

    async def _end_overdue(self, lease: WorkerLease) -> None:
        """End a task whose worker has taken longer than its deadline."""
        async with self.watch(lease.task_id) as task:
            if task is None or task.terminal or task.state in INTERRUPTED or lease.deadline_s is None:
                return
            log.warning(
                "task %s: agent %s took longer than deadline_s = %g: it is stopped",
                lease.task_id,
                lease.agent,
                lease.deadline_s,
                extra=about(lease.agent, agent=lease.agent),
            )
            with suppress(Refused):
                text = overdue_text(lease.deadline_s)
                await self._supervisor.end(task, TaskState.FAILED, text, OVERDUE, epoch=task.epoch)
