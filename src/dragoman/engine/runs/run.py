"""TaskRun: one execution of an agent on a task, from its lease to the commit of its end.

Invariant: everything a run writes carries its epoch. Once that is old, or the task has ended, the agent is canceled and
nothing more is written (invariant 5). A run never raises: whatever its agent does becomes a state of the task.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from math import ceil
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.api import Delegation, Ended, Hear, Reject, RunAgain, RunElsewhere, Runner, came_to
from dragoman.engine.bounds import Bounds, flag, integer, steps
from dragoman.engine.bounds import usage as check_usage
from dragoman.engine.effects import Delegate, DropSuspended, Effects, StopOverdue
from dragoman.engine.files import Files
from dragoman.engine.runs.history import History
from dragoman.engine.runs.replay import USED, Replay, ReplayMismatch, noted_usage, spell_usage
from dragoman.engine.runs.run_writer import RunWriter
from dragoman.engine.task_log import TaskLog
from dragoman.model.errors import Unavailable
from dragoman.model.events import ArtifactChunk, Delegated, Logged, MessageReceived, Noted, StatusChanged
from dragoman.model.ids import Clock, new_id, timestamp, timestamp_ms
from dragoman.model.lifecycle import fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import CallerCredentials
from dragoman.model.principal import Principal
from dragoman.model.task import INTERRUPTED, TERMINAL, Progress, Record, TaskHead, TaskState, Usage
from dragoman.store.api import Fenced, Refused, StoreError
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.runs")

RETRY_AFTER = "retryAfter"
"""A key in the metadata of the last status: after how many seconds a message that nobody took on may be sent again."""

Ending = tuple[TaskState, str | tuple[Part, ...], str]
"""How a run ended: the state, the text or parts for the caller, the reason for programs."""

MISMATCH: Ending = (
    TaskState.FAILED,
    "The agent asked a different question than before the restart, so its recorded answers do not fit.",
    "replay_mismatch",
)
"""The ending of a run that cannot be replayed."""

OVERDUE = "deadline_exceeded"
"""The reason for programs of a run that took longer than its agent's deadline."""


def overdue_text(deadline_s: float) -> str:
    """The text for the caller of a run that took longer than its deadline."""
    return f"The agent took longer than deadline_s = {deadline_s:g}."


def refusal_of(record: Record) -> Unavailable | None:
    """The error for the call that made a task that failed because nobody took it on; else None."""
    message = record.status.message
    if record.state is not TaskState.FAILED or message is None or message.metadata is None:
        return None
    after_s = message.metadata.get(RETRY_AFTER)
    return Unavailable(message.text, after_s, task_id=record.head.id) if isinstance(after_s, int) else None


def agent_message(head: TaskHead, parts: Sequence[Part], metadata: dict[str, Any] | None = None) -> Message:
    """A message from the agent, or from the server on its behalf, within a task."""
    return Message(
        message_id=new_id(),
        role=Role.AGENT,
        parts=tuple(parts),
        context_id=head.context_id,
        task_id=head.id,
        metadata=metadata,
    )


def closing(
    head: TaskHead,
    state: TaskState,
    now_ms: int,
    said: str | tuple[Part, ...] = "",
    reason: str = "",
    usage: Usage | None = None,
    retry_after_s: float | None = None,
) -> StatusChanged:
    """The event that ends a task. `said` is for people, `reason` for programs."""
    parts = (Part(text=said),) if isinstance(said, str) else said
    metadata: dict[str, Any] = {"reason": reason} if reason else {}
    if retry_after_s is not None:
        metadata[RETRY_AFTER] = max(1, ceil(retry_after_s))
    message = agent_message(head, parts, metadata or None) if said else None
    return StatusChanged(
        state,
        timestamp(now_ms),
        message=message,
        usage=usage,
        duration_ms=max(0, now_ms - timestamp_ms(head.created_at)),
    )


def failed(head: TaskHead, what: str, error: BaseException) -> str:
    """Log an exception under a new reference, and return the reference for the caller to quote."""
    reference = new_id()[-12:]
    log.error("agent %s %s in task %s (reference %s)", head.agent, what, head.id, reference, exc_info=error)
    return reference


