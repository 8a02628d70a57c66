"""What a skill sees of its task and what it can do with it: Context on the event loop, SyncContext in a thread.

Invariant: SyncContext does nothing of its own; each of its calls is the one of the same name in Context.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, Literal, NoReturn, TypeVar

from dragoman.agents.artifacts import Artifacts
from dragoman.agents.content import parts_of
from dragoman.agents.python.delegation import order_of, streamed
from dragoman.agents.python.facts import Answer, Facts
from dragoman.agents.python.final_word import FinalWord
from dragoman.agents.python.threads import Crossing
from dragoman.agents.tool_calls import ToolCall
from dragoman.engine.api import Run
from dragoman.model.events import Delegated
from dragoman.model.message import Message, Part
from dragoman.model.task import Record, TaskState, Usage

R = TypeVar("R")

HISTORY_LIMIT = 100
"""How many messages `ctx.history()` looks back, unless told otherwise."""


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

    async def read(self, part: Part) -> bytes:
        """The bytes of a file part: its own, or those that its `url` leads to.

        What a caller linked to is fetched only from the open internet, and only so much of it, as the `fetch_` settings
        say. Raises Unreadable, which says why.
        """
        return await self._run.read(part)

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names in `referenceTaskIds`, those of them that are the caller's own."""
        return await self._run.references()

    async def progress(self, current: int, total: int, text: str = "") -> None:
        """Report that step `current` of `total` has been reached, and what it is."""
        await self._run.status(parts_of(text) if text else (), progress=(current, total))

    async def status(self, content: object, *, metadata: dict[str, Any] | None = None) -> None:
        """Say what is going on, usually in a text. It is seen at once and is no part of the result."""
        await self._run.status(parts_of(content), metadata=metadata)

    async def tool(
        self,
        name: str,
        *,
        id: str,  # noqa: A002  the field's word
        arguments: Any = None,
        result: Any = None,
        error: str | None = None,
        done: bool = False,
    ) -> None:
        """Say that a tool is being called, and, with the same `id` and `done`, what came of it.

        Callers see a status that says so, and its metadata tell programs of the call (tool-call-v1 of protoLabs).
        `error` is why it failed; a call that failed is done. Raises TypeError if a value has no JSON form.
        """
        call = ToolCall(id=id, name=name, arguments=arguments, result=result, error=error, done=done)
        await call.told(self._run)

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

    async def finish(self, content: object) -> NoReturn:
        """End the task here as completed; `content` is the message of its last status. Artifacts stay as they are.

        This ends the function: nothing is given out after it, and only `finally` blocks still run. Raises TypeError or
        ValueError if the content cannot be sent.
        """
        raise FinalWord(TaskState.COMPLETED, parts_of(content))

    async def fail(self, content: object) -> NoReturn:
        """End the task here as failed, as `finish` does. The caller reads `content`; nothing is logged."""
        raise FinalWord(TaskState.FAILED, parts_of(content))

    def note(self, name: str, text: str) -> None:
        """Write something down for a later run of this task, under a name; no caller is told of it."""
        self._run.note(**{name: text})

    def noted(self, name: str) -> str | None:
        """What this run or an earlier one of this task wrote down last under that name; None if nothing."""
        return (self._run.record.note or {}).get(name)

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

    def read(self, part: Part) -> bytes:
        """As `Context.read`."""
        return self._wait(lambda: self._context.read(part))

    def references(self) -> tuple[Record, ...]:
        """As `Context.references`."""
        return self._wait(self._context.references)

    def progress(self, current: int, total: int, text: str = "") -> None:
        """As `Context.progress`."""
        self._wait(lambda: self._context.progress(current, total, text))

    def status(self, content: object, *, metadata: dict[str, Any] | None = None) -> None:
        """As `Context.status`."""
        self._wait(lambda: self._context.status(content, metadata=metadata))

    def tool(
        self,
        name: str,
        *,
        id: str,  # noqa: A002  the field's word
        arguments: Any = None,
        result: Any = None,
        error: str | None = None,
        done: bool = False,
    ) -> None:
        """As `Context.tool`."""
        self._wait(lambda: self._context.tool(name, id=id, arguments=arguments, result=result, error=error, done=done))

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

    def finish(self, content: object) -> NoReturn:
        """As `Context.finish`."""
        self._wait(lambda: self._context.finish(content))
        raise AssertionError("finish returned")

    def fail(self, content: object) -> NoReturn:
        """As `Context.fail`."""
        self._wait(lambda: self._context.fail(content))
        raise AssertionError("fail returned")

    def note(self, name: str, text: str) -> None:
        """As `Context.note`."""

        async def note() -> None:
            self._context.note(name, text)

        self._wait(note)

    def noted(self, name: str) -> str | None:
        """As `Context.noted`."""

        async def noted() -> str | None:
            return self._context.noted(name)

        return self._wait(noted)

    def usage(self, *, input: int = 0, output: int = 0, total: int | None = None) -> None:  # noqa: A002
        """As `Context.usage`."""

        async def report() -> None:
            self._context.usage(input=input, output=output, total=total)

        self._wait(report)

    def _wait(self, make: Callable[[], Awaitable[R]]) -> R:
        return self._crossing.call(make)
