"""TaskSink: the words of a run on a task, on their way to its log.

Invariant: everything goes through one RunWriter, in the order in which it was said, under the run's epoch. While
recorded answers are left, what the agent says is not written again: it is replayed. No event of the run comes between a
question and its answer.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextvars import copy_context
from typing import Any

from msgspec.structs import replace

from dragoman.engine.api import Hear
from dragoman.engine.effects import Delegate
from dragoman.engine.lineage import full_lineage
from dragoman.engine.log import Log, read_whole
from dragoman.engine.runs.deadline import Deadline
from dragoman.engine.runs.endings import agent_message, mismatched
from dragoman.engine.runs.execution import OVER, OVER_CANCELED, TaskExecution
from dragoman.engine.runs.history import History
from dragoman.engine.runs.places import RunPlaces, present_branch
from dragoman.engine.runs.questions import Questions
from dragoman.engine.runs.replay import (
    Replay,
    ReplayMismatch,
    question_name,
)
from dragoman.engine.runs.run_writer import RunWriter
from dragoman.engine.runs.services import RunServices
from dragoman.engine.runs.word_events import question, report
from dragoman.engine.words import Ask, Delegation, Note, Say, Waiting, Working
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Logged,
    MessageReceived,
    Noted,
    Placed,
    StatusChanged,
)
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import fold
from dragoman.model.message import Message, Part
from dragoman.model.operations import CallerCredentials
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState, Usage
from dragoman.store.api import StoreError


class TaskSink:
    """See `engine.api.Sink`. Everything beyond that is for the engine alone.

    `replay` is what an earlier run said, and how far this one has repeated it. The task `waits` for somebody to take it
    on. With `speaks_soon` the word that this has happened waits briefly for another event.
    """

    __slots__ = (
        "_deadline",
        "_execution",
        "_keeps_files",
        "_places",
        "_questions",
        "_services",
        "_speaks_soon",
        "_written",
        "head",
        "log",
        "replay",
        "silent",
        "traceparent",
        "used",
        "writer",
    )

    def __init__(
        self,
        execution: TaskExecution,
        log: Log,
        replay: Replay,
        services: RunServices,
        deadline: Deadline | None,
        *,
        waits: bool,
        speaks_soon: bool,
        traceparent: str | None,
    ) -> None:
        self.log = log
        self.head = log.head
        self.replay = replay
        self.traceparent = traceparent
        self.writer = RunWriter(log, services.loop, execution, retry_s=services.retry_s)
        self.silent = waits
        """Whether nobody has taken the task on yet in this run, nor said anything."""
        self.used: Usage | None = replay.usage if replay.crashed else log.fold.usage
        """The tokens used so far."""
        self._execution = execution
        self._services = services
        self._keeps_files = services.files.keeps
        self._deadline = deadline
        self._speaks_soon = speaks_soon
        self._questions: Questions | None = None
        self._places: RunPlaces | None = None
        self._written: set[str] = set()
        """The artifacts of which this run has written."""

    @property
    def questions(self) -> Questions:
        """The question of the run, and the messages for it. Made when first asked for: most runs have neither."""
        if self._questions is None:
            self._questions = Questions(self.log, self.replay.late, self._services, self._deadline)
        return self._questions

    @property
    def places(self) -> RunPlaces:
        """The places of the numbered words of the run. Made by the first of them: most runs have none."""
        if self._places is None:
            self._places = RunPlaces(counted=not self.replay.places)
        return self._places

    # -- engine.api.Sink -----------------------------------------------------------------------------------------------

    @property
    def canceled(self) -> bool:
        """See `engine.api.Sink`."""
        return self._execution.canceled

    @property
    def shown(self) -> CallerCredentials | None:
        """See `engine.api.Sink`."""
        return self.log.shown

    @property
    def lineage(self) -> tuple[str, ...]:
        """See `engine.api.Sink`."""
        return full_lineage(self.head, self._services.server)

    @property
    def record(self) -> Record:
        """See `engine.api.Sink`."""
        record = self.log.record()
        emitted = self.writer.pending
        if emitted:
            record = fold(self.head, record, (Logged(seq, event) for seq, event in enumerate(emitted, record.seq + 1)))
        return self._services.files.linked(record)

    def check(self) -> None:
        """See `engine.api.Sink`."""
        if self.writer.lost or self.log.state in TERMINAL:
            raise asyncio.CancelledError("the run has lost its lease")

    def say(self, word: Say | ArtifactChunk, weight: int = 0) -> Awaitable[None] | None:
        """See `engine.api.Sink`. The first chunk of an artifact is never an append."""
        writer = self.writer
        if writer.lost or self.log.row.state in TERMINAL:  # no property, for every chunk of a stream
            self.check()
        if self.replay.repeats and self.replay.drops(present_branch(), word):
            return None
        if self._questions is not None and self._questions.any_open:
            return self._say_later(word)
        if type(word) is Say:  # costs less than `isinstance`, for every chunk of a stream
            if self._keeps_files and self._services.files.large(word.parts):
                return self._say_later(word)
            self.silent = False
            if self._deadline is not None:
                self._deadline.begin()
            now_ms = self._services.clock.now_ms()
            full = writer.put(report(self.head, word, self.used, now_ms), now_ms)
        else:
            artifact = word.artifact
            if self._keeps_files and self._services.files.large(artifact.parts):
                return self._say_later(word)
            key = artifact.artifact_id
            if key not in self._written:
                self._written.add(key)
                self.silent = False
                if word.append or self.replay.crashed:
                    word = self.replay.begin(word, lambda: self.record)
                    weight = weight if word.artifact is artifact else 0
            full = writer.put(word, weight=weight)
        return self._room() if full else None

    async def _say_later(self, word: Say | ArtifactChunk) -> None:
        """Say it once its files are in the blob store, and the open question has its answer."""
        if isinstance(word, ArtifactChunk):
            artifact = word.artifact
            word = replace(word, artifact=replace(artifact, parts=await self._keep(artifact.parts)))
        else:
            word = replace(word, parts=await self._keep(word.parts))
        await self.questions.closed()
        waits = self.say(word)
        if waits is not None:
            await waits

    def mark(self, word: Working | Waiting | Note | Usage) -> None:
        """See `engine.api.Sink`."""
        match word:
            case Usage():
                if not (self.replay.repeats and self.replay.precedes(present_branch())):
                    self.used = (self.used or Usage()) + word
            case Working():
                self.silent = False
                if self._deadline is not None:
                    self._deadline.begin()
                self.announce()
                self.log.followers.note_contact()
            case Note(note, soon):
                self.writer.put(Noted(note), quietly=soon)
            case Waiting(parts):
                if (state := self.writer.state) in (TaskState.SUBMITTED, TaskState.WORKING):
                    now_ms = self._services.clock.now_ms()
                    self.writer.put(StatusChanged(state, timestamp(now_ms), agent_message(self.head, parts)), now_ms)

    def announce(self) -> None:
        """Put a `submitted` task into `working`."""
        if self.writer.state is TaskState.SUBMITTED:
            now_ms = self._services.clock.now_ms()
            said = StatusChanged(TaskState.WORKING, timestamp(now_ms))
            self.writer.put(said, now_ms, quietly=self._speaks_soon)

    async def ask(self, word: Ask) -> Message:
        """See `engine.api.Sink`."""
        with self.places.tell("question", question_name(word.parts), word.place) as (place, _):
            try:
                recorded = self.replay.answer(word.parts, place)
            except ReplayMismatch as mismatch:
                self._execution.fail(mismatched(self.head, mismatch))
                raise
            if recorded is not None:
                return recorded
            parts = await self._keep(word.parts)
            await self.questions.closed()
            self.check()
            if (late := self.questions.take_late()) is not None:
                self.writer.note_taken(place, late)
                return late
            answer = await self._put_question(parts, None, auth=word.auth, place=place)
        assert answer is not None  # only a question that was passed on can become pointless
        return answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """See `engine.api.Sink`."""
        given = "" if order.number else None
        with self.places.tell("delegation", order.agent, given) as (place, number):
            number = order.number or number
            try:
                delegated = self.replay.delegated(number, order.agent, place)
                if delegated is None:
                    services = self._services
                    outcome: asyncio.Future[Delegated] = services.loop.create_future()
                    services.effects.want(Delegate(self, number, order, hear, outcome, copy_context()))
                    delegated = await outcome
                    if place:
                        delegated = replace(delegated, placed=Placed(place))
                    await self.questions.closed()
                    self.check()
                    logged = await services.files.event_kept(self.head.id, delegated)
                    self.check()
                    self.writer.put(logged)
                    await self.written()
            except ReplayMismatch as mismatch:
                self._execution.fail(mismatched(self.head, mismatch))
                raise
        return delegated

    async def written(self) -> None:
        """See `engine.api.Sink`."""
        await self.writer.drained()
        self.check()

    def landing(self, done: "asyncio.Future[None]") -> None:
        """See `engine.api.Sink`."""
        if self.writer.next_commit(done) is None and not done.done():
            done.set_result(None)

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """See `engine.api.Sink`. Waits for a store that cannot be read."""
        while True:
            try:
                return metadata_of(message, await read_whole(self.log))
            except StoreError:
                await asyncio.sleep(self._services.retry_s)

    async def past(self, *, context: bool = False) -> History:
        """See `engine.api.Sink`."""
        return self._services.past

    # -- its questions -------------------------------------------------------------------------------------------------

    async def pass_on(self, child: Log, parts: Sequence[Part], *, auth: bool) -> Message | None:
        """Put a delegated task's question to the caller. It refers to that task, so that a replay recognises it.

        Returns None if the delegated task no longer waits for an answer.
        """
        self.check()
        parts = await self._keep(parts)
        await self.questions.closed()
        self.check()
        if child.state not in INTERRUPTED:
            return None
        return await self._put_question(parts, child, auth=auth)

    async def _put_question(
        self, parts: Sequence[Part], child: Log | None, *, auth: bool, place: str = ""
    ) -> Message | None:
        """Write a question while none is open, and wait for its answer."""
        self.silent = False
        now_ms, child_id = self._services.clock.now_ms(), "" if child is None else child.head.id
        said = question(self.head, parts, self.used, now_ms, auth=auth, child_id=child_id, place=place)
        self.writer.put_question(said, now_ms, self.questions)
        return await self.questions.ask(self.writer.drained(), self._execution, child)

    def release(self, *, canceled: bool) -> None:
        """Drop the execution, which is over: the two form a cycle (see `RunWriter.release`)."""
        self._execution = OVER_CANCELED if canceled else OVER
        if self._deadline is not None:
            self._deadline = None
            if self._questions is not None:
                self._questions.release()
        self.writer.release()

    # -- within --------------------------------------------------------------------------------------------------------

    async def _keep(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts as they go into the log, with large files in the blob store."""
        whole = tuple(parts)
        if self._services.files.large(whole):
            whole = await self._services.files.kept_by_run(self.head.id, whole)
            self.check()
        return whole

    async def _room(self) -> None:
        await self.writer.room()
        self.check()


def metadata_of(message: Message, events: Sequence[Logged]) -> dict[str, Any] | None:
    """The metadata of the request that brought a further message, by the log of its task."""
    for logged in reversed(events):
        event = logged.event
        if isinstance(event, MessageReceived) and event.message.message_id == message.message_id:
            return event.metadata
    return None
