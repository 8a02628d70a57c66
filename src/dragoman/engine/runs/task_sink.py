"""TaskSink: the words of a run on a task, on their way to its log.

Invariant: everything goes through one RunWriter, in the order in which it was said, under the run's epoch. While
recorded answers are left, what the agent says is not written again: it is replayed. No event of the run comes between a
question and its answer.
"""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any

from msgspec.structs import replace

from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.api import Ended, Execute, Hear, Traits
from dragoman.engine.bounds import PART_BYTES
from dragoman.engine.effects import Delegate, DropSuspended, WeighSpending
from dragoman.engine.lineage import full_lineage
from dragoman.engine.log import Log, read_whole
from dragoman.engine.observer import Execution
from dragoman.engine.runs.deadline import Deadline
from dragoman.engine.runs.endings import (
    NOBODY_TO_ASK,
    STEP_UNCERTAIN,
    TOO_MANY_STEPS,
    agent_message,
    ask_about_step,
    budget_exhausted,
    mismatched,
    too_many_steps,
    uncertain_step,
)
from dragoman.engine.runs.execution import OVER, OVER_CANCELED, TaskExecution
from dragoman.engine.runs.history import History
from dragoman.engine.runs.places import (
    ExecutedStep,
    RunPlaces,
    executing_step,
    present_branch,
    refuse_within_step,
    step_key,
)
from dragoman.engine.runs.questions import Questions
from dragoman.engine.runs.replay import (
    RecordedSleep,
    Replay,
    ReplayMismatch,
    question_name,
)
from dragoman.engine.runs.run_writer import RunWriter
from dragoman.engine.runs.services import RunServices
from dragoman.engine.runs.word_events import asleep, question, report
from dragoman.engine.state_space import StateSpace, StoredSpace, scope_of
from dragoman.engine.words import PATCHED, Ask, Delegation, Note, Say, Sleep, Step, StepDone, Waiting, Working
from dragoman.model.acting_chain import NOTE, spelled_chain
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Logged,
    MessageReceived,
    Noted,
    Placed,
    StatusChanged,
    StepBegun,
    Stepped,
)
from dragoman.model.headers import TaskHeaders
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import fold
from dragoman.model.message import Message, Part
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState, Usage
from dragoman.model.title import TITLE_NOTE
from dragoman.store.api import Fenced, StoreError
from dragoman.store.state import StateGuard, StateKind

CLOCK_LOOK_S = 60.0
"""How long a sleep waits by the loop's clock before it looks at the store's, which may run at another speed."""


_SUBMITTED, _WORKING = TaskState.SUBMITTED, TaskState.WORKING  # as in `model.lifecycle`


