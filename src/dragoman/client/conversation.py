"""Messages from what a caller passes, and a conversation with an agent: each turn continues the one before.

Invariant: every message has an id, a fresh UUID unless the caller passes one, so that a repeat can be recognised. A
message after a question answers it in the same task; a message after an end begins a new task in the same context.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from dragoman.client.stream import TaskStream
from dragoman.client.task_fold import TaskFold
from dragoman.model.errors import TaskNotFound, UnsupportedOperation
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import StreamMessage, Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskState
from dragoman.model.updates import Update

Content = str | Part | Sequence[str | Part] | Message
"""A text, a part, several of them, or a whole message."""

LAST_RESORT = frozenset({"done", "done."})
"""Texts that servers put in a status when the answer is elsewhere (KAOS: in the history)."""


def make_message(
    content: Content,
    *,
    context_id: str | None = None,
    task_id: str | None = None,
    reference_task_ids: Sequence[str] = (),
    metadata: dict[str, Any] | None = None,
    message_id: str | None = None,
) -> Message:
    """Build the message for `content`. The other arguments override the fields of a whole message.

    Raises TypeError if `content` is not of that type.
    """
    if isinstance(content, Message):
        return replace(
            content,
            message_id=message_id or content.message_id or new_id(),
            context_id=context_id or content.context_id,
            task_id=task_id or content.task_id,
            reference_task_ids=tuple(reference_task_ids) or content.reference_task_ids,
            metadata=content.metadata if metadata is None else metadata,
        )
    several = content if isinstance(content, Sequence) and not isinstance(content, str | bytes) else (content,)
    return Message(
        message_id=message_id or new_id(),
        role=Role.USER,
        parts=tuple(_part(each) for each in several),
        context_id=context_id,
        task_id=task_id,
        reference_task_ids=tuple(reference_task_ids),
        metadata=metadata,
    )


def _part(said: object) -> Part:
    match said:
        case str():
            return Part(text=said)
        case Part():
            return said
        case _:
            raise TypeError(
                f"content is a str, a Part, several of them, or a Message, not {type(said).__name__}: "
                "use Part(data=…) for JSON, Part(raw=…) for bytes"
            )


class ConversationPeer(Protocol):
    """The other side of the conversation; see Connection."""

    async def send(
        self, content: Message, *, skill: str | None = None, output_modes: Sequence[str] = ()
    ) -> Task | Message:
        """See Connection."""
        ...

    def task_stream(self, operation: StreamMessage | Subscribe) -> TaskStream:
        """See Connection."""
        ...

    async def get(self, task_id: str) -> Task:
        """See Connection."""
        ...


class Reply(Struct, frozen=True):
    """An agent's answer: a task, or a message if the agent makes no task."""

    answer: Task | Message

    @property
    def task(self) -> Task | None:
        """The task, None if the answer is a message."""
        return self.answer if isinstance(self.answer, Task) else None

    @property
    def state(self) -> TaskState:
        """The state of the task; a message counts as completed."""
        return self.answer.status.state if isinstance(self.answer, Task) else TaskState.COMPLETED

    @property
    def asks(self) -> bool:
        """Whether the agent waits for the caller's next message; `text` is its question."""
        return self.state is TaskState.INPUT_REQUIRED

    @property
    def needs_auth(self) -> bool:
        """Whether the agent waits until its caller has authenticated somewhere; `text` says where."""
        return self.state is TaskState.AUTH_REQUIRED

    @property
    def text(self) -> str:
        """The text of the answer: see `text_of`."""
        return text_of(self.answer)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all artifacts in order; those of the status message if there are none, or if the task waits."""
        if isinstance(self.answer, Message):
            return self.answer.parts
        held = tuple(part for artifact in self.answer.artifacts for part in artifact.parts)
        said = self.answer.status.message
        if said is not None and (not held or self.state in INTERRUPTED):
            return said.parts
        return held

    @property
    def data(self) -> Any:
        """The first data part, None if there is none."""
        return next((part.data for part in self.parts if part.data is not UNSET), None)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts that are files: `raw` bytes, or a `url` to get them from."""
        return tuple(part for part in self.parts if part.raw is not None or part.url is not None)


