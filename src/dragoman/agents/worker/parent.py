"""ParentTask: a task whose worker has given a task to another agent, as the engine's delegations see it.

Invariant: what is written on behalf of the delegated task is decided on the parent's log, and only if the store has it
at the same seq. Another replica that waits for the same delegation writes none of it again.
"""

import asyncio
from collections.abc import Callable, Sequence

from dragoman.agents.worker.task_cache import CachedTask
from dragoman.agents.worker.words import adds
from dragoman.engine.log import Log
from dragoman.engine.rules import WriteWords
from dragoman.engine.runs.word_events import question, report
from dragoman.engine.words import Delegation, Say
from dragoman.engine.worker_tasks import Overtaken, WorkerTasks
from dragoman.model.errors import LeaseLost
from dragoman.model.events import Delegated, Event, StatusChanged
from dragoman.model.message import Message, Part
from dragoman.model.task import INTERRUPTED, TaskHead, Usage
from dragoman.store.api import Refused, StoreError


class ParentTask:
    """Satisfies `engine.effects.ParentRun` for one delegation, without a run."""

    present_id = None  # only the worker knows

    def __init__(self, tasks: WorkerTasks, known: CachedTask, order: Delegation) -> None:
        self.head: TaskHead = known.task.head
        self.log = known.task
        self.traceparent = known.task.head.traceparent
        self._tasks = tasks
        self._known = known
        self._order = order
        self._turn = 0
        """How many answers to questions of the delegated task have been taken."""

    async def carry_out(self) -> Delegated:
        """Wait for the outcome and write it.

        Raises ReplayMismatch, or CancelledError if the task has ended first, or its worker has lost it.
        """
        delegated = await self._tasks.delegate(self, self._order.number, self._order)
        logged = await self._tasks.files.event_kept(self.head.id, delegated)
        await self._write(lambda: None if delegated.number in self._known.view.delegated else logged)
        return delegated

    # -- engine.effects.PassedAnswers ----------------------------------------------------------------------------------

    @property
    def replay(self) -> "ParentTask":
        """See `ParentRun`."""
        return self

    def next_passed(self, child_id: str) -> Message | None:
        """See `PassedAnswers`."""
        self._turn += 1
        return self._answer(child_id)

    def forget_passed(self, child_id: str) -> None:
        """See `PassedAnswers`. Only the log has them."""

    def _answer(self, child_id: str) -> Message | None:
        """The caller's answer to the question whose turn it is, as far as the log is known."""
        answers = self._known.view.passed.get(child_id, ())
        return answers[self._turn - 1] if self._turn <= len(answers) else None

    # -- what the delegated task says ----------------------------------------------------------------------------------

    async def say(self, word: Say) -> None:
        """See `ParentRun`."""

        def say() -> Event | None:
            if not adds(self._tasks.files.linked(self.log.record()), word):
                return None
            return report(self.head, word, self._used, self._tasks.clock.now_ms())

        await self._write(say)

    async def pass_on(self, child: Log, parts: Sequence[Part], *, auth: bool) -> Message | None:
        """See `ParentRun`."""
        kept, child_id = tuple(parts), child.head.id
        if self._tasks.files.large(kept):
            kept = await self._tasks.files.kept_by_run(self.head.id, kept)

        def ask() -> Event | None:
            if child.state not in INTERRUPTED or self._answer(child_id) is not None:
                return None
            now_ms = self._tasks.clock.now_ms()
            return question(self.head, kept, self._used, now_ms, auth=auth, child_id=child_id)

        if self._known.view.passed_on != child_id:  # else another run or replica has put it
            await self._write(ask)
        while self._known.view.passed_on == child_id:
            await self._follow()
        if (answer := self._answer(child_id)) is None:
            self._turn -= 1
        return answer

    @property
    def _used(self) -> Usage | None:
        lease = self._known.lease
        return self.log.fold.usage if lease is None else lease.used

    # -- the log -------------------------------------------------------------------------------------------------------

    async def _write(self, make: Callable[[], Event | None]) -> None:
        """Write what is made of the task as it stands as soon as no question is open; None: nothing.

        Raises CancelledError if the task has ended, or its worker has lost it.
        """
        known = self._known
        while True:
            try:
                async with known.lock:
                    await known.sync()
                    if known.view.asked is None and not self.log.terminal:
                        if (event := make()) is None:
                            return
                        state = event.state if isinstance(event, StatusChanged) else self.log.state
                        words = WriteWords((event,), state)
                        known.add((event,), known.lease, await self._tasks.write(self.log, words, known.view.seq))
                        return
            except Overtaken:
                await self._catch_up()
            except StoreError:
                await asyncio.sleep(self._tasks.retry_s)
            except (LeaseLost, Refused) as over:
                raise asyncio.CancelledError from over
            else:
                await self._follow()

    async def _follow(self) -> None:
        """Wait until the log is known to have changed, and read it. Raises CancelledError as `_write` does."""
        seq, log = self._known.view.seq, self.log
        while log.seq == seq and not (log.terminal or self._known.lost):
            await log.followers.wait(log, self._tasks.loop)
        if log.terminal:
            raise asyncio.CancelledError
        try:
            async with self._known.lock:
                await self._known.sync()
        except StoreError:
            await asyncio.sleep(self._tasks.retry_s)
        except LeaseLost as over:
            raise asyncio.CancelledError from over

    async def _catch_up(self) -> None:
        try:
            await self._tasks.catch_up(self.log)
        except (LeaseLost, StoreError):
            await asyncio.sleep(self._tasks.retry_s)
