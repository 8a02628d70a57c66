"""ExecutorRun: one task's work with an executor, one call of `execute` for each of the caller's messages.

Invariant: events reach the task in the order in which they are enqueued, and nothing follows the status that ends it.
That status, or a question, takes effect when `execute` has returned. A call that has returned is never made again: a
later run of the task begins with the first message that has not been answered, which the noted questions tell.
"""

import asyncio
import logging
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.frameworks.a2a_sdk.sdk import Sdk
from dragoman.agents.frameworks.a2a_sdk.turn import ExecutorTurn
from dragoman.agents.frameworks.runs import contain
from dragoman.engine.api import Ended, Replied, Run
from dragoman.engine.words import QUESTIONS
from dragoman.model.ids import new_id
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

log = logging.getLogger("dragoman.frameworks")

NOTE = "questions"
"""The name under which the questions so far are noted."""

CANCEL_S = 3.0
"""Seconds that `cancel` may take: less than the default of `cancel_grace_s`."""

SHOW_S = 1.0
"""Seconds after which a question is shown that `execute` still works on: it may wait for an event elsewhere."""

OPEN = (Part(text="The agent has stopped without an end: send another message to go on."),)
"""The question of a call that neither ended the task nor asked."""

NOTHING_SAID = (Part(text="The agent gave no answer."),)


class ExecutorQuestion(Struct, frozen=True):
    """A question that was put to the caller, and the state in which the executor left the task with it."""

    parts: tuple[Part, ...]
    state: TaskState


