"""Run an agent in a test: no server, no store, no network.

Invariant: the agent gets the same Run as on a server, and its events are folded by the same rules.
"""

import asyncio
import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.agents.content import json_of, parts_of
from dragoman.agents.lifespans import enter_in
from dragoman.agents.python.lifespan import FunctionLifespan
from dragoman.engine.api import Ended, Execute, Hear, Reject, Run, Runner, Unreadable
from dragoman.engine.bounds import Bounds
from dragoman.engine.runs.places import (
    ExecutedStep,
    RunPlaces,
    executing_step,
    refuse_within_step,
    step_key,
    within_first_branch,
)
from dragoman.engine.runs.word_events import asleep
from dragoman.engine.state_space import StateSpace, StoredSpace, scope_of
from dragoman.engine.words import Ask, Delegation, End, Note, Say, Sleep, Step, Waiting, Working
from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    MessageReceived,
    Noted,
    Placed,
    StatusChanged,
    Stepped,
    Submitted,
)
from dragoman.model.headers import RequestHeaders, TaskHeaders
from dragoman.model.ids import timestamp_ms
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.principal import ANONYMOUS, Principal
from dragoman.model.task import Progress, Record, TaskHead, TaskState, Usage
from dragoman.store.api import Fenced
from dragoman.store.local_state import LocalState
from dragoman.store.state import StateGuard, StateKind, StatePut, StateWrite

TIMESTAMP = "2026-01-01T00:00:00.000Z"
"""The time of every event in a FakeRun."""

NOTHING: Mapping[str, Iterable[object]] = MappingProxyType({})
"""The outcomes of delegations in a test that has none."""

NO_FILES: Mapping[str, bytes] = MappingProxyType({})
NO_MEMORY: Mapping[str, Any] = MappingProxyType({})
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class StandingClock:
    """The clock of every test: no time passes."""

    def now_ms(self) -> int:
        """The time of TIMESTAMP."""
        return timestamp_ms(TIMESTAMP)


CLOCK = StandingClock()


class Ran(Struct, frozen=True, kw_only=True):
    """The result of a run. `events` holds everything that happened, in order; `record` is the task they fold to.

    `orders` are the tasks that the agent delegated. `memory` is what it remembers afterwards of the conversation, and
    `caller_memory` what of its caller, by key.
    """

    record: Record
    events: tuple[Event, ...]
    orders: tuple[Delegation, ...] = ()
    memory: Mapping[str, Any] = NO_MEMORY
    caller_memory: Mapping[str, Any] = NO_MEMORY

    @property
    def state(self) -> TaskState:
        """How the task ended; `input-required` or `auth-required` when the agent asked and had no answer left."""
        return self.record.state

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts as a caller has them in the end."""
        return self.record.artifacts

    @property
    def text(self) -> str:
        """All text in the artifacts."""
        return "".join(part.text for part in self._parts if part.text is not None)

    @property
    def data(self) -> list[Any]:
        """The content of all data parts in the artifacts."""
        return [part.data for part in self._parts if part.data is not UNSET]

    @property
    def files(self) -> list[Part]:
        """All file parts in the artifacts."""
        return [part for part in self._parts if part.raw is not None or part.url is not None]

    @property
    def chunks(self) -> list[ArtifactChunk]:
        """The artifact chunks, in order."""
        return [event for event in self.events if isinstance(event, ArtifactChunk)]

    @property
    def statuses(self) -> list[str]:
        """The texts that the agent reported while it worked."""
        return [text for event in self._reports if (text := _text(event))]

    @property
    def progress(self) -> list[tuple[int, int]]:
        """The steps that the agent reported, each as `(current, total)`."""
        return [(at.current, at.total) for event in self._reports if (at := event.progress) is not None]

    @property
    def questions(self) -> list[str]:
        """The texts of the agent's questions."""
        waits = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)
        return [_text(event) for event in self.events if isinstance(event, StatusChanged) and event.state in waits]

    @property
    def steps(self) -> list[str]:
        """The names of the steps that the agent had recorded, in order."""
        return [event.name for event in self.events if isinstance(event, Stepped) and not event.name.startswith("$")]

    @property
    def sleeps(self) -> list[float]:
        """How many seconds the agent slept each time. A test does not wait for them."""
        began_ms = timestamp_ms(TIMESTAMP)
        return [
            (event.placed.wakes_ms - began_ms) / 1000
            for event in self.events
            if isinstance(event, StatusChanged) and event.placed is not None and event.placed.wakes_ms is not None
        ]

    @property
    def reason(self) -> str:
        """Why the agent rejected the task; empty when it did not."""
        return _text(self.events[-1]) if self.state is TaskState.REJECTED else ""

    @property
    def message(self) -> Message | None:
        """The message of the last status: of `ctx.finish` or `ctx.fail`, of a rejection, or the question."""
        return self.record.status.message

    @property
    def usage(self) -> Usage:
        """The tokens reported, zeros if none were."""
        return self.record.usage or Usage()

    @property
    def _parts(self) -> list[Part]:
        return [part for artifact in self.record.artifacts for part in artifact.parts]

    @property
    def _reports(self) -> list[StatusChanged]:
        statuses = (event for event in self.events if isinstance(event, StatusChanged))
        return [
            status for status in statuses if status.state is TaskState.WORKING and (status.message or status.progress)
        ]


