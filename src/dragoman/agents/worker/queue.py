"""Queue: gives the tasks of one agent that nobody has to the workers that ask for work.

Invariant: a task is given to one worker, by the append that grants its lease. A lease that its worker cannot be told of
is given back. A task that began with one version of the agent's code is not given to a worker that names another one:
it stays in the queue, until it has waited too long (`engine.code_versions`).
"""

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial
from sys import intern

from msgspec import Struct

from dragoman.agents.worker.held_tasks import HeldTasks
from dragoman.agents.worker.presence import Presence
from dragoman.agents.worker.task_cache import TaskCache
from dragoman.agents.worker.task_view import TaskView
from dragoman.engine.code_versions import version_begun
from dragoman.engine.lineage import full_lineage
from dragoman.engine.log import Log
from dragoman.engine.rules import LeaseToWorker
from dragoman.engine.worker_tasks import Overtaken
from dragoman.model.errors import Unavailable
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.headers import TaskHeaders
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, Record, TaskHead, TaskState
from dragoman.store.api import Refused, StoreError
from dragoman.store.worker_leases import WorkerLease, WorkerLeaseChange

PASSED_OVER_S = 1.0
"""How long a task is left alone that a worker was not given. Then it is looked for a worker with its code again."""

APART_S = 0.02
"""The least time between looks at two such tasks, so that many cost little."""

CANDIDATES = 4
"""How many queued tasks are looked up at once: another replica may be quicker with some."""


class TakenTask(Struct, frozen=True):
    """A task that a worker has just taken, as it stands, with the message that made it."""

    lease: WorkerLease
    head: TaskHead
    record: Record
    message: Message
    traceparent: str | None
    lineage: tuple[str, ...]
    headers: TaskHeaders | None = None


class Terms(Struct, frozen=True):
    """The terms on which a worker gets a task: it may be silent for `lease_s`, and work for `deadline_s` at a stretch.

    It `replays` if it repeats the words of earlier workers, and the server compares them. Its code has `steps_version`.
    """

    worker: str
    replays: bool
    lease_s: float
    deadline_s: float | None
    steps_version: str = ""


class PassedOver(Struct, frozen=True):
    """A task that was not given to a worker, since it `began` with another version of the code than the worker names.

    Until `until_s`, a time of the loop, it is not looked at again for such workers.
    """

    began: str
    until_s: float


