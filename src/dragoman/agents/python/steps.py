"""Steps of Python agents: functions whose outcome is recorded, so that a later run of the task does not call them
again.

Invariant: what ends the run is never recorded as the outcome of a step: a cancel, a lost lease, an end of the task that
the function itself asks for, the exit of the process.
"""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from msgspec import Struct

from dragoman.agents.python.step_values import UnreadableResult, parts_of_result, result_of_parts
from dragoman.agents.python.threads import Threads, Work
from dragoman.engine import bounds
from dragoman.engine.api import Ended, Reject, Run
from dragoman.engine.runs.places import ToldInStep, executing_step, present_step
from dragoman.engine.words import FAILURE_CHARACTERS, TIMEOUT_S_MAX, Step, StepDone
from dragoman.model.events import StepFailure
from dragoman.model.message import Part

BACKOFF_S_MAX = 60.0
"""Longest pause between two attempts, which doubles from one to the next."""

RETRIES_MAX = 1000

CANCELED = "the step was canceled"

CallPlain = Callable[[Callable[[], object], float | None], Awaitable[object]]
"""Calls a plain function in a thread, for at most so many seconds (None: without limit). Raises LeftBehind."""


def calling_in(threads: Threads) -> CallPlain:
    """Calls plain functions in those threads."""

    async def call_plain(call: Callable[[], object], timeout_s: float | None) -> object:
        done = threads.run(lambda crossing: call())
        return await (done if timeout_s is None else _within(timeout_s, done, LeftBehind))

    return call_plain


def calling_back(work: Work, elsewhere: CallPlain) -> CallPlain:
    """Calls plain functions by `work`, in the thread of a skill that waits for its step, and those with a `timeout_s`
    elsewhere: that thread cannot leave one behind."""

    async def call_plain(call: Callable[[], object], timeout_s: float | None) -> object:
        if timeout_s is not None:
            return await elsewhere(call, timeout_s)
        step = present_step()
        assert step is not None

        def call_here() -> object:
            with executing_step(step):
                return call()

        return await work(call_here)

    return call_plain


async def _within(timeout_s: float, done: Awaitable[object], late: type[Exception]) -> object:
    """Await something for so many seconds. Raises `late` after that, with a text for the caller of the step."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await done
    except TimeoutError as error:
        if limit.expired():
            raise late(f"it took longer than {timeout_s:g} s") from error
        raise  # the function's own, such as that of a socket


class LeftBehind(Exception):
    """A plain function took longer than its `timeout_s`, and its thread still runs."""


class StepFailed(Exception):
    """A step failed, and is not tried again: in this run, and in every later one of the task.

    `name` is the step's, `type` that of the exception, and `text` what it said. The exception itself is the
    `__cause__` in the run that executed the step, and only there.
    """

    def __init__(self, name: str, type: str, text: str) -> None:  # noqa: A002  the field's word
        super().__init__(f"step {name}: {type}: {text}" if text else f"step {name}: {type}")
        self.name = name
        self.type = type
        self.text = text


class StepOptions(Struct, frozen=True):
    """How a step is executed: `retries` more attempts after a failure, the first after `backoff_s`, each within
    `timeout_s`."""

    retries: int = 0
    backoff_s: float = 1.0
    timeout_s: float | None = None

    def check(self) -> "StepOptions":
        """Return the options. Raises TypeError or ValueError, which names the argument."""
        retries = bounds.integer("retries", self.retries)
        if not 0 <= retries <= RETRIES_MAX:
            raise ValueError(f"retries={retries}: must be from 0 to {RETRIES_MAX}")
        _check_seconds("backoff_s", self.backoff_s, 0.0)
        if self.timeout_s is not None:
            _check_seconds("timeout_s", self.timeout_s)
        return self


def _check_seconds(argument: str, value: object, least: float | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{argument} must be a number of seconds, not {bounds.type_name(value)}")
    if not (value > 0 if least is None else value >= least) or not value <= TIMEOUT_S_MAX:
        allowed = "more than 0" if least is None else f"at least {least:g}"
        raise ValueError(f"{argument}={value!r}: must be {allowed}, and at most {TIMEOUT_S_MAX:g}")


def named_step(name: object, function: object, key: object, *, at_most_once: object) -> Step:
    """A step of an agent, which is done by a function. Raises TypeError or ValueError, which names the argument."""
    said = bounds.name("name", name)
    if not callable(function):
        raise TypeError(f"fn must be a function, not {bounds.type_name(function)}: give it and its arguments apart")
    if said.startswith("$"):
        raise ValueError(f"name={said!r}: names that begin with $ are Dragoman's own")
    return Step(said, "" if key is None else bounds.name("key", key), bounds.flag("at_most_once", at_most_once))


async def take_step(
    run: Run,
    word: Step,
    function: Callable[..., object],
    call: Callable[..., object],
    options: StepOptions,
    plain: CallPlain,
) -> Any:
    """Return the recorded result of a step, or execute it with `call`, which is the `function` with its arguments.

    Raises StepFailed, or TypeError or ValueError if the result cannot be recorded.
    """
    execution = _Execution(word.name, function, call, options.check(), plain)
    stepped = await run.step(word, execution.execute)
    if stepped.failure is not None:
        raise StepFailed(word.name, stepped.failure.type, stepped.failure.text) from execution.cause
    try:
        return result_of_parts(stepped.result, stepped.form, function)
    except UnreadableResult as error:
        raise UnreadableResult(f"step {word.name}: its recorded result cannot be read: {error}") from error


class _Execution:
    """The execution of a step's function, as often as its options say."""

    def __init__(
        self,
        name: str,
        function: Callable[..., object],
        call: Callable[..., object],
        options: StepOptions,
        plain: CallPlain,
    ) -> None:
        self.cause: BaseException | None = None
        """The exception with which it failed for good."""
        self._name = name
        self._function = function
        self._call = call
        self._options = options
        self._plain = plain

    async def execute(self, key: str) -> StepDone:
        """See `engine.api.Execute`."""
        call = partial(self._call, step_key=key) if takes_step_key(self._function) else self._call
        options, attempts = self._options, 0
        is_async = is_coroutine_function(self._function)
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        while True:
            attempts += 1
            try:
                value = await self._attempt(call, is_async=is_async)
            except (Reject, Ended, ToldInStep):
                raise
            except Exception as error:
                if isinstance(error.__cause__, SystemExit | KeyboardInterrupt):
                    raise
                if task.cancelling() > cancels:  # it made an error of the cancel, which is none of its own
                    raise asyncio.CancelledError(CANCELED) from error
                if attempts > options.retries or isinstance(error, LeftBehind):
                    self.cause = error
                    return StepDone(failure=failure_of(error), attempts=attempts)
                await asyncio.sleep(min(options.backoff_s * 2 ** min(attempts - 1, 30), BACKOFF_S_MAX))
            else:
                return StepDone(*self._recorded(value), attempts=attempts)

    def _recorded(self, value: object) -> tuple[tuple[Part, ...], str]:
        try:
            return parts_of_result(value, self._function)
        except (TypeError, ValueError) as unfit:
            kind = TypeError if isinstance(unfit, TypeError) else ValueError  # its own may be made in another way
            raise kind(f"step {self._name!r}: {unfit}") from unfit

    async def _attempt(self, call: Callable[..., object], *, is_async: bool) -> object:
        timeout_s = self._options.timeout_s
        if not is_async:
            value = await self._plain(call, timeout_s)
            if not inspect.isawaitable(value):
                return value
            call = partial(_given, value)  # such as that of `lambda: client.get(url)`
        done = _awaited(call)
        return await (done if timeout_s is None else _within(timeout_s, done, TimeoutError))


