"""Teller: tells the words of one agent's workers to the logs of their tasks.

Invariant: a word is one append, guarded by the log and the lease as the word was weighed on them. If either has moved,
the word is weighed anew. Nobody hears that a word is written before it is committed.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum

from msgspec.structs import replace

from dragoman.agents.worker.held_tasks import HeldTasks
from dragoman.agents.worker.parent import ParentTask
from dragoman.agents.worker.task_cache import CachedTask, TaskCache
from dragoman.agents.worker.word_outcome import WordOutcome
from dragoman.agents.worker.words import SpokenWord, ToldStep, used_within, within
from dragoman.engine.rules import WriteWords
from dragoman.engine.runs.places import NUMBERS_FROM
from dragoman.engine.runs.replay import ReplayMismatch, delegation_to
from dragoman.engine.words import Ask, Delegation
from dragoman.engine.worker_tasks import Overtaken
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import Delegated, Event, StatusChanged, Stepped
from dragoman.model.lifecycle import SPELLED
from dragoman.model.operations import NOTHING_CONFIRMED, Confirmed
from dragoman.model.task import Usage
from dragoman.store.api import Fenced, Moved, Refused
from dragoman.store.worker_leases import WorkerLease, WorkerLeaseChange

WAITS = "the task waits for its caller's message: its worker goes on when that has come"

PATIENCE_S = 15.0
"""How long a word waits for the answer to a delegated task's question: as long as other calls of workers may wait."""


class Telling(Enum):
    """The outcome of one try to tell a word."""

    TOLD = "it is committed, now or before"
    STALE = "log or lease may not be as they are known here: read them anew, and try again"
    WAITS = "a delegated task's question to the caller is open: the word has to wait for its answer"


