"""ProcessRunner: a function from text to text, as in KAOS's managers, as a Runner of the engine.

Invariant: an exception of the function becomes a failed task with its text. A plain function never runs on the loop.
"""

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from dragoman.agents.content import Artifacts, parts_of
from dragoman.agents.python.threads import Threads
from dragoman.engine.api import Ended, Reject, Run
from dragoman.model.card import Profile
from dragoman.model.task import TaskState

log = logging.getLogger("dragoman.kaos")

ProcessFn = Callable[..., Any]
"""`process_fn(text)` or `process_fn(text, session_id)`: a coroutine function or a plain function, which returns the
answer, or an async generator, which yields it in pieces.

KAOS's own signatures fit: one that takes `stream` is called with `stream=False`, and of a pair `(answer, tool calls)`
the first is the answer.
"""

AGENT_ID = "agent"
"""The one agent of a manager's engine."""


class ProcessRunner:
    """See `engine.api.Runner`. Raises TypeError if `process_fn` cannot be called with a text."""

    direct = False
    restartable = False
    one_message = False
    offline = False

    def __init__(self, process_fn: ProcessFn) -> None:
        self.profile = Profile(id=AGENT_ID, name=AGENT_ID, description="A function", version="1", skills=())
        self._function = process_fn
        self._name = getattr(process_fn, "__name__", type(process_fn).__name__)
        self._takes = _accepted(process_fn, self._name)
        self._awaits = any(
            inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
            for each in (process_fn, getattr(process_fn, "__call__", None))  # noqa: B004  an object may have an async one
        )
        self._threads = Threads()

    async def run(self, run: Run) -> None:
        """Call the function with the message's text. Its result becomes the task's only artifact."""
        artifacts = Artifacts(run)
        session_id = run.head.context_id
        try:
            if self._awaits:
                given = self._call(run.message.text, session_id)
            else:
                given = await self._threads.run(lambda crossing: self._call(run.message.text, session_id))
            if isinstance(given, Awaitable):
                given = await given
            if isinstance(given, AsyncIterator):
                await self._poured(given, artifacts)
            else:
                await artifacts.add(self._text(given), last=True)
        except Reject:
            raise
        except Exception as error:  # a user's function may raise anything
            log.exception("process_fn %s failed in task %s", self._name, run.head.id)
            raise Ended(TaskState.FAILED, parts_of(str(error) or type(error).__name__)) from error

    def _call(self, text: str, session_id: str) -> Any:
        positional, named = self._takes
        told = {"session_id": session_id, "stream": False}
        return self._function(text, *(session_id,) * positional, **{name: told[name] for name in named})

    async def _poured(self, pieces: AsyncIterator[object], artifacts: Artifacts) -> None:
        try:
            async for piece in pieces:
                await artifacts.add(self._text(piece))
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    def _text(self, given: object) -> str:
        match given:
            case None:
                return ""
            case str():
                return given
            case (str() as text, int()):
                return text
            case _:
                raise TypeError(f"process_fn {self._name} gave {type(given).__name__}, expected text")


def _accepted(process_fn: ProcessFn, name: str) -> tuple[bool, tuple[str, ...]]:
    """The arguments of the function beside the text: whether the session is the second one, and those by name."""
    if not callable(process_fn):
        raise TypeError(f"process_fn must be a function from text to text, not {process_fn!r}")
    try:
        parameters = list(inspect.signature(process_fn).parameters.values())
    except ValueError:  # a builtin without a signature
        return False, ()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if not positional and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        raise TypeError(f"process_fn {name} takes no text: write `async def {name}(text: str) -> str`")
    by_name = [each for each in parameters if each not in positional[:1] and each.kind is not each.POSITIONAL_ONLY]
    named = tuple(each.name for each in by_name if each.name in ("session_id", "stream"))
    needed = [
        each
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    unmet = [each for each in needed if each not in positional[:1] and each.name not in named]
    second = bool(unmet) and len(positional) > 1 and unmet[0] is positional[1] and "session_id" not in named
    if more := unmet[1:] if second else unmet:
        names = ", ".join(each.name for each in more)
        raise TypeError(f"process_fn {name} needs {names}, but is given a text and, if it wants it, session_id")
    return second, named
