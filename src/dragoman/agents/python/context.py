"""A skill's view of its task, and what it can do with it: Context on the event loop, SyncContext in a thread.

Invariant: SyncContext has no behaviour of its own. Each of its calls is the one of the same name in Context.
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
"""The default number of messages of `ctx.history()`."""


class Context(Facts):
    """The argument of an `async` skill: its task, and what it can do with it."""

    __slots__ = ("_artifacts", "_run", "_skill")

    def __init__(self, run: Run, skill: str, artifacts: Artifacts) -> None:
        self._run = run
        self._skill = skill
        self._artifacts = artifacts

    async def history(self, limit: int = HISTORY_LIMIT) -> tuple[Message, ...]:
        """The newest `limit` messages of the conversation before this task, oldest first, including the agent's own."""
        return await self._run.history(limit)

    async def read(self, part: Part) -> bytes:
        """Return the bytes of a file part: its own, or those behind its `url`.

        A caller's URL is fetched only from the open internet and within the limits of the `fetch_` settings. Raises
        Unreadable, which says why.
        """
        return await self._run.read(part)

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names in `referenceTaskIds`, as far as they are the caller's own."""
        return await self._run.references()

    async def progress(self, current: int, total: int, text: str = "") -> None:
        """Report that step `current` of `total` has been reached, with a text that describes it."""
        await self._run.status(parts_of(text) if text else (), progress=(current, total))

    async def status(self, content: object, *, metadata: dict[str, Any] | None = None) -> None:
        """Report what is going on, usually as a text. Callers see it at once; it is not part of the result."""
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
        """Report that a tool is being called and, with the same `id` and `done`, its outcome.

        Callers see a status with a text, and its metadata describe the call to programs (tool-call-v1 of protoLabs).
        `error` is why the call failed; a call that failed is done. Raises TypeError if a value has no JSON form.
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
        """Emit an artifact beside the yielded content. Returns its id.

        With `append`, the content goes to the end of the artifact with that `id` or, without an id, of the newest with
        that `name`; the first chunk creates it. `last` says whether the artifact is now whole. The default: an artifact
        is, a chunk is not. The end of the task closes artifacts that are still open.
        """
        return await self._artifacts.given(
            content, name=name, description=description, id=id, append=append, last=last, media_type=media_type
        )

    async def ask(self, question: object) -> Answer:
        """Ask the caller (`input-required`), and wait for the answer, however long it takes.

        After a restart of the server, the skill runs again from its beginning, and every `ask` that was answered
        returns its answer at once. So up to here, the skill must take the same path again. What it yields on the way is
        not sent twice.
        """
        return await self._put(question, auth=False)

    async def require_auth(self, request: object) -> Answer:
        """Ask the caller to authenticate (`auth-required`), and wait for its next message, as `ask` does."""
        return await self._put(request, auth=True)

    async def _put(self, question: object, *, auth: bool) -> Answer:
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
        """Give a task to another agent of this server, and wait for its result.

        `message` is content as for `yield`; the default is the message of this task. The task belongs to the same
        caller, in the conversation `context_id` (default: this one), and ends when this one does. After `timeout_s` it
        is canceled. With `progress`, its reports are seen in this task, too. Its questions are put to the caller of
        this task, and the answers handed on; with `asks="raise"`, a question is raised instead. With `detach`, the call
        returns as soon as the task is created, and that task continues whatever happens to this one.

        After a restart of the server, what was delegated is not delegated again. Raises DelegationFailed unless the
        other agent has completed the task.
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
        """Like `delegate`, but yields the other agent's output as it comes: text as str, everything else as parts."""
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

        The call ends the function: nothing is emitted after it, and only `finally` blocks still run. Raises TypeError
        or ValueError if the content cannot be sent.
        """
        raise FinalWord(TaskState.COMPLETED, parts_of(content))

    async def fail(self, content: object) -> NoReturn:
        """End the task here as failed, as `finish` does. The caller reads `content`; nothing is logged."""
        raise FinalWord(TaskState.FAILED, parts_of(content))

    def note(self, name: str, text: str) -> None:
        """Write a text down under a name, for a later run of this task. No caller sees it."""
        self._run.note(**{name: text})

    def noted(self, name: str) -> str | None:
        """The text that this run or an earlier one of this task wrote down last under that name, else None."""
        return (self._run.record.note or {}).get(name)

    def usage(self, *, input: int = 0, output: int = 0, total: int | None = None) -> None:  # noqa: A002
        """Add to the tokens that this task has used; `total` defaults to the sum."""
        self._run.usage(Usage(input, output, input + output if total is None else total))


class SyncContext(Facts):
    """The argument of a plain function, which runs in a thread: like Context, but calls block instead of `await`.

    A call raises CancelledError once the task has been canceled, which ends the function.
    """

    __slots__ = ("_context", "_crossing", "_run", "_skill")

    def __init__(self, run: Run, skill: str, artifacts: Artifacts, crossing: Crossing[Any]) -> None:
        self._run = run
        self._skill = skill
        self._context = Context(run, skill, artifacts)
        self._crossing = crossing

    @property
    def canceled(self) -> bool:
        """Whether the task has been canceled. A function that works long without a call should check it, and return."""
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
        """As `Context.ask`. The function keeps its thread while it waits, so agents that ask often are best `async`."""
        return self._wait(lambda: self._context.ask(question))

    def require_auth(self, request: object) -> Answer:
        """As `Context.require_auth`. Keeps its thread, too."""
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
        """As `Context.delegate`. Keeps its thread, too."""
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