class TaskSink:
    """See `engine.api.Sink`. Everything beyond that is for the engine alone.

    `replay` is what an earlier run said, and how far this one has repeated it. `traits` are those of the runner. The
    run is `observed` if anybody wants spans or counts of it.
    """

    __slots__ = (
        "_deadline",
        "_execution",
        "_keeps_files",
        "_observed",
        "_patches",
        "_places",
        "_questions",
        "_remembered",
        "_services",
        "_steps",
        "_stops",
        "_traits",
        "_written",
        "head",
        "log",
        "present_id",
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
        present_id: str,
        traits: Traits,
        traceparent: str | None,
        observed: Execution | None = None,
    ) -> None:
        self.log = log
        self.present_id: str | None = present_id
        """See `engine.effects.ParentRun`."""
        self.head = log.head
        self.replay = replay
        self.traceparent = traceparent
        self.writer = RunWriter(log, services.loop, execution, services.retry_s)
        self.silent = traits.waits
        """Whether nobody has taken the task on yet in this run, nor said anything."""
        self.used: Usage | None = replay.usage if replay.crashed else log.fold.usage
        """The tokens used so far."""
        self._execution = execution
        self._stops = any(one.stops for one in log.head.reservations)
        """Whether a budget may end the run."""
        self._observed = observed
        self._services = services
        self._keeps_files = services.files.keeps
        self._deadline = deadline
        self._traits = traits
        self._steps = log.fold.steps
        """How many steps and sleeps the task has recorded, those that are on their way included."""
        self._remembered = 0
        """How many changes of its memory the run has made that an open question keeps from being put on record."""
        self._questions: Questions | None = None
        self._places: RunPlaces | None = None
        self._patches: dict[str, bool] | None = None
        """The changes of the agent's code that this run has asked about."""
        self._written: set[str] | None = None
        """The artifacts of which this run has written, if any."""

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
    def headers(self) -> TaskHeaders | None:
        """See `engine.api.Sink`."""
        return self._traits.choose_headers(self.log.headers)

    @property
    def gives_headers(self) -> bool:
        """See `engine.api.Sink`."""
        return bool(self._traits.header_names)

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

    @property
    def notes(self) -> Mapping[str, str]:
        """See `engine.api.Sink`."""
        notes: Mapping[str, str] = self.log.fold.note or {}
        for event in self.writer.pending:
            if isinstance(event, Noted):
                notes = {**notes, **event.note}
        return notes

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
            if word.metadata is not None and self._observed is not None and TOOL_CALL in word.metadata:
                self._observed.tool_called(word.metadata[TOOL_CALL])
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
            if self._written is None or key not in self._written:
                self._written = self._written or set()
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
            case Working():
                self.silent = False
                if self._deadline is not None:
                    self._deadline.begin()
                self.announce()
                self.log.followers.note_contact()
            case Note(note, soon):
                if TITLE_NOTE in note and self._has_title(note[TITLE_NOTE]):
                    return
                self.writer.put(Noted(note), weight=PART_BYTES, quietly=soon)  # it has been checked as a word
                if NOTE in note and self._observed is not None:
                    for link in spelled_chain(note[NOTE])[-1:]:  # a chain is noted with each link that it gets
                        self._observed.exchanged(link.subject, link.actors, link.audience, link.issuer)
            case Usage():
                if not (self.replay.repeats and self.replay.precedes(present_branch())):
                    self.used = (self.used or Usage()) + word
                    if self._stops:
                        self._services.effects.put(WeighSpending(self))
            case Waiting(parts):
                if (state := self.writer.state) in (TaskState.SUBMITTED, TaskState.WORKING):
                    now_ms = self._services.clock.now_ms()
                    self.writer.put(StatusChanged(state, timestamp(now_ms), agent_message(self.head, parts)), now_ms)

    def _has_title(self, title: str) -> bool:
        """Whether a title needs no event: it is the present one, or an earlier run has come further than here."""
        repeated = self.replay.repeats and self.replay.precedes(present_branch())
        return repeated or self.notes.get(TITLE_NOTE) == title

    def announce(self) -> None:
        """Put a `submitted` task into `working`."""
        if self.writer.state is _SUBMITTED:
            now_ms = self._services.clock.now_ms()
            said = StatusChanged(_WORKING, timestamp(now_ms))
            self.writer.put(said, now_ms, weight=PART_BYTES, quietly=self._traits.speaks_soon)

    async def stop_spending(self, budget: str) -> None:
        """See `engine.effects.SpendingRun`."""
        self._execution.impose(budget_exhausted(budget))

    async def ask(self, word: Ask) -> Message:
        """See `engine.api.Sink`."""
        answer = await self._ask(word)
        self.present_id = answer.message_id
        return answer

    async def _ask(self, word: Ask, *, anew: bool = False) -> Message:
        """As `ask`. No message that came before the question answers one that is asked `anew`."""
        with self.places.tell("question", question_name(word.parts), word.place) as (place, _):
            with self._comparing():
                recorded = self.replay.answer(word.parts, place)
            if recorded is not None:
                return recorded
            parts = await self._keep(word.parts)
            await self.questions.closed()
            self.check()
            answer = None if anew else self.questions.take_late()
            if answer is not None:
                self.writer.note_taken(place, answer)
            else:
                answer = await self._put_question(parts, None, auth=word.auth, place=place, anew=anew)
        assert answer is not None  # only a question that was passed on can become pointless
        self.replay = self.replay.keep_word(place, answer)
        return answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """See `engine.api.Sink`."""
        given = "" if order.number else None
        with self.places.tell("delegation", order.agent, given) as (place, number):
            number = order.number or number
            with self._comparing():
                delegated = self.replay.delegated(number, order.agent, place)
                if delegated is None:
                    await self.settle()
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
                    self.replay = self.replay.keep_word(place, delegated)
        return delegated

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """See `engine.api.Sink`."""
        with self.places.tell("step", word.name, key=word.key) as (place, _):
            with self._comparing():
                recorded = self.replay.stepped(word, place)
            if recorded is not None:
                if self._observed is not None and not word.drawn:
                    self._observed.step_replayed()
                return recorded
            self._count_step()
            began = self._now()
            try:
                done = await self._decide_uncertain(word, place) or await self._execute(word, execute, place)
            except BaseException:
                self._steps -= 1  # such as at a timeout around the step
                raise
            return await self._record_step(word, place, began, done)

    async def _execute(self, word: Step, execute: Execute, place: str) -> StepDone:
        """Execute a step, after what has to be on disk by then."""
        if word.at_most_once:
            await self.questions.closed()  # nobody has the lease meanwhile
            self.check()
            self.writer.put(StepBegun(word.name, self._now(), Placed(place)))
            await self.written()
        elif not word.soon:
            await self.settle()
        return await self._observe(word, execute, step_key(self.head.id, place))

    async def _observe(self, word: Step, execute: Execute, key: str) -> StepDone:
        """Execute a step, under observation if anybody observes the run."""
        observed = self._observed
        step = None if observed is None or word.drawn else observed.step_begins(word.name, word.key)
        try:
            with executing_step(ExecutedStep(word.name, key)):
                done = await execute(key)
        except BaseException:
            if step is not None:
                step.interrupted()
            raise
        if step is not None:
            step.executed(done.attempts, None if done.failure is None else done.failure.type)
        return done

    async def patched(self, name: str) -> bool:
        """See `engine.api.Sink`. A change that the task is to know is recorded with the next event."""
        refuse_within_step("patched", name)
        patches = self._patches = self._patches or {}
        if name not in patches:
            await self.questions.closed()
        if name not in patches:  # no other branch has asked meanwhile
            known = self.replay.knows_patch(name, present_branch())
            if known is None:
                self._count_step()
                now = self._now()
                self.writer.put(Stepped(PATCHED, name, now, now, Placed(f"{PATCHED}:{name}")), quietly=True)
            patches[name] = known is not False
        return patches[name]

    async def _record_step(self, word: Step, place: str, began: str, done: StepDone) -> Stepped:
        remembers = _changes_memory(word.name)
        self._remembered += remembers
        try:
            await self.questions.closed()
        finally:
            self._remembered -= remembers
        self.check()
        outcome = Stepped(
            word.name,
            word.key,
            began,
            self._now(),
            Placed(place),
            done.attempts,
            done.form,
            done.result,
            done.failure,
            self.used,
        )
        kept = await self._services.files.event_kept(self.head.id, outcome)
        self.check()
        assert isinstance(kept, Stepped)
        self.writer.put(kept, quietly=word.soon)
        if not word.soon:
            await self.written()
        self.replay = self.replay.keep_word(place, kept)
        return outcome

    @property
    def remembers_more(self) -> bool:
        """Whether the run has changed its memory, and that is not on record yet."""
        steps = (event.name for event in self.writer.pending if isinstance(event, Stepped))
        return self._remembered > 0 or any(map(_changes_memory, steps))

    async def settle(self) -> None:
        """Wait until each time, random number and id that the run has drawn, and what it has read of its memory, is
        committed. See `engine.state_space.Speaker`.

        A step, a delegation or a write of state may be about it. Begun before that is on disk, it would be begun with
        another one after a crash.
        """
        if any(isinstance(event, Stepped) and event.name.startswith("$") for event in self.writer.pending):
            await self.written()

    async def sleep(self, word: Sleep) -> None:
        """See `engine.api.Sink`."""
        with self.places.tell("sleep", "sleep") as (place, _), self.questions.hearing() as heard:
            with self._comparing():
                sleep = self.replay.slept(place)
            if sleep is None:
                sleep = await self._go_to_sleep(word, place)
                self.replay = self.replay.keep_word(place, sleep)
            if sleep.over:
                return
            clock, hears = self._services.clock, sleep.wakes_on_message
            with nullcontext() if self._deadline is None else self._deadline.held():
                while (left_ms := sleep.wakes_ms - clock.now_ms()) > 0 and not (hears and heard.done()):
                    left_s = min(left_ms / 1000, CLOCK_LOOK_S)
                    await (asyncio.wait((heard,), timeout=left_s) if hears else asyncio.sleep(left_s))
        self.check()

    async def _go_to_sleep(self, word: Sleep, place: str) -> RecordedSleep:
        """Record a sleep. If it is long, and nothing else of the run is at work, the run is over."""
        self._count_step()
        await self.questions.closed()
        self.check()
        self.silent, services = False, self._services
        now_ms, hears = services.clock.now_ms(), word.wake_on_message
        wakes_ms = word.until_ms if word.for_ms is None else now_ms + word.for_ms
        assert wakes_ms is not None
        if wakes_ms <= now_ms or (hears and self.questions.unread):
            wakes_ms, hears = min(wakes_ms, now_ms), False
        branch = present_branch()
        suspends = wakes_ms - now_ms > services.suspend_after_s * 1000 and branch is not None and branch.alone
        said = asleep(wakes_ms, self.used, now_ms, place=place, wakes_on_message=hears)
        self.writer.put_sleep(said, now_ms, self.questions, suspends=suspends)
        try:
            await self.written()
        except asyncio.CancelledError:  # the run ends, or goes on without this sleep
            self.writer.stay_awake()
            raise
        if self._observed is not None:
            self._observed.sleeps(timestamp(wakes_ms))
        if self.writer.asleep:
            services.effects.want(DropSuspended(self.log))
            await services.loop.create_future()
        return RecordedSleep(wakes_ms, hears)

    def _count_step(self) -> None:
        """Count a step that is about to be recorded. One too many ends the task."""
        self._steps += 1
        most = self._services.max_steps
        if self._steps > most:
            self._execution.impose(too_many_steps(most))
            raise asyncio.CancelledError(TOO_MANY_STEPS)

    async def _decide_uncertain(self, word: Step, place: str) -> StepDone | None:
        """Decide about a step that is to be executed at most once, and that an earlier run began.

        Returns None if it is to be executed. The task asks its caller each time that a run died in the step, or it
        fails.
        """
        if not word.at_most_once:
            return None
        for time in range(1, self.replay.times_begun(place) + 1):
            if self._traits.step_uncertain == "fail":
                self._execution.impose(uncertain_step(word.name))
                raise asyncio.CancelledError(STEP_UNCERTAIN)
            done = await ask_about_step(word.name, f"{place}?{time}", partial(self._ask, anew=True))
            if done is not None:
                return done
        return None

    def _now(self) -> str:
        return timestamp(self._services.clock.now_ms())

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

    async def state(self, kind: StateKind, *, wide: bool = False, shared: bool = False) -> StateSpace | None:
        """See `engine.api.Sink`."""
        services = self._services
        if not self._traits.keeps(kind):
            return None
        scope = scope_of(self.head, kind, wide=wide, shared=shared or self._traits.memory == "shared")
        return StoredSpace(services.state, scope, self, services.clock, retry_s=services.retry_s)

    async def regain(self, lost: StateGuard, refused: Fenced) -> None:
        """See `engine.state_space.Speaker`."""
        await self.questions.closed()
        if self.state_guard() == lost:
            self._execution.lose(refused)
            self.check()

    @property
    def outdated(self) -> bool:
        """See `engine.state_space.Speaker`."""
        return self.log.outdated

    def state_guard(self) -> StateGuard:
        """See `engine.state_space.Speaker`."""
        self.check()
        return StateGuard(self.head.id, self.writer.epoch)

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
        self, parts: Sequence[Part], child: Log | None, *, auth: bool, place: str = "", anew: bool = False
    ) -> Message | None:
        """Write a question while none is open, and wait for its answer. Raises Ended if nobody will answer."""
        if self.head.unattended:
            raise Ended(TaskState.COMPLETED, parts, NOBODY_TO_ASK)
        self.silent = False
        now_ms, child_id = self._services.clock.now_ms(), "" if child is None else child.head.id
        said = question(self.head, parts, self.used, now_ms, auth=auth, child_id=child_id, place=place)
        self.writer.put_question(said, now_ms, self.questions)
        return await self.questions.ask(self.writer.drained(), self._execution, child, anew=anew)

    def release(self, *, canceled: bool) -> None:
        """Drop the execution, which is over: the two form a cycle (see `RunWriter.release`)."""
        self._execution = OVER_CANCELED if canceled else OVER
        if self._deadline is not None:
            self._deadline = None
            if self._questions is not None:
                self._questions.release()
        self.writer.release()

    # -- within --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        """Let the task fail, whatever the agent does now, if a word in the block is not the recorded one."""
        try:
            yield
        except ReplayMismatch as mismatch:
            self._execution.fail(mismatched(self.head, mismatch))
            raise

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


def _changes_memory(step: str) -> bool:
    """Whether a step of that name is a change of `ctx.memory`."""
    return step.startswith("$memory.") and step.endswith((".set", ".delete"))
