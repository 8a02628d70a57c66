"""Tasks: the task logs that this process has in memory.

Invariant: a caller finds only its own tasks here, and those that its team shares; others do not exist (invariant 9).
"""

import asyncio

from dragoman.engine import policy
from dragoman.engine.announcements import Announcer, Audience
from dragoman.engine.effects import CancelChildren, Effects
from dragoman.engine.folding import fold_aside, fold_stored
from dragoman.engine.hints import Hints
from dragoman.engine.log import Log
from dragoman.engine.log_reader import LogReader
from dragoman.engine.observer import Observer
from dragoman.engine.parked_headers import ParkedHeaders
from dragoman.engine.rights import Right, check_right, may_read, readable
from dragoman.engine.served_agents import Served
from dragoman.engine.spending import TaskSpending
from dragoman.model.errors import Forbidden, InvalidParams, TaskNotFound
from dragoman.model.events import StatusChanged
from dragoman.model.headers import TaskHeaders
from dragoman.model.lifecycle import SPELLED, fold
from dragoman.model.operations import Call, CancelTask, ListTasks, TaskPage
from dragoman.model.task import TERMINAL, Record, TaskHead
from dragoman.store.api import ListQuery, Store, Stored, StoreError, Unknown
from dragoman.store.budgets import Charge

LARGE_BYTES = 1 << 20
"""An answer about a task of this size or more needs room before the task is read."""