def agent_error(head: TaskHead, what: str, error: BaseException) -> Ending:
    """Log a failure of the agent, and return the ending of its run. `what` describes the failure in the log."""
    return TaskState.FAILED, f"The agent failed (reference {failed(head, what, error)}).", "agent_error"


def full_lineage(head: TaskHead, server: str) -> tuple[str, ...]:
    """The lineage that the agent of a task sends to other servers, in the form of LINEAGE."""
    return tuple(name if "/" in name else f"{server}/{name}" for name in (*head.lineage, head.agent))


def leased_as(runner: Runner | None, state: TaskState) -> TaskState:
    """The state that a task in `state` gets when a new run of the runner begins."""
    untaken = state is TaskState.SUBMITTED and runner is not None and runner.traits.waits
    return TaskState.SUBMITTED if untaken else TaskState.WORKING


def metadata_of(message: Message, events: Sequence[Logged]) -> dict[str, Any] | None:
    """The metadata of the request that brought a further message, by the log of its task."""
    for logged in reversed(events):
        event = logged.event
        if isinstance(event, MessageReceived) and event.message.message_id == message.message_id:
            return event.metadata
    return None


class RunServices(Struct, frozen=True, kw_only=True):
    """The values that all runs of a process share. `server` is the name of this server in lineages.

    `effects` get what runs want of the engine: delegations, and their own end when they are past their deadline or were
    suspended for `suspend_max_s`.
    """

    clock: Clock
    loop: asyncio.AbstractEventLoop
    past: History
    files: Files
    bounds: Bounds
    server: str
    effects: Effects
    suspend_max_s: float
    retry_s: float