class ExecutorRun:
    """The work on the task of `run`. Also the queue of the executor's events, as far as executors use it."""

    def __init__(self, executor: Any, sdk: Sdk, run: Run) -> None:
        self._executor = executor
        self._sdk = sdk
        self._run = run
        self._is_task = False
        """Whether the executor has said that there is a task, and not only a message."""
        self._has_task = False
        """Whether a Task has been enqueued or stored."""
        self._end: TaskStatus | None = None
        self._reply: Message | None = None
        self._question: TaskStatus | None = None
        """The status with which the task waits once `execute` returns."""
        self._showing: asyncio.Task[None] | None = None
        self._shown = False
        self._taking = asyncio.Lock()
        """Held while an event is taken. An executor may enqueue from several tasks, which are served in their order."""

    async def carry_out(self) -> None:
        """Do the task. Raises Ended, or Replied if a message is the whole answer."""
        message, stored = self._run.message, None
        asked: list[ExecutorQuestion] = _load_questions(self._run)
        for question in asked:
            message, stored = await self._ask(question)
        while True:
            question = await self._execute(message, stored)
            asked.append(question)
            self._run.note(**{NOTE: msgspec.json.encode(asked).decode()})
            message, stored = await self._ask(question)

    # -- calls of the executor -----------------------------------------------------------------------------------------

    async def _execute(self, message: Message, stored: Record | None) -> ExecutorQuestion:
        """Call `execute` with a message, and return the question that follows. Raises Ended otherwise."""
        self._begin(stored)
        context = self._sdk.make_context(await self._turn(message, stored))
        working = asyncio.create_task(contain(self._executor.execute(context, self)))
        try:
            await asyncio.wait((working,))
        except asyncio.CancelledError:
            if self._run.canceled:
                await self._cancel()
            raise
        finally:
            await _stop(working)
            if self._showing is not None:
                await _stop(self._showing)
        if (error := working.exception()) is not None:
            if self._end is None:
                raise error
            log.error("task %s: the executor raised after it had ended the task", self._run.head.id, exc_info=error)
        if self._end is not None:
            raise _ended(self._end)
        if self._reply is not None:
            raise Replied(self._reply.parts)
        if self._question is not None:
            return _question_of(self._question)
        if not self._is_task and stored is None:
            log.warning("task %s: execute() returned without any event", self._run.head.id)
            raise Ended(TaskState.FAILED, NOTHING_SAID)
        return ExecutorQuestion(OPEN, TaskState.WORKING)

    def _begin(self, stored: Record | None) -> None:
        """Forget what the last call left open."""
        self._question, self._shown, self._has_task = None, False, stored is not None

    async def _cancel(self) -> None:
        """Call `cancel`, which may still enqueue events. Raises Ended if the task has ended, now or before."""
        if self._end is None:
            await call_cancel(self._executor, self._sdk, self._run.record, self)
        if self._end is not None:
            raise _ended(self._end)

    async def _ask(self, question: ExecutorQuestion) -> tuple[Message, Record]:
        """Put a question to the caller. Returns the answer, and the task as the executor left it."""
        try:
            answer = await self._run.ask(question.parts, auth=question.state is TaskState.AUTH_REQUIRED)
        except asyncio.CancelledError:
            if self._run.canceled:
                await self._cancel()
            raise
        return answer, self._stored(question, answer)

    def _stored(self, question: ExecutorQuestion, answer: Message) -> Record:
        """Return the task as it was before the answer. Its history may have question and answer already."""
        record, head = self._run.record, self._run.head
        history = list(record.history)
        asked = Message(
            message_id=new_id(),
            role=Role.AGENT,
            parts=question.parts,
            context_id=head.context_id,
            task_id=head.id,
        )
        if history and history[-1].message_id == answer.message_id:
            history.pop()
            if history and history[-1].role is Role.AGENT:
                asked = history.pop()
        status = TaskStatus(state=question.state, timestamp=record.status.timestamp)
        before = replace(record, status=status, history=tuple(history))
        return self._sdk.stored_record(before, asked if question.state in INTERRUPTED else None, answer)

    async def _turn(self, message: Message, stored: Record | None) -> ExecutorTurn:
        run = self._run
        return ExecutorTurn(
            task_id=run.head.id,
            context_id=run.head.context_id,
            message=message,
            task=stored,
            related=await run.references() if run.message.reference_task_ids else (),
            metadata=await run.request_metadata(message),
            accepted_output_modes=run.head.accepted_output_modes,
            extensions=run.extensions,
            caller=_caller(run.principal.id),
            headers=run.headers if run.sink.gives_headers else {},
        )

    # -- the queue -----------------------------------------------------------------------------------------------------

    async def enqueue_event(self, event: Any) -> None:
        """Take an event. Raises TypeError if it is none, ValueError if it belongs to another task."""
        update = self._sdk.read_event(event)
        async with self._taking:
            await self._take(update)

    async def _take(self, update: Update) -> None:
        """Take an event, now that those before it are taken."""
        if self._end is not None or self._reply is not None:
            log.warning("task %s: %s after its end was dropped", self._run.head.id, type(update).__name__)
            return
        if isinstance(update, Message):
            self._reply = update
            return
        self._check(update.id if isinstance(update, Task) else update.task_id)
        if not self._is_task:
            self._is_task = True
            await self._run.written()  # an agent that may answer with a message makes its task now
        match update:
            case Task():
                await self._take_task(update)
            case StatusUpdate():
                if update.usage is not None:
                    self._run.usage(update.usage)
                await self._take_status(update)
            case ArtifactUpdate():
                await self._take_chunk(update)

    async def close(self, immediate: bool = False) -> None:
        """Do nothing: the queue ends with the call."""

    def is_closed(self) -> bool:
        """Whether events are dropped, because the task has ended."""
        return self._end is not None or self._reply is not None

    def _check(self, task_id: str) -> None:
        if task_id != self._run.head.id:
            raise ValueError(f"the event belongs to task {task_id!r}: use context.task_id, {self._run.head.id!r}")

    async def _take_task(self, task: Task) -> None:
        if self._has_task and not self._sdk.replaces_tasks:
            log.warning("task %s: another Task was enqueued for it and ignored: enqueue updates", self._run.head.id)
            return
        self._has_task = True
        known = {artifact.artifact_id: artifact for artifact in self._run.record.artifacts}
        for artifact in task.artifacts:
            if artifact.parts and known.get(artifact.artifact_id) != artifact:
                await self._run.artifact(artifact, append=False, last_chunk=True)
        await self._take_status(StatusUpdate(task_id=task.id, context_id=task.context_id, status=task.status))

    async def _take_status(self, update: StatusUpdate) -> None:
        status, metadata = update.status, update.metadata
        parts = () if status.message is None else status.message.parts
        metadata = metadata or (None if status.message is None else status.message.metadata)
        if status.state in TERMINAL:
            self._question = None
            if metadata:
                await self._run.status((), metadata=metadata)
            self._end = status
            return
        if status.state in INTERRUPTED:
            if metadata:
                await self._run.status((), metadata=metadata)
            self._question, self._shown = status, False
            if self._showing is None or self._showing.done():
                self._showing = asyncio.create_task(self._show_late())
            return
        await self._show_question()
        self._question = None
        steps = None if update.progress is None else (update.progress.current, update.progress.total)
        if parts or metadata or steps:
            await self._run.status(parts, progress=steps, metadata=metadata)
        elif status.state is TaskState.WORKING:
            self._run.working()

    async def _take_chunk(self, update: ArtifactUpdate) -> None:
        artifact: Artifact = update.artifact
        if not artifact.parts:
            if not update.last_chunk:
                return
            artifact = replace(artifact, parts=(Part(text=""),))  # it only says that the artifact is whole
        await self._run.artifact(artifact, append=update.append, last_chunk=update.last_chunk)

    async def _show_late(self) -> None:
        """Show a question that does not take effect for a while, because `execute` goes on."""
        await asyncio.sleep(SHOW_S)
        await self._show_question()

    async def _show_question(self) -> None:
        """Report an open question as a status, once: `execute` goes on without an answer."""
        if self._question is not None and not self._shown:
            self._shown = True
            if self._question.message is not None:
                await self._run.status(self._question.message.parts)


