"""AutoRun: one execution of an agent that answers with a Message, or with a task if a Message cannot hold its work.

Invariant: a run has one outcome. Nothing is written before it, so that until then a crash leaves no trace. All that the
agent emitted is in the Message, or in the task, in the same order. The agent's coroutine is the same in both cases, and
cannot tell.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Protocol

from msgspec import Struct

from dragoman.engine.api import Delegation, Hear, Replied, Runner
from dragoman.engine.bounds import flag, steps
from dragoman.engine.bounds import usage as check_usage
from dragoman.engine.runs.direct import answer_with
from dragoman.engine.runs.run import RunServices, TaskRun, full_lineage
from dragoman.engine.runs.run_writer import BUFFER_BYTES_MAX, weigh
from dragoman.model.events import ArtifactChunk, Delegated, Event, Logged, Noted, Submitted
from dragoman.model.ids import new_id
from dragoman.model.lifecycle import fold
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import CallerCredentials
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, Usage
from dragoman.store.api import StoreError


class BecameTask(Struct, frozen=True):
    """The outcome of a run that has a task. `seq` is the log's length after the caller's message."""

    task_id: str
    seq: int


Decided = Message | BecameTask
"""The outcome of a run for its callers."""


class Waiting(Struct, frozen=True):
    """The agent's reason for making no progress."""

    parts: tuple[Part, ...]


class AutoPhase(Enum):
    """`OPEN`: both outcomes are possible. `TASK`: there is a task, or it is being made. `ANSWER`: there is a Message.
    `OVER`: the agent was stopped, because its work cannot become a task."""

    OPEN = auto()
    TASK = auto()
    ANSWER = auto()
    OVER = auto()


class UndecidedCall(Protocol):
    """The call that a run works for, until its outcome is decided."""

    async def keep(self, answer: Message, used: Usage | None) -> Decided:
        """Store the answer with the tokens used. Returns what the caller gets. Raises StoreError."""
        ...

    def make_task(self, run: "AutoRun") -> None:
        """Begin to make the task that the run has become. That ends with its `carry_on` or its `drop`."""
        ...