class WorkerQueue:
    """The queue of the agent `agent`. A task that was taken may go back by the `cache`."""

    def __init__(self, agent: str, cache: TaskCache, held_tasks: HeldTasks, presence: Presence) -> None:
        self._agent = agent
        self._cache = cache
        self._tasks = cache.tasks
        self._held_tasks = held_tasks
        self._presence = presence
        self._passed_over: dict[str, PassedOver] = {}
        """By task. One that is taken elsewhere is forgotten a moment after its time."""
        self._taking: set[str] = set()
        """The tasks that are being taken here, so that no two workers of this process try one at once."""

    async def take(self, terms: Terms) -> TakenTask | None:
        """Lease the task that has waited longest; None if there is none, or none is given out. Raises Unavailable."""
        if (refusal := self._tasks.refusal()) is not None:
            raise refusal
        if not self._tasks.takes_on(self._agent):
            return None
        tried = set[str]()
        self._forget_passed_over()
        try:
            while waiting := await self._waiting(tried, terms.steps_version):
                for task_id in waiting:
                    if task_id in self._taking:
                        continue
                    tried.add(task_id)
                    self._taking.add(task_id)
                    taking = asyncio.ensure_future(self._take(task_id, terms))
                    taking.add_done_callback(partial(self._tried, task_id))
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

    async def _waiting(self, tried: set[str], version: str) -> list[str]:
        """The oldest tasks in the queue that nobody takes at present, without those that were tried in vain.

        One of these may be there still: a task that cannot be read. Those are left out, too, that were passed over just
        now for code of that version. Raises StoreError.
        """
        left_out = {*self._taking, *tried}
        if version and self._passed_over:
            now_s = self._tasks.loop.time()
            left_out |= {
                task_id
                for task_id, passed in self._passed_over.items()
                if passed.until_s > now_s and passed.began != version
            }
        queued = await self._tasks.store.queued(self._agent, CANDIDATES + len(left_out))
        return [task_id for task_id in queued if task_id not in left_out]

    def passes_over(self, version: str) -> bool:
        """Whether there were tasks of late for code of another version than this one."""
        return bool(version) and any(passed.began != version for passed in self._passed_over.values())

    async def _pass_over(self, task: Log, terms: Terms) -> None:
        """Leave a task to a worker with the code that it began with, or end it if there has been none for too long.

        Raises StoreError.
        """
        began, now_s = version_begun(task), self._tasks.loop.time()
        self._passed_over.pop(task.head.id, None)
        if not (self._presence.sees_code(began) or await self._tasks.versions.waits(task)):
            await self._tasks.versions.give_up(task, terms.steps_version)
            return
        last = next(reversed(self._passed_over.values()), None)
        until_s = max(now_s + PASSED_OVER_S, 0.0 if last is None else last.until_s + APART_S)
        self._passed_over[task.head.id] = PassedOver(began, until_s)

    def _forget_passed_over(self) -> None:
        """Forget tasks that no worker has met again: others have taken them."""
        now_s = self._tasks.loop.time()
        while self._passed_over:
            task_id, passed = next(iter(self._passed_over.items()))
            if passed.until_s + 2 * PASSED_OVER_S > now_s:
                return
            del self._passed_over[task_id]

    def _tried(self, task_id: str, taking: "asyncio.Future[TakenTask | None]") -> None:
        """Let others try a task again. One that waits for such a task hears of it, if it may have met it meanwhile."""
        self._taking.discard(task_id)
        if (passed := self._passed_over.get(task_id)) is not None:
            self._presence.offer(passed.began)

    def _return(self, taking: "asyncio.Future[TakenTask | None]") -> None:
        """Give back what a worker took that has gone meanwhile."""
        if not taking.cancelled() and taking.exception() is None and (taken := taking.result()) is not None:
            self._cache.refuse(taken.lease.token)

    async def _take(self, task_id: str, terms: Terms) -> TakenTask | None:
        """Lease a queued task; None if somebody else was quicker. Raises StoreError."""
        tasks = self._tasks
        async with tasks.watch(task_id) as task:
            if task is None:
                return None
            if await tasks.orphaned(task):
                await tasks.ends.end(task, TaskState.CANCELED)
                return None
            if task.fold.unreadable:
                return None
            if terms.steps_version and version_begun(task) not in ("", terms.steps_version):
                if not task.terminal:
                    await self._pass_over(task, terms)
                return None
            self._passed_over.pop(task_id, None)
            whole = await tasks.read(task, 0)
            if not whole:  # it has been deleted since
                return None
            answered = is_answered(whole) and await tasks.leases.get(task_id) is not None
            delivered = task.row.delivered or min(task.row.epoch, 1)  # earlier versions did not count
            view = TaskView(task.head, whole, None, delivered=delivered)
            first = not delivered and task.state is TaskState.SUBMITTED and not version_begun(task)
            begins_with = terms.steps_version if first else ""
            lease = WorkerLease(
                task_id=task_id,
                agent=self._agent,
                token=f"{task_id}.{secrets.token_urlsafe(12)}",
                worker=intern(terms.worker),  # one object for all tasks of a worker
                replays=terms.replays,
                delivery=delivered + 1,
                since=view.seq + (answered or task.state is TaskState.SUBMITTED) + bool(begins_with),
                base=0 if terms.replays else view.answered,
                used=view.replay.usage if view.replay.crashed else task.fold.usage,
                deadline_s=terms.deadline_s,
            )
            granted = WorkerLeaseChange(lease, granted_ms=round(terms.lease_s * 1000))
            taking = LeaseToWorker(granted, answered=answered, begins_with=begins_with)
            try:
                if task.terminal or not await tasks.write(task, taking, view.seq):
                    return None
            except (Overtaken, Refused):
                return None
            task.followers.note_contact()
            execution = tasks.executing(task)
            self._held_tasks.begin(task_id, lease.token, execution)
            traceparent = None if execution is None else execution.traceparent
            return TakenTask(
                lease,
                task.head,
                tasks.files.linked(task.record()),
                view.message,
                traceparent or task.head.traceparent,
                full_lineage(task.head, tasks.server),
                task.headers,
            )


def is_answered(log: Sequence[Logged]) -> bool:
    """Whether a task went on with the answer to its own question, and has had no other status since."""
    statuses = (logged.event for logged in reversed(log) if isinstance(logged.event, StatusChanged))
    next(statuses, None)
    before = next(statuses, None)
    if before is None or before.state not in INTERRUPTED:
        return False
    return before.message is None or not before.message.reference_task_ids