class TaskRun:
    """An execution of `runner` on a task. `engine.api.Run` describes the part that the agent sees.

    With `announce` the run begins by saying `working`; without, the lease has said so. `work` takes the place of
    `runner.run` for an agent that is at work already. Everything beyond `engine.api.Run` is for the engine alone.
    """

    __slots__ = (
        "_announces",
        "_answer",
        "_asks_for",
        "_began_ms",
        "_clock",
        "_deadline",
        "_failure",
        "_files",
        "_keeps_files",
        "_late",
        "_loop",
        "_note",
        "_numbered",
        "_offered",
        "_retry_after_s",
        "_services",
        "_untaken",
        "_used",
        "_work",
        "_writer",
        "_written",
        "abandoned",
        "again",
        "bounds",
        "cancel_requested",
        "deadline_s",
        "elsewhere",
        "epoch",
        "extensions",
        "given_up",
        "head",
        "lease_lost",
        "leaving",
        "log",
        "message",
        "overdue",
        "principal",
        "replay",
        "runner",
        "skill",
        "skills",
        "task",
        "traceparent",
        "traits",
    )

    def __init__(
        self,
        runner: Runner,
        log: TaskLog,
        message: Message,
        replay: Replay,
        services: RunServices,
        *,
        announce: bool,
        work: "Work | None" = None,
    ) -> None:
        head = log.head
        self.head = head
        self.message = message
        self.principal = Principal(head.owner)
        self.skill = head.skill
        self.skills = head.skills
        self.extensions = head.extensions
        self.traceparent = head.traceparent
        self.epoch = log.epoch
        self.task: asyncio.Task[None] | None = None
        self.again = False
        """Whether the agent gave this run up, and the task is to be run once more."""
        self.elsewhere = False
        """Whether another replica may run it then."""
        self.runner = runner
        self.traits = traits = runner.traits
        self.log = log
        self.replay = replay
        self._late = deque(replay.late)
        """Messages that came while the agent worked, for its next `ask`."""
        self._offered: Message | None = None
        """The answer that came with the offer of a lease."""
        self._services = services
        self._clock = services.clock
        self._loop = services.loop
        self.bounds = services.bounds
        self._files = services.files
        self._keeps_files = services.files.keeps
        self._numbered = 0
        self._announces = announce
        self._untaken = traits.waits
        """Whether nobody has taken the task on yet in this run, nor said anything."""
        self._began_ms = replay.began_ms if work is None else timestamp_ms(head.created_at)
        """When the task was taken on, if that was before this run; for a run that became a task, when it began."""
        if traits.queues_runs:
            self._began_ms = None
        self._work = runner.run if work is None else work
        self._writer = RunWriter(log, services.loop, self, retry_s=services.retry_s)
        self._answer: asyncio.Future[Message | None] | None = None
        """The answer to the open question; None if none is open."""
        self._asks_for: TaskLog | None = None
        """The delegated task whose question is passed on; None if the open question is the agent's own."""
        self._used: Usage | None = replay.usage if replay.crashed else log.usage
        """The tokens used so far."""
        self._note: Noted | None = None
        """A note that goes into the write of the next event."""
        self._written: set[str] = set()
        self._failure: Ending | None = None
        """The end that an earlier fault of the agent imposes on the run, whatever the agent does now."""
        self._retry_after_s: float | None = None
        """After how many seconds a call may be repeated, if the task ends because nobody takes it on at present."""
        self.abandoned = False
        """Whether this run writes nothing more: another run, or nobody, goes on with the task."""
        self.given_up = False
        """Whether no end of this run could be written, so that the engine has to end the task."""
        self.lease_lost = False
        """Whether this run was given up because another server has leased the task."""
        self.cancel_requested = False
        self.overdue = False
        """Whether the run is past its deadline."""
        self.deadline_s = traits.deadline_s
        self._deadline: asyncio.TimerHandle | None = None
        self.leaving = False
        """Whether the server is stopping: nothing stays suspended."""

    # -- for the engine ----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask the agent to stop. The task is canceled once it has."""
        if not self.cancel_requested:
            self.cancel_requested = True
            if self.task is not None:
                self.task.cancel()

    def abandon(self) -> None:
        """Stop the agent without writing anything: another run, or nobody, goes on with the task."""
        if not self.abandoned:
            self.abandoned = True
            self._disarm()
            self._writer.stop()
            if self.task is not None:
                self.task.cancel()

    def lose_lease(self) -> None:
        """Stop the agent as `abandon`, because another server has leased the task."""
        if not self.abandoned:
            self.lease_lost = True
            self.abandon()

    @property
    def idle(self) -> bool:
        """Whether nobody works on the task yet, although it was at work before: see `model.task.phase_of`."""
        return self._untaken and not self._written and self.log.state is TaskState.WORKING

    @property
    def lease(self) -> int:
        """The epoch under which the run writes at present."""
        return self._writer.epoch

    def leave(self) -> None:
        """Give up a suspended run because the server is stopping. A later run replays the answer."""
        self.leaving = True
        if self.suspended:
            self.abandon()

    def release(self) -> None:
        """Drop the references that form a cycle with this run, which is over."""
        self.task = None
        self._work = self.runner.run
        self._writer.release()

    @property
    def asking(self) -> bool:
        """Whether the agent waits for an answer; the question may still be on its way to the log."""
        return self._answer is not None and not self._answer.done()

    @property
    def suspended(self) -> bool:
        """Whether the agent waits for an answer to a question that is committed: the run holds no lease."""
        return self.asking and self.log.state in INTERRUPTED

    def receive(self, message: Message, answers: bool = False) -> None:
        """Keep a message that came while the agent works, for its next `ask`, or an answer for `go_on`."""
        if answers:
            self._offered = message
        else:
            self._late.append(message)

    def overtaken(self, question: StatusChanged) -> bool:
        """Whether the question about to be written already has its answer, or needs none any more.

        A message that came before the question was written is its answer: a question does not overtake a message that
        the agent has not read.
        """
        answer, child = self._answer, self._asks_for
        if answer is None:  # the agent was canceled, and waits no more
            return True
        if answer.done():
            return False
        if child is not None:
            if child.state in INTERRUPTED:
                return False
            answer.set_result(None)
        elif self._late:
            answer.set_result(self._late.popleft())
        else:
            return False
        return True

    def goes_on_under(self, epoch: int) -> bool:
        """Whether the run waits for an answer, and a lease of `epoch` is the first since it asked.

        If there was another one, another run may have gone on with the answer, and has to be replayed.
        """
        return self.asking and epoch == self.lease + 1

    def resume(self, message: Message | None) -> bool:
        """Go on under the task's new epoch with the answer, or with None if no answer is wanted any more.

        Returns False if this run cannot take it.
        """
        answer = self._answer
        if self.abandoned or answer is None or answer.done():
            return False
        self._writer.resumed(self.log.epoch)
        answer.set_result(message)
        return True

    def go_on(self) -> bool:
        """As `resume`, with the answer that another engine wrote, if it wrote one."""
        answer, self._offered = self._offered, None
        return (answer is not None or self._asks_for is not None) and self.resume(answer)

    # -- for the agent: engine.api.Run -------------------------------------------------------------------------------

    @property
    def canceled(self) -> bool:
        """Whether the task is to stop."""
        return (self.cancel_requested or self.overdue) and not self.abandoned

    @property
    def shown(self) -> CallerCredentials | None:
        """The caller's credentials, if an agent of the server passes them on."""
        return self.log.shown

    def note(self, /, **note: str) -> None:
        """Keep a note for a later run."""
        self._check()
        self._writer.put(Noted(self.bounds.note(note)))

    def note_soon(self, /, **note: str) -> None:
        """Keep a note for a later run, written with the next event or after a moment."""
        self._check()
        self._writer.put(Noted(self.bounds.note(note)), quietly=True)

    async def noted(self) -> dict[str, str]:
        """The last note of an earlier task of the context."""
        return await self._services.past.note(self.head)

    @property
    def lineage(self) -> tuple[str, ...]:
        """The agents through which the task came, this one last."""
        return full_lineage(self.head, self._services.server)

    @property
    def record(self) -> Record:
        """The task with everything written and emitted so far."""
        record = self.log.record()
        emitted = self._writer.pending
        if emitted:
            record = fold(self.head, record, (Logged(seq, event) for seq, event in enumerate(emitted, record.seq + 1)))
        return self._files.linked(record)

    async def status(
        self, parts: Sequence[Part], *, progress: tuple[int, int] | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        """Report while the task is `working`."""
        self._check()
        if parts:
            parts = self.bounds.parts("parts", parts)
        progress, metadata = steps(progress), self.bounds.metadata("metadata", metadata)
        if self._keeps_files and self._files.large(parts):
            parts = await self._keep(parts)
        if self._answer is not None:
            await self._answered()
        if self.replay.active:
            return
        self._untaken = False
        if self.deadline_s is not None and self._deadline is None:
            self._arm()
        now_ms = self._clock.now_ms()
        message = agent_message(self.head, parts) if parts else None
        made = None if progress is None else Progress(*progress, message.text if message is not None else "")
        said = StatusChanged(
            TaskState.WORKING, timestamp(now_ms), message=message, progress=made, usage=self._used, metadata=metadata
        )
        full = self._writer.put(said, now_ms)
        if self._note is not None:
            self._put_note()
        if full:
            await self._room()

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Emit an artifact or a chunk of one. The first chunk of an artifact is never an append."""
        if self.abandoned or self.log.terminal:
            self._check()
        weight = self.bounds.weigh_plain(artifact)
        if not weight:
            artifact = self.bounds.artifact(artifact)
        if not append.__class__ is last_chunk.__class__ is bool:
            append, last_chunk = flag("append", append), flag("last_chunk", last_chunk)  # type: ignore[unreachable]
        if self._keeps_files and self._files.large(artifact.parts):
            artifact = replace(artifact, parts=await self._keep(artifact.parts))
            weight = 0
        if self._answer is not None:
            await self._answered()
        if self.replay.active:
            return
        key = artifact.artifact_id
        if key not in self._written:
            self._written.add(key)
            if self.replay.crashed and (kept := self.replay.replaces(key)) is not None:
                if append and kept:
                    artifact = replace(artifact, parts=(*kept, *artifact.parts))
                    weight = 0
                append = False
            elif append:
                append = any(known.artifact_id == key for known in self.record.artifacts)
        full = self._writer.put(ArtifactChunk(artifact, append, last_chunk), weight=weight)
        if self._note is not None:
            self._put_note()
        if full:
            await self._room()

    def _put_note(self) -> None:
        """Put the note that waited for the event before it."""
        if self._note is not None:
            self._writer.put(self._note)
            self._note = None

    def working(self) -> None:
        """Report that the task has been taken on."""
        self._untaken = False
        if self.deadline_s is not None and self._deadline is None:
            self._arm()
        self._announce()
        if not self.log.taken_on:
            self.log.taken_on = True
            self.log.wake()

    def _announce(self) -> None:
        """Put a `submitted` task into `working`."""
        if self._writer.state is TaskState.SUBMITTED:
            now_ms = self._clock.now_ms()
            said = StatusChanged(TaskState.WORKING, timestamp(now_ms))
            self._writer.put(said, now_ms, quietly=self.traits.speaks_soon)

    def waiting(self, parts: Sequence[Part]) -> None:
        """Tell the caller why the task makes no progress at present."""
        self._check()
        parts = self.bounds.parts("parts", parts)
        now_ms = self._clock.now_ms()
        if self._writer.state in (TaskState.SUBMITTED, TaskState.WORKING):
            said = agent_message(self.head, parts)
            self._writer.put(StatusChanged(self._writer.state, timestamp(now_ms), message=said), now_ms)

    def usage(self, usage: Usage) -> None:
        """Add to the tokens used."""
        usage = check_usage(usage)
        if not self.replay.active:
            self._used = (self._used or Usage()) + usage

    def note_next(self, /, *, usage: bool = False, **note: str) -> None:
        """Keep a note in the write of the next event."""
        self._check()
        if usage and self._used is not None:
            note[USED] = spell_usage(self._used)
        if note:
            self._note = Noted(self.bounds.note(note))

    async def written(self) -> None:
        """Wait until everything emitted so far is committed."""
        if self._note is not None:
            self._put_note()
        await self._writer.drained()
        self._check()

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Set the result of `done` when the write now under way is committed."""
        self._writer.landing(done)

    def caught_up(self) -> None:
        """Skip the replay: the agent knows the earlier answers."""
        self.replay.drop()

    def known(self, count: int, *, replays: bool) -> tuple[Message, ...]:
        """Skip the caller's messages that the agent has had, and return them."""
        answers = self.replay.skip(count if replays else None)
        if not replays:
            self.replay.drop()
        late = (self._late.popleft() for _ in range(min(len(self._late), max(0, count - len(answers)))))
        return (*answers, *late)

    def carries_on(self, handed: int) -> None:
        """Keep what was emitted since the task was last given to a worker, which has given `handed` delegations."""
        self.replay.skip_delegated(handed)
        self._written |= self.replay.delivered
        self._used = noted_usage(self.log.record().note) or self.log.usage

    def goes_on(self) -> None:
        """Keep what an earlier run emitted."""
        self.replay.keep()

    async def ask(self, parts: Sequence[Part], *, auth: bool = False) -> Message:
        """Put the task into `input-required` (or `auth-required`) and wait for the caller's next message."""
        self._check()
        parts = self.bounds.parts("parts", parts)
        if self.replay.answers:
            return self.replay.answer(parts)
        parts = await self._keep(parts)
        await self._answered()
        if self._late:
            return self._late.popleft()
        answer = await self._put_question(agent_message(self.head, parts), auth=auth)
        assert answer is not None  # only a question that was passed on can become pointless
        return answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Give a task to another agent, and wait for its outcome."""
        self._check()
        order = order.check(self.bounds, self.message.parts)
        number = order.number or self._numbered + 1
        self._numbered = max(self._numbered, number)
        delegated = self.replay.delegated(number, order.agent)
        if delegated is None:
            outcome: asyncio.Future[Delegated] = self._loop.create_future()
            self._services.effects.put(Delegate(self, number, order, hear, outcome, copy_context()))
            delegated = await outcome
            await self._answered()
            self._check()
            logged = await self._files.event_kept(self.head.id, delegated)
            self._check()
            self._writer.put(logged)
            await self.written()
        return came_to(delegated, order)

    async def references(self) -> tuple[Record, ...]:
        """The caller's own tasks among those that the message names."""
        return await self._services.past.references(self.head, self.message.reference_task_ids)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """The metadata of the request that brought a message of this task."""
        if message.message_id == self.message.message_id:
            return self.head.metadata
        while True:
            try:
                log_of_task = await self.log.whole()
            except StoreError:
                await asyncio.sleep(self._services.retry_s)
            else:
                return metadata_of(message, log_of_task)

    async def history(self, limit: int) -> tuple[Message, ...]:
        """The newest `limit` messages of the context, oldest first, without this task's."""
        return await self._services.past.messages(self.head, integer("limit", limit))

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part. Raises Unreadable."""
        self._check()
        return await self._files.read(part)

    # -- its delegations: engine.effects.ParentRun ---------------------------------------------------------------------

    def next_passed(self, child_id: str) -> Message | None:
        """The next recorded answer to a question of the child, if there is one."""
        return self.replay.next_passed(child_id)

    def forget_passed(self, child_id: str) -> None:
        """Drop the recorded answers to the child's questions."""
        self.replay.forget_passed(child_id)

    # -- its questions -------------------------------------------------------------------------------------------------

    async def pass_on(self, child: TaskLog, parts: Sequence[Part], *, auth: bool) -> Message | None:
        """Put a delegated task's question to the caller. It refers to that task, so that a replay recognises it.

        Returns None if the delegated task no longer waits for an answer.
        """
        self._check()
        parts = await self._keep(parts)
        await self._answered()
        if child.state not in INTERRUPTED:
            return None
        question = replace(agent_message(self.head, parts), reference_task_ids=(child.head.id,))
        self._asks_for = child
        try:
            return await self._put_question(question, auth=auth)
        finally:
            self._asks_for = None

    async def _put_question(self, question: Message, *, auth: bool) -> Message | None:
        """Write a question while none is open, and wait for its answer."""
        self._untaken = False
        state = TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED
        now_ms = self._clock.now_ms()
        self._writer.put(StatusChanged(state, timestamp(now_ms), message=question, usage=self._used), now_ms)
        answer: asyncio.Future[Message | None] = self._loop.create_future()
        self._answer = answer
        expiry: asyncio.TimerHandle | None = None
        try:
            await self._writer.drained()
            if self.leaving and not answer.done():
                self.abandon()
            asks = not answer.done()
            if asks:
                self._disarm()
            expiry = self._loop.call_later(self._services.suspend_max_s, self._expire)
            answered = await answer
            if asks and self.deadline_s is not None:
                self._arm()
            return answered
        finally:
            if expiry is not None:
                expiry.cancel()
            self._answer = None

    async def _answered(self) -> None:
        """Wait while a question is open, so that no event of this run comes between it and its answer."""
        while self._answer is not None:
            await asyncio.wait((self._answer,))
            await asyncio.sleep(0)
            self._check()

    def refused(self, refused: Refused) -> None:
        """The store takes no more from this run: its lease is gone, or the task has ended."""
        if isinstance(refused, Fenced):
            self.lose_lease()
        else:
            self.abandon()

    def _expire(self) -> None:
        if self.suspended:
            self._services.effects.put(DropSuspended(self.log))

    # -- its end -------------------------------------------------------------------------------------------------------

    async def run_to_end(self) -> None:
        """Run the agent to its end, write that end, and wait until it is committed.

        The end is decided once. One that cannot be written is replaced once, by one without the tokens used and the
        last note. If that cannot be written either, the run is given up, and the engine ends the task in its place.
        """
        if self._announces and not self.traits.waits:
            self._announce()
        if self.deadline_s is not None and self._writer.state is TaskState.WORKING and not self.traits.queues_runs:
            self._arm()
        ending: Ending | None
        try:
            await self._work(self)
            ending = MISMATCH if self.replay.active else self._failure or (TaskState.COMPLETED, "", "")
        except RunAgain as given_up:
            await self._writer.drained()
            self.elsewhere = isinstance(given_up, RunElsewhere)
            self.again = not (self.cancel_requested or self.abandoned)
            self.abandoned = True
            self._writer.stop()
            return
        except BaseException as error:
            ending = self._ending_of(error)
            if ending is None:
                raise
        finally:
            if self._deadline is not None:
                self._disarm()
        if self._keeps_files:
            ending = await self._keep_ending(ending)
        await self._write_end(ending, self._used)

    async def _write_end(self, ending: Ending, used: Usage | None) -> None:
        for replaced in (False, True):
            if self.abandoned:
                return
            now_ms = self._clock.now_ms()
            state, said, reason = ending
            imposed = self._failure
            try:
                self._writer.put(closing(self.head, state, now_ms, said, reason, used, self._retry_after_s), now_ms)
            except (TypeError, ValueError) as error:
                self._failure = agent_error(self.head, "gave out what cannot be written", error)
            while (commit := self._writer.next_commit()) is not None:
                try:
                    await commit
                except asyncio.CancelledError:  # a cancel does not interrupt this: the end is already decided
                    if self.abandoned or not (self.cancel_requested or self._failure is not imposed):
                        raise
            if self._failure is None or self._failure is imposed:
                return
            if replaced:
                break
            ending, used, self._note, self._retry_after_s = self._failure, None, None, None
        log.error("task %s: no end of its run can be written: the run is given up", self.head.id)
        self.given_up = True
        self.abandon()

    def _ending_of(self, error: BaseException) -> Ending | None:
        """Return the ending of a run whose agent raised `error`; None if the process is going down."""
        match error:
            case asyncio.CancelledError():
                if self._failure is not None or self.cancel_requested or self.abandoned or self.log.terminal:
                    return self._failure or (TaskState.CANCELED, "", "")
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    return None
                return agent_error(self.head, "canceled itself", error)
            case GeneratorExit():
                return None
            case Reject():
                try:
                    return TaskState.REJECTED, self.bounds.text("reason", str(error)), "rejected"
                except Exception as unfit:  # noqa: BLE001  it is what the agent's own `__str__` raises
                    return agent_error(self.head, "rejected the task with what cannot be sent,", unfit)
            case ReplayMismatch():
                return MISMATCH
            case Ended():
                if self.replay.active:
                    return MISMATCH
                if self._failure is not None:
                    return self._failure
                try:
                    ended = error.check(self.bounds)
                except (TypeError, ValueError) as unfit:
                    return agent_error(self.head, "ended the task with what cannot be sent,", unfit)
                self._retry_after_s = ended.retry_after_s
                return ended.state, ended.parts, ended.reason
            case _ if self.cancel_requested and self._failure is None:
                failed(self.head, "raised as it was canceled,", error)
                return TaskState.CANCELED, "", ""
            case _:
                return self._failure or agent_error(self.head, "raised", error)

    async def _keep_ending(self, ending: Ending) -> Ending:
        """Move the large files of the closing message into the blob store."""
        state, said, reason = ending
        if isinstance(said, str) or not self._files.large(said):
            return ending
        try:
            return state, await self._files.kept_by_run(self.head.id, said), reason
        except StoreError as error:
            return agent_error(self.head, "gave out a file that cannot be kept,", error)
        except asyncio.CancelledError:
            if self.cancel_requested or self.abandoned:
                return TaskState.CANCELED, "", ""
            raise

    # -- its deadline --------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Begin to count towards the deadline, from when the task was taken on, which may have been another run."""
        assert self.deadline_s is not None
        now_ms = self._clock.now_ms()
        began_ms = self._began_ms or now_ms
        self._began_ms = None  # after a question the time begins anew
        self._disarm()
        left_s = self.deadline_s - max(0, now_ms - began_ms) / 1000
        self._deadline = self._loop.call_later(max(0.0, left_s), self._stop_overdue)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_overdue(self) -> None:
        """Ask the agent to stop because it is past its deadline. Its task fails once it has."""
        if self.abandoned or self.cancel_requested or self.task is None or self.log.terminal:
            return
        assert self.deadline_s is not None
        self.overdue = True
        self._failure = self._failure or (TaskState.FAILED, overdue_text(self.deadline_s), OVERDUE)
        log.warning(
            "task %s: agent %s took longer than deadline_s = %g: it is stopped",
            self.head.id,
            self.head.agent,
            self.deadline_s,
            extra=about(self.head.agent, agent=self.head.agent),
        )
        self.task.cancel()
        self._services.effects.put(StopOverdue(self.log))

    # -- within -------------------------------------------------------------------------------------------------------

    async def _keep(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts as they go into the log, with large files in the blob store. A replay stores nothing."""
        whole = tuple(parts)
        if not self.replay.active and self._files.large(whole):
            whole = await self._files.kept_by_run(self.head.id, whole)
            self._check()
        return whole

    def _check(self) -> None:
        """Raises CancelledError once the run may write nothing more."""
        if self.abandoned or self.log.state in TERMINAL:
            raise asyncio.CancelledError("the run has lost its lease")

    async def _room(self) -> None:
        await self._writer.room()
        self._check()

    def unwritable(self, error: BaseException) -> None:
        """End the run with the fault that it gave out what cannot be written."""
        self._failure = agent_error(self.head, "gave out what cannot be written", error)
        if self.task is not None:
            self.task.cancel()


Work = Callable[[TaskRun], Awaitable[None]]
"""The work of a run until its end."""