async def run(
    agent: Runner,
    message: str | Part | Sequence[Part] | Message = "",
    *,
    answers: Iterable[str | Part | Sequence[Part] | Message] = (),
    skill: str | None = None,
    skills: tuple[str, ...] = (),
    history: Sequence[Message] = (),
    references: Sequence[Record] = (),
    metadata: dict[str, Any] | None = None,
    extensions: tuple[str, ...] = (),
    principal: Principal = ANONYMOUS,
    delegated: Mapping[str, Iterable[object]] = NOTHING,
    files: Mapping[str, bytes] = NO_FILES,
    state: Any = UNSET,
    memory: Mapping[str, Any] = NO_MEMORY,
    caller_memory: Mapping[str, Any] = NO_MEMORY,
    headers: Mapping[str, str] | None = NO_HEADERS,
) -> Ran:
    """Send `message` to the agent, answer its questions with `answers` in turn, and wait for it to finish.

    `delegated` holds the outcomes of delegations for each other agent, in turn: content as an agent yields it, or an
    exception with which the other agent fails (Reject rejects the task). `files` holds the bytes behind URLs.
    `memory` is what the agent remembers of the conversation when it begins, and `caller_memory` what of its caller.

    `headers` are those of the requests with the message and the answers; None: they are lost, as by a restart of the
    server. The agent is given those that it lists; one that lists none is given them all.

    The agent's lifespan is entered for this run, in the task of the caller. With `state` it is not, and `ctx.state` is
    that object.

    An exception of the agent or of its lifespan is raised here; on a server that of the agent would fail the task.
    """
    fake = FakeRun(
        _message("message-1", message),
        answers=[_message(f"answer-{number}", answer) for number, answer in enumerate(answers, start=1)],
        skill=skill,
        skills=skills,
        history=history,
        references=references,
        metadata=metadata,
        extensions=extensions,
        principal=principal,
        delegated=delegated,
        files=files,
        memory=memory,
        caller_memory=caller_memory,
        headers=None if headers is None else RequestHeaders({name.lower(): value for name, value in headers.items()}),
        header_names=agent.traits.header_names or tuple(name.lower() for name in headers or ()),
    )
    async with AsyncExitStack() as stack:
        await _work(await _prepare(agent, state, stack), fake)
    return Ran(
        record=fake.record,
        events=tuple(fake.events),
        orders=tuple(fake.orders),
        memory=fake.remembered(wide=False),
        caller_memory=fake.remembered(wide=True),
    )


async def _prepare(agent: Runner, state: Any, stack: AsyncExitStack) -> Runner:
    """The agent with what it needs open. It is a copy, because the same agent may be used elsewhere meanwhile."""
    if state is UNSET and not agent.lifespans():
        return agent
    prepared = copy.copy(agent)
    if state is UNSET:
        await enter_in(stack, prepared)
    else:
        prepared.take_state(FunctionLifespan(nullcontext, "the state of a test"), state)
    return prepared


