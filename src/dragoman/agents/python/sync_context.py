"""SyncContext: a plain function's view of its task.

Invariant: it has no behaviour of its own. Each of its calls is the one of the same name in Context, which the run's own
coroutine makes on the event loop, while the thread of the function waits.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import wraps
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import UNSET

from dragoman.agents.content import Artifacts
from dragoman.agents.python.context import Context, Facts
from dragoman.agents.python.memory import Memory
from dragoman.agents.python.steps import CallPlain, calling_back
from dragoman.agents.python.threads import Crossing, Threads, Work
from dragoman.engine.api import Run
from dragoman.engine.runs.places import present_step

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


def _blocking(method: Callable[Concatenate[Context, P], Awaitable[R]]) -> "Callable[Concatenate[SyncContext, P], R]":
    """Make the method of SyncContext that awaits `method` on the event loop, and blocks until it is done."""

    @wraps(method)
    def call(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._crossing.call(lambda: method(self._context, *args, **kwargs))

    return call


def _recorded(method: Callable[Concatenate[Context, P], Awaitable[R]]) -> "Callable[Concatenate[SyncContext, P], R]":
    """As `_blocking`, for a numbered word: it has a place only in the thread of the skill."""

    @wraps(method)
    def call(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        _check_thread(self._crossing)
        return self._crossing.call(lambda: method(self._context, *args, **kwargs))

    return call


def _stepping(method: Callable[Concatenate[Context, P], Awaitable[R]]) -> "Callable[Concatenate[SyncContext, P], R]":
    """As `_recorded`, for a step: the thread that waits for it calls its plain function."""

    @wraps(method)
    def call(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        _check_thread(self._crossing)
        return self._crossing.call_working(lambda work: method(_StepContext(self._context, work), *args, **kwargs))

    return call


class _StepContext(Context):
    """The Context of a step of a plain skill, whose thread does `work` while it waits."""

    __slots__ = ("_work",)

    def __init__(self, ctx: Context, work: Work) -> None:
        super().__init__(ctx._run, ctx._skill, ctx._artifacts, ctx._threads, ctx._state)
        self._work = work

    def _call_plain(self) -> CallPlain:
        return calling_back(self._work, super()._call_plain())


def _check_thread(crossing: Crossing[Any]) -> None:
    """Raises RuntimeError in a thread that the skill has started itself: a later run would not know the order."""
    if get_ident() != crossing.thread and present_step() is None:
        raise RuntimeError(
            "a thread that a skill has started itself cannot tell steps, since a later run could not tell them apart: "
            "call ctx.step in the thread of the skill"
        )


def _on_loop(method: Callable[Concatenate[Context, P], R]) -> "Callable[Concatenate[SyncContext, P], R]":
    """Make the method of SyncContext that calls `method`, which does not wait, on the event loop."""

    @wraps(method)
    def call(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def on_loop() -> R:
            return method(self._context, *args, **kwargs)

        return self._crossing.call(on_loop)

    return call


def _iterating(
    method: Callable[Concatenate[Context, P], AsyncGenerator[T, None]],
) -> "Callable[Concatenate[SyncContext, P], Iterator[T]]":
    """Make the method of SyncContext that yields what `method` yields, for a plain `for`."""

    @wraps(method)
    def iterate(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._context, *args, **kwargs)
        while (item := self._crossing.call(lambda: anext(items, None))) is not None:
            yield item

    return iterate


class SyncContext(Facts):
    """The argument of a plain function, which runs in a thread: like Context, but calls block instead of `await`.

    A call raises CancelledError once the task has been canceled, which ends the function. A call that waits for the
    caller or for another agent keeps its thread, so agents that ask often are best `async`. The plain function of a
    step is called in the thread of the skill; with `timeout_s` in another one.
    """

    __slots__ = ("_context", "_crossing", "_run", "_skill", "_state")

    def __init__(
        self,
        run: Run,
        skill: str,
        artifacts: Artifacts,
        threads: Threads,
        crossing: Crossing[Any],
        state: Any = UNSET,
    ) -> None:
        self._run = run
        self._skill = skill
        self._state = state
        self._context = Context(run, skill, artifacts, threads, state)
        self._crossing = crossing

    @property
    def canceled(self) -> bool:
        """Whether the task has been canceled. A function that works long without a call should check it, and return."""
        return self._crossing.canceled

    @property
    def memory(self) -> "SyncMemory":
        """As `Context.memory`."""
        return SyncMemory(self._context.memory, self._crossing)

    history = _blocking(Context.history)
    read = _blocking(Context.read)
    references = _blocking(Context.references)
    progress = _blocking(Context.progress)
    status = _blocking(Context.status)
    tool = _blocking(Context.tool)
    artifact = _blocking(Context.artifact)
    ask = _blocking(Context.ask)
    require_auth = _blocking(Context.require_auth)
    delegate = _blocking(Context.delegate)
    delegate_stream = _iterating(Context.delegate_stream)
    step = _stepping(Context.step)
    sleep = _recorded(Context.sleep)
    sleep_until = _recorded(Context.sleep_until)
    patched = _recorded(Context.patched)
    now = _recorded(Context.now)
    random = _recorded(Context.random)
    uuid = _recorded(Context.uuid)
    finish = _blocking(Context.finish)
    fail = _blocking(Context.fail)
    message_reply = _blocking(Context.message_reply)
    title = _on_loop(Context.title)
    note = _on_loop(Context.note)
    noted = _on_loop(Context.noted)
    usage = _on_loop(Context.usage)


def sync_context_of(ctx: Context, crossing: Crossing[Any]) -> SyncContext:
    """The SyncContext of a run that has a Context, for a thread of somebody else."""
    return SyncContext(ctx._run, ctx._skill, ctx._artifacts, ctx._threads, crossing, ctx._state)


def _remembered(method: Callable[Concatenate[Memory, P], Awaitable[R]]) -> "Callable[Concatenate[SyncMemory, P], R]":
    """As `_recorded`, for a call of Memory."""

    @wraps(method)
    def call(self: "SyncMemory", /, *args: P.args, **kwargs: P.kwargs) -> R:
        _check_thread(self._crossing)
        return self._crossing.call(lambda: method(self._memory, *args, **kwargs))

    return call


class SyncMemory:
    """As Memory, but calls block instead of `await`."""

    __slots__ = ("_crossing", "_memory")

    def __init__(self, memory: Memory, crossing: Crossing[Any]) -> None:
        self._memory = memory
        self._crossing = crossing

    @property
    def caller(self) -> "SyncMemory":
        """As `Memory.caller`."""
        return SyncMemory(self._memory.caller, self._crossing)

    get = _remembered(Memory.get)
    set = _remembered(Memory.set)
    delete = _remembered(Memory.delete)
    list = _remembered(Memory.list)