class AutoRun:
    """See `engine.api.Run`. Everything beyond that is for the engine alone.

    The run becomes a task with whatever a Message cannot hold: a status, an artifact with a name, a question, a
    delegation, a note, a failure, more than `BUFFER_BYTES_MAX`. So it does when the agent reads the conversation, which
    is made of tasks alone, and `wait_s` after its beginning. Then the `call` makes the task, and the TaskRun that takes
    over is given to `carry_on`.
    """

    epoch = 1

    def __init__(
        self,
        runner: Runner,
        head: TaskHead,
        message: Message,
        services: RunServices,
        *,
        shown: CallerCredentials | None,
        call: UndecidedCall,
    ) -> None:
        self.head = head
        self.message = message
        self.principal = Principal(head.owner)
        self.skill = head.skill
        self.skills = head.skills
        self.extensions = head.extensions
        self.traceparent = head.traceparent
        self.outcome: asyncio.Future[Decided] = services.loop.create_future()
        """The answer for the callers, or the error. It does not wait for the agent's end."""
        self.outcome.add_done_callback(_retrieve)
        self.task: asyncio.Task[None] | None = None
        self._runner = runner
        self._services = services
        self.bounds = services.bounds
        self._shown = shown
        self._call = call
        self._phase = AutoPhase.OPEN
        self._events: list[Event] = [Submitted(message, head.created_at)]
        self._bytes = 0
        self._held: deque[ArtifactChunk | Noted | Waiting] = deque()
        """The effects that the agent emitted and the TaskRun does not have yet."""
        self._works = False
        self.used: Usage | None = None
        """The tokens used before a task took over."""
        self._run: asyncio.Future[TaskRun] = services.loop.create_future()
        """The run that has taken over. It is cancelled if there will be none."""
        self._timer: asyncio.TimerHandle | None = None

    # -- for the engine ----------------------------------------------------------------------------------------------

    def begin(self, task: "asyncio.Task[None]", wait_s: float) -> None:
        """Take note of the asyncio task in which `run_to_end` runs; after `wait_s` this run becomes a task."""
        self.task = task
        self._timer = self._services.loop.call_later(wait_s, self.become_task)

    async def run_to_end(self) -> None:
        """Run the agent, and answer with a Message if there is no task by then. Raises what the agent raised."""
        try:
            await self._run_agent()
        except Replied as reply:
            if not await self._answer(reply.parts):
                raise
        except (SystemExit, KeyboardInterrupt) as ended:  # asyncio would take it out of the loop
            self.become_task()
            raise RuntimeError(f"{type(ended).__name__} in an agent") from ended
        except BaseException:
            self.become_task()  # a Message cannot tell of such an end
            raise
        else:
            await self._answer(())

    async def _run_agent(self) -> None:
        """Run the agent. Raises TypeError or ValueError if the Message with which it replies cannot be sent."""
        try:
            await self._runner.run(self)
        except Replied as reply:
            reply.parts = self.bounds.parts("parts", reply.parts)
            raise

    def become_task(self) -> None:
        """Have a task made, unless there is one or the answer is decided."""
        if self._phase is AutoPhase.OPEN:
            self._leave(AutoPhase.TASK)
            self._call.make_task(self)

    async def carry_on(self, run: TaskRun) -> None:
        """Hand what was emitted over to the run of the task, and end as the agent ends."""
        assert self.task is not None
        try:
            await self._hand_over(run)
        except BaseException:
            self.drop()
            raise
        await self.task

    def decide(self, outcome: Decided | BaseException) -> None:
        """Set the outcome, unless it has been set."""
        if self.outcome.done():
            return
        if isinstance(outcome, BaseException):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)

    def drop(self, outcome: Decided | BaseException | None = None) -> None:
        """Stop the agent, because nothing that it does counts any more."""
        self._leave(AutoPhase.OVER)
        self._run.cancel()
        if self.task is not None:
            self.task.cancel()
        if outcome is not None:
            self.decide(outcome)

    def _leave(self, phase: AutoPhase) -> None:
        self._phase = phase
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _answer(self, words: tuple[Part, ...]) -> bool:
        """Answer with a Message. Returns False if there is a task."""
        if self._services.files.large(words):
            self.become_task()
        if self._phase is not AutoPhase.OPEN:
            return False
        self._leave(AutoPhase.ANSWER)
        self._run.cancel()  # nothing that the agent left running can emit anything
        try:
            self.decide(await self._call.keep(answer_with(self.record, words, new_id()), self.used))
        except StoreError as error:
            self.decide(error)
        return True

    async def _hand_over(self, run: TaskRun) -> None:
        if self.used is not None:
            run.usage(self.used)
        if self._works:
            run.working()
        while self._held:
            match self._held.popleft():
                case ArtifactChunk(artifact, append, last_chunk):
                    await run.artifact(artifact, append=append, last_chunk=last_chunk)
                case Noted(note):
                    run.note(**note)
                case Waiting(parts):
                    run.waiting(parts)
        if not self._run.done():
            self._run.set_result(run)

    def _taken_over(self) -> TaskRun | None:
        """The run of the task, once it has all that was emitted."""
        return self._run.result() if self._run.done() and not self._run.cancelled() else None

    async def _task_run(self) -> TaskRun:
        """The run of the task, which is made if there is none. Raises CancelledError if there will be none."""
        self.become_task()
        return await asyncio.shield(self._run)

    # -- for the agent: engine.api.Run -------------------------------------------------------------------------------

    @property
    def canceled(self) -> bool:
        """Whether the work is to stop for good, as it is when the server ends before there is a task."""
        run = self._taken_over()
        if run is not None:
            return run.canceled
        stopped = self.task is not None and self.task.cancelling() > 0
        return self._phase is AutoPhase.OVER or (self._phase is AutoPhase.OPEN and stopped)

    @property
    def shown(self) -> CallerCredentials | None:
        """The caller's credentials, if an agent of the server passes them on."""
        run = self._taken_over()
        return self._shown if run is None else run.shown

    @property
    def lineage(self) -> tuple[str, ...]:
        """The agents through which the message came, this one last."""
        return full_lineage(self.head, self._services.server)

    @property
    def record(self) -> Record:
        """Everything emitted so far, as a task holds it."""
        run = self._taken_over()
        if run is not None:
            return run.record
        return fold(self.head, None, (Logged(seq, event) for seq, event in enumerate(self._events, 1)))

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report in the task."""
        parts, progress = self.bounds.parts("parts", parts), steps(progress)
        metadata = self.bounds.metadata("metadata", metadata)
        await (await self._task_run()).status(parts, progress=progress, metadata=metadata)

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Keep the artifact for the answer, or emit it in the task."""
        if self._phase is AutoPhase.OPEN:
            if not self.bounds.weigh_plain(artifact):
                artifact = self.bounds.artifact(artifact)
            if not append.__class__ is last_chunk.__class__ is bool:
                append, last_chunk = flag("append", append), flag("last_chunk", last_chunk)  # type: ignore[unreachable]
            chunk = ArtifactChunk(artifact, append, last_chunk)
            self._bytes += weigh(chunk)
            apart = artifact.name or artifact.description or artifact.metadata or artifact.extensions
            if not (apart or self._bytes > BUFFER_BYTES_MAX or self._services.files.large(artifact.parts)):
                self._hold(chunk)
                return
        await (await self._task_run()).artifact(artifact, append=append, last_chunk=last_chunk)

    def _hold(self, chunk: ArtifactChunk | Noted) -> None:
        self._events.append(chunk)
        self._held.append(chunk)

    def working(self) -> None:
        """Report in the task, if there is one, that it has been taken on."""
        self._works = True
        if (run := self._taken_over()) is not None:
            run.working()

    def waiting(self, parts: Sequence[Part]) -> None:
        """Tell the caller in the task why it makes no progress at present."""
        parts = self.bounds.parts("parts", parts)
        self.become_task()
        if (run := self._taken_over()) is not None:
            run.waiting(parts)
        else:
            self._held.append(Waiting(parts))

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used by the task, or by the answer, which has no field for them."""
        if (run := self._taken_over()) is not None:
            run.usage(usage)
        else:
            self.used = (self.used or Usage()) + check_usage(usage)

    def note_next(self, /, *, usage: bool = False, **note: str) -> None:
        """Do nothing before there is a task: no earlier run is carried on."""
        if (run := self._taken_over()) is not None:
            run.note_next(usage=usage, **note)

    def note(self, /, **note: str) -> None:
        """Keep a note with the task."""
        note = self.bounds.note(note)
        self.become_task()
        if (run := self._taken_over()) is not None:
            run.note(**note)
        else:
            self._hold(Noted(note))

    def note_soon(self, /, **note: str) -> None:
        """Keep a note with the task, written with its next event or after a moment."""
        if (run := self._taken_over()) is not None:
            run.note_soon(**note)
        else:
            self.note(**note)

    async def noted(self) -> dict[str, str]:
        """The last note of an earlier task of the context."""
        return await self._services.past.note(self.head)

    async def written(self) -> None:
        """Wait until everything emitted so far is committed in the task."""
        await (await self._task_run()).written()

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Set the result of `done` when the write now under way is committed; at once if there is none."""
        if (run := self._taken_over()) is not None:
            run.landing(done)
        elif not done.done():
            done.set_result(None)

    def caught_up(self) -> None:
        """Do nothing: there is no replay."""

    def known(self, count: int, *, replays: bool) -> tuple[Message, ...]:
        """The caller's further messages that the agent has had; none before there is a task."""
        run = self._taken_over()
        return () if run is None else run.known(count, replays=replays)

    def carries_on(self, handed: int) -> None:
        """Do nothing: there is no earlier run."""

    def goes_on(self) -> None:
        """Do nothing: there is no earlier run."""

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Ask in the task, and wait for the caller's next message."""
        parts = self.bounds.parts("parts", parts)
        return await (await self._task_run()).ask(parts, auth=auth)

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent, with this task as its parent."""
        order = order.check(self.bounds, self.message.parts)
        return await (await self._task_run()).delegate(order, hear)

    async def references(self) -> tuple[Record, ...]:
        """The caller's own tasks among those that the message names."""
        return await self._services.past.references(self.head, self.message.reference_task_ids)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """The metadata of the request that brought a message. The first one is all that there is before the task."""
        run = self._taken_over()
        return self.head.metadata if run is None else await run.request_metadata(message)

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, of which this task is part from now on."""
        return await (await self._task_run()).history(limit)

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. Raises Unreadable."""
        return await self._services.files.read(part)


def _retrieve(outcome: "asyncio.Future[Decided]") -> None:
    """Look at the error, so that it is not logged when all callers have left."""
    if not outcome.cancelled():
        outcome.exception()