async def _work(agent: Runner, fake: "FakeRun") -> None:
    """Run the agent, and end its task as a server would."""
    try:
        with within_first_branch():
            await agent.run(fake)
    except Reject as reject:
        fake.end(End(TaskState.REJECTED, (Part(text=str(reject)),) if str(reject) else ()))
    except Ended as ended:
        fake.end(End(ended.state, ended.parts, ended.reason))
    except asyncio.CancelledError:
        if not fake.waits:
            raise
    else:
        fake.end(End(TaskState.COMPLETED))


class FakeRun(Run):
    """A Run that keeps what the agent does in `events`, and its `orders`.

    Without an answer left, `ask` ends the run, and the run `waits`. `memory` is as in `MemorySink`.
    """

    __slots__ = ("_memory",)

    def __init__(
        self,
        message: Message,
        *,
        skill: str | None = None,
        skills: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
        extensions: tuple[str, ...] = (),
        principal: Principal = ANONYMOUS,
        **memory: Any,
    ) -> None:
        head = TaskHead(
            id="task-1",
            context_id="context-1",
            agent="test",
            owner=principal.id,
            dialect="1.0",
            mount="",
            created_at=TIMESTAMP,
            skill=skill,
            skills=skills,
            metadata=metadata,
            extensions=extensions,
        )
        self._memory = MemorySink(head, message, **memory)
        super().__init__(head, message, self._memory, Bounds(), principal=principal)

    @property
    def events(self) -> list[Event]:
        """Everything that happened, in order."""
        return self._memory.events

    @property
    def orders(self) -> list[Delegation]:
        """The tasks that the agent delegated."""
        return self._memory.orders

    @property
    def waits(self) -> bool:
        """Whether the agent asked and had no answer left."""
        return self._memory.waits

    @property
    def canceled(self) -> bool:
        """Whether the task itself is to stop. A test may say so."""
        return self._memory.canceled

    @canceled.setter
    def canceled(self, canceled: bool) -> None:
        self._memory.canceled = canceled

    def end(self, word: End) -> None:
        """End the run."""
        self._memory.end(word)

    def remembered(self, *, wide: bool) -> dict[str, Any]:
        """The memory of the conversation, or of the caller, as it is now."""
        return self._memory.remembered(wide=wide)