class DroppedEvents:
    """The queue of a `cancel` whose task has ended already."""

    async def enqueue_event(self, event: Any) -> None:
        """Drop the event."""

    async def close(self, immediate: bool = False) -> None:
        """Do nothing."""

    def is_closed(self) -> bool:
        """Always True."""
        return True


async def call_cancel(executor: Any, sdk: Sdk, record: Record, queue: Any) -> None:
    """Call the executor's `cancel` for a bounded time. An error is logged, because the task is canceled anyway."""
    head = record.head
    turn = ExecutorTurn(
        task_id=head.id,
        context_id=head.context_id,
        message=None,
        task=record,
        extensions=head.extensions,
        caller=_caller(head.owner),
    )

    async def cancel() -> None:
        await executor.cancel(sdk.make_context(turn), queue)  # a method without `async` may raise before the await

    canceling = asyncio.create_task(contain(cancel()))
    try:
        await asyncio.wait((canceling,), timeout=CANCEL_S)
        if not canceling.done():
            log.warning("task %s: cancel() of the executor took longer than %g s", head.id, CANCEL_S)
        elif not canceling.cancelled() and (error := canceling.exception()) is not None:
            log.info("task %s: cancel() of the executor raised", head.id, exc_info=error)
    finally:
        await _stop(canceling)


def _caller(owner: str) -> str | None:
    return None if owner == ANONYMOUS.id else owner


def _load_questions(run: Run) -> list[ExecutorQuestion]:
    text = run.notes.get(NOTE)
    return msgspec.json.decode(text, type=list[ExecutorQuestion]) if text else []


def _question_of(status: TaskStatus) -> ExecutorQuestion:
    parts = () if status.message is None else status.message.parts
    return ExecutorQuestion(parts or QUESTIONS[status.state], status.state)


def _ended(status: TaskStatus) -> Ended:
    return Ended(status.state, () if status.message is None else status.message.parts)


async def _stop(work: "asyncio.Task[None]") -> None:
    """End a task that works for this run, and wait until it has."""
    if not work.done():
        work.cancel()
        await asyncio.wait((work,))