class Tasks:
    """Task logs by id. A log stays while it is pinned or written to; after that only the store has it.

    With `hints` other engines write to the store, too, so that each look-up reads what they wrote.

    `effects` get the end of each task that may have delegated others. `spending` says what tasks that end have cost.
    """

    def __init__(
        self,
        store: Store,
        served: Served,
        effects: Effects,
        observer: Observer | None = None,
        announcer: Announcer | None = None,
        hints: Hints | None = None,
        spending: TaskSpending | None = None,
    ) -> None:
        self._store = store
        self._spending = spending or TaskSpending(store)
        self._reader = LogReader()
        self._observer = observer
        self._announcer = announcer
        self._served = served
        self._effects = effects
        self._hints = hints
        self._logs: dict[str, Log] = {}
        self._headers = ParkedHeaders()

    def __len__(self) -> int:
        return len(self._logs)

    def all(self) -> list[Log]:
        """Every task in memory."""
        return list(self._logs.values())

    def new(self, head: TaskHead, headers: TaskHeaders | None) -> Log:
        """The log of a task that is not written yet, pinned once. It is not kept before `add`."""
        return Log(head, self._store, self, self._hints, headers, 1)

    def add(self, task: Log) -> None:
        """Keep a task that was just made or loaded, as long as it is pinned or written to."""
        self._logs[task.head.id] = task
        if self._hints is not None:
            self._hints.add(task)

    def ended(self, task: Log, event: StatusChanged, own: bool) -> None:
        """See `LogOwner`."""
        if own and self._observer is not None:
            agent, usage = task.head.agent, event.usage
            self._observer.ended(agent, SPELLED[event.state], event.duration_ms or 0)
            if usage is not None:
                self._observer.used(agent, usage.input_tokens, usage.output_tokens)
        if task.children != ():
            self._effects.put(CancelChildren(task))

    def charges(self, record: Record) -> tuple[Charge, ...]:
        """See `LogOwner`."""
        return self._spending.charges(record)

    async def find(self, call: Call, task_id: str, right: Right = Right.READ) -> Log:
        """The caller's task, not pinned. Raises TaskNotFound, also when it is another's or another agent's.

        Raises Forbidden for one of the caller's team that it may read, and has not this `right` to;
        UnsupportedOperation if the task cannot be read: its caller can only ask where it stands. Operators can
        cancel it.
        """
        task = self._logs.get(task_id)
        if task is not None and not _may_see(call, task.head):
            raise TaskNotFound(task_id)
        if task is not None and task.seq:
            task = await self._load(task_id)
        else:
            task = await self._of_stored(await self._read(call, task_id, None))
        check_right(call.principal, task.head, right)
        if task.fold.unreadable and not (call.operator is not None and isinstance(call.operation, CancelTask)):
            raise policy.unreadable(task_id)
        return task

    async def _read(self, call: Call, task_id: str, bytes_max: int | None) -> Stored:
        """Read the caller's task. One of `bytes_max` bytes or more needs room first. Raises TaskNotFound."""
        found = await self._store.find(task_id, readable(call.principal), call.agent, bytes_max)
        if isinstance(found, int):
            if call.room is not None:
                call.room(found)
            found = await self._store.load(task_id, found)
        if found is None:
            raise TaskNotFound(task_id)
        return found

    async def _load(self, task_id: str) -> Log:
        task = self._logs.get(task_id)
        if task is not None and task.seq:
            if self._hints is not None:
                await self.catch_up(task)
            return task
        stored = await self._store.load(task_id)
        if stored is None:
            raise TaskNotFound(task_id)
        return await self._of_stored(stored)

    async def catch_up(self, task: Log) -> None:
        """Read what other engines wrote to a task in memory. Raises TaskNotFound if it has been deleted."""
        task.pin()
        try:
            await self._reader.catch_up(task)
        except Unknown as error:
            raise TaskNotFound(task.head.id) from error
        finally:
            task.unpin()

    async def compare(self, task: Log) -> None:
        """As `Log.compare`. Raises TaskNotFound if the task is lost."""
        try:
            await task.compare()
        except Unknown as error:
            raise TaskNotFound(task.head.id) from error

    async def reread(self, retry_s: float) -> None:
        """Compare all tasks in memory with the store, which may go on from an earlier moment, and take what it has.

        One whose write is in doubt keeps no other one waiting.
        """
        await asyncio.gather(*(self._reread(task, retry_s) for task in self.all()))

    async def _reread(self, task: Log, retry_s: float) -> None:
        task.pin()
        try:
            while True:
                try:
                    await self._reader.reread(task)
                except StoreError:
                    await asyncio.sleep(retry_s)
                else:
                    break
        except Unknown:
            self.forget(task.head.id)  # whoever works on it or follows it meets that at the next write or read
        finally:
            task.unpin()

    async def pin_stored(self, stored: Stored) -> Log:
        """As `pin`, for a task as the store has just given it."""
        return self._hold(await self._of_stored(stored))

    async def _of_stored(self, stored: Stored) -> Log:
        """The log of a task that was read from the store: the one in memory, or else a new one with its webhooks."""
        announcer, configs = self._announcer, None
        if stored.pushed and announcer is not None and self._served.pushes(stored.head.agent):
            configs = await self._store.outbox.configs(stored.head.id)
        task = self._logs.get(stored.head.id)  # looked up after the last wait, since another caller may have added it
        if task is None:
            task = Log.of(stored, self._store, self, self._hints)
            if announcer is not None and configs is not None:
                task.followers.announce_to(Audience(announcer, configs, task.fold.joined_artifacts))
        elif not task.seq:  # the task is committed, as a list has shown the caller, but its maker does not know it yet
            task.extend_to(stored)
        elif stored.seq > task.seq and self._hints is not None:  # it was loaded by an earlier, slower read
            await self.catch_up(task)
        else:
            task.lease_of(stored)
        return task

    async def renew_audience(self, task: Log, stored: Stored) -> None:
        """See `LogOwner`."""
        announcer = self._announcer
        if announcer is None or not self._served.pushes(stored.head.agent):
            return
        configs = await self._store.outbox.configs(stored.head.id) if stored.pushed else ()
        if task.followers.audience is None:
            task.followers.announce_to(Audience(announcer, configs, task.fold.joined_artifacts))
        else:
            task.followers.audience.renew(configs)

    async def read_record(self, call: Call, task_id: str) -> Record:
        """The caller's task as it stands. Does not fold a task at its snapshot.

        Raises TaskNotFound like `find`, and the errors of `Call.room` for a large task that is not in memory.
        """
        task = self._logs.get(task_id)
        if task is not None:
            if not _may_see(call, task.head):
                raise TaskNotFound(task_id)
            if task.seq and self._hints is None:
                return task.record()
        stored = await self._read(call, task_id, None if task is not None or call.room is None else LARGE_BYTES)
        task = self._logs.get(task_id)
        if task is not None and task.seq > stored.seq and not task.outdated:
            return task.record()  # it was loaded meanwhile
        if stored.snapshot is not None and not stored.events:
            return stored.snapshot
        return await fold_aside(len(stored.events), lambda: fold(stored.head, stored.snapshot, stored.events))

    async def pin(self, call: Call, task_id: str, right: Right = Right.READ) -> Log:
        """The caller's task, kept in memory until its `unpin`. Raises TaskNotFound and Forbidden like `find`."""
        return self._hold(await self.find(call, task_id, right))

    async def pin_reported(self, call: Call, task_id: str) -> Log:
        """As `pin`, for a worker of the agent, whoever owns the task. Raises Forbidden for any other caller."""
        if not call.principal.works_for(call.agent):
            raise Forbidden(f"only workers of {call.agent} may report on its tasks: use a key of the role agent")
        task = await self._load(task_id)
        if task.head.agent != call.agent:
            raise TaskNotFound(task_id)
        return self._hold(task)

    def known(self, task_id: str) -> Log | None:
        """The task, if it is in memory."""
        return self._logs.get(task_id)

    def being_made(self, task_id: str) -> Log | None:
        """The task, if its first write is still under way."""
        task = self._logs.get(task_id)
        return task if task is not None and not task.seq else None

    async def pin_known(self, task_id: str) -> Log | None:
        """As `pin`, for the server itself, whoever owns the task; None if there is none."""
        try:
            return self._hold(await self._load(task_id))
        except TaskNotFound:
            return None

    def _hold(self, task: Log) -> Log:
        if task.head.id not in self._logs:
            self.add(task)
            if task.headers is None:
                task.headers = self._headers.take_back(task.head.id)
        task.pin()
        return task

    def forget(self, task_id: str) -> None:
        """Drop a task that has been deleted. Streams that read its end have it until then."""
        task = self._logs.pop(task_id, None)
        self._headers.take_back(task_id)
        if task is not None and self._hints is not None:
            self._hints.forget(task)

    def release(self, task: Log) -> None:
        """See `LogOwner`."""
        if task.pins <= 0 and not task.writes.busy and self._logs.get(task.head.id) is task:
            del self._logs[task.head.id]
            if task.headers is not None and not task.terminal:
                self._headers.park(task.head.id, task.headers)
            if self._hints is not None:
                self._hints.forget(task)

    async def orphaned(self, head: TaskHead) -> bool:
        """Whether the task was delegated by a task that has ended or is gone. Raises StoreError."""
        if head.parent is None or head.detached:
            return False
        parent = await self._store.head(head.parent)
        return parent is None or parent[2] in TERMINAL


