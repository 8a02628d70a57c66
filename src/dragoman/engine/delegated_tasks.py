"""DelegatedTasks: the ends of delegated tasks, because their parents have ended or their time is over.

Invariant: a delegated task outlives its parent only if it is detached. It waits for an answer no longer than its
deadline, even when the run that passed its question on is gone. What a process misses is found from the store's rows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct

from dragoman.engine.cancellations import Cancellations
from dragoman.engine.log import Log
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.model.ids import Clock
from dragoman.model.task import INTERRUPTED, TaskHead
from dragoman.store.api import Store, StoreError

SLACK_MS = 2_000
"""How long after a task's deadline other replicas end it. The replica that waits for it comes first."""

OVERDUE_MAX = 1_000
"""How many tasks one look at the deadlines ends."""

AHEAD_MS = 60_000
"""How far ahead one look at the deadlines sees in a store that nobody else writes to."""

PARENTS_MAX, PARTS = 1_000, 5
"""At how many parents one query for orphans looks, and how many queries one look makes at most. With more parents than
that, the next look goes on after them."""

AGAIN_S = 10.0
"""How long after a task was to be ended it is checked again. An agent may take its time to stop."""


class _Look(Struct, frozen=True):
    """A look at the tasks that have to end, after so many commits: those whose deadline comes before a time."""

    commits: int
    until_ms: int
    due: tuple[TaskHead, ...]


DELETED = "deleted-task:"
"""The beginning of the key, in `Store.shared`, that says that somebody has deleted a delegated task."""

DELETED_MS = 366 * 86_400_000
"""How long that is known: as long as its parent may wait for its caller, and more."""


NO_LOOK = _Look(-1, 0, ())
"""After this one, another look is due at once."""