class MemorySink:
    """See `engine.api.Sink`: keeps the words in memory, as events. Nothing waits, and nothing is written."""

    canceled: bool = False
    lineage = ("test/test",)

    def __init__(
        self,
        head: TaskHead,
        message: Message,
        *,
        answers: Sequence[Message] = (),
        history: Sequence[Message] = (),
        references: Sequence[Record] = (),
        delegated: Mapping[str, Iterable[object]] = NOTHING,
        files: Mapping[str, bytes] = NO_FILES,
        memory: Mapping[str, Any] = NO_MEMORY,
        caller_memory: Mapping[str, Any] = NO_MEMORY,
        headers: RequestHeaders | None = None,
        header_names: tuple[str, ...] = (),
    ) -> None:
        self.gives_headers = bool(header_names)
        self._request = None if headers is None else RequestHeaders(headers.pick(header_names))
        self._requests = (message, *answers)
        self.events: list[Event] = []
        self.orders: list[Delegation] = []
        self.waits = False
        self._delegated = {agent: list(outcomes) for agent, outcomes in delegated.items()}
        self._files = files
        self._answers = list(answers)
        self._history = tuple(history)
        self._references = tuple(references)
        self._usage: Usage | None = None
        self._head = head
        self._places = RunPlaces(counted=False)
        self._state = LocalState(CLOCK)
        self._remember(memory, wide=False)
        self._remember(caller_memory, wide=True)
        self._fold = Fold(head)
        self._add(Submitted(message, TIMESTAMP))
        self._add(StatusChanged(TaskState.WORKING, TIMESTAMP))

    # -- engine.api.Sink -----------------------------------------------------------------------------------------------

    @property
    def headers(self) -> TaskHeaders | None:
        """Those that the test has given, for every message."""
        if self._request is None:
            return None
        return TaskHeaders({message.message_id: self._request for message in self._requests})

    @property
    def record(self) -> Record:
        """The task so far."""
        return self._fold.record()

    @property
    def notes(self) -> Mapping[str, str]:
        """The notes of the task so far."""
        return self.record.note or {}

    def check(self) -> None:
        """See `engine.api.Sink`. Everything counts."""

    def say(self, word: Say | ArtifactChunk, weight: int = 0) -> None:
        """Keep it. The first chunk of an artifact is never an append, as in a task."""
        if isinstance(word, ArtifactChunk):
            key = word.artifact.artifact_id
            if word.append and all(key != known.artifact_id for known in self.record.artifacts):
                word = replace(word, append=False)
            self._add(word)
            return
        message = self._said(word.parts) if word.parts else None
        told = None if word.progress is None else Progress(*word.progress, message.text if message else "")
        self._add(StatusChanged(TaskState.WORKING, TIMESTAMP, message, told, self._usage, metadata=word.metadata))

    def mark(self, word: Working | Waiting | Note | Usage) -> None:
        """Add tokens up, and keep notes. The task is at work since the run began."""
        if isinstance(word, Usage):
            self._usage = (self._usage or Usage()) + word
        elif isinstance(word, Note):
            self._add(Noted(word.note))

    async def ask(self, word: Ask) -> Message:
        """Return the next answer. Without one the agent is stopped there, like one that waits too long."""
        refuse_within_step("question", "")
        state = TaskState.AUTH_REQUIRED if word.auth else TaskState.INPUT_REQUIRED
        self._add(StatusChanged(state, TIMESTAMP, self._said(word.parts), usage=self._usage))
        if not self._answers:
            self.waits = True
            raise asyncio.CancelledError
        answer = self._answers.pop(0)
        self._add(MessageReceived(answer, TIMESTAMP))
        self._add(StatusChanged(TaskState.WORKING, TIMESTAMP))
        return answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """Return the next outcome that the test has for the other agent; without one the test fails."""
        refuse_within_step("delegation", order.agent)
        number = len(self.orders) + 1
        self.orders.append(order)
        outcomes = self._delegated.get(order.agent)
        if not outcomes:
            raise AssertionError(f"the agent delegates to {order.agent!r}: say what comes of it: delegated={{...}}")
        outcome, state = outcomes.pop(0), TaskState.COMPLETED
        message: Message | None = None
        artifacts: tuple[Artifact, ...] = ()
        if isinstance(outcome, Exception):
            state = TaskState.REJECTED if isinstance(outcome, Reject) else TaskState.FAILED
            message = self._said((Part(text=str(outcome)),))
        else:
            artifacts = (Artifact(artifact_id="artifact-1", parts=parts_of(outcome)),)
        delegated = Delegated(number, order.agent, f"task-1-{number}", state, TIMESTAMP, message, artifacts)
        self._add(delegated)
        if hear is not None:
            for artifact in artifacts:
                await hear(ArtifactChunk(artifact, last_chunk=True))
        return delegated

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """Execute the step, and keep its outcome in the events."""
        with self._places.tell("step", word.name, key=word.key) as (place, _):
            key = step_key(self._head.id, place)
            with executing_step(ExecutedStep(word.name, key)):
                done = await execute(key)
        stepped = Stepped(
            word.name,
            word.key,
            TIMESTAMP,
            TIMESTAMP,
            Placed(place),
            done.attempts,
            done.form,
            done.result,
            done.failure,
        )
        self._add(stepped)
        return stepped

    async def sleep(self, word: Sleep) -> None:
        """Return at once, and keep the sleep in the events: no time passes in a test."""
        now_ms = timestamp_ms(TIMESTAMP)
        wakes_ms = word.until_ms if word.for_ms is None else now_ms + word.for_ms
        assert wakes_ms is not None
        with self._places.tell("sleep", "sleep") as (place, _):
            self._add(asleep(wakes_ms, self._usage, now_ms, place=place, wakes_on_message=word.wake_on_message))

    async def patched(self, name: str) -> bool:
        """True: the task is a new one."""
        return True

    async def written(self) -> None:
        """Return at once."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Set the result of `done` at once."""
        if not done.done():
            done.set_result(None)

    async def state(self, kind: StateKind, *, wide: bool = False, shared: bool = False) -> StateSpace:
        """See `engine.api.Sink`. It begins with what the test has given."""
        scope = scope_of(self._head, kind, wide=wide, shared=shared)
        return StoredSpace(self._state, scope, self, CLOCK, retry_s=0)

    def state_guard(self) -> StateGuard:
        """See `engine.state_space.Speaker`."""
        return StateGuard(self._head.id, 1)

    async def settle(self) -> None:
        """See `engine.state_space.Speaker`. Nothing is written."""

    @property
    def outdated(self) -> bool:
        """See `engine.state_space.Speaker`."""
        return False

    async def regain(self, lost: StateGuard, refused: Fenced) -> None:
        """See `engine.state_space.Speaker`. The right is never lost."""

    def remembered(self, *, wide: bool) -> dict[str, Any]:
        """The memory of the conversation, or of the caller, as it is now."""
        entries = self._state.read_entries(scope_of(self._head, "memory", wide=wide, shared=False))
        return {entry.key: msgspec.json.decode(entry.value) for entry in entries}

    def _remember(self, memory: Mapping[str, Any], *, wide: bool) -> None:
        puts = tuple(StatePut(key, msgspec.json.encode(json_of(value, "memory"))) for key, value in memory.items())
        self._state.make_write(StateWrite(scope=scope_of(self._head, "memory", wide=wide, shared=False), puts=puts))

    async def past(self, *, context: bool = False) -> "MemorySink":
        """See `engine.api.Sink`."""
        return self

    # -- engine.api.Past -----------------------------------------------------------------------------------------------

    async def references(self, head: TaskHead, task_ids: Sequence[str]) -> tuple[Record, ...]:
        """The tasks it was given."""
        return self._references

    async def request_metadata(self, message: Message) -> dict[str, Any] | None:
        """None: a test gives metadata for the first message alone."""
        return None

    async def messages(self, head: TaskHead, limit: int) -> tuple[Message, ...]:
        """The newest of the messages it was given."""
        return self._history[-limit:] if limit > 0 else ()

    async def note(self, head: TaskHead) -> dict[str, str]:
        """No notes: there are no earlier tasks."""
        return {}

    async def read(self, part: Part) -> bytes:
        """The bytes of the part, or those that the test has for its URL. Without them the test fails."""
        if part.raw is not None:
            return part.raw
        if part.url is None:
            raise Unreadable("the part is no file: it has neither raw bytes nor a url")
        if part.url not in self._files:
            raise AssertionError(f"the agent reads {part.url!r}: say what is there: files={{...}}")
        return self._files[part.url]

    # -- for the test --------------------------------------------------------------------------------------------------

    def end(self, word: End) -> None:
        """End the task. The reason is for programs, as on a server."""
        metadata = {"reason": word.reason} if word.reason else None
        message = self._said(word.parts, metadata) if word.parts else None
        self._add(StatusChanged(word.state, TIMESTAMP, message, usage=self._usage, duration_ms=0))

    def _said(self, parts: Sequence[Part], metadata: dict[str, Any] | None = None) -> Message:
        said = tuple(parts)
        return Message(message_id=f"agent-{len(self.events)}", role=Role.AGENT, parts=said, metadata=metadata)

    def _add(self, event: Event) -> None:
        self.events.append(event)
        self._fold.add(len(self.events), event)


def _message(message_id: str, content: str | Part | Sequence[Part] | Message) -> Message:
    match content:
        case Message():
            return content
        case str():
            parts: tuple[Part, ...] = (Part(text=content),)
        case Part():
            parts = (content,)
        case _:
            parts = tuple(content)
    return Message(message_id=message_id, role=Role.USER, parts=parts)


def _text(event: Event) -> str:
    return event.message.text if isinstance(event, StatusChanged) and event.message is not None else ""