def _given(value: object) -> object:
    return value


async def _awaited(call: Callable[..., object]) -> object:
    value = call()
    return await value if inspect.isawaitable(value) else value


def failure_of(error: BaseException) -> StepFailure:
    """An exception as it is recorded."""
    try:
        text = bounds.whole_characters(str(error))
    except Exception:  # noqa: BLE001  it is what the exception's own `__str__` raises
        text = ""
    kind = TimeoutError if isinstance(error, LeftBehind) else type(error)
    return StepFailure(kind.__name__, text[:FAILURE_CHARACTERS])


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await at once, so that it belongs on the event loop."""
    inner = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def takes_step_key(function: Callable[..., object]) -> bool:
    """Whether the function has a parameter `step_key`."""
    inner = function.func if isinstance(function, partial) else function
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    if code is not None and not hasattr(inner, "__wrapped__"):
        return "step_key" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "step_key" in inspect.signature(inner).parameters
    except (TypeError, ValueError):
        return False


def present_step_key() -> str:
    """The key of the step that is executed now. Raises RuntimeError outside of one."""
    step = present_step()
    if step is None:
        raise RuntimeError("ctx.step_key is known only while the function of a ctx.step runs")
    return step.key


# -- values that a later run gets again --------------------------------------------------------------------------------


async def record_now(run: Run) -> datetime:
    """The present time, in UTC."""
    return datetime.fromisoformat(await _record(run, "$now", lambda: datetime.now(UTC).isoformat()))


async def record_random(run: Run) -> float:
    """A random number from 0 to 1, without 1."""
    return float(await _record(run, "$random", random.random))


async def record_uuid(run: Run) -> UUID:
    """A random UUID."""
    return UUID(await _record(run, "$uuid", lambda: str(uuid4())))


async def _record(run: Run, name: str, draw: Callable[[], str | float]) -> Any:
    async def execute(key: str) -> StepDone:
        result, form = parts_of_result(draw(), draw)
        return StepDone(result, form)

    stepped = await run.step(Step(name, soon=True), execute)
    return result_of_parts(stepped.result, stepped.form, draw)
