"""TaskRun: one execution of an agent on a task, from its lease to its last event.

Invariant: what a run writes carries its epoch; once that is old, or the task has ended, nothing of it is written any
more and the agent is canceled (invariant 5). A run never raises: whatever its agent does becomes a state of the task.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dragoman.engine.announcing import speaks_soon, waits
from dragoman.engine.api import Delegation, Ended, Hear, Reject, RunAgain, Runner
from dragoman.engine.delegations import Delegations, came_to
from dragoman.engine.endings import Ending, agent_message, closing, failed
from dragoman.engine.files import Files
from dragoman.engine.lifecycle import fold
from dragoman.engine.lineage import told
from dragoman.engine.live import LiveTask
from dragoman.engine.past import Past
from dragoman.engine.replay import Replay, ReplayMismatch
from dragoman.engine.writer import RunWriter
from dragoman.model.events import ArtifactChunk, Delegated, Logged, Noted, StatusChanged
from dragoman.model.ids import Clock, timestamp
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import Shown
from dragoman.model.principal import Principal
from dragoman.model.task import INTERRUPTED, TERMINAL, Progress, Record, TaskState, Usage
from dragoman.store.api import Store, StoreError

NO_PARTS = "artifact {!r} has no parts (A2A 1.0 §4.1.9): give it at least one"


class TaskRun:
    """An execution of `runner` on `live`: see `engine.api.Run` for what its agent may do with it.

    With `announce` the run begins by saying that it works; without, whoever leased it has said so.
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
        self._live = live
        self._replay = replay
        self._clock = clock
        self._past = past
        self._delegations = delegations
        self._files = files
        self._server = server
        self._numbered = 0
        self._announce = announce
        self._suspend_max_s = suspend_max_s
        self._writer = RunWriter(live, store, loop, self.abandon, self._unwritable)
        self._answer: asyncio.Future[Message | None] | None = None
        self._usage: Usage | None = replay.usage if replay.crashed else live.usage
        self._written: set[str] = set()
        self._failed: Ending | None = None
        self._abandoned = False
        self._canceled = False
        self._leaving = False

    # -- for the engine ----------------------------------------------------------------------------------------------

    async def main(self) -> None:
        """Run the agent to its end, write how it ended, and wait until that is committed."""
        if self._announce and not waits(self.runner):
            self.working()
        ended = await self._ending_kept(await self._run())
        while not self._abandoned:
            now_ms = self._clock.now_ms()
            self._failed = None
            self._writer.put(closing(self._live, ended[0], now_ms, ended[1], ended[2], self._usage), now_ms)
            if (unwritten := await self._committed()) is None:
                return
            ended = unwritten

    async def _committed(self) -> Ending | None:
        """Wait until all is committed. A cancel does not hurry that: how the run ended is decided.

        None, or how it ended instead since it could not be written.
        """
        while True:
            try:
                await self._writer.drained()
                return self._failed
            except asyncio.CancelledError:
                if not (self._canceled or self._failed) or self._abandoned:
                    raise

    async def _run(self) -> Ending:
        try:
            await self.runner.run(self)
        except asyncio.CancelledError as error:
            if self._failed is not None:
                return self._failed
            if self._canceled or self._abandoned:
                return TaskState.CANCELED, "", ""
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # the server is going down
            return self._failure("canceled itself", error)
        except Reject as reject:
            return TaskState.REJECTED, str(reject), "rejected"
        except Ended as ended:
            if not self._replay.active:
                return self._failed or (ended.state, ended.parts, ended.reason)
        except RunAgain:
            await self._writer.drained()
            self.again = not (self._canceled or self._abandoned)
            self._abandoned = True
            self._writer.stop()
        except ReplayMismatch:
            self._mismatch()
        except GeneratorExit:
            raise  # the interpreter is going down
        except BaseException as error:  # noqa: BLE001  a user's agent may raise anything
            if self._canceled and self._failed is None:
                failed(self.head, "raised as it was canceled,", error)
                return TaskState.CANCELED, "", ""
            return self._failed or self._failure("raised", error)
        if self._replay.active and not self._abandoned:
            self._mismatch()
        return self._failed or (TaskState.COMPLETED, "", "")

    async def _ending_kept(self, ended: Ending) -> Ending:
        """How the run ended, with the large files in it kept."""
        state, said, reason = ended
        if isinstance(said, str) or not self._files.large(said):
            return ended
        try:
            return state, await self._files.kept_by_run(self.head.id, said), reason
        except StoreError as error:
            return self._failure("gave out a file that cannot be kept,", error)
        except asyncio.CancelledError:
            if self._canceled or self._abandoned:
                return TaskState.CANCELED, "", ""
            raise

    def _failure(self, what: str, error: BaseException) -> Ending:
        return TaskState.FAILED, f"The agent failed (reference {failed(self.head, what, error)}).", "agent_error"

    def _mismatch(self) -> None:
        text = "The agent asked another question than before the restart; its recorded answers do not fit."
        self._failed = TaskState.FAILED, text, "replay_mismatch"

    def _unwritable(self, error: BaseException) -> None:
        self._failed = self._failure("gave out what cannot be written", error)
        if self.task is not None:
            self.task.cancel()

    def cancel(self) -> None:
        """Ask the agent to stop; the task is canceled once it has."""
        if not self._canceled:
            self._canceled = True
            if self.task is not None:
                self.task.cancel()

    def abandon(self) -> None:
        """Stop the agent without writing anything: another run, or nobody, goes on with the task."""
        if not self._abandoned:
            self._abandoned = True
            self._writer.stop()
            if self.task is not None:
                self.task.cancel()

    def leave(self) -> None:
        """The server is stopping: do not stay suspended; the answer will be replayed."""
        self._leaving = True
        if self.suspended:
            self.abandon()

    def release(self) -> None:
        """The run is over: hold nothing that holds it."""
        self.task = None
        self._writer.release()

    @property
    def asking(self) -> bool:
        """Whether the agent waits for an answer; the question may still be on its way to the log."""
        return self._answer is not None and not self._answer.done()

    @property
    def suspended(self) -> bool:
        """Whether the agent waits for an answer to a question that is committed: the run holds no lease."""
        return self.asking and self._live.state in INTERRUPTED

    def receive(self, message: Message) -> None:
        """A message came while the agent works: its next `ask` gets it."""
        self._replay.late.append(message)

    def resume(self, message: Message | None) -> bool:
        """The answer came, or, if it is None, none is wanted any more: go on under the task's new epoch.

        False if this run cannot take it.
        """
        answer = self._answer
        if self._abandoned or answer is None or answer.done():
            return False
        self._writer.resumed(self._live.epoch, self._clock.now_ms())
        answer.set_result(message)
        return True

    # -- for the agent: engine.api.Run -------------------------------------------------------------------------------

    @property
    def canceled(self) -> bool:
        """Whether the task is to stop."""
        return self._canceled and not self._abandoned

    @property
    def shown(self) -> Shown | None:
        """What the caller said who it is with, if an agent of the server passes that on."""
        return self._live.shown

    def note(self, **note: str) -> None:
        """Write something down for a later run."""
        self._check()
        self._writer.put(Noted(note), self._clock.now_ms())

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
        record = self._live.record()
        emitted = self._writer.pending
        if emitted:
            record = fold(self.head, record, (Logged(seq, event) for seq, event in enumerate(emitted, record.seq + 1)))
        return self._files.linked(record)

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report from within `working`."""
        self._check()
        if self._files.large(parts):
            parts = await self._kept(parts)
        if self._answer is not None:
            await self._answered()
        if self._replay.active:
            return
        now_ms = self._clock.now_ms()
        message = agent_message(self._live, parts) if parts else None
        made = None if progress is None else Progress(*progress, message.text if message is not None else "")
        self._writer.put(
            StatusChanged(
                TaskState.WORKING,
                timestamp(now_ms),
                message=message,
                progress=made,
                usage=self._usage,
                metadata=metadata,
            ),
            now_ms,
        )
        if self._writer.full:
            await self._room()

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Give out an artifact or a chunk of one. The first chunk of an artifact is never an append."""
        self._check()
        if not artifact.parts:
            raise ValueError(NO_PARTS.format(artifact.artifact_id))
        if self._files.large(artifact.parts):
            artifact = replace(artifact, parts=await self._kept(artifact.parts))
        if self._answer is not None:
            await self._answered()
        if self._replay.active:
            return
        key = artifact.artifact_id
        if key not in self._written:
            self._written.add(key)
            if (kept := self._replay.replaces(key)) is not None:
                if append and kept:
                    artifact = replace(artifact, parts=(*kept, *artifact.parts))
                append = False
            elif append:
                append = any(known.artifact_id == key for known in self.record.artifacts)
        self._writer.put(ArtifactChunk(artifact, append, last_chunk), self._clock.now_ms())
        if self._writer.full:
            await self._room()

    def working(self) -> None:
        """Somebody works on the task, if that was not said yet."""
        if self._writer.state is TaskState.SUBMITTED:
            now_ms = self._clock.now_ms()
            said = StatusChanged(TaskState.WORKING, timestamp(now_ms))
            self._writer.put(said, now_ms, quietly=speaks_soon(self.runner))

    def waiting(self, parts: Sequence[Part]) -> None:
        """Nothing goes on at present, and why."""
        self._check()
        now_ms = self._clock.now_ms()
        if self._writer.state in (TaskState.SUBMITTED, TaskState.WORKING):
            said = agent_message(self._live, parts)
            self._writer.put(StatusChanged(self._writer.state, timestamp(now_ms), message=said), now_ms)

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used."""
        if not self._replay.active:
            self._usage = (self._usage or Usage()) + usage

    async def written(self) -> None:
        """Wait until all that was emitted so far is committed."""
        await self._writer.drained()
        self._check()

    def landing(self, done: "asyncio.Future[None]") -> None:
        """`done` is done when what is being written now has been."""
        self._writer.landing(done)

    def caught_up(self) -> None:
        """The agent knows the earlier answers: nothing is a replay."""
        self._replay.drop()

    def goes_on(self) -> None:
        """What an earlier run gave out stands."""
        self._replay.keep()

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message."""
        self._check()
        if self._replay.answers:
            return self._replay.answer(parts)
        parts = await self._kept(parts)
        while True:
            if self._answer is not None:
                await self._answered()
            elif self._replay.late:
                return self._replay.late.popleft()
            elif self._live.in_flight > self._writer.in_flight:  # a message that comes before the question answers it
                await self._live.wait(asyncio.get_running_loop())
                self._check()
            else:
                answer = await self._asked(agent_message(self._live, parts), auth=auth)
                assert answer is not None  # only of what was passed on nothing may be wanted any more
                return answer

    async def _asked(self, asked: Message, *, auth: bool) -> Message | None:
        """Put a question while none is open, and wait for its answer."""
        loop = asyncio.get_running_loop()
        state = TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED
        now_ms = self._clock.now_ms()
        question = StatusChanged(state, timestamp(now_ms), message=asked, usage=self._usage)
        self._writer.put(question, now_ms)
        answer: asyncio.Future[Message | None] = loop.create_future()
        self._answer = answer
        expiry: asyncio.TimerHandle | None = None
        try:
            await self._writer.drained()
            if self._leaving and not answer.done():
                self.abandon()
            expiry = loop.call_later(self._suspend_max_s, self._expire)
            return await answer
        finally:
            if expiry is not None:
                expiry.cancel()
            self._answer = None

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent, and wait for what it comes to."""
        self._check()
        number = order.number or self._numbered + 1
        self._numbered = max(self._numbered, number)
        delegated = self._replay.delegated(number, order.agent)
        if delegated is None:
            delegated = await self._delegations.carried_out(self, self._live, number, order, hear)
            if self._answer is not None:
                await self._answered()
            self._check()
            logged = await self._files.event_kept(self.head.id, delegated)
            self._check()
            self._writer.put(logged, self._clock.now_ms())
            await self.written()
        return came_to(delegated, order)

    def passed(self, child_id: str) -> deque[Message]:
        """The recorded answers to what a delegated task asked, as far as they are not known to be with it."""
        return self._replay.passed(child_id)

    async def pass_on(self, child: LiveTask, parts: Sequence[Part], *, auth: bool) -> Message | None:
        """Ask the caller what a delegated task asks. The question refers to that task, so that a replay knows it.

        None if the task does not wait for an answer any more.
        """
        self._check()
        parts = await self._kept(parts)
        while self._answer is not None:
            await self._answered()
        if child.state not in INTERRUPTED:
            return None
        question = replace(agent_message(self._live, parts), reference_task_ids=(child.head.id,))
        return await self._asked(question, auth=auth)

    async def _kept(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Parts as they go into the log: large files are in the blob store. Of a replay nothing is kept."""
        whole = tuple(parts)
        if not self._replay.active and self._files.large(whole):
            whole = await self._files.kept_by_run(self.head.id, whole)
            self._check()
        return whole

    def _expire(self) -> None:
        if self.suspended:
            self.abandon()

    async def _answered(self) -> None:
        """Wait while a question is open: nothing of this run comes between it and its answer."""
        while self._answer is not None:
            await asyncio.wait((self._answer,))
            await asyncio.sleep(0)
            self._check()

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names, those of them that are the caller's."""
        return await self._past.references(self.head, self.message.reference_task_ids)

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, oldest first, this run's own not."""
        return await self._past.messages(self.head, limit)

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. Raises Unreadable."""
        self._check()
        return await self._files.read(part)

    async def _room(self) -> None:
        await self._writer.room()
        self._check()

    def _check(self) -> None:
        if self._abandoned or self._live.state in TERMINAL:
            raise asyncio.CancelledError("the run has lost its lease")
