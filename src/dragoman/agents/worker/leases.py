"""Leases: the workers of one agent, the tasks that they take, and the words that they tell about them.

Invariant: at most one worker has a task. What a worker tells is one guarded append, decided on the log and the lease as
they stand, from whatever replica it calls. It is committed before the worker hears of it.

A task that nobody has waits in the store's queue, and a lease is a row beside its task (`store.worker_leases`). What is
kept here of a task (`Work`) is a cache for the next words of its worker.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.worker.attendance import Attendance
from dragoman.agents.worker.parent import ParentTask
from dragoman.agents.worker.roster import Roster, RosterEntry, WorkerWord, merge_rosters
from dragoman.agents.worker.task_view import TaskView
from dragoman.agents.worker.words import SpokenWord, adds, says_anything, used_within, within, word_of
from dragoman.engine.lineage import child_of, full_lineage
from dragoman.engine.observer import Execution
from dragoman.engine.rules import Decision, EndWorkerLease, LeaseToWorker, Request, WriteWords
from dragoman.engine.runs.endings import agent_message, closing, mismatched
from dragoman.engine.runs.replay import ReplayMismatch, delegation_to
from dragoman.engine.runs.task_sink import metadata_of
from dragoman.engine.task_log import TaskLog
from dragoman.engine.words import Ask, Delegation, End, Say
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.engine.writes import STALLED_S
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import ArtifactChunk, Delegated, Event, Logged, Noted, StatusChanged
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import SPELLED
from dragoman.model.message import Message, Part
from dragoman.model.operations import CompleteTask, UpdateStatus
from dragoman.model.task import INTERRUPTED, Progress, Record, TaskHead, TaskState, Usage
from dragoman.store.api import Fenced, Moved, Refused, StoreError
from dragoman.store.worker_leases import WorkerLease, WorkerLeaseChange
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.worker")

LEASE_S = 30.0
"""Seconds that a worker may be silent before its task goes to another."""

SEEN_S = 30.0
"""Seconds after the last word of a worker during which its agent counts as online."""

WORKS_KEPT = 256
"""Most tasks of which something is kept for the next word of their workers, while nobody uses it."""

WORK_S = 10.0
"""How long that is kept after the last word."""

CANDIDATES = 4
"""How many queued tasks are looked up at once: another replica may be quicker with some."""

WAITS = "the task waits for its caller's message: its worker goes on when that has come"

NOBODY_ASKED = "the task waits for its caller's message: then a worker gets it"


class Overtaken(Exception):
    """Somebody else wrote to the task, or changed its lease, since both were read: a word is decided anew."""


class Taken(Struct, frozen=True):
    """A task that a worker has just taken, as it stands, with the message that made it."""

    lease: WorkerLease
    head: TaskHead
    record: Record
    message: Message
    traceparent: str | None
    lineage: tuple[str, ...]


class Beat(Struct, frozen=True):
    """The answer to a heartbeat. `answers` are those that the worker has not seen."""

    cancel: bool
    answers: tuple[Message, ...] = ()


class Work(Struct, eq=False):
    """What is known here of a task and its lease, if it has one. `lock` lets one word after the other pass.

    `last_s` is when it was last used, and `users` are those who use it. `rewound` is `TaskLog.rewound` as it was then.
    """

    task: TaskLog
    lease: WorkerLease | None
    view: TaskView
    lock: asyncio.Lock
    rewound: int
    last_s: float = 0.0
    users: int = 0

    @property
    def lost(self) -> bool:
        """Whether the store has lost something of the task since, and so perhaps words that it had confirmed."""
        return self.task.gone or self.task.rewound != self.rewound


class Said(Struct):
    """The outcome of a word: the events to write, and what becomes of the lease."""

    events: list[Event]
    lease: WorkerLease | None


class Leases:
    """The workers of the agent `agent`. Satisfies `engine.api.Workers`."""

    def __init__(self, agent: str, lease_s: float = LEASE_S, seen_s: float = SEEN_S) -> None:
        self.lease_s = lease_s
        self.deadline_s: float | None = None
        """How long a worker may work on a task at a stretch."""
        self.lost = 0
        """How many leases have run out, because their workers kept silent."""
        self.attendance: Attendance | None = None
        """What other replicas know of the workers; None if there is only one replica."""
        self._agent = agent
        self._seen_s = seen_s
        self._seen_at: float | None = None
        self._silent = False
        """Whether the log has said that no worker calls any more."""
        self._watching: asyncio.TimerHandle | None = None
        self._roster = Roster(seen_s)
        self._tasks: WorkerTasks | None = None
        self._works: dict[str, Work] = {}
        """By task; the one that was used last comes last."""
        self._executions: dict[str, tuple[str, Execution | None]] = {}
        """The observation of the tasks that workers took here, with the token of their lease."""
        self._handed: dict[tuple[str, int], asyncio.Future[Delegated | None]] = {}
        """The delegations whose outcome is waited for here. None: the order differs from the recorded one."""
        self._idle: dict[asyncio.Future[None], str] = {}
        """The workers that wait for work, by name."""
        self._offers = 0
        """How often there was said to be a task in the queue."""
        self._closed = False

    @property
    def tasks(self) -> WorkerTasks:
        """The engine's side."""
        assert self._tasks is not None, "the agent is not served yet"
        return self._tasks

    # -- the workers ---------------------------------------------------------------------------------------------------

    @property
    def seen(self) -> bool:
        """Whether a worker waits for work, or has called lately, here or on another replica."""
        if self._idle or (self._seen_at is not None and _now() - self._seen_at <= self._seen_s):
            return True
        return self.attendance is not None and self.attendance.sees(self._agent)

    @property
    def connected(self) -> int:
        """How many workers, by the names that they give, wait for work here or have called lately."""
        return len({*self._roster.lately(_now()), *self._idle.values()})

    def roster(self) -> tuple[RosterEntry, ...]:
        """The workers as this process knows them, without their leases."""
        return self._roster.entries(frozenset(self._idle.values()), {}, _now())

    async def workers(self) -> tuple[RosterEntry, ...]:
        """The workers as all replicas know them, with their leases. Raises StoreError."""
        others = () if self.attendance is None else await self.attendance.rosters(self._agent)
        leases: dict[str, list[tuple[str, float]]] = {}
        for held in await self.tasks.leases(self._agent):
            leases.setdefault(held.lease.worker, []).append((held.lease.task_id, held.left_ms / 1000))
        held_by = self._roster.entries((), leases, _now())
        return merge_rosters((self.roster(), held_by, *others))

    @property
    def held(self) -> int:
        """How many tasks workers have taken here."""
        return len(self._executions)

    @property
    def wants(self) -> int:
        """How many more tasks workers wait for here."""
        return len(self._idle)

    def saw(self, worker: str = "", word: WorkerWord = "poll") -> None:
        """Record that a worker has called, by its name if that is known."""
        self._seen_at = _now()
        if worker:
            self._roster.note(worker, word, self._seen_at)
        if self.attendance is not None:
            self.attendance.saw(self._agent, self._seen_s)
        if self._watching is None and not self._closed:
            self._watch()

    def _watch(self) -> None:
        """A worker is there: look from time to time whether one still is."""
        if self._silent:
            self._silent = False
            log.info("agent %s: a worker calls again", self._agent, extra=about(self._agent, agent=self._agent))
        self._watching = asyncio.get_running_loop().call_later(self._seen_s, self._look)

    def _look(self) -> None:
        """Log that no worker has called for long, unless one has, or one still waits for work."""
        self._watching = None
        if self._closed:
            return
        if self.seen:
            self._roster.forget(_now())
            left_s = self._seen_s if self._seen_at is None else self._seen_at + self._seen_s - _now()
            self._watching = asyncio.get_running_loop().call_later(max(left_s, self._seen_s / 10), self._look)
            return
        self._silent = True
        log.warning(
            "agent %s: no worker has called for %g s: nobody does its tasks",
            self._agent,
            self._seen_s,
            extra=about(self._agent, agent=self._agent),
        )

    # -- for the server ------------------------------------------------------------------------------------------------

    def serve(self, tasks: WorkerTasks) -> None:
        """See `engine.api.Workers`."""
        self._tasks, self._closed = tasks, False

    def attend(self, attendance: Attendance) -> None:
        """Share with other replicas who the workers are."""
        self.attendance = attendance
        attendance.serve(self._agent, self)

    def close(self) -> None:
        """Give out no more work, since the server is stopping."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        for work in self._works.values():
            work.task.followers.wake()

    def offer(self) -> None:
        """See `engine.api.Workers`."""
        self._offers += 1
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
                return

    def note_silent(self, lease: WorkerLease) -> None:
        """See `engine.api.Workers`."""
        self.lost += 1
        log.warning(
            "agent %s: the lease of task %s is lost: worker %.100s was silent for %g s",
            self._agent,
            lease.task_id,
            lease.worker,
            self.lease_s,
            extra=about(self._agent, agent=self._agent, worker=lease.worker[:100]),
        )
        self._observed(lease.task_id, "working")

    async def left(self) -> None:
        """See `engine.api.Workers`."""
        while not self._closed:
            try:
                if self.tasks.shared:
                    for task_id, (token, _) in tuple(self._executions.items()):
                        if not await self._runs(task_id, token):
                            self._observed(task_id, SPELLED[await self.tasks.state(task_id) or TaskState.CANCELED])
                    if not self._executions:
                        return
                elif not await self.tasks.leases(self._agent) and not await self.tasks.queued(self._agent, 1):
                    return
            except StoreError:
                pass
            await asyncio.sleep(min(1.0, self.lease_s / 8))

    async def _runs(self, task_id: str, token: str) -> bool:
        held = await self.tasks.lease(task_id)
        return held is not None and held.runs and held.lease.token == token

    def _observed(self, task_id: str, state: str) -> None:
        """A worker has a task no more, which is in a state now."""
        _, execution = self._executions.pop(task_id, ("", None))
        if execution is not None:
            execution.finished(state)

    # -- taking a task -------------------------------------------------------------------------------------------------

    async def take(self, worker: str, wait_s: float, *, replays: bool = False) -> Taken | None:
        """Lease the task that has waited longest; None if there is none for `wait_s`.

        Raises Unavailable when the server is stopping, or its store cannot answer.
        """
        self.saw(worker)
        if self._closed:
            raise Unavailable("the server is stopping: ask again in a moment", 1)
        deadline = _now() + wait_s
        while True:
            offers = self._offers
            taken = await self._take_next(worker, replays=replays)
            if taken is not None:
                self.offer()  # there may be more
                return taken
            if self._closed or (rest_s := deadline - _now()) <= 0:
                return None
            if self._offers == offers:
                await self._wait(worker, rest_s)

    async def _wait(self, worker: str, rest_s: float) -> None:
        """Wait until there is said to be a task."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle[idle] = worker
        try:
            async with asyncio.timeout(rest_s):
                await idle
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._idle.pop(idle, None)
            if idle.done():
                self.offer()
            raise
        finally:
            self._idle.pop(idle, None)
            self.saw(worker)

    async def _take_next(self, worker: str, *, replays: bool) -> Taken | None:
        if (refusal := self.tasks.refusal()) is not None:
            raise refusal
        try:
            while waiting := await self.tasks.queued(self._agent, CANDIDATES):
                for task_id in waiting:
                    taking = asyncio.ensure_future(self._take(task_id, worker, replays=replays))
                    try:
                        taken = await asyncio.shield(taking)
                    except asyncio.CancelledError:  # the worker has gone
                        taking.add_done_callback(self._return)
                        raise
                    if taken is not None:
                        return taken
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: ask again", 1) from error
        return None

    def _return(self, taking: "asyncio.Future[Taken | None]") -> None:
        """Give back what a worker took that has gone meanwhile."""
        if not taking.cancelled() and taking.exception() is None and (taken := taking.result()) is not None:
            self.refuse(taken.lease.token)

    def refuse(self, token: str) -> None:
        """Give back a task whose lease has not reached its worker."""

        async def give_back() -> None:
            with suppress(LeaseLost, Unavailable):
                await self.release(token)

        self.tasks.background(give_back())

    async def _take(self, task_id: str, worker: str, *, replays: bool) -> Taken | None:
        """Lease a queued task; None if somebody else was quicker. Raises StoreError."""
        async with self.tasks.watch(task_id) as task:
            if task is None:
                return None
            if await self.tasks.orphaned(task):
                await self.tasks.end(task, TaskState.CANCELED, "", "")
                return None
            if task.fold.unreadable:
                return None
            whole = await self.tasks.read(task, 0)
            if not whole:  # it has been deleted since
                return None
            delivered = task.row.delivered or min(task.epoch, 1)  # earlier versions did not count
            view = TaskView(task.head, whole, None, delivered=delivered)
            lease = WorkerLease(
                task_id=task_id,
                agent=self._agent,
                token=f"{task_id}.{secrets.token_urlsafe(12)}",
                worker=worker,
                replays=replays,
                delivery=delivered + 1,
                since=view.seq + (task.state is TaskState.SUBMITTED),
                base=0 if replays else view.answered,
                used=view.replay.usage if view.replay.crashed else task.fold.usage,
                deadline_s=self.deadline_s,
            )
            taking = LeaseToWorker(WorkerLeaseChange(lease, granted_ms=round(self.lease_s * 1000)))
            try:
                if task.terminal or not await self._append(task, taking, view.seq):
                    return None
            except (Overtaken, Refused):
                return None
            self.tasks.take_on(task)
            execution = self.tasks.executing(task)
            self._observed(task_id, "working")
            self._executions[task_id] = lease.token, execution
            traceparent = None if execution is None else execution.traceparent
            return Taken(
                lease,
                task.head,
                self.tasks.files.linked(task.record()),
                view.message,
                traceparent or task.head.traceparent,
                full_lineage(task.head, self.tasks.server),
            )

    # -- what is kept of a task ----------------------------------------------------------------------------------------

    async def _work(self, task_id: str, token: str | None) -> Work:
        """The task of a lease, or one that nobody has. Raises LeaseLost or StoreError."""
        work = self._works.get(task_id)
        if work is not None and token is not None and work.lease is not None and work.lease.token == token:
            if work.lost:
                self._take_back(work)
                raise LeaseLost
            return self._use(task_id, work)
        held = await self.tasks.lease(task_id)
        lease = None
        if token is not None:
            if held is None or not held.runs or held.lease.token != token:
                raise LeaseLost
            lease = held.lease
        task = await self.tasks.pin(task_id)
        if task is None:
            raise LeaseLost
        rewound = task.rewound
        try:
            if task.terminal:
                raise LeaseLost
            view = await self._view(task, lease)
        except BaseException:
            task.unpin()
            raise
        work = Work(task, lease, view, asyncio.Lock(), rewound)
        if (former := self._works.get(task_id)) is not None:
            self._forget(former)
        return self._use(task_id, work)

    async def _view(self, task: TaskLog, lease: WorkerLease | None) -> TaskView:
        whole = await self.tasks.read(task, 0)
        if not whole:  # it has been deleted since
            raise LeaseLost
        delivered = task.row.delivered if lease is None else lease.delivery - 1
        return TaskView(task.head, whole, lease, delivered=delivered)

    def _use(self, task_id: str, work: Work) -> Work:
        self._works.pop(task_id, None)
        self._works[task_id] = work  # now the last
        work.last_s, work.users = _now(), work.users + 1
        return work

    def _let_go(self, work: Work) -> None:
        """Undo one use. The task of a worker that has ended is forgotten, and so are those that are too many."""
        work.users -= 1
        if work.users:
            return
        if self._works.get(work.task.head.id) is not work:
            work.task.unpin()
        elif work.task.terminal:
            self._forget(work)
        if len(self._works) > WORKS_KEPT:
            for other in tuple(self._works.values()):
                if not other.users:
                    self._forget(other)
                if len(self._works) <= WORKS_KEPT:
                    break

    def _forget(self, work: Work) -> None:
        task_id = work.task.head.id
        if self._works.get(task_id) is work:
            del self._works[task_id]
            if not work.users:
                work.task.unpin()

    def forget_idle(self, for_s: float = WORK_S) -> None:
        """See `engine.api.Workers`."""
        for work in tuple(self._works.values()):
            if not work.users and _now() - work.last_s >= for_s:
                self._forget(work)

    def rewound(self) -> None:
        """See `engine.api.Workers`."""
        for work in tuple(self._works.values()):
            if work.lost:
                self._take_back(work)

    def _take_back(self, work: Work) -> None:
        """End the lease of a worker that would go on behind words that the store has lost."""
        self._forget(work)
        if work.lease is not None:
            self.refuse(work.lease.token)

    async def _sync(self, work: Work) -> None:
        """Read what others wrote to the task. Raises LeaseLost if the store has lost something of it."""
        view, task = work.view, work.task
        if work.lost:
            raise LeaseLost
        while view.seq != task.seq:
            if view.seq > task.seq:
                await self.tasks.catch_up(task)
            whole = await self.tasks.read(task, view.seq)
            if work.lost:
                raise LeaseLost
            for logged in whole:
                if logged.seq <= task.seq:
                    view.add(logged)

    async def _reread(self, work: Work) -> None:
        """Read lease and task anew. Raises LeaseLost."""
        await self.tasks.catch_up(work.task)
        if work.lease is not None:
            held = await self.tasks.lease(work.task.head.id)
            if work.task.terminal or held is None or not held.runs or held.lease.token != work.lease.token:
                raise LeaseLost
            work.lease = held.lease
            if held.lease.replays:  # how far it has come is not in the log
                work.view = await self._view(work.task, held.lease)
        await self._sync(work)

    # -- words ---------------------------------------------------------------------------------------------------------

    async def say(self, token: str, word: SpokenWord, *, usage: Usage | None = None, number: int = 0) -> None:
        """Take a worker's word about the task of its lease. Returns once it is committed.

        A word whose `number` is not greater than that of an earlier one of the same lease is a repetition of that word.
        Raises InvalidParams, LeaseLost, or Unavailable if the store cannot be written now.
        """
        self._saw_report(token)
        await self._patiently(lambda: self._tell(task_of(token), token, word, usage, number))

    async def tell(self, task_id: str, token: str | None, word: SpokenWord) -> None:
        """As `say`, also without a lease: then it is told under the present one, or none while the task is queued.

        That holds while the task was delivered once at most.
        """
        self._saw_report(token)

        async def work() -> None:
            present = token
            if present is None:
                held = await self.tasks.lease(task_id)
                if held is not None and held.runs:
                    if held.lease.delivery > 1:
                        wanted = "is needed, since the task was delivered again: send the one you got"
                        raise InvalidParams("lease", wanted)
                    present = held.lease.token
                elif held is None and await self.tasks.state(task_id) in INTERRUPTED:
                    raise InvalidParams("id", NOBODY_ASKED)
            elif task_of(present) != task_id:
                raise LeaseLost
            await self._tell(task_id, present, word, None, 0)

        await self._patiently(work)

    async def report(self, report: CompleteTask | UpdateStatus) -> None:
        """See `engine.api.Workers`."""
        await self.tell(report.id, report.lease, word_of(report))

    async def _patiently(self, work: "Callable[[], Awaitable[None]]") -> None:
        try:
            await work()
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error

    async def _tell(self, task_id: str, token: str | None, word: SpokenWord, usage: Usage | None, number: int) -> None:
        work = await self._work(task_id, token)
        try:
            async with work.lock:
                await self._sync(work)
                fresh = not self.tasks.shared
                while not await self._tell_once(work, word, usage, number, fresh=fresh):
                    await self._reread(work)
                    fresh = True
        finally:
            self._let_go(work)

    async def _tell_once(self, work: Work, word: SpokenWord, usage: Usage | None, number: int, *, fresh: bool) -> bool:
        """Write a word. Returns False if somebody else came between, or if that has to be looked up: unless the log is
        `fresh`, what is known here may be old, and only a write that the store takes proves that it is not.

        Raises InvalidParams, LeaseLost or StoreError.
        """
        task, lease, view = work.task, work.lease, work.view
        if task.terminal:
            raise LeaseLost
        if lease is not None and 0 < number <= lease.reports:
            return await self._confirm(lease)  # a repeated word: its answer was lost
        if view.passed_on is not None and not (isinstance(word, Delegation) and self._told(lease, word)):
            if self.tasks.stopping:
                raise Unavailable("the server is stopping: call again in a moment", 1)
            if fresh:
                await task.followers.wait(task, self.tasks.loop)  # no event comes between a question and its answer
            return False
        word, used = within(word, self.tasks.bounds), used_within(usage)
        if view.asked is not None and view.passed_on is None:
            if not fresh:
                return False
            if isinstance(word, Ask) and word.parts == view.asked.parts:
                return lease is None or await self._confirm(lease)
            if lease is not None:
                await self._confirm(lease)
            raise InvalidParams("id", WAITS)
        said = Said([], None if lease is None else replace(lease, reports=max(lease.reports, number)))
        if used is not None and said.lease is not None and not view.replay.active:
            said.lease = replace(said.lease, used=(said.lease.used or Usage()) + used)
        match word:
            case Say():
                await self._report(work, word, said, numbered=number > 0)
            case ArtifactChunk(artifact, append, last_chunk):
                if not view.replay.active:
                    artifact = replace(artifact, parts=await self._kept(task, artifact.parts))
                    chunk = view.chunk(task.record, artifact, append=append, last_chunk=last_chunk)
                    said.events.append(chunk)
            case Ask():
                await self._ask(work, word, said)
            case Delegation():
                self._delegate(work, word, said)
            case End():
                await self._end(work, word, said)
        if not (fresh or said.events) and said.lease == lease:
            return False
        return await self._write(work, said)

    @staticmethod
    def _told(lease: WorkerLease | None, order: Delegation) -> bool:
        return lease is not None and order.number <= lease.delegations

    async def _confirm(self, lease: WorkerLease) -> bool:
        """Whether nothing has to be written. Raises LeaseLost."""
        if not await self._runs(lease.task_id, lease.token):
            raise LeaseLost
        return True

    async def _kept(self, task: TaskLog, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts as they go into the log, with large files in the blob store."""
        files = self.tasks.files
        return await files.kept_by_run(task.head.id, parts) if files.large(parts) else parts

    async def _report(self, work: Work, word: Say, said: Said, *, numbered: bool) -> None:
        task, view = work.task, work.view
        if not says_anything(word) or view.replay.active:
            return
        if not numbered and not adds(self.tasks.files.linked(task.record()), word):
            return
        parts = await self._kept(task, word.parts)
        message = agent_message(task.head, parts) if parts else None
        progress = None
        if word.progress is not None:
            progress = Progress(*word.progress, message.text if message is not None else "")
        used = task.fold.usage if said.lease is None else said.lease.used
        now = timestamp(self.tasks.clock.now_ms())
        said.events.append(
            StatusChanged(
                TaskState.WORKING, now, message=message, progress=progress, usage=used, metadata=word.metadata
            )
        )

    async def _ask(self, work: Work, word: Ask, said: Said) -> None:
        task, lease, view = work.task, said.lease, work.view
        place = view.answered
        if lease is not None:
            if 0 < word.number <= lease.questions:
                return  # the answer arrived while the question was repeated
            place = lease.base + lease.questions
            said.lease = replace(lease, questions=lease.questions + 1)
        if word.note:
            said.events.append(Noted(word.note))
        if lease is not None and lease.replays:
            try:
                if view.replay.answer(word.parts) is not None:
                    return
            except ReplayMismatch as mismatch:
                self._end_mismatched(work, said, mismatch)
                return
        if place < len(view.said):
            return  # a question does not overtake a message that the worker has not read
        parts = await self._kept(task, word.parts)
        state = TaskState.AUTH_REQUIRED if word.auth else TaskState.INPUT_REQUIRED
        used = task.fold.usage if lease is None else lease.used
        now = timestamp(self.tasks.clock.now_ms())
        said.events.append(StatusChanged(state, now, message=agent_message(task.head, parts), usage=used))

    def _delegate(self, work: Work, order: Delegation, said: Said) -> None:
        task, lease, view, number = work.task, said.lease, work.view, order.number
        if lease is not None and number > lease.delegations:
            said.lease = replace(lease, delegations=number)
        key = task.head.id, number
        recorded = view.delegated.get(number)
        if recorded is not None and recorded.agent != order.agent:
            mismatch = ReplayMismatch(f"delegation {number}", delegation_to(recorded.agent), delegation_to(order.agent))
            self._end_mismatched(work, said, mismatch)
            return
        view.replay.forget_passed(child_of(task.head.id, number))
        if recorded is None and key not in self._handed:
            handed = self._handed[key] = self.tasks.loop.create_future()
            work.users += 1
            self.tasks.background(self._carry_out(work, order, handed))

    async def _carry_out(self, work: Work, order: Delegation, handed: "asyncio.Future[Delegated | None]") -> None:
        """Wait for the outcome of a delegation, and write it, whatever becomes of the worker.

        None: the task of that number belongs to another agent.
        """
        try:
            parent = ParentTask(self.tasks, work.task, work.view, work.lease, order)
            handed.set_result(await parent.carry_out())
        except ReplayMismatch as mismatch:
            said = Said([], work.lease)
            self._end_mismatched(work, said, mismatch)
            async with work.lock:
                await self._sync(work)
                with suppress(LeaseLost):
                    await self._write(work, said)
            handed.set_result(None)
        except asyncio.CancelledError:
            if (own := asyncio.current_task()) is not None and own.cancelling():
                raise  # else the task has ended
        finally:
            self._handed.pop((work.task.head.id, order.number), None)
            handed.cancel()
            self._let_go(work)

    async def _end(self, work: Work, word: End, said: Said) -> None:
        task, view = work.task, work.view
        if view.replay.active:
            self._end_mismatched(work, said, view.replay.left())
            return
        for artifact in word.artifacts:
            kept = replace(artifact, parts=await self._kept(task, artifact.parts))
            said.events.append(view.chunk(task.record, kept, append=False, last_chunk=True))
        used = task.fold.usage if said.lease is None else said.lease.used
        now_ms = self.tasks.clock.now_ms()
        parts = await self._kept(task, word.parts)
        said.events.append(closing(task.head, word.state, now_ms, parts, word.reason, used))

    def _end_mismatched(self, work: Work, said: Said, mismatch: ReplayMismatch) -> None:
        """End a task whose worker asks or delegates otherwise than the one before."""
        used = work.task.fold.usage if said.lease is None else said.lease.used
        now_ms = self.tasks.clock.now_ms()
        end = mismatched(work.task.head, mismatch)
        said.events.append(closing(work.task.head, end.state, now_ms, end.parts, end.reason, used))

    async def _write(self, work: Work, said: Said) -> bool:
        """Write what a word comes to, in one append. Returns False if somebody else came between."""
        task, lease, view, changed = work.task, work.lease, work.view, said.lease
        if lease is not None and changed is not None:
            if not said.events and changed == lease:
                return await self._confirm(lease)
            changed = replace(changed, version=lease.version + 1)
            if not said.events:
                if not await self.tasks.note(changed):
                    return False
                work.lease = changed
                return True
        elif not said.events:
            return True
        events = tuple(said.events)
        state = next((event.state for event in reversed(events) if isinstance(event, StatusChanged)), task.state)
        words = WriteWords(events, state, None if changed is None else WorkerLeaseChange(changed))

        try:
            await self._append(task, words, view.seq)
        except (Overtaken, Fenced, Moved):  # with Moved the lease alone has changed
            return False
        except Refused as refused:
            raise LeaseLost from refused
        for seq, event in enumerate(events, view.seq + 1):
            view.add(Logged(seq, event))
        work.lease = changed
        if task.terminal:
            self._observed(task.head.id, SPELLED[task.state])
        return True

    async def _append(self, task: TaskLog, request: Request, seq: int | None = None) -> bool:
        """Write what the rules say to a request, as the task stands. Returns False if that is nothing.

        A store that cannot be written is tried again for `STALLED_S`. Raises Overtaken if the log is not at `seq`, or
        not any more when the store gets the write; StoreError or Refused.
        """
        until_s = _now() + STALLED_S
        while True:
            asked = 0

            def decide(task: TaskLog) -> Decision | None:
                nonlocal asked
                asked += 1
                if asked > 1 or seq not in (None, task.seq):
                    raise Overtaken
                return self.tasks.decide(task, request)

            try:
                return await self.tasks.append(task, decide)
            except StoreError:
                if _now() + self.tasks.retry_s > until_s or task.writes.busy:
                    raise
                await asyncio.sleep(self.tasks.retry_s)

    async def ask(self, token: str, question: Ask, number: int, wait_s: float) -> Message | None:
        """Ask the lease's question with that number (0: the next one), and wait for the answer.

        None if no answer comes within `wait_s`: ask again with the same number. Raises InvalidParams, or LeaseLost.
        """
        self._saw_report(token)

        ended = False

        async def put() -> None:
            nonlocal number, ended
            work = await self._work(task_of(token), token)
            try:
                await self._reread(work)
                assert work.lease is not None
                answered = len(self._answers_in(work))
                number = number or answered + 1
                if number > answered + 1:
                    raise InvalidParams("question", f"the next one has the number {answered + 1}")
                if number > answered:
                    await self._tell(task_of(token), token, replace(question, number=number), None, 0)
                ended = work.task.terminal  # it was another question than an earlier worker's
            finally:
                self._let_go(work)

        await self._patiently(put)
        if ended:
            return None
        beat = await self.beat(token, wait_s, number - 1)
        if beat.cancel:
            raise LeaseLost
        return beat.answers[0] if beat.answers else None

    async def delegate(self, token: str, order: Delegation, wait_s: float) -> Delegated | None:
        """Give the lease's order with that number (0: the next one) to another agent, and wait for the outcome.

        None if there is none within `wait_s`: ask again with the same number. Raises LeaseLost.
        """
        self._saw_report(token)
        task_id = task_of(token)
        handed: asyncio.Future[Delegated | None] | None = None
        outcome: Delegated | None = None

        async def put() -> None:
            nonlocal handed, outcome
            work = await self._work(task_id, token)
            try:
                await self._reread(work)
                assert work.lease is not None
                number = order.number or work.lease.delegations + 1
                if number > work.lease.delegations + 1:
                    raise InvalidParams("delegation", f"the next one has the number {work.lease.delegations + 1}")
                if (task_id, number) not in self._handed or number > work.lease.delegations:
                    await self._tell(task_id, token, replace(order, number=number), None, 0)
                handed, outcome = self._handed.get((task_id, number)), work.view.delegated.get(number)
            finally:
                self._let_go(work)

        await self._patiently(put)
        await self.beat(token, 0, 0)
        if outcome is None and handed is not None:
            await asyncio.wait((handed,), timeout=min(wait_s, self.lease_s / 2))
            if (await self.beat(token, 0, 0)).cancel:
                raise LeaseLost
            outcome = handed.result() if handed.done() and not handed.cancelled() else None
        return outcome

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def beat(self, token: str, wait_s: float, known: int) -> Beat:
        """Renew a lease, and wait up to `wait_s` for news: a cancel, or an answer beyond the `known` ones.

        Raises LeaseLost or Unavailable.
        """
        self.saw()
        task_id, deadline = task_of(token), _now() + min(wait_s, self.lease_s / 2)
        self._saw_report(token, "heartbeat")
        try:
            questions = await self.tasks.renew(task_id, token, self.lease_s)
            if questions is not None and questions <= known and (wait_s <= 0 or self._closed):
                return Beat(cancel=False)
            async with self.tasks.watch(task_id) as task:
                while questions is not None and task is not None and not task.terminal:
                    answers = await self._answers(token, known) if questions > known else ()
                    if answers or self._closed or _now() >= deadline:
                        return Beat(cancel=False, answers=answers)
                    before = _standing(task)
                    while _standing(task) == before and not self._closed:
                        if not await task.followers.wait(task, self.tasks.loop, deadline):
                            break
                    questions = await self.tasks.renew(task_id, token, self.lease_s)
            held = await self.tasks.lease(task_id)
            own = held is not None and held.lease.token == token
            if own and await self.tasks.state(task_id) is TaskState.CANCELED:
                self._observed(task_id, "canceled")
                return Beat(cancel=True)
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        raise LeaseLost

    async def _answers(self, token: str, known: int) -> tuple[Message, ...]:
        """The answers to the questions of a lease after the first `known`. Raises LeaseLost."""
        work = await self._work(task_of(token), token)
        try:
            await self._sync(work)
            return tuple(self._answers_in(work)[known:])
        finally:
            self._let_go(work)

    @staticmethod
    def _answers_in(work: Work) -> Sequence[Message]:
        """The answers that the worker of a lease has been given."""
        lease = work.lease
        return () if lease is None else work.view.said[lease.base : lease.base + lease.questions]

    # -- other calls ---------------------------------------------------------------------------------------------------

    async def release(self, token: str) -> None:
        """Give a task back, so that another worker gets it at once. Raises LeaseLost or Unavailable."""
        self._saw_report(token)

        async def give_back() -> None:
            work = await self._work(task_of(token), token)
            try:
                async with work.lock:
                    while not await self._release(work):
                        await self._reread(work)
            finally:
                self._let_go(work)

        await self._patiently(give_back)

    async def _release(self, work: Work) -> bool:
        task, lease = work.task, work.lease
        assert lease is not None
        change = WorkerLeaseChange(replace(lease, version=lease.version + 1), over=True)
        try:
            if not await self._append(task, EndWorkerLease(change)):
                raise LeaseLost
        except (Overtaken, Refused):
            return False
        self._forget(work)
        self._observed(task.head.id, "working")
        if task.state not in INTERRUPTED:
            self.tasks.announce(task)
        return True

    async def find_task(self, token: str) -> str:
        """The id of the lease's task. An ended lease counts if its worker was the last. Raises LeaseLost."""
        self._saw_report(token)
        task_id = task_of(token)
        try:
            held = await self.tasks.lease(task_id)
            if held is None or held.lease.token != token:
                raise LeaseLost
            if not held.runs and await self.tasks.state(task_id) not in (
                TaskState.COMPLETED,
                TaskState.FAILED,
                TaskState.REJECTED,
            ):
                raise LeaseLost
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        return task_id

    async def history(self, token: str, limit: int) -> tuple[Message, ...]:
        """The newest messages of the context of the lease's task, without its own. Raises LeaseLost or Unavailable."""
        head, _ = await self._head(token)
        return await self.tasks.past.messages(head, limit)

    async def history_of(self, head: TaskHead, limit: int) -> tuple[Message, ...]:
        """As `history`, for a task that was just taken."""
        return await self.tasks.past.messages(head, limit)

    async def references(self, token: str) -> tuple[Record, ...]:
        """The caller's own tasks among those that the message of the lease's task names."""
        head, message = await self._head(token)
        return await self.tasks.past.references(head, message.reference_task_ids)

    async def _head(self, token: str) -> tuple[TaskHead, Message]:
        self._saw_report(token)
        try:
            work = await self._work(task_of(token), token)
            self._let_go(work)
            if not await self._runs(work.task.head.id, token):
                raise LeaseLost
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        return work.task.head, work.view.message

    async def request_metadata(self, token: str, message: Message) -> "dict[str, object] | None":
        """The metadata of the request that brought a message of the lease's task."""
        try:
            work = await self._work(task_of(token), token)
            try:
                return metadata_of(message, await self.tasks.read(work.task, 0))
            finally:
                self._let_go(work)
        except StoreError as error:
            raise Unavailable("the server's store cannot answer now: try again", 5) from error

    def _saw_report(self, token: str | None, word: WorkerWord = "report") -> None:
        """Record that a worker has called about the task of a lease."""
        work = None if token is None else self._works.get(task_of(token))
        known = work is not None and work.lease is not None and work.lease.token == token
        self.saw(work.lease.worker if known and work is not None and work.lease is not None else "", word)


def task_of(token: str) -> str:
    """The task of a lease."""
    return token.rpartition(".")[0]


def _standing(task: TaskLog) -> tuple[object, ...]:
    """What changes about a task when its worker has to hear of it."""
    return task.epoch, task.holder, task.terminal, task.state in INTERRUPTED


def _now() -> float:
    return asyncio.get_running_loop().time()
