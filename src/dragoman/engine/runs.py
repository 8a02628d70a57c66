"""TaskRun: one execution of an agent on a task, from its lease to its last event.

Invariant: what a run writes carries its epoch; once that is old, or the task has ended, nothing of it is written any
more and the agent is canceled (invariant 5). How it ends is in `course`, what it asks its caller in `asking`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dragoman.engine.announcing import speaks_soon
from dragoman.engine.api import Delegation, Hear, Runner
from dragoman.engine.asking import answered, ask
from dragoman.engine.delegations import Delegations, came_to
from dragoman.engine.endings import Ending, agent_error, agent_message
from dragoman.engine.files import Files
from dragoman.engine.lineage import told
from dragoman.engine.live import LiveTask
from dragoman.engine.past import Past
from dragoman.engine.replay import Replay
from dragoman.engine.writer import RunWriter
from dragoman.model.events import ArtifactChunk, Delegated, Logged, Noted, StatusChanged
from dragoman.model.ids import Clock, timestamp
from dragoman.model.lifecycle import fold
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import Shown
from dragoman.model.principal import Principal
from dragoman.model.task import INTERRUPTED, TERMINAL, Progress, Record, TaskState, Usage
from dragoman.store.api import Store

NO_PARTS = "artifact {!r} has no parts (A2A 1.0 §4.1.9): give it at least one"


class TaskRun:
    """An execution of `runner` on `live`: see `engine.api.Run` for what its agent may do with it.

    With `announce` the run begins by saying that it works; without, whoever leased it has said so. What is not of
    `engine.api.Run` is for the engine alone.
    """

    def __init__(
        self,
        runner: Runner,
        live: LiveTask,
        message: Message,
        replay: Replay,
        *,
        store: Store,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        past: Past,
        delegations: Delegations,
        files: Files,
        server: str,
        announce: bool,
        suspend_max_s: float,
    ) -> None:
        head = live.head
        self.head = head
        self.message = message
        self.principal = Principal(head.owner)
        self.skill = head.skill
        self.skills = head.skills
        self.extensions = head.extensions
        self.traceparent = head.traceparent
        self.epoch = live.epoch
        self.task: asyncio.Task[None] | None = None
        self.again = False
        """Whether the run came to nothing, and the task is to be run once more."""
        self.runner = runner
        self.live = live
        self.replay = replay
        self.clock = clock
        self._past = past
        self._delegations = delegations
        self.files = files
        self._server = server
        self._numbered = 0
        self.announces = announce
        self.suspend_max_s = suspend_max_s
        self.writer = RunWriter(live, store, loop, self.abandon, self._unwritable)
        self.awaited_answer: asyncio.Future[Message | None] | None = None
        """The answer to the question that is open; None if none is."""
        self.used: Usage | None = replay.usage if replay.crashed else live.usage
        """The tokens used so far."""
        self._written: set[str] = set()
        self.failure: Ending | None = None
        """How the run ends whatever its agent does, because of what that gave out or asked."""
        self.retry_after_s: float | None = None
        """When a call may be made again, if the task ends since nobody takes it on at present."""
        self.abandoned = False
        """Whether nothing more is to be written: another run, or nobody, goes on with the task."""
        self.cancel_requested = False
        self.leaving = False
        """Whether the server is stopping: nothing stays suspended."""

    # -- for the engine ----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask the agent to stop; the task is canceled once it has."""
        if not self.cancel_requested:
            self.cancel_requested = True
            if self.task is not None:
                self.task.cancel()

    def abandon(self) -> None:
        """Stop the agent without writing anything: another run, or nobody, goes on with the task."""
        if not self.abandoned:
            self.abandoned = True
            self.writer.stop()
            if self.task is not None:
                self.task.cancel()

    def leave(self) -> None:
        """The server is stopping: do not stay suspended; the answer will be replayed."""
        self.leaving = True
        if self.suspended:
            self.abandon()

    def release(self) -> None:
        """The run is over: hold nothing that holds it."""
        self.task = None
        self.writer.release()

    @property
    def asking(self) -> bool:
        """Whether the agent waits for an answer; the question may still be on its way to the log."""
        return self.awaited_answer is not None and not self.awaited_answer.done()

    @property
    def suspended(self) -> bool:
        """Whether the agent waits for an answer to a question that is committed: the run holds no lease."""
        return self.asking and self.live.state in INTERRUPTED

    def receive(self, message: Message) -> None:
        """A message came while the agent works: its next `ask` gets it."""
        self.replay.late.append(message)

    def resume(self, message: Message | None) -> bool:
        """The answer came, or, if it is None, none is wanted any more: go on under the task's new epoch.

        False if this run cannot take it.
        """
        answer = self.awaited_answer
        if self.abandoned or answer is None or answer.done():
            return False
        self.writer.resumed(self.live.epoch, self.clock.now_ms())
        answer.set_result(message)
        return True

    # -- for the agent: engine.api.Run -------------------------------------------------------------------------------

    @property
    def canceled(self) -> bool:
        """Whether the task is to stop."""
        return self.cancel_requested and not self.abandoned

    @property
    def shown(self) -> Shown | None:
        """What the caller said who it is with, if an agent of the server passes that on."""
        return self.live.shown

    def note(self, **note: str) -> None:
        """Write something down for a later run."""
        self.check()
        self.writer.put(Noted(note), self.clock.now_ms())

    async def noted(self) -> dict[str, str]:
        """What was noted last in an earlier task of the context."""
        return await self._past.note(self.head)

    @property
    def lineage(self) -> tuple[str, ...]:
        """Through whom what the agent asks of other servers comes."""
        return told(self.head, self._server)

    @property
    def record(self) -> Record:
        """The task as written and emitted so far."""
        record = self.live.record()
        emitted = self.writer.pending
        if emitted:
            record = fold(self.head, record, (Logged(seq, event) for seq, event in enumerate(emitted, record.seq + 1)))
        return self.files.linked(record)

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report from within `working`."""
        self.check()
        if self.files.large(parts):
            parts = await self.kept(parts)
        if self.awaited_answer is not None:
            await answered(self)
        if self.replay.active:
            return
        now_ms = self.clock.now_ms()
        message = agent_message(self.live, parts) if parts else None
        made = None if progress is None else Progress(*progress, message.text if message is not None else "")
        self.writer.put(
            StatusChanged(
                TaskState.WORKING,
                timestamp(now_ms),
                message=message,
                progress=made,
                usage=self.used,
                metadata=metadata,
            ),
            now_ms,
        )
        if self.writer.full:
            await self._room()

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Give out an artifact or a chunk of one. The first chunk of an artifact is never an append."""
        self.check()
        if not artifact.parts:
            raise ValueError(NO_PARTS.format(artifact.artifact_id))
        if self.files.large(artifact.parts):
            artifact = replace(artifact, parts=await self.kept(artifact.parts))
        if self.awaited_answer is not None:
            await answered(self)
        if self.replay.active:
            return
        key = artifact.artifact_id
        if key not in self._written:
            self._written.add(key)
            if (kept := self.replay.replaces(key)) is not None:
                if append and kept:
                    artifact = replace(artifact, parts=(*kept, *artifact.parts))
                append = False
            elif append:
                append = any(known.artifact_id == key for known in self.record.artifacts)
        self.writer.put(ArtifactChunk(artifact, append, last_chunk), self.clock.now_ms())
        if self.writer.full:
            await self._room()

    def working(self) -> None:
        """Somebody has taken the task on."""
        self.announce()
        if not self.live.taken_on:
            self.live.taken_on = True
            self.live.wake()

    def announce(self) -> None:
        """Say that the task is worked on, if that was not said yet."""
        if self.writer.state is TaskState.SUBMITTED:
            now_ms = self.clock.now_ms()
            said = StatusChanged(TaskState.WORKING, timestamp(now_ms))
            self.writer.put(said, now_ms, quietly=speaks_soon(self.runner))

    def waiting(self, parts: Sequence[Part]) -> None:
        """Nothing goes on at present, and why."""
        self.check()
        now_ms = self.clock.now_ms()
        if self.writer.state in (TaskState.SUBMITTED, TaskState.WORKING):
            said = agent_message(self.live, parts)
            self.writer.put(StatusChanged(self.writer.state, timestamp(now_ms), message=said), now_ms)

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used."""
        if not self.replay.active:
            self.used = (self.used or Usage()) + usage

    async def written(self) -> None:
        """Wait until all that was emitted so far is committed."""
        await self.writer.drained()
        self.check()

    def landing(self, done: "asyncio.Future[None]") -> None:
        """`done` is done when what is being written now has been."""
        self.writer.landing(done)

    def caught_up(self) -> None:
        """The agent knows the earlier answers: nothing is a replay."""
        self.replay.drop()

    def goes_on(self) -> None:
        """What an earlier run gave out stands."""
        self.replay.keep()

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message."""
        return await ask(self, parts, auth=auth)

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent, and wait for what it comes to."""
        self.check()
        number = order.number or self._numbered + 1
        self._numbered = max(self._numbered, number)
        delegated = self.replay.delegated(number, order.agent)
        if delegated is None:
            delegated = await self._delegations.carried_out(self, self.live, number, order, hear)
            if self.awaited_answer is not None:
                await answered(self)
            self.check()
            logged = await self.files.event_kept(self.head.id, delegated)
            self.check()
            self.writer.put(logged, self.clock.now_ms())
            await self.written()
        return came_to(delegated, order)

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names, those of them that are the caller's."""
        return await self._past.references(self.head, self.message.reference_task_ids)

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, oldest first, this run's own not."""
        return await self._past.messages(self.head, limit)

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. Raises Unreadable."""
        self.check()
        return await self.files.read(part)

    # -- within -------------------------------------------------------------------------------------------------------

    async def kept(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Parts as they go into the log: large files are in the blob store. Of a replay nothing is kept."""
        whole = tuple(parts)
        if not self.replay.active and self.files.large(whole):
            whole = await self.files.kept_by_run(self.head.id, whole)
            self.check()
        return whole

    def check(self) -> None:
        """Raises CancelledError once the run may write nothing more."""
        if self.abandoned or self.live.state in TERMINAL:
            raise asyncio.CancelledError("the run has lost its lease")

    async def _room(self) -> None:
        await self.writer.room()
        self.check()

    def _unwritable(self, error: BaseException) -> None:
        self.failure = agent_error(self.head, "gave out what cannot be written", error)
        if self.task is not None:
            self.task.cancel()
