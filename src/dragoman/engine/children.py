"""Children: what becomes of tasks that were delegated when their parent ends, or when their time is over.

Invariant: a task that was delegated does not outlast its parent, unless it is detached; one that waits for an answer
does not wait longer than it was given, also when the run that passed its question on is gone.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from dragoman.engine.lineage import child_of
from dragoman.engine.live import LiveTask, wait_until
from dragoman.engine.registry import Registry
from dragoman.engine.writer import RETRY_S
from dragoman.model.ids import Clock
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskHead
from dragoman.store.api import Store, StoreError

if TYPE_CHECKING:
    from dragoman.engine.dispatch import Dispatch

ABSENT_MAX = 2
"""How many numbers without a task end the search for what a task delegated: one that was refused made none."""


class Children:
    """The tasks that were delegated, whoever's they are."""

    def __init__(self, registry: Registry, store: Store, clock: Clock) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._dispatch: Dispatch | None = None

    def begin(self, dispatch: "Dispatch") -> None:
        """From now on they are ended through `dispatch`."""
        self._dispatch = dispatch
        self._registry.ends = self.parent_ends

    @property
    def _ends(self) -> "Dispatch":
        if self._dispatch is None:
            raise RuntimeError("the engine has not been started")
        return self._dispatch

    async def kept(self, task_id: str) -> LiveTask | None:
        """The task, if it has been made, in memory until it is unpinned."""
        loop = self._ends.loop
        while True:
            try:
                live = self._registry.being_made(task_id)
                if live is None:
                    return self._registry.pin_known(task_id)
                await wait_until(live, loop, loop.time() + RETRY_S)
            except StoreError:
                await asyncio.sleep(RETRY_S)

    async def canceled(self, child: LiveTask) -> None:
        """Cancel it; returns when it has ended."""
        while not child.terminal:
            try:
                await self._ends.cancel(child)
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    # -- when a parent ends --------------------------------------------------------------------------------------------

    def parent_ends(self, parent: LiveTask) -> None:
        """The task has ended, or is about to: what it delegated goes with it."""
        if parent.children != ():
            self._ends.errand(parent, lambda: self._let_go(parent))

    async def _let_go(self, parent: LiveTask) -> None:
        ids = parent.children
        await asyncio.gather(*map(self._parted, self._found(parent.head.id) if ids is None else ids))

    def _found(self, parent_id: str) -> list[str]:
        """The tasks that a task delegated in an earlier life of the server."""
        ids: list[str] = []
        number = absent = 0
        while absent < ABSENT_MAX:
            number += 1
            child_id = child_of(parent_id, number)
            if self._store.head(child_id) is None:
                absent += 1
            else:
                ids.append(child_id)
                absent = 0
        return ids

    async def _parted(self, child_id: str) -> None:
        self.answered(child_id)
        child = await self.kept(child_id)
        if child is not None:
            try:
                if not child.head.detached:
                    await self.canceled(child)
            finally:
                self._registry.unpin(child)

    def orphaned(self, head: TaskHead) -> bool:
        """Whether the task was delegated by one that has ended, or is gone. Raises StoreError."""
        if head.parent is None or head.detached:
            return False
        parent = self._store.head(head.parent)
        return parent is None or parent[2] in TERMINAL

    # -- while one waits for an answer ---------------------------------------------------------------------------------

    def left(self, waiting: Iterable[TaskHead]) -> None:
        """Look after those that an earlier process left waiting for an answer. Raises StoreError."""
        for head in waiting:
            if not self.orphaned(head):
                self.asks(head)
            elif (child := self._registry.pin_known(head.id)) is not None:
                self._ends.errand(child, partial(self.canceled, child))
                self._registry.unpin(child)

    def asks(self, head: TaskHead) -> None:
        """It waits for an answer from now on: as long as it was given."""
        if head.deadline_ms is not None and not head.detached:
            self.answered(head.id)
            wait_s = max(0.0, (head.deadline_ms - self._clock.now_ms()) / 1000)
            self._timers[head.id] = self._ends.loop.call_later(wait_s, self._late, head)

    def answered(self, child_id: str) -> None:
        """It does not wait for an answer any more."""
        if (timer := self._timers.pop(child_id, None)) is not None:
            timer.cancel()

    def _late(self, head: TaskHead) -> None:
        try:
            child = self._registry.pin_known(head.id)
        except StoreError:
            self._timers[head.id] = self._ends.loop.call_later(RETRY_S, self._late, head)
            return
        self._timers.pop(head.id, None)
        if child is not None:
            self._ends.errand(child, partial(self._out_of_time, child))
            self._registry.unpin(child)

    async def _out_of_time(self, child: LiveTask) -> None:
        """Cancel it, and let its parent go on; one that works is for the parent's run to cancel."""
        if child.tip_state not in INTERRUPTED or child.head.parent is None:
            return
        await self.canceled(child)
        parent = await self.kept(child.head.parent)
        if parent is not None:
            try:
                await self._ends.taken_back(parent, child.head.id)
            finally:
                self._registry.unpin(parent)
