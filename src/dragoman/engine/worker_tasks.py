"""WorkerTasks: the engine as it is for agents whose tasks are done by worker processes, and have no runs here.

Invariant: a task that waits for a worker, or that a worker has, costs this process nothing. Its log is in memory only
while a call of its worker, a caller or a delegation needs it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import copy_context

from dragoman.engine.code_versions import CodeVersions
from dragoman.engine.effects import Delegate, ParentRun, WeighSpending
from dragoman.engine.ends import GONE_TEXT
from dragoman.engine.log import Log
from dragoman.engine.observer import Execution, Observer
from dragoman.engine.rules import Decision, Request, View, WriteWords, decide_words
from dragoman.engine.runs.endings import BUDGET_EXHAUSTED, BUDGET_TEXT
from dragoman.engine.runs.services import RunServices
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.engine.words import Delegation
from dragoman.engine.writes import STALLED_S
from dragoman.model.errors import LeaseLost, TaskNotFound, Unavailable
from dragoman.model.events import Delegated, Logged
from dragoman.model.task import TaskHead, TaskState, Usage
from dragoman.store.api import Appended, Store, StoreError
from dragoman.store.worker_leases import WorkerLease

EVENTS_READ, BYTES_READ = 1 << 40, 1 << 40
"""How much of a log is read at once: limits that no log reaches."""


class Overtaken(Exception):
    """Somebody else wrote to the task since it was read: what was to be written is decided anew."""


class WorkerSpending:
    """What a worker has reported for its task: see `engine.effects.SpendingRun`."""

    def __init__(self, head: TaskHead, used: Usage, tasks: "WorkerTasks") -> None:
        self.head = head
        self.used: Usage | None = used
        self._tasks = tasks

    async def stop_spending(self, budget: str) -> None:
        """As the protocol says. The worker hears of it with its next word."""
        async with self._tasks.watch(self.head.id) as task:
            if task is not None:
                await self._tasks.ends.end(task, TaskState.FAILED, BUDGET_TEXT.format(budget), BUDGET_EXHAUSTED)


class WorkerTasks:
    """The tasks of the agents that are served by workers, and the services that their workers' words need."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        services: RunServices,
        versions: CodeVersions,
        observer: Observer | None,
    ) -> None:
        self.versions = versions
        self.store = store
        self.leases = store.worker_leases
        self.state_store = services.state
        self.ends = supervisor.ends
        self.loop = services.loop
        self.clock = services.clock
        self.files = services.files
        self.past = services.past
        self.bounds = services.bounds
        self.server = services.server
        self.retry_s = services.retry_s
        self.max_steps = services.max_steps
        self._tasks = tasks
        self._supervisor = supervisor
        self._effects = services.effects
        self._observer = observer
        self._renewals: dict[int, dict[tuple[str, str], asyncio.Future[WorkerLease | None]]] = {}
        """The renewals that wait for the next statement, by the time for which leases last."""

    @property
    def stopping(self) -> bool:
        """Whether the server is about to end, so that nobody waits for anything."""
        return self._supervisor.stopping.done

    @property
    def shared(self) -> bool:
        """Whether other replicas may serve the same workers."""
        return self.store.replicas.shared

    def weigh_spending(self, task: Log, used: Usage) -> None:
        """End a task soon whose worker has used more than its budgets have left."""
        if not task.terminal and any(one.stops for one in task.head.reservations):
            self._effects.put(WeighSpending(WorkerSpending(task.head, used, self)))

    # -- logs ----------------------------------------------------------------------------------------------------------

    async def pin(self, task_id: str) -> Log | None:
        """A task as it stands, kept in memory until its `unpin`; None if there is none. Raises StoreError."""
        return await self._tasks.pin_known(task_id)

    @asynccontextmanager
    async def watch(self, task_id: str) -> AsyncIterator[Log | None]:
        """A task that is kept up to date in the block; None if there is none."""
        task = await self.pin(task_id)
        try:
            yield task
        finally:
            if task is not None:
                task.unpin()

    async def state(self, task_id: str) -> TaskState | None:
        """The state of a task; None if there is none."""
        found = await self.store.head(task_id)
        return None if found is None else found[2]

    async def read(self, task: Log, after: int) -> tuple[Logged, ...]:
        """The events of a task after a seq, with the bytes of its callers' files.

        Those of a task that is followed here are in memory, if they are new.
        """
        newest = task.followers.newest
        kept = None if newest is None else newest.after(after, EVENTS_READ, BYTES_READ)
        return await self.files.log(tuple(kept) if kept else await self.store.read(task.head.id, after, BYTES_READ))

    async def catch_up(self, task: Log) -> None:
        """Read what other replicas wrote to a task. Raises StoreError, or LeaseLost if it has been deleted."""
        try:
            await self._tasks.catch_up(task)
        except TaskNotFound as error:
            raise LeaseLost from error

    async def append(self, task: Log, decide: Callable[[Log], Decision | None]) -> Appended | None:
        """Write what is decided; None if that is nothing. Raises StoreError, Refused or what `decide` raises."""
        written = await task.writes.append(task, decide, patient=False)
        return written if isinstance(written, Appended) else None

    async def write(self, task: Log, request: Request, seq: int | None = None) -> Appended | None:
        """Write what the rules say to a request, as the task stands; None if that is nothing.

        A store that cannot be written is tried again for `STALLED_S`. Raises Overtaken if the log is not at `seq`, or
        not any more when the store gets the write; StoreError or Refused.
        """
        until_s = self.loop.time() + STALLED_S
        while True:
            asked = 0

            def decide(task: Log) -> Decision | None:
                nonlocal asked
                asked += 1
                if asked > 1 or seq not in (None, task.seq):
                    raise Overtaken
                return self.decide(task, request)

            try:
                return await self.append(task, decide)
            except StoreError:
                if self.loop.time() + self.retry_s > until_s or task.writes.busy:
                    raise
                await asyncio.sleep(self.retry_s)

    async def orphaned(self, task: Log) -> bool:
        """Whether the task was delegated by one that has ended."""
        return await self._tasks.orphaned(task.head)

    # -- leases --------------------------------------------------------------------------------------------------------

    def takes_on(self, agent: str) -> bool:
        """Whether workers may take tasks of an agent: not while an operator has disabled it."""
        return self._supervisor.leases.served.switches.takes_on(agent)

    def refusal(self) -> Unavailable | None:
        """Why no task can be leased at present; None if one can."""
        return None if self._supervisor.leases.takes_work else self._supervisor.refusal()

    async def requeue(self, task: Log) -> None:
        """Tell all that serve its agent that a task waits in the queue again, or end it if nobody serves it any more.

        Raises StoreError or Unknown.
        """
        leases = self._supervisor.leases
        if self.shared or task.head.agent in leases.served.runners:
            leases.tell(task, None)
        else:
            await self.ends.end(task, TaskState.FAILED, GONE_TEXT, "interrupted")

    def decide(self, task: Log, request: Request) -> Decision | None:
        """What the rules say to a request, as the task stands. Raises what they raise."""
        if isinstance(request, WriteWords):
            row = task.row
            return decide_words(View(task.head, row.state, row.epoch, row.holder), request, self.clock.now_ms())
        return self._supervisor.leases.decide(request, task)

    async def runs(self, task_id: str, token: str) -> bool:
        """Whether a task's lease is the one with that token, and runs. Raises StoreError."""
        held = await self.leases.get(task_id)
        return held is not None and held.runs and held.lease.token == token

    async def renew(self, task_id: str, token: str, lease_s: float) -> WorkerLease | None:
        """Let a lease run for `lease_s` more. Returns it; None if it has run out.

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
            renewed: Mapping[str, WorkerLease] | None = None
            try:
                renewed = await self.leases.renew(sorted({(task_id, token), *waiting}), ttl_ms)
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
        self._effects.want(Delegate(parent, number, order, None, outcome, copy_context()))
        return outcome

    def executing(self, task: Log) -> Execution | None:
        """A worker begins with a task; None if nobody observes it."""
        observer, head = self._observer, task.head
        if observer is None:
            return None
        return observer.executing(head, self._supervisor.leases.served.runners.get(head.agent))

    def background(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside all calls, until the end of a drain."""
        self._supervisor.errands.background(work)
