"""What a skill sees of its task and what it can do with it: Context on the event loop, SyncContext in a thread.

Invariant: SyncContext does nothing of its own; each of its calls is the one of the same name in Context.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

from msgspec import UNSET

from dragoman.agents.artifacts import Artifacts
from dragoman.agents.content import parts_of
from dragoman.agents.delegating import order_of, streamed
from dragoman.agents.threads import Crossing
from dragoman.engine.api import Run
from dragoman.model.events import Delegated
from dragoman.model.message import Message, Part
from dragoman.model.principal import Principal
from dragoman.model.task import Record, Usage

R = TypeVar("R")

HISTORY_LIMIT = 100
"""How many messages `ctx.history()` looks back, unless told otherwise."""


class Answer(str):
    """The text of what the caller answered; `message` is all of it."""

    __slots__ = ("message",)
    message: Message

    def __new__(cls, message: Message) -> "Answer":
        """The answer that `message` gives."""
        answer = super().__new__(cls, message.text)
        answer.message = message
        return answer

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts of the answer, files and data included."""
        return self.message.parts

    @property
    def data(self) -> Any:
        """The first data part, None if there is none."""
        return _data(self.message)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts that are files: `raw` bytes, or a `url` to get them from."""
        return _files(self.message)


class Facts(Protocol):
    """What a skill knows of its task; the same in a Context and in a SyncContext."""

    _run: Run
    _skill: str

    @property
    def message(self) -> Message:
        """The message that made the task; also while answers to `ask` come in."""
        return self._run.message

    @property
    def text(self) -> str:
        """The text parts of the message, joined by newlines; empty when there are none."""
        return self._run.message.text

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts of the message."""
        return self._run.message.parts

    @property
    def data(self) -> Any:
        """The first data part of the message, None if there is none."""
        return _data(self._run.message)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts of the message that are files: `raw` bytes, or a `url` to get them from."""
        return _files(self._run.message)

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._run.head.id

    @property
    def context_id(self) -> str:
        """The id of the conversation that the task belongs to."""
        return self._run.head.context_id

    @property
    def principal(self) -> Principal:
        """Who is asking."""
        return self._run.principal

    @property
    def skill(self) -> str:
        """The id of the skill that runs."""
        return self._skill

    @property
    def skills(self) -> tuple[str, ...]:
        """The skills to which the caller restricts the run; empty when it does not."""
        return self._run.skills

    @property
    def extensions(self) -> tuple[str, ...]:
        """The URIs of the protocol extensions that are active for this task."""
        return self._run.extensions

    @property
    def traceparent(self) -> str | None:
        """The trace that calls to others shall continue, as the header of that name (W3C); None if nobody traces."""
        return self._run.traceparent

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the request; that of the message is in `message.metadata`."""
        return self._run.head.metadata or {}


class Context(Facts):
    """What an `async` skill is given."""

    __slots__ = ("_artifacts", "_run", "_skill")

    def __init__(self, run: Run, skill: str, artifacts: Artifacts) -> None:
        self._run = run
        self._skill = skill
        self._artifacts = artifacts

    async def history(self, limit: int = HISTORY_LIMIT) -> tuple[Message, ...]:
        """The newest `limit` messages of the conversation before this task, oldest first, the agent's own included."""
        return await self._run.history(limit)

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names in `referenceTaskIds`, those of them that are the caller's own."""
        return await self._run.references()

    async def progress(self, current: int, total: int, text: str = "") -> None:
        """Report that step `current` of `total` has been reached, and what it is."""
        await self._run.status(parts_of(text) if text else (), progress=(current, total))

    async def status(self, content: object, *, metadata: dict[str, Any] | None = None) -> None:
        """Say what is going on, usually in a text. It is seen at once and is no part of the result."""
        await self._run.status(parts_of(content), metadata=metadata)

    async def artifact(
        self,
        content: object,
        *,
        name: str | None = None,
        description: str | None = None,
        id: str | None = None,  # noqa: A002  the field's word
        append: bool = False,
        last: bool | None = None,
        media_type: str | None = None,
    ) -> str:
        """Give out an artifact beside what is yielded; the answer is its id.

        With `append` the content goes to the end of the artifact of that `id`, or, without one, of the newest of that
        `name`; the first chunk makes it. `last` says whether it is whole now: by default an artifact is, and a chunk
        is not; what is open at the end of the task is closed by it.
        """
        return await self._artifacts.given(
            content, name=name, description=description, id=id, append=append, last=last, media_type=media_type
        )

    async def ask(self, question: object) -> Answer:
        """Ask the caller (`input-required`), and wait for the answer, however long it takes.

        After a restart of the server the skill is run again from its beginning, and every `ask` that was answered
        returns its answer at once; so up to here it has to take the same way again. What it yields there is not sent
        twice.
        """
        return await self._asked(question, auth=False)

    async def require_auth(self, request: object) -> Answer:
        """Ask the caller to authenticate (`auth-required`), and wait for its next message, as `ask` does."""
        return await self._asked(request, auth=True)

    async def _asked(self, question: object, *, auth: bool) -> Answer:
        self._artifacts.turn()
        return Answer(await self._run.ask(parts_of(question), auth=auth))

    async def delegate(
        self,
        agent: str,
        message: object = None,
        *,
        skill: str | None = None,
        context_id: str | None = None,
        timeout_s: float | None = None,
        progress: bool = False,
        asks: Literal["pass", "raise"] = "pass",
        detach: bool = False,
    ) -> Delegated:
        """Give a task to another agent of this server, and wait for what it comes to.

        `message` is content as it is yielded; without one it is the message of this task. The task is the caller's own,
        in the conversation `context_id` (default: this one), and ends when this one does. After `timeout_s` it is
        canceled. With `progress` what it reports is seen here, too. What it asks is asked of the caller of this task,
        and the answer handed on; with `asks="raise"` it is raised instead. With `detach` the answer comes as soon as
        the task is made, and it goes on whatever becomes of this one.

        After a restart of the server what was delegated is not delegated again. Raises DelegationFailed unless the
        other agent has done the task.
        """
        return await self._run.delegate(
            order_of(
                agent,
                self.parts if message is None else parts_of(message),
                skill=skill,
                context_id=context_id,
                timeout_s=timeout_s,
                progress=progress,
                asks=asks,
                detach=detach,
            )
        )

    def delegate_stream(
        self,
        agent: str,
        message: object = None,
        *,
        skill: str | None = None,
        context_id: str | None = None,
        timeout_s: float | None = None,
        progress: bool = False,
        asks: Literal["pass", "raise"] = "pass",
    ) -> AsyncGenerator[str | Part, None]:
        """As `delegate`, and give what the other agent gives out as it comes: its text as text, all else as parts."""
        order = order_of(
            agent,
            self.parts if message is None else parts_of(message),
            skill=skill,
            context_id=context_id,
            timeout_s=timeout_s,
            progress=progress,
            asks=asks,
        )
        return streamed(self._run, order)

    def usage(self, *, input: int = 0, output: int = 0, total: int | None = None) -> None:  # noqa: A002
        """Add to the tokens this task has used; `total` is the sum unless given."""
        self._run.usage(Usage(input, output, input + output if total is None else total))