class DelegatedTasks:
    """Finds delegated tasks, and ends them. A store that cannot be read is read again after `retry_s`."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        cancellations: Cancellations,
        clock: Clock,
        *,
        retry_s: float,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._supervisor = supervisor
        self._cancellations = cancellations
        self._clock = clock
        self._retry_s = retry_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ending: dict[str, float] = {}
        """By task, the loop time until which its end is left to the errand that is ending it."""
        self._last_look = NO_LOOK
        self._looked_after = ""
        """The parent after which the next look for orphans begins."""

    async def pin(self, task_id: str) -> Log | None:
        """Pin the task and return it; None if it has not been made."""
        loop = self._supervisor.loop
        while True:
            try:
                task = self._tasks.being_made(task_id)
                if task is None:
                    return await self._tasks.pin_known(task_id)
                await task.followers.wait(task, loop, loop.time() + self._retry_s)
            except StoreError:
                await asyncio.sleep(self._retry_s)

    async def note_deletion(self, task_id: str) -> bool:
        """Let a task that ended be known as deleted, if one delegated it that may not have read its outcome.

        Returns whether it is. To be called before the deletion, and undone by `forget_deletion`. Raises StoreError.
        """
        found = await self._store.head(task_id)
        if found is None or found[0].parent is None or await self._tasks.orphaned(found[0]):
            return False
        await self._store.shared.put(DELETED + task_id, b"", DELETED_MS)
        return True

    async def forget_deletion(self, task_id: str) -> None:
        """The task has not been deleted. Raises StoreError."""
        await self._store.shared.delete(DELETED + task_id)

    async def was_deleted(self, task_id: str) -> bool:
        """Whether the task was made, and somebody has deleted it. Reads a store that cannot be read until it can."""
        while True:
            try:
                return await self._store.shared.get(DELETED + task_id) is not None
            except StoreError:
                await asyncio.sleep(self._retry_s)

    async def cancel(self, child: Log) -> None:
        """Cancel the task. Returns when it has ended."""
        while not child.terminal:
            try:
                await self._cancellations.cancel(child)
            except StoreError:
                await asyncio.sleep(self._retry_s)
            else:
                return

    # -- when a parent ends --------------------------------------------------------------------------------------------

    def cancel_children(self, parent: Log) -> None:
        """End the undetached delegations of a task that has ended or is about to."""
        if parent.children != ():
            self._supervisor.errands.do(parent, lambda: self._cancel_children(parent))

    async def _cancel_children(self, parent: Log) -> None:
        ids = set(parent.children or ())
        if parent.children is None:  # an earlier process may have made some
            ids.update(child.id for child in await self._children(parent))
            # The store has none whose first write is under way.
            ids.update(log.head.id for log in self._tasks.all() if log.head.parent == parent.head.id)
        await asyncio.gather(*map(self._end_child, sorted(ids)))

    async def _children(self, parent: Log) -> Sequence[TaskHead]:
        """Read the ids of the task's delegations, trying until the store can be read."""
        while True:
            try:
                return await self._store.children(parent.head.id)
            except StoreError:
                await asyncio.sleep(self._retry_s)

    async def _end_child(self, child_id: str) -> None:
        self.answered(child_id)
        child = await self.pin(child_id)
        if child is not None:
            try:
                if not child.head.detached:
                    await self.cancel(child)
            finally:
                child.unpin()

    async def enforce(self) -> None:
        """End delegated tasks past their deadline, and those whose parent has ended, wherever they run.

        The replica of the parent does both at once, as long as it lives. A store that nobody else writes to is not
        asked again while nothing is committed, but for deadlines that were far off at the last look. Raises StoreError.
        """
        now_s, again = self._supervisor.loop.time(), bool(self._ending)
        self._ending = {child_id: until_s for child_id, until_s in self._ending.items() if until_s > now_s}
        late_ms, shared, look = self._clock.now_ms() - SLACK_MS, self._store.replicas.shared, self._last_look
        commits = 0 if shared else self._store.writing.commits.count
        if shared or again or self._looked_after or commits != look.commits or late_ms >= look.until_ms:
            self._last_look = NO_LOOK  # one that fails is made again
            look = await self._look(commits, late_ms, late_ms if shared else late_ms + AHEAD_MS)
        for head in look.due:
            if head.deadline_ms is not None and head.deadline_ms <= late_ms:
                self._end_soon(head, self._end_late)
        if self._last_look is NO_LOOK:
            await self._end_orphans()
            self._last_look = look

    async def _look(self, commits: int, late_ms: int, until_ms: int) -> _Look:
        """Look up to `until_ms`. If too many tasks are due by then, look only at those that are late."""
        due = await self._store.overdue(until_ms, OVERDUE_MAX)
        if len(due) == OVERDUE_MAX and until_ms > late_ms:
            due, until_ms = await self._store.overdue(late_ms, OVERDUE_MAX), late_ms
        return _Look(commits, until_ms, due)

    async def _end_orphans(self) -> None:
        for _ in range(PARTS):
            orphans, self._looked_after = await self._store.orphans(self._looked_after, PARENTS_MAX)
            for head in orphans:
                self._end_soon(head, self.cancel)
            if not self._looked_after:
                return

    def _end_soon(self, head: TaskHead, end: Callable[[Log], Awaitable[None]]) -> None:
        if head.id not in self._ending:
            self._ending[head.id] = self._supervisor.loop.time() + AGAIN_S
            self._supervisor.errands.do_on(head.id, end)

    # -- while a child waits for an answer -----------------------------------------------------------------------------

    async def left(self, waiting: Iterable[TaskHead]) -> None:
        """Watch the delegated tasks that an earlier process left waiting for an answer. Raises StoreError."""
        for head in waiting:
            if not await self._tasks.orphaned(head):
                self.asks(head)
            else:
                self._supervisor.errands.do_on(head.id, self.cancel)

    def asks(self, head: TaskHead) -> None:
        """Start the timer of a task that waits for an answer from now on, until its deadline."""
        if head.deadline_ms is not None and not head.detached:
            self.answered(head.id)
            wait_s = max(0.0, (head.deadline_ms - self._clock.now_ms()) / 1000)
            self._timers[head.id] = self._supervisor.loop.call_later(wait_s, self._expire, head)

    def answered(self, child_id: str) -> None:
        """Stop the timer of a task that no longer waits for an answer."""
        if (timer := self._timers.pop(child_id, None)) is not None:
            timer.cancel()

    def _expire(self, head: TaskHead) -> None:
        self._timers.pop(head.id, None)
        self._supervisor.errands.do_on(head.id, self._out_of_time)

    async def _out_of_time(self, child: Log) -> None:
        """Cancel a task that still waits, and let its parent go on. The parent's run cancels a task that works."""
        if child.state in INTERRUPTED:
            await self._end_late(child)

    async def _end_late(self, child: Log) -> None:
        """Cancel a task, and let its parent go on if it has passed on the task's question."""
        await self.cancel(child)
        if child.head.parent is None:
            return
        parent = await self.pin(child.head.parent)
        if parent is not None:
            try:
                await self._supervisor.take_back(parent, child.head.id)
            finally:
                parent.unpin()
