"""A skill's view of its task, what it can do with it, and the answers of its caller.

Invariant: facts do not wait, since all of them came with the task. `finish` and `fail` end the agent's function, so
nothing is emitted after them.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NoReturn, Protocol, TypeVar, overload
from uuid import UUID

from msgspec import UNSET

from dragoman.agents.content import Artifacts, parts_of
from dragoman.agents.python.delegation import build_order, stream_result
from dragoman.agents.python.final_word import FinalWord
from dragoman.agents.python.memory import Memory
from dragoman.agents.python.sleeps import sleep_for, sleep_until
from dragoman.agents.python.steps import (
    CallPlain,
    StepOptions,
    calling_in,
    named_step,
    present_step_key,
    record_now,
    record_random,
    record_uuid,
    take_step,
)
from dragoman.agents.python.threads import Threads
from dragoman.agents.tools import ToolReport
from dragoman.engine import bounds
from dragoman.engine.api import Ended, Replied, Run
from dragoman.model.events import Delegated
from dragoman.model.message import Message, Part
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskState, Usage

T = TypeVar("T")

HISTORY_LIMIT = 100
"""The default number of messages of `ctx.history()`."""


class Answer(str):
    """The text of the caller's answer; `message` is the whole answer."""

    __slots__ = ("message",)
    message: Message

    def __new__(cls, message: Message) -> "Answer":
        """Wrap the answer that `message` gives."""
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
    """The facts of a skill's task, the same in a Context and in a SyncContext."""

    _run: Run
    _skill: str
    _state: Any

    @property
    def state(self) -> Any:
        """The object that the agent's lifespan yields, the same for all of its tasks in this process.

        Raises RuntimeError if the agent has no lifespan.
        """
        if self._state is UNSET:
            raise RuntimeError(
                "ctx.state: the agent has no lifespan: give Agent(…, lifespan=…) a function with @asynccontextmanager "
                "that yields the state; a test may give run(…, state=…)"
            )
        return self._state

    @property
    def step_key(self) -> str:
        """The key of the step whose function runs now. Raises RuntimeError outside of one."""
        return present_step_key()

    @property
    def message(self) -> Message:
        """The message that created the task, even after answers to `ask` have arrived."""
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
        """The authenticated caller."""
        return self._run.principal

    @property
    def skill(self) -> str:
        """The id of the skill that runs."""
        return self._skill

    @property
    def skills(self) -> tuple[str, ...]:
        """The skills to which the caller restricts the run; empty if it does not."""
        return self._run.skills

    @property
    def extensions(self) -> tuple[str, ...]:
        """The URIs of the protocol extensions that are active for this task."""
        return self._run.extensions

    @property
    def traceparent(self) -> str | None:
        """The trace context for outgoing calls, as the header of that name (W3C); None if nobody traces."""
        return self._run.traceparent

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers that the agent lists, by their names in lower case, of the request with the present message.

        That is the message of the task and, after `ask`, the answer. A header that was not sent is missing; one that
        was sent several times is one text, with commas. None if they are lost (`headers_lost`). Raises RuntimeError if
        the agent lists none.
        """
        return self._run.headers

    @property
    def headers_lost(self) -> bool:
        """Whether the headers of the present message are not here any more.

        They are never stored: a run that continues after a restart or on another replica has none until the next
        answer.
        """
        return self._run.headers is None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the request; the message's own are in `message.metadata`."""
        return self._run.head.metadata or {}