def text_of(answer: Task | Message) -> str:
    """Return the text of an answer, empty if there is none.

    For a task that waits this is what it waits for. Otherwise it is the text of the artifacts, one line each, or else
    the text of the status, or else the agent's last message in the history. A status that only says "done" comes last.
    """
    if isinstance(answer, Message):
        return answer.text
    texts = ("".join(part.text or "" for part in artifact.parts) for artifact in answer.artifacts)
    artifacts = "\n".join(filter(None, texts))
    said = "" if answer.status.message is None else answer.status.message.text
    last = next((each.text for each in reversed(answer.history) if each.role is Role.AGENT and each.text), "")
    if answer.status.state in INTERRUPTED:
        return said or artifacts or last
    if said.lower() in LAST_RESORT:
        return artifacts or last or said
    return artifacts or said or last


class Conversation:
    """A conversation, one turn at a time. `context_id` is the agent's id for it, None before the first answer.

    `task_id` is the id of the task that waits for an answer, None if none does. `reply` is the last reply.
    """

    def __init__(self, agent: ConversationPeer, context_id: str | None = None) -> None:
        self.context_id = context_id
        self.task_id: str | None = None
        self.reply: Reply | None = None
        self._agent = agent

    async def say(
        self,
        content: Content,
        *,
        metadata: dict[str, Any] | None = None,
        skill: str | None = None,
        output_modes: Sequence[str] = (),
    ) -> Reply:
        """Send a message, and wait for the reply however long the task takes, even if the agent answers earlier.

        Raises as `Connection.send` does. If a waiting task has meanwhile ended, the next message begins a new one.
        """
        try:
            answer = await self._agent.send(self._turn(content, metadata), skill=skill, output_modes=output_modes)
        except (TaskNotFound, UnsupportedOperation):
            self.task_id = None
            raise
        return self._record(await self._wait_for_end(answer) if isinstance(answer, Task) else answer)

    async def stream(
        self,
        content: Content,
        *,
        metadata: dict[str, Any] | None = None,
        skill: str | None = None,
        output_modes: Sequence[str] = (),
    ) -> AsyncGenerator[Update, None]:
        """Send a message, and yield the updates of its task; afterwards `reply` is the result."""
        fold = TaskFold()
        message = self._turn(content, metadata)
        operation = StreamMessage(message=message, skill=skill, accepted_output_modes=tuple(output_modes))
        try:
            async with aclosing(self._agent.task_stream(operation).updates()) as updates:
                async for update in updates:
                    fold.add(update)
                    yield update
        except (TaskNotFound, UnsupportedOperation):
            self.task_id = None
            raise
        finally:
            answer = fold.task() or fold.message
            if answer is not None:
                self._record(answer)

    def _turn(self, content: Content, metadata: dict[str, Any] | None) -> Message:
        return make_message(content, context_id=self.context_id, task_id=self.task_id, metadata=metadata)

    async def _wait_for_end(self, task: Task) -> Task:
        """Return the task once it has ended or waits: servers answer a long send early, with an unfinished task."""
        if task.status.state in TERMINAL | INTERRUPTED:
            return task
        fold = TaskFold(task.id)
        try:
            async with aclosing(self._agent.task_stream(Subscribe(id=task.id)).updates()) as updates:
                async for update in updates:
                    fold.add(update)
                    if fold.state in INTERRUPTED:
                        break
        except UnsupportedOperation:
            pass  # the task has ended meanwhile
        return await self._agent.get(task.id)

    def _record(self, answer: Task | Message) -> Reply:
        self.context_id = answer.context_id or self.context_id
        waits = isinstance(answer, Task) and answer.status.state in INTERRUPTED
        self.task_id = answer.id if isinstance(answer, Task) and waits else None
        self.reply = Reply(answer)
        return self.reply
