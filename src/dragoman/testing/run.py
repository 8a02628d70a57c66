"""Run an agent in a test: no server, no store, no network.

Invariant: the agent gets the same Run as on a server, and its events are folded by the same rules.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import UNSET, Struct

from dragoman.agents.content import parts_of
from dragoman.engine.api import Ended, Hear, Reject, Run, Runner, Unreadable
from dragoman.engine.bounds import Bounds
from dragoman.engine.words import Ask, Delegation, End, Note, Say, Waiting, Working
from dragoman.model.events import ArtifactChunk, Delegated, Event, MessageReceived, Noted, StatusChanged, Submitted
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.operations import CallerCredentials
from dragoman.model.principal import ANONYMOUS, Principal
from dragoman.model.task import Progress, Record, TaskHead, TaskState, Usage

TIMESTAMP = "2026-01-01T00:00:00.000Z"
"""The time of every event in a FakeRun."""

NOTHING: Mapping[str, Iterable[object]] = MappingProxyType({})
"""The outcomes of delegations in a test that has none."""

NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class Ran(Struct, frozen=True, kw_only=True):
    """The result of a run. `events` holds everything that happened, in order; `record` is the task they fold to.

    `orders` are the tasks that the agent delegated.
    """

    record: Record
    events: tuple[Event, ...]
    orders: tuple[Delegation, ...] = ()

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
) -> Ran:
    """Send `message` to the agent, answer its questions with `answers` in turn, and wait for it to finish.

    `delegated` holds the outcomes of delegations for each other agent, in turn: content as an agent yields it, or an
    exception with which the other agent fails (Reject rejects the task). `files` holds the bytes behind URLs.

    An exception of the agent is raised here; on a server it would fail the task.
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
    )
    try:
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
    return Ran(record=fake.record, events=tuple(fake.events), orders=tuple(fake.orders))


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


class MemorySink:
    """See `engine.api.Sink`: keeps the words in memory, as events. Nothing waits, and nothing is written."""

    canceled: bool = False
    shown: CallerCredentials | None = None
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
    ) -> None:
        self.events: list[Event] = []
        self.orders: list[Delegation] = []
        self.waits = False
        self._delegated = {agent: list(outcomes) for agent, outcomes in delegated.items()}
        self._files = files
        self._answers = list(answers)
        self._history = tuple(history)
        self._references = tuple(references)
        self._usage: Usage | None = None
        self._fold = Fold(head)
        self._add(Submitted(message, TIMESTAMP))
        self._add(StatusChanged(TaskState.WORKING, TIMESTAMP))

    # -- engine.api.Sink -----------------------------------------------------------------------------------------------

    @property
    def record(self) -> Record:
        """The task so far."""
        return self._fold.record()

    def check(self) -> None:
        """See `engine.api.Sink`. Everything counts."""

    def say(self, word: Say | ArtifactChunk, weight: int = 0) -> None:
        """Keep it. An append to an artifact that is not there fails the test."""
        if isinstance(word, ArtifactChunk):
            key = word.artifact.artifact_id
            if word.append and all(key != known.artifact_id for known in self.record.artifacts):
                raise AssertionError(f"the first chunk of artifact {key!r} is an append")
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

    async def written(self) -> None:
        """Return at once."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Set the result of `done` at once."""
        if not done.done():
            done.set_result(None)

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
