"""ParentTask: a task whose worker has given a task to another agent, as the engine's delegations see it.

Invariant: what is written on behalf of the delegated task is decided on the parent's log. Another replica that waits
for the same delegation writes none of it again.
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from dragoman.agents.worker.task_view import TaskView
from dragoman.agents.worker.words import adds
from dragoman.engine.bounds import Bounds
from dragoman.engine.rules import WriteWords
from dragoman.engine.runs.endings import agent_message
from dragoman.engine.task_log import TaskLog
from dragoman.engine.words import Delegation, Say
from dragoman.engine.worker_tasks import Overtaken, WorkerTasks
from dragoman.model.errors import LeaseLost
from dragoman.model.events import Delegated, Event, Logged, MessageReceived, StatusChanged
from dragoman.model.ids import timestamp
from dragoman.model.message import Message, Part
from dragoman.model.operations import CallerCredentials
from dragoman.model.task import INTERRUPTED, Progress, TaskHead, TaskState, Usage
from dragoman.store.api import Refused, StoreError
from dragoman.store.worker_leases import WorkerLease


class ParentTask:
    """Satisfies `engine.effects.ParentRun`, without a run."""

    def __init__(
        self, tasks: WorkerTasks, task: TaskLog, view: TaskView, lease: WorkerLease | None, order: Delegation
    ) -> None:
        self.head: TaskHead = task.head
        self.log = task
        self.bounds: Bounds = tasks.bounds
        self.traceparent = task.head.traceparent
        self._tasks = tasks
        self._order = order
        self._passed = {child_id: list(answers) for child_id, answers in view.passed.items()}
        self._used: Usage | None = task.fold.usage if lease is None else lease.used
        self._seq = view.seq

    @property
    def shown(self) -> CallerCredentials | None:
        """The caller's credentials, if an agent of the server passes them on."""
        return self.log.shown

    async def carry_out(self) -> Delegated | None:
        """Wait for the outcome and write it. None if the task has ended first. Raises ReplayMismatch."""
        outcome = self._tasks.delegate(self, self._order.number, self._order)
        delegated = await outcome
        logged = await self._tasks.files.event_kept(self.head.id, delegated)
        await self._write(
            lambda: logged, lambda event: isinstance(event, Delegated) and event.number == delegated.number
        )
        return delegated

    def next_passed(self, child_id: str) -> Message | None:
        """See `ParentRun`."""
        answers = self._passed.get(child_id)
        return answers.pop(0) if answers else None

    def forget_passed(self, child_id: str) -> None:
        """See `ParentRun`."""
        self._passed.pop(child_id, None)

    @property
    def replay(self) -> "ParentTask":
        """See `ParentRun`."""
        return self

    async def say(self, word: Say) -> None:
        """See `ParentRun`."""
        parts, progress = word.parts, word.progress

        def say() -> Event | None:
            record = self._tasks.files.linked(self.log.record())
            if not adds(record, word):
                return None
            message = agent_message(self.head, parts) if parts else None
            steps = None if progress is None else Progress(*progress, message.text if message is not None else "")
            now = timestamp(self._tasks.clock.now_ms())
            return StatusChanged(TaskState.WORKING, now, message=message, progress=steps, usage=self._used)

        await self._write(say, lambda event: False)

    async def pass_on(self, child: TaskLog, parts: Sequence[Part], *, auth: bool) -> Message | None:
        """See `ParentRun`."""
        kept = tuple(parts)
        if self._tasks.files.large(kept):
            kept = await self._tasks.files.kept_by_run(self.head.id, kept)
        child_id, question = child.head.id, self._open()
        if question is None or question.reference_task_ids != (child_id,):
            asked = replace(agent_message(self.head, kept), reference_task_ids=(child_id,))
            state = TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED

            def ask() -> Event | None:
                if child.state not in INTERRUPTED:
                    return None
                return StatusChanged(state, timestamp(self._tasks.clock.now_ms()), message=asked, usage=self._used)

            if not await self._write(ask, lambda event: False):
                return None
        seq = self.log.settled_seq
        while self.log.settled_seq == seq and not self.log.terminal:
            await self.log.followers.wait(self.log, self._tasks.loop)
        if self.log.terminal:
            raise asyncio.CancelledError
        for logged in await self._patiently(seq):
            if isinstance(logged.event, MessageReceived):
                return logged.event.message
            if isinstance(logged.event, StatusChanged):
                return None
        return None

    def _open(self) -> Message | None:
        return self.log.record().status.message if self.log.state in INTERRUPTED else None

    async def _patiently(self, after: int) -> tuple[Logged, ...]:
        """The events after a seq, as soon as they can be read."""
        while True:
            try:
                return await self._tasks.read(self.log, after)
            except StoreError:
                await asyncio.sleep(1)

    async def _write(self, make: Callable[[], Event | None], made: Callable[[Event], bool]) -> bool:
        """Write an event as soon as no question is open, unless an equal one is `made` already. Returns whether it was.

        Raises CancelledError if the task has ended.
        """
        while True:
            while self.log.state in INTERRUPTED:
                await self.log.followers.wait(self.log, self._tasks.loop)
            seq = self.log.seq
            if any(made(logged.event) for logged in await self._patiently(self._seq) if logged.seq <= seq):
                return False
            if self.log.terminal:
                raise asyncio.CancelledError
            if (event := make()) is None:
                return False
            state = event.state if isinstance(event, StatusChanged) else self.log.state
            try:
                return await self._tasks.write(self.log, WriteWords((event,), state), seq) is not None
            except Overtaken:
                await self._catch_up()
            except StoreError:
                await asyncio.sleep(1)
            except Refused as refused:
                raise asyncio.CancelledError from refused

    async def _catch_up(self) -> None:
        try:
            await self._tasks.catch_up(self.log)
        except (LeaseLost, StoreError):
            await asyncio.sleep(0.1)