class Context(Facts):
    """The argument of an `async` skill: its task, and what it can do with it.

    Every call checks what it is given before anything else, and raises TypeError or ValueError, which names the
    argument: for a wrong type, for text of more than `max_text` characters, for names, ids and media types of more than
    1,024, for half of a surrogate pair in them, and for JSON that is nested deeper than 64 levels, or has an integer
    beyond ±2^53 or a number that is not finite. A subclass of `str`, such as an Answer, is the text that it holds.
    """

    __slots__ = ("_artifacts", "_run", "_skill", "_state", "_threads")

    def __init__(self, run: Run, skill: str, artifacts: Artifacts, threads: Threads, state: Any = UNSET) -> None:
        self._run = run
        self._skill = skill
        self._state = state
        self._artifacts = artifacts
        self._threads = threads

    async def history(self, limit: int = HISTORY_LIMIT) -> tuple[Message, ...]:
        """The newest `limit` messages of the conversation before this task, oldest first, including the agent's own."""
        return await self._run.history(limit)

    async def read(self, part: Part) -> bytes:
        """Return the bytes of a file part: its own, or those behind its `url`.

        A caller's URL is fetched only from the open internet and within the limits of the `fetch_` settings. Raises
        Unreadable, which says why.
        """
        if not isinstance(part, Part):
            raise TypeError(f"part must be a Part, not {bounds.type_name(part)}")
        return await self._run.read(part)

    async def references(self) -> tuple[Record, ...]:
        """The tasks that the message names in `referenceTaskIds`, as far as they are the caller's own."""
        return await self._run.references()

    async def progress(self, current: int, total: int, text: str = "") -> None:
        """Report that step `current` of `total` has been reached, with a text that describes it."""
        said = self._run.bounds.text("text", bounds.whole_characters(text))
        await self._run.status((Part(text=said),) if said else (), progress=(current, total))

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
        `error` is why the call failed; a call that failed is done.
        """
        report = ToolReport(
            id=bounds.name("id", id),
            name=bounds.name("name", name),
            arguments=arguments,
            result=result,
            error=None if error is None else self._run.bounds.text("error", error),
            done=bounds.flag("done", done),
        )
        await report.send(self._run)

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
        return await self._artifacts.emit(
            content, name=name, description=description, id=id, append=append, last=last, media_type=media_type
        )

    async def ask(self, question: object) -> Answer:
        """Ask the caller (`input-required`), and wait for the answer, however long it takes.

        After a restart of the server, the skill runs again from its beginning, and every `ask` that was answered
        returns its answer at once. So up to here, the skill must take the same path again. Output that was sent before
        is not sent twice.
        """
        return await self._put(question, auth=False)

    async def require_auth(self, request: object) -> Answer:
        """Ask the caller to authenticate (`auth-required`), and wait for its next message, as `ask` does."""
        return await self._put(request, auth=True)

    async def _put(self, question: object, *, auth: bool) -> Answer:
        self._artifacts.begin_new()
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
        caller, in the conversation `context_id` (default: this one), and ends when this one does. After `timeout_s`,
        which includes the time that a caller takes to answer its questions, it is canceled; it has no longer than is
        left of the time that this task was given itself. With `progress`, its reports are seen in this task, too. Its
        questions are put to the caller of this task, and the answers handed on; with `asks="raise"`, a question is
        raised instead. With `detach`, the call returns as soon as the task is created, and that task continues whatever
        happens to this one. The default of `skill` is the other agent's first one.

        After a restart of the server, what was delegated is not delegated again. Raises DelegationFailed unless the
        other agent has completed the task.
        """
        return await self._run.delegate(
            build_order(
                self._run,
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
        order = build_order(
            self._run,
            agent,
            self.parts if message is None else parts_of(message),
            skill=skill,
            context_id=context_id,
            timeout_s=timeout_s,
            progress=progress,
            asks=asks,
        )
        return stream_result(self._run, order)

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: str | None = ...,
        retries: int = ...,
        backoff_s: float = ...,
        timeout_s: float | None = ...,
        at_most_once: bool = ...,
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        key: str | None = ...,
        retries: int = ...,
        backoff_s: float = ...,
        timeout_s: float | None = ...,
        at_most_once: bool = ...,
        **kwargs: Any,
    ) -> T: ...

    async def step(
        self,
        name: str,
        fn: Callable[..., object],
        /,
        *args: Any,
        key: str | None = None,
        retries: int = 0,
        backoff_s: float = 1.0,
        timeout_s: float | None = None,
        at_most_once: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call `fn(*args, **kwargs)` once, and record its result, which is on disk when this returns.

        After a crash the skill runs again from its beginning, and each step that is recorded returns its result at
        once, without a call. So up to here the skill must take the same path again. A plain function is called in a
        thread. It may have a parameter `step_key`: a text that is the same in every attempt, for the other side to tell
        a repetition. Steps of one name are told apart by their place in the skill, or by `key`.

        A result is what `yield` may give, a dataclass, a msgspec struct, a Pydantic model, or JSON. The function is
        called at least once; with `at_most_once` it is not called again after a crash in which nobody knows whether it
        was called: the task fails with the reason `step_uncertain`, or asks its caller (the agent's `step_uncertain`),
        who answers `again`, `failed`, or with the result as data. A function that raises is tried again `retries`
        times, after `backoff_s`, which doubles each time up to a minute. After that, or past `timeout_s`, this raises
        StepFailed (`name`, `type`, `text`), in this run and in every later one. A plain function that takes longer than
        `timeout_s` is left behind in its thread, and not tried again. A step has no place in another step, nor in a
        thread that the skill starts.
        """
        word = named_step(name, fn, key, at_most_once=at_most_once)
        options = StepOptions(retries, backoff_s, timeout_s)
        return await take_step(self._run, word, fn, partial(fn, *args, **kwargs), options, self._call_plain())

    def _call_plain(self) -> CallPlain:
        """Where the plain functions of steps are called."""
        return calling_in(self._threads.of_steps)

    async def sleep(self, duration: str | float | timedelta, *, wake_on_message: bool = False) -> None:
        """Let nobody work on the task for a time: seconds, a timedelta, or a text like `"90s"`, `"2h"` or `"1d 12h"`.

        The end of the sleep is recorded, so that neither a restart nor another run makes it shorter or longer. If it is
        longer than the setting `suspend_after_s`, and no other asyncio task of the skill is at work, the skill ends
        here with a CancelledError, and nothing of the task stays in memory. When the task wakes, the skill runs again
        from its beginning up to here, restartable or not, as after a crash (see `step`); an `asyncio.timeout` around
        the call does not end such a sleep.

        The caller sees the task at work. A message that comes meanwhile is kept for the next `ask`; with
        `wake_on_message` it ends the sleep, too, and so does one that no `ask` has taken yet. A cancel ends the task at
        once. The time asleep does not count towards `deadline_s`.
        """
        await self._run.sleep(sleep_for(duration, wake_on_message=wake_on_message))

    async def sleep_until(self, when: datetime, *, wake_on_message: bool = False) -> None:
        """As `sleep`, until a time, which must have a time zone. One that has passed is over at once."""
        await self._run.sleep(sleep_until(when, wake_on_message=wake_on_message))

    @property
    def memory(self) -> Memory:
        """The agent's memory of this conversation; `ctx.memory.caller` is that of its caller."""
        return Memory(self._run)

    async def patched(self, name: str) -> bool:
        """Whether this task is to go the way of a change of the code, which `name` names.

        True for tasks that come here for the first time after the change, and recorded with them. False for a task that
        a run of the code before has brought further than here: it continues as it began.
        """
        return await self._run.patched(name)

    async def now(self) -> datetime:
        """The present time in UTC, which a later run of the task gets again at this place."""
        return await record_now(self._run)

    async def random(self) -> float:
        """A random number from 0 to 1, without 1, which a later run of the task gets again at this place."""
        return await record_random(self._run)

    async def uuid(self) -> UUID:
        """A random UUID, which a later run of the task gets again at this place."""
        return await record_uuid(self._run)

    async def finish(self, content: object) -> NoReturn:
        """End the task here as completed; `content` is the message of its last status. Artifacts stay as they are.

        The call ends the function: nothing is emitted after it, and only `finally` blocks still run.
        """
        raise FinalWord(Ended(TaskState.COMPLETED, self._checked(content)))

    async def fail(self, content: object) -> NoReturn:
        """End the task here as failed, as `finish` does. The caller reads `content`; nothing is logged."""
        raise FinalWord(Ended(TaskState.FAILED, self._checked(content)))

    async def message_reply(self, content: object) -> NoReturn:
        """End the function, and answer with a Message: what was yielded, followed by `content`.

        This is for agents with `direct="auto"`. Where there is a task already, this ends it as `finish` does.
        """
        raise FinalWord(Replied(self._checked(content)))

    def _checked(self, content: object) -> tuple[Part, ...]:
        return self._run.bounds.parts("content", parts_of(content))

    def title(self, text: str) -> None:
        """Name the task in one line, for operators: in their lists and headings the last title counts.

        At most 120 characters of it are shown. Callers never see it. Without one the task is called by the title that
        its caller gives it, or else by how its message begins.
        """
        self._run.title(text)

    def note(self, name: str, text: str) -> None:
        """Write a text down under a name, for a later run of this task. No caller sees it."""
        self._run.note(**{bounds.name("name", name): self._run.bounds.text("text", text)})

    def noted(self, name: str) -> str | None:
        """The text that this run or an earlier one of this task wrote down last under that name, else None."""
        return self._run.notes.get(name)

    def usage(
        self,
        *,
        input: int = 0,  # noqa: A002
        output: int = 0,
        total: int | None = None,
        model: str = "",
        cached: int = 0,
    ) -> None:
        """Add to the tokens that this task has used; `total` defaults to the sum. `model` names the one that used them.

        The name is the one that the setting `prices` has. `cached` are those of `input` that a cache had, which may
        have a price of their own. Numbers have to be whole.
        """
        used = bounds.tokens("input", input), bounds.tokens("output", output)
        self._run.usage(
            Usage.of(
                *used,
                None if total is None else bounds.tokens("total", total),
                bounds.name("model", bounds.whole_characters(model)),
                cached_tokens=bounds.tokens("cached", cached),
            )
        )


def run_of(ctx: Context) -> Run:
    """The run of a skill's task, for the adapters of frameworks."""
    return ctx._run


def _data(message: Message) -> Any:
    return next((part.data for part in message.parts if part.data is not UNSET), None)


def _files(message: Message) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if part.raw is not None or part.url is not None)
