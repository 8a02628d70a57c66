"""A conversation with an agent: what is said next goes on from what was said before.

Invariant: what follows a question answers it, in its task; what follows an end begins a new task in the same context.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import UNSET, Struct

from dragoman.client.folding import Folding
from dragoman.client.messages import Content
from dragoman.model.errors import TaskNotFound, UnsupportedOperation
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskState
from dragoman.model.updates import Update

LAST_RESORT = frozenset({"done", "done."})
"""What servers say in a status when the answer stands elsewhere (KAOS: in the history)."""


class Agent(Protocol):
    """Whom one talks to: see Connection."""

    async def send(
        self,
        content: Content,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        skill: str | None = None,
        output_modes: Sequence[str] = (),
    ) -> Task | Message:
        """See Connection."""
        ...

    def stream(
        self,
        content: Content,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        skill: str | None = None,
        output_modes: Sequence[str] = (),
    ) -> AsyncGenerator[Update, None]:
        """See Connection."""
        ...

    def subscribe(self, task_id: str) -> AsyncGenerator[Update, None]:
        """See Connection."""
        ...

    async def get(self, task_id: str) -> Task:
        """See Connection."""
        ...


class Reply(Struct, frozen=True):
    """What an agent answered: a task, or of one that makes none a message."""

    answer: Task | Message

    @property
    def task(self) -> Task | None:
        """The task, None if there is none."""
        return self.answer if isinstance(self.answer, Task) else None

    @property
    def state(self) -> TaskState:
        """The state of the task; a message alone is a completed answer."""
        return self.answer.status.state if isinstance(self.answer, Task) else TaskState.COMPLETED

    @property
    def asks(self) -> bool:
        """Whether the agent waits for what is said next; `text` is its question."""
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
        """All that the agent gave out: the parts of the artifacts, in order; of what it said, if there are none."""
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
    """The text of an answer, empty if there is none.

    Of a task that waits, what it waits for; else that of its artifacts, a line for each; else what its status says,
    else the last word of the agent in its history. A status that only says that it is done comes last.
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
    """A conversation, one turn at a time. `context_id` is what the agent calls it, None before it has answered.

    `task_id` is that of the task which waits for an answer, None if none does. `reply` is the last one.
    """

    def __init__(self, agent: Agent, context_id: str | None = None) -> None:
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
        """Say something, and wait for the reply: however long the task takes, and whatever the agent's patience.

        Raises as `Connection.send`. If a task that waited has ended meanwhile, what is said next begins a new one.
        """
        try:
            answer = await self._agent.send(
                content,
                context_id=self.context_id,
                task_id=self.task_id,
                metadata=metadata,
                skill=skill,
                output_modes=output_modes,
            )
        except (TaskNotFound, UnsupportedOperation):
            self.task_id = None
            raise
        return self._heard(await self._settled(answer) if isinstance(answer, Task) else answer)

    async def stream(
        self,
        content: Content,
        *,
        metadata: dict[str, Any] | None = None,
        skill: str | None = None,
        output_modes: Sequence[str] = (),
    ) -> AsyncGenerator[Update, None]:
        """Say something, and follow what becomes of it; then `reply` is what it came to."""
        folding = Folding()
        updates = self._agent.stream(
            content,
            context_id=self.context_id,
            task_id=self.task_id,
            metadata=metadata,
            skill=skill,
            output_modes=output_modes,
        )
        try:
            async with aclosing(updates):
                async for update in updates:
                    folding.add(update)
                    yield update
        except (TaskNotFound, UnsupportedOperation):
            self.task_id = None
            raise
        finally:
            answer = folding.task() or folding.message
            if answer is not None:
                self._heard(answer)

    async def _settled(self, task: Task) -> Task:
        """The task when it has ended, or waits: servers answer a send after some minutes with it as it stands then."""
        if task.status.state in TERMINAL | INTERRUPTED:
            return task
        folding = Folding(task.id)
        try:
            async with aclosing(self._agent.subscribe(task.id)) as updates:
                async for update in updates:
                    folding.add(update)
                    if folding.state in INTERRUPTED:
                        break
        except UnsupportedOperation:
            pass  # it has ended in between
        return await self._agent.get(task.id)

    def _heard(self, answer: Task | Message) -> Reply:
        self.context_id = answer.context_id or self.context_id
        waits = isinstance(answer, Task) and answer.status.state in INTERRUPTED
        self.task_id = answer.id if isinstance(answer, Task) and waits else None
        self.reply = Reply(answer)
        return self.reply