class Teller:
    """Tells words to the tasks in `cache`."""

    def __init__(self, cache: TaskCache, held_tasks: HeldTasks) -> None:
        self._cache = cache
        self._tasks = cache.tasks
        self._held_tasks = held_tasks
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
        confirmed: Confirmed = NOTHING_CONFIRMED,
    ) -> None:
        """Tell a word under a lease, or without one. Returns once it is committed. A word with a `weight` was checked.

        If the store has lost something that is `confirmed`, the lease ends.

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
                        telling = await self._try(known, word, usage, number, weight, confirmed, fresh=fresh)
                        while telling is Telling.STALE:
                            await known.reread()
                            telling = await self._try(known, word, usage, number, weight, confirmed, fresh=True)
                    except BaseException:  # also if the caller leaves
                        known.doubt()
                        raise
                if telling is Telling.TOLD:
                    if usage is not None and known.lease is not None and known.lease.used is not None:
                        self._tasks.weigh_spending(known.task, known.lease.used)
                    return
                if self._tasks.stopping:
                    raise Unavailable("the server is stopping: call again in a moment", 1)
                until_s = until_s or self._tasks.loop.time() + PATIENCE_S
                if not await known.task.followers.wait(known.task, self._tasks.loop, until_s):
                    raise Unavailable(
                        "the task waits for the answer to another agent's question: call again in a moment", 1
                    )

    async def _try(
        self,
        known: CachedTask,
        word: SpokenWord,
        usage: Usage | None,
        number: int,
        weight: int,
        confirmed: Confirmed,
        *,
        fresh: bool,
    ) -> Telling:
        """Tell a word on the log and the lease as they are known here.

        Unless these were just read, which makes them `fresh`, only a write that the store takes proves that they are
        not old. Raises InvalidParams, LeaseLost or StoreError.
        """
        task, lease, view = known.task, known.lease, known.view
        if task.terminal:
            raise LeaseLost
        if lease is not None and 0 < number <= lease.reports:
            return await self._confirm(lease)  # the word is repeated, because its answer was lost
        if fresh:
            self._cache.check(known, confirmed)
        elif not known.has_outcome(confirmed):
            return Telling.STALE
        looks = isinstance(word, ToldStep) and word.looks
        if view.passed_on is not None and not (looks or (isinstance(word, Delegation) and _repeats(lease, word))):
            return Telling.WAITS if fresh else Telling.STALE  # no event comes between a question and its answer
        if not weight:
            word = within(word, self._tasks.bounds)
        used = used_within(usage, self._tasks.bounds, task.head)
        if view.asked is not None and view.passed_on is None and not looks:
            if not fresh:
                return Telling.STALE
            if lease is not None:
                await self._confirm(lease)
            if isinstance(word, Ask) and word.parts == view.asked.parts:
                return Telling.TOLD
            raise InvalidParams("id", WAITS)
        single = lease is not None and used is None and view.stands_alone(word, number)
        if lease is not None and max(confirmed.report, number - 1) > lease.reports and not (fresh or single):
            return Telling.STALE  # another replica was told the words before
        result = WordOutcome(task, view, lease, self._tasks.clock.now_ms(), number, self._tasks.max_steps)
        if used is not None and not (isinstance(word, ToldStep) and view.recorded_step(word.place)):
            result.count(used)
        result.add(word, lambda: self._tasks.files.linked(task.record()), numbered=number > 0, weight=weight)
        if looks and result.events and view.asked is not None:
            raise InvalidParams("id", WAITS)
        if isinstance(word, Delegation) and word.number not in view.delegated:
            self._hand_on(known, word, result)
        if not (fresh or result.events) and (single or result.lease == lease):
            return Telling.STALE  # no append proves anything
        return await self._write(known, result, number if single else None, confirmed.report)

    async def _confirm(self, lease: WorkerLease) -> Telling:
        """Find that there is nothing to write, under a lease that runs. Raises LeaseLost."""
        if not await self._tasks.runs(lease.task_id, lease.token):
            raise LeaseLost
        return Telling.TOLD

    async def _write(
        self, known: CachedTask, result: WordOutcome, single: int | None = None, confirmed: int = 0
    ) -> Telling:
        """Write the outcome of a word in one append. It is stale if somebody else came between.

        `single` is the number of a word that what others wrote does not change, as long as the `confirmed` report is
        there: see `WorkerLeaseChange`.
        """
        task, lease, changed = known.task, known.lease, result.lease
        if lease is not None and changed is not None:
            if not result.events and changed == lease:
                return await self._confirm(lease)
            if not result.events or single is None:
                changed = replace(changed, version=lease.version + 1)
            if not result.events:
                if not await self._tasks.leases.note(changed):
                    return Telling.STALE
                known.add((), changed)
                return Telling.TOLD
        elif not result.events:
            return Telling.TOLD
        state, content_bytes = task.state, result.content_bytes
        if content_bytes is not None:
            events: tuple[Event, ...] = tuple(result.events)  # one chunk of text
        else:
            events = await self._kept(known, result.events)
            state = next((event.state for event in reversed(events) if isinstance(event, StatusChanged)), state)
        wakes_ms = result.wakes_ms
        change = (
            None
            if changed is None
            else WorkerLeaseChange(changed, over=wakes_ms is not None, number=single, confirmed=confirmed)
        )
        words = WriteWords(events, state, change, content_bytes, wakes_ms)
        try:
            written = await self._tasks.write(task, words, known.view.seq if single is None else None)
        except (Overtaken, Fenced, Moved):  # with Moved the lease alone has changed
            return Telling.STALE
        except Refused as refused:
            raise LeaseLost from refused
        assert written is not None, "the rules write every word"
        known.add(events, changed, written)
        if isinstance(stepped := events[-1], Stepped):
            self._held_tasks.note_step(task.head.id, stepped)
        if task.terminal or wakes_ms is not None:
            self._held_tasks.finish(task.head.id, SPELLED[task.state])
        return Telling.TOLD

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

    def _hand_on(self, known: CachedTask, order: Delegation, result: WordOutcome) -> None:
        """Have an order carried out, unless it is already; then the task ends if that one is for another agent."""
        key = known.task.head.id, order.number
        if (found := self._delegating.get(key)) is None:
            outcome: asyncio.Future[Delegated | None] = self._tasks.loop.create_future()
            self._delegating[key] = order.agent, outcome
            self._tasks.background(self._carry_out(known.use(), order, outcome))
        elif found[0] != order.agent:
            given, came = delegation_to(found[0]), delegation_to(order.agent)
            result.end_mismatched(ReplayMismatch(f"delegation {order.number}", given, came))

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
                    result = WordOutcome(known.task, known.view, known.lease, self._tasks.clock.now_ms())
                    result.end_mismatched(mismatch)
                    if await self._write(known, result) is Telling.TOLD:
                        return
                    await known.reread()


def _repeats(lease: WorkerLease | None, order: Delegation) -> bool:
    """Whether an order has been given before under the lease, or may have been by another branch of its worker."""
    return order.number >= NUMBERS_FROM or (lease is not None and order.number <= lease.delegations)