class SyncContext(Facts):
    """What a plain function is given, which runs in a thread: as Context, but every call waits, without `await`.

    A call raises CancelledError once the task has been canceled, and so ends the function.
    """

    __slots__ = ("_context", "_crossing", "_run", "_skill")

    def __init__(self, run: Run, skill: str, artifacts: Artifacts, crossing: Crossing[Any]) -> None:
        self._run = run
        self._skill = skill
        self._context = Context(run, skill, artifacts)
        self._crossing = crossing

    @property
    def canceled(self) -> bool:
        """Whether the task has been canceled: a function that works long without a call should look, and return."""
        return self._crossing.canceled

    def history(self, limit: int = HISTORY_LIMIT) -> tuple[Message, ...]:
        """As `Context.history`."""
        return self._wait(lambda: self._context.history(limit))

    def references(self) -> tuple[Record, ...]:
        """As `Context.references`."""
        return self._wait(self._context.references)

    def progress(self, current: int, total: int, text: str = "") -> None:
        """As `Context.progress`."""
        self._wait(lambda: self._context.progress(current, total, text))

    def status(self, content: object, *, metadata: dict[str, Any] | None = None) -> None:
        """As `Context.status`."""
        self._wait(lambda: self._context.status(content, metadata=metadata))

    def artifact(
        self,
        content: object,
        *,
        name: str | None = None,
        description: str | None = None,
        id: str | None = None,  # noqa: A002  the field's word
        append: bool = False,
        last: bool | None = None,
        media_type: str | None = None,
    ) -> str:
        """As `Context.artifact`."""
        return self._wait(
            lambda: self._context.artifact(
                content, name=name, description=description, id=id, append=append, last=last, media_type=media_type
            )
        )

    def ask(self, question: object) -> Answer:
        """As `Context.ask`. The function keeps its thread while it waits: agents that ask much are better `async`."""
        return self._wait(lambda: self._context.ask(question))

    def require_auth(self, request: object) -> Answer:
        """As `Context.require_auth`; keeps its thread, too."""
        return self._wait(lambda: self._context.require_auth(request))

    def delegate(
        self,
        agent: str,
        message: object = None,
        *,
        skill: str | None = None,
        context_id: str | None = None,
        timeout_s: float | None = None,
        progress: bool = False,
        asks: Literal["pass", "raise"] = "pass",
        detach: bool = False,
    ) -> Delegated:
        """As `Context.delegate`; keeps its thread, too."""
        return self._wait(
            lambda: self._context.delegate(
                agent,
                message,
                skill=skill,
                context_id=context_id,
                timeout_s=timeout_s,
                progress=progress,
                asks=asks,
                detach=detach,
            )
        )

    def delegate_stream(
        self,
        agent: str,
        message: object = None,
        *,
        skill: str | None = None,
        context_id: str | None = None,
        timeout_s: float | None = None,
        progress: bool = False,
        asks: Literal["pass", "raise"] = "pass",
    ) -> Iterator[str | Part]:
        """As `Context.delegate_stream`, for a plain `for`."""
        stream = self._context.delegate_stream(
            agent, message, skill=skill, context_id=context_id, timeout_s=timeout_s, progress=progress, asks=asks
        )
        while (piece := self._wait(lambda: anext(stream, None))) is not None:
            yield piece

    def usage(self, *, input: int = 0, output: int = 0, total: int | None = None) -> None:  # noqa: A002
        """As `Context.usage`."""

        async def report() -> None:
            self._context.usage(input=input, output=output, total=total)

        self._wait(report)

    def _wait(self, make: Callable[[], Awaitable[R]]) -> R:
        return self._crossing.call(make)


def _data(message: Message) -> Any:
    return next((part.data for part in message.parts if part.data is not UNSET), None)


def _files(message: Message) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if part.raw is not None or part.url is not None)