async def list_tasks(store: Store, call: Call, listing: ListTasks, max_bytes: int) -> TaskPage:
    """Return the page that `listing` asks for (A2A 1.0 §3.1.4), shorter if its tasks are large.

    It holds only tasks that the caller may read, its own alone if these are wanted, and with the agent that was asked
    unless those of every agent are wanted. Raises InvalidParams or StoreError.
    """
    if listing.offset > policy.LIST_OFFSET_MAX:
        raise InvalidParams("offset", f"at most {policy.LIST_OFFSET_MAX}: page by token, or narrow the filters")
    query = ListQuery(
        owner=call.principal.id if listing.own else readable(call.principal),
        agent=None if listing.every_agent else call.agent,
        context_id=listing.context_id,
        state=listing.state,
        status_after_ms=listing.status_after_ms,
        limit=listing.page_size,
        before=policy.read_page_token(listing.page_token) if listing.page_token else None,
        offset=listing.offset,
        artifacts=listing.include_artifacts,
        history=listing.history_length,
        max_bytes=max_bytes,
    )
    listed = await store.list(query)
    last = listed.tasks[-1] if listed.more and listed.tasks else None
    return TaskPage(
        records=await fold_stored(listed.tasks),
        next_page_token=policy.page_token(last.status_ms, last.head.id) if last is not None else "",
        page_size=listing.page_size,
        total_size=listed.total,
        cut=listed.more and len(listed.tasks) < listing.page_size,
    )


def _may_see(call: Call, head: TaskHead) -> bool:
    return head.agent == call.agent and may_read(call.principal, head)
