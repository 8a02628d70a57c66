"""Teller: tells the words of one agent's workers to the logs of their tasks.

Invariant: a word is one append, guarded by the log and the lease as the word was weighed on them. If either has moved,
the word is weighed anew. Nobody hears that a word is written before it is committed.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from dragoman.agents.worker.entry import Entry
from dragoman.agents.worker.executions import Executions
from dragoman.agents.worker.parent import ParentTask
from dragoman.agents.worker.task_cache import CachedTask, TaskCache
from dragoman.agents.worker.words import SpokenWord, used_within, within
from dragoman.engine.rules import WriteWords
from dragoman.engine.runs.replay import ReplayMismatch, delegation_to
from dragoman.engine.words import Ask, Delegation
from dragoman.engine.worker_tasks import Overtaken
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import Delegated, Event, StatusChanged
from dragoman.model.lifecycle import SPELLED
from dragoman.model.task import Usage
from dragoman.store.api import Fenced, Moved, Refused
from dragoman.store.worker_leases import WorkerLease, WorkerLeaseChange

WAITS = "the task waits for its caller's message: its worker goes on when that has come"


PATIENCE_S = 15.0
"""How long a word waits for the answer to a delegated task's question: as long as other calls of workers may wait."""


class Teller:
    """Tells words to the tasks in `cache`."""

    def __init__(self, cache: TaskCache, executions: Executions) -> None:
        self._cache = cache
        self._tasks = cache.tasks
        self._executions = executions
        self._delegating: dict[tuple[str, int], tuple[str, asyncio.Future[Delegated | None]]] = {}
        """The delegations whose outcome is waited for here, each with its agent. None: the order differs from the
        recorded one."""

    async def tell(
        self,
        task_id: str,
        token: str | None,
        word: SpokenWord,
        usage: Usage | None = None,
        number: int = 0,
        weight: int = 0,
    ) -> None:
        """Tell a word under a lease, or without one. Returns once it is committed. A word with a `weight` was checked.

        While a delegated task's question to the caller is open, the word waits for `PATIENCE_S`; others of the same
        worker may be told meanwhile. Raises InvalidParams, LeaseLost, Unavailable or StoreError.
        """
        with self._cache.find(task_id, token) or await self._cache.get(task_id, token) as known:
            until_s: float | None = None
            while True:
                async with known.lock:
                    if not known.fresh:
                        await known.sync()
                    fresh = not self._tasks.shared
                    try:
                        while (told := await self._tell_once(known, word, usage, number, weight, fresh=fresh)) is False:
                            await known.reread()
                            fresh = True
                    except BaseException:  # also if the caller leaves
                        known.doubt()
                        raise
                if told:
                    return
                if self._tasks.stopping:
                    raise Unavailable("the server is stopping: call again in a moment", 1)
                until_s = until_s or self._tasks.loop.time() + PATIENCE_S
                if not await known.task.followers.wait(known.task, self._tasks.loop, until_s):
                    raise Unavailable(
                        "the task waits for the answer to another agent's question: call again in a moment", 1
                    )

    async def _tell_once(
        self, known: CachedTask, word: SpokenWord, usage: Usage | None, number: int, weight: int, *, fresh: bool
    ) -> bool | None:
        """Write a word. Returns False if somebody else came between, or if that has to be looked up: unless the log is
        `fresh`, what is known here may be old, and only a write that the store takes proves that it is not. Returns
        None if the word has to wait for the answer to a delegated task's question.

        Raises InvalidParams, LeaseLost or StoreError.
        """
        task, lease, view = known.task, known.lease, known.view
        if task.terminal:
            raise LeaseLost
        if lease is not None and 0 < number <= lease.reports:
            return await self._confirm(lease)  # a repeated word: its answer was lost
        if view.passed_on is not None and not (isinstance(word, Delegation) and _repeats(lease, word)):
            return None if fresh else False  # no event comes between a question and its answer
        if not weight:
            word = within(word, self._tasks.bounds)
        used = used_within(usage)
        if view.asked is not None and view.passed_on is None:
            if not fresh:
                return False
            if isinstance(word, Ask) and word.parts == view.asked.parts:
                return lease is None or await self._confirm(lease)
            if lease is not None:
                await self._confirm(lease)
            raise InvalidParams("id", WAITS)
        single = lease is not None and used is None and view.stands_alone(word, number)
        if lease is not None and number > lease.reports + 1 and not (fresh or single):
            return False  # another replica was told the words before
        entry = Entry(task, view, lease, self._tasks.clock.now_ms(), number)
        if used is not None:
            entry.count(used)
        entry.add(word, lambda: self._tasks.files.linked(task.record()), numbered=number > 0, weight=weight)
        if isinstance(word, Delegation) and word.number not in view.delegated:
            self._hand_on(known, word, entry)
        if not (fresh or entry.events) and entry.lease == lease:
            return False
        return await self._write(known, entry, number if single else None)

    async def _confirm(self, lease: WorkerLease) -> bool:
        """Whether nothing has to be written. Raises LeaseLost."""
        if not await self._tasks.runs(lease.task_id, lease.token):
            raise LeaseLost
        return True

    async def _write(self, known: CachedTask, entry: Entry, single: int | None = None) -> bool:
        """Write what a word comes to, in one append. Returns False if somebody else came between.

        `single` is the number of a word that what others wrote does not change: see `WorkerLeaseChange`.
        """
        task, lease, changed = known.task, known.lease, entry.lease
        if lease is not None and changed is not None:
            if not entry.events and changed == lease:
                return await self._confirm(lease)
            if not entry.events or single is None:
                changed = replace(changed, version=lease.version + 1)
            if not entry.events:
                if not await self._tasks.leases.note(changed):
                    return False
                known.add((), changed)
                return True
        elif not entry.events:
            return True
        state, content_bytes = task.state, entry.content_bytes
        if content_bytes is not None:
            events: tuple[Event, ...] = tuple(entry.events)  # one chunk of text
        else:
            events = await self._kept(known, entry.events)
            state = next((event.state for event in reversed(events) if isinstance(event, StatusChanged)), state)
        change = None if changed is None else WorkerLeaseChange(changed, number=single)
        words = WriteWords(events, state, change, content_bytes)
        try:
            written = await self._tasks.write(task, words, known.view.seq if single is None else None)
        except (Overtaken, Fenced, Moved):  # with Moved the lease alone has changed
            return False
        except Refused as refused:
            raise LeaseLost from refused
        assert written is not None, "the rules write every word"
        known.add(events, changed, written)
        if task.terminal:
            self._executions.finish(task.head.id, SPELLED[task.state])
        return True

    async def _kept(self, known: CachedTask, events: Sequence[Event]) -> tuple[Event, ...]:
        """The events as they go into the log, with large files in the blob store."""
        files, task_id = self._tasks.files, known.task.head.id
        return tuple([await files.event_kept(task_id, event) for event in events]) if files.keeps else tuple(events)

    # -- delegations ---------------------------------------------------------------------------------------------------

    def delegating(self, task_id: str, number: int) -> "asyncio.Future[Delegated | None] | None":
        """The outcome of a delegation as it comes here; None if nobody waits for it here.

        Its result is None if the task with that number belongs to another agent.
        """
        found = self._delegating.get((task_id, number))
        return None if found is None else found[1]

    def _hand_on(self, known: CachedTask, order: Delegation, entry: Entry) -> None:
        """Have an order carried out, unless it is already; then the task ends if that one is for another agent."""
        key = known.task.head.id, order.number
        if (found := self._delegating.get(key)) is None:
            outcome: asyncio.Future[Delegated | None] = self._tasks.loop.create_future()
            self._delegating[key] = order.agent, outcome
            self._tasks.background(self._carry_out(known.use(), order, outcome))
        elif found[0] != order.agent:
            given, came = delegation_to(found[0]), delegation_to(order.agent)
            entry.end_mismatched(ReplayMismatch(f"delegation {order.number}", given, came))

    async def _carry_out(
        self, known: CachedTask, order: Delegation, outcome: "asyncio.Future[Delegated | None]"
    ) -> None:
        """Wait for the outcome of a delegation, and write it, whatever becomes of the worker."""
        try:
            with known:
                try:
                    outcome.set_result(await ParentTask(self._tasks, known, order).carry_out())
                except ReplayMismatch as mismatch:
                    await self._end_mismatched(known, mismatch)
                    outcome.set_result(None)
        except asyncio.CancelledError:
            if (own := asyncio.current_task()) is not None and own.cancelling():
                raise  # else the task has ended
        finally:
            self._delegating.pop((known.task.head.id, order.number), None)
            outcome.cancel()

    async def _end_mismatched(self, known: CachedTask, mismatch: ReplayMismatch) -> None:
        """End a task whose worker delegates to another agent than the one before, unless it has lost the task."""
        async with known.lock:
            with suppress(LeaseLost):
                await known.sync()
                while True:
                    entry = Entry(known.task, known.view, known.lease, self._tasks.clock.now_ms())
                    entry.end_mismatched(mismatch)
                    if await self._write(known, entry):
                        return
                    await known.reread()


def _repeats(lease: WorkerLease | None, order: Delegation) -> bool:
    """Whether an order has been given before under the lease."""
    return lease is not None and order.number <= lease.delegations
