"""TaskCache: the tasks that workers have, as they are known here, for the next words of these workers.

Invariant: a cache. The outcome of a word is written only if log and lease are in the store as they are known here, so
that nothing has to be kept: another replica reads both anew. A task is in memory while somebody uses it, and a while
longer.

```
    get ──► in use ──last use over──► kept ──WORK_S without a use, or too many──► forgotten
              ▲                         │
              └───────────get───────────┘
```
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from msgspec.structs import replace

from dragoman.agents.worker.held_tasks import HeldTasks
from dragoman.agents.worker.task_view import TaskView
from dragoman.engine.log import Log
from dragoman.engine.rules import EndWorkerLease
from dragoman.engine.worker_tasks import Overtaken, WorkerTasks
from dragoman.model.errors import LeaseLost
from dragoman.model.events import Delegated, Event, Logged, MessageReceived, Stepped
from dragoman.model.message import Message
from dragoman.model.operations import Confirmed
from dragoman.model.task import INTERRUPTED
from dragoman.store.api import Appended, Refused, StoreError
from dragoman.store.worker_leases import WORKER, HeldLease, WorkerLease, WorkerLeaseChange

TASKS_KEPT = 256
"""Most tasks that are kept while nobody uses them."""

WORK_S = 10.0
"""How long a task is kept after its last use."""


class CachedTask:
    """A task with its lease, or without one, as they are known here.

    `lock` is held by whoever reads or writes it, one word after the other, and never while anybody waits for a caller.

    A `with` block around a task ends the use that `TaskCache.get` began.
    """

    __slots__ = ("_cache", "_rewound", "_unsure", "last_s", "lease", "lock", "task", "users", "view")

    def __init__(self, cache: "TaskCache", task: Log, lease: WorkerLease | None, view: TaskView, rewound: int) -> None:
        """`rewound` is `Log.rewound` as it was before the view was read."""
        self.task = task
        self.lease = lease
        self.view = view
        self.lock = asyncio.Lock()
        self.users = 0
        """How many use it at present."""
        self.last_s = 0.0
        """When the last use began."""
        self._cache = cache
        self._rewound = rewound
        self._unsure = False
        """Whether a word was not told, so that lease and view may not be what the store has."""

    def __enter__(self) -> "CachedTask":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.users -= 1
        if not self.users:
            self._cache.let_go(self)

    def use(self) -> "CachedTask":
        """Begin another use."""
        self.users += 1
        self.last_s = self._cache.tasks.loop.time()
        return self

    @property
    def lost(self) -> bool:
        """Whether the store has lost something of the task since, and so perhaps words that it had confirmed."""
        return self.task.gone or self.task.rewound != self._rewound

    @property
    def answers(self) -> Sequence[Message]:
        """The answers that the worker of the lease has been given."""
        lease = self.lease
        return () if lease is None else self.view.said[lease.base : lease.base + lease.questions]

    def has_outcome(self, confirmed: Confirmed) -> bool:
        """Whether the log, as it is known here, has the answer or the outcome that the worker was given last."""
        outcome = confirmed.outcome  # mostly the newest one
        if not outcome or self.lease is None:
            return True
        if any(answer.message_id == outcome for answer in reversed(self.answers)):
            return True
        return any(delegated.task_id == outcome for delegated in reversed(self.view.delegated.values()))

    def has(self, confirmed: Confirmed) -> bool:
        """Whether log and lease, as they are known here, have all that the worker knows of them."""
        return (self.lease is None or self.lease.reports >= confirmed.report) and self.has_outcome(confirmed)

    def add(self, events: Sequence[Event], lease: WorkerLease | None, written: Appended | None = None) -> None:
        """Take in what has been written: events, as the store says, and what has become of the lease."""
        self.lease = lease
        if written is None:
            return
        view = self.view
        for logged in written.missed:
            if isinstance(
                logged.event, MessageReceived | Delegated | Stepped
            ):  # `sync` reads it with the bytes of its files
                break
            if logged.seq == view.seq + 1:
                view.add(logged)
        if view.seq == written.last_seq - len(events):  # else `sync` reads what is missing
            for seq, event in enumerate(events, view.seq + 1):
                view.add(Logged(seq, event))

    @property
    def fresh(self) -> bool:
        """Whether the view is that of the log in memory, so that `sync` would read nothing."""
        return self.view.seq == self.task.seq and not (self._unsure or self.lost)

    def doubt(self) -> None:
        """Read lease and task anew before the next word, because one was not told: the view may have taken it in."""
        self._unsure = True

    async def sync(self) -> None:
        """Read what others wrote to the task. Raises LeaseLost if the store has lost something of it."""
        if self.lost:
            raise LeaseLost
        if self._unsure:
            await self.reread()
        view, task, tasks = self.view, self.task, self._cache.tasks
        while view.seq != task.seq:
            if view.seq > task.seq:
                await tasks.catch_up(task)
            whole = await tasks.read(task, view.seq)
            if self.lost:
                raise LeaseLost
            for logged in whole:
                if logged.seq <= task.seq:
                    view.add(logged)

    async def reread(self) -> None:
        """Read lease and task anew. Raises LeaseLost."""
        tasks = self._cache.tasks
        await tasks.catch_up(self.task)
        if self.lease is not None:
            held = await tasks.leases.get(self.task.head.id)
            if self.task.terminal or held is None or not held.runs or held.lease.token != self.lease.token:
                raise LeaseLost
            if self.task.state not in INTERRUPTED and self.task.row.holder != WORKER:
                raise LeaseLost  # else the store would refuse the word for ever
            view = self.view
            if held.lease.replays:  # how far it has come is not in the log
                view = await self._cache.read(self.task, held.lease)
            self.lease, self.view = held.lease, view
        self._unsure = False
        await self.sync()


class TaskCache:
    """The tasks of the workers of the agent `agent`. `held_tasks` are those that workers took here."""

    def __init__(self, agent: str, tasks: WorkerTasks, held_tasks: HeldTasks) -> None:
        self.tasks = tasks
        self._agent = agent
        self._held_tasks = held_tasks
        self._known: dict[str, CachedTask] = {}
        """By task; the one that was used last comes last."""

    def find(self, task_id: str, token: str | None) -> CachedTask | None:
        """The task of a lease, in use, if it is known here. Raises LeaseLost."""
        known = self._known.get(task_id)
        if known is None or token is None or known.lease is None or known.lease.token != token:
            return None
        if known.lost:
            self.take_back(known)
            raise LeaseLost
        return self._use(task_id, known)

    async def get(self, task_id: str, token: str | None) -> CachedTask:
        """The task of a lease, or one that nobody has, in use. Raises LeaseLost or StoreError."""
        if (known := self.find(task_id, token)) is not None:
            return known
        lease = None
        if token is not None:
            held = await self.held(token)
            if not held.runs:
                raise LeaseLost
            lease = held.lease
        task = await self.tasks.pin(task_id)
        if task is None:
            raise LeaseLost
        rewound = task.rewound
        try:
            if task.terminal:
                raise LeaseLost
            view = await self.read(task, lease)
        except BaseException:
            task.unpin()
            raise
        known = CachedTask(self, task, lease, view, rewound)
        if (former := self._known.get(task_id)) is not None:
            self._forget(former)
        return self._use(task_id, known)

    async def held(self, token: str) -> HeldLease:
        """The newest lease of a task, also one that is over. Raises LeaseLost if it is another one; StoreError."""
        held = await self.tasks.leases.get(task_of(token))
        if held is None or held.lease.token != token or held.lease.agent != self._agent:
            raise LeaseLost
        return held

    async def read(self, task: Log, lease: WorkerLease | None) -> TaskView:
        """Read the whole log for a worker with that lease. Raises LeaseLost or StoreError."""
        whole = await self.tasks.read(task, 0)
        if not whole:  # it has been deleted since
            raise LeaseLost
        delivered = task.row.delivered if lease is None else lease.delivery - 1
        return TaskView(task.head, whole, lease, delivered=delivered)

    def _use(self, task_id: str, known: CachedTask) -> CachedTask:
        self._known.pop(task_id, None)
        self._known[task_id] = known  # now the last
        return known.use()

    def worker(self, token: str) -> str:
        """The name of the worker that has a lease; empty if it is not known here."""
        known = self._known.get(task_of(token))
        lease = None if known is None else known.lease
        return lease.worker if lease is not None and lease.token == token else ""

    async def answers(self, token: str, seen: int, asked: int) -> tuple[Message, ...]:
        """The answers to the questions of a lease, of which there are `asked`, after the first `seen`.

        Raises LeaseLost or StoreError.
        """
        with await self.get(task_of(token), token) as known:
            async with known.lock:
                await known.sync()
                if known.lease is not None and known.lease.questions < asked:  # the others were put at other replicas
                    await known.reread()
            return tuple(known.answers[seen:])

    # -- forgetting ----------------------------------------------------------------------------------------------------

    def let_go(self, known: CachedTask) -> None:
        """Note that nobody uses a task now. One that has ended is forgotten, and so are those that are too many."""
        if self._known.get(known.task.head.id) is not known:
            known.task.unpin()
        elif known.task.terminal:
            self._forget(known)
        if len(self._known) > TASKS_KEPT:
            for other in tuple(self._known.values()):
                if not other.users:
                    self._forget(other)
                if len(self._known) <= TASKS_KEPT:
                    break

    def _forget(self, known: CachedTask) -> None:
        task_id = known.task.head.id
        if self._known.get(task_id) is known:
            del self._known[task_id]
            if not known.users:
                known.task.unpin()

    def forget_idle(self, for_s: float = WORK_S) -> None:
        """See `engine.api.Workers`."""
        for known in tuple(self._known.values()):
            if not known.users and self.tasks.loop.time() - known.last_s >= for_s:
                self._forget(known)

    def wake(self) -> None:
        """Wake all who wait for news of a task."""
        for known in self._known.values():
            known.task.followers.wake()

    # -- the ends of leases --------------------------------------------------------------------------------------------

    async def release(self, token: str) -> None:
        """Give a task back, so that another worker gets it at once. Raises LeaseLost or StoreError."""
        with await self.get(task_of(token), token) as known:
            async with known.lock:
                while not await self._release(known):
                    await known.reread()

    async def _release(self, known: CachedTask) -> bool:
        task, lease = known.task, known.lease
        assert lease is not None
        change = WorkerLeaseChange(replace(lease, version=lease.version + 1, ended="lease"), over=True)
        try:
            if not await self.tasks.write(task, EndWorkerLease(change)):
                raise LeaseLost
        except (Overtaken, Refused):
            return False
        self._forget(known)
        self._held_tasks.finish(task.head.id, "working")
        if task.state not in INTERRUPTED:
            await self.tasks.requeue(task)
        return True

    def refuse(self, token: str) -> None:
        """Give back a task whose lease has not reached its worker."""

        async def give_back() -> None:
            with suppress(LeaseLost, StoreError):
                await self.release(token)

        self.tasks.background(give_back())

    def rewound(self) -> None:
        """See `engine.api.Workers`."""
        for known in tuple(self._known.values()):
            if known.lost:
                self.take_back(known)

    def check(self, known: CachedTask, confirmed: Confirmed) -> None:
        """Take the task back if its worker knows of more than there is, in a log and a lease that were just read.

        Raises LeaseLost then: the store has lost words that the worker will not repeat, or answers that it heeds.
        """
        if not known.has(confirmed):
            self.take_back(known)
            raise LeaseLost

    def take_back(self, known: CachedTask) -> None:
        """End the lease of a worker that would go on behind words that the store has lost."""
        self._forget(known)
        if known.lease is not None:
            self.refuse(known.lease.token)


def task_of(token: str) -> str:
    """The task of a lease."""
    return token.rpartition(".")[0]
