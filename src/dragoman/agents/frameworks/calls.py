"""The tool calls of a framework's run: reported to its caller, who may have to allow them.

Invariant: every call that was reported as begun is reported as ended, once, whatever happens to the run. Only a clear
yes allows a call. Any other answer is a no, and its words go to the model.
"""

import json
import logging
from types import TracebackType
from typing import Any

from dragoman.agents.content import readable_json
from dragoman.agents.frameworks.runs import RunQuestion, flush_output
from dragoman.agents.python.context import Answer, Context

log = logging.getLogger("dragoman.frameworks")

BROKEN = "it broke off"
"""The reason that callers read for a call that an exception ended: the exception's text is for the log."""

FAILED = "the log says why"
"""The reason that callers read for a failed call whose answer the framework made from the exception's text."""

YES = frozenset({"y", "yes", "ok", "okay", "approve", "approved", "allow", "allowed", "confirm", "confirmed", "true"})
"""Answers that allow, regardless of case and closing punctuation."""

ARGUMENTS_CHARS_MAX = 500
"""The longest text of arguments in a question; programs get them whole."""


class Calls:
    """The calls of one run. A value without a JSON form is shown as its text.

    `open` holds the calls that have begun and not ended, names by id: a pause has to remember them. An `async with`
    block around the run reports them as failed if the run raises.
    """

    def __init__(self, ctx: Context) -> None:
        self.open: dict[str, str] = {}
        self._ctx = ctx

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):  # any error of the framework or its tools; it goes on to the engine
            await self.report_broken()

    async def report_start(self, id: str, name: str, arguments: Any = None) -> None:  # noqa: A002
        """Report a call that begins, once for each id. `arguments` may be JSON text."""
        if id not in self.open:
            self.open[id] = name
            await flush_output()
            await self._ctx.tool(name, id=id, arguments=_json_or_text(arguments_of(arguments)))

    async def report_end(self, id: str, result: Any = None, *, error: str | None = None, name: str = "") -> None:  # noqa: A002
        """Report the end of a call, with a result or an error. `name` is for a call whose beginning was not seen."""
        name = self.open.pop(id, name)
        if name:
            await flush_output()
            await self._ctx.tool(name, id=id, done=True, result=_json_or_text(result), error=error)

    async def report_failure(self, id: str, why: str, *, name: str = "") -> None:  # noqa: A002
        """Report that a call failed. The model knows why; the caller does not: it may be the text of an exception."""
        name = self.open.get(id, name)
        log.warning("task %s: tool %s failed: %s", self._ctx.task_id, name, why)
        await self.report_end(id, error=FAILED, name=name)

    async def report_broken(self) -> None:
        """Report the open calls as failed, because the run has failed."""
        for open_id in tuple(self.open):
            await self.report_end(open_id, error=BROKEN)


def approval_of(name: str, arguments: Any, *, hint: str = "") -> RunQuestion:
    """The question whether a tool may be called with these arguments. `hint` is the framework's comment on it."""
    given = readable_json(arguments_of(arguments))
    shown = "" if given in (None, {}, "") else json.dumps(given, ensure_ascii=False)
    if len(shown) > ARGUMENTS_CHARS_MAX:
        shown = shown[:ARGUMENTS_CHARS_MAX] + "…"
    text = f"May {name} be called{f' with {shown}' if shown else ''}? Answer yes or no."
    data = {"approval": {"tool": name, "arguments": given}}
    return RunQuestion(f"{hint}\n{text}" if hint else text, data)


def approved(answer: Answer) -> bool:
    """Whether the answer allows: a clear yes in its text, or `{"approved": true}` in its data."""
    data = answer.data
    if isinstance(data, dict) and "approved" in data:
        return data["approved"] is True
    if isinstance(data, bool):
        return data
    return answer.strip().rstrip(".!").lower() in YES


def denial(answer: Answer) -> str:
    """The text for the model when the answer does not allow the call."""
    words = answer.strip()
    if isinstance(answer.data, dict) and isinstance(reason := answer.data.get("message"), str):
        words = reason
    bare = words.rstrip(".!").lower() in ("", "n", "no", "deny", "denied", "reject", "rejected", "false")
    return "The user did not allow this call." if bare else f"The user did not allow this call: {words}"


def result_question(name: str, arguments: Any, **more: Any) -> RunQuestion:
    """The question for the result of a tool that is called elsewhere. `more` is for programs."""
    shown = json.dumps(arguments, ensure_ascii=False)
    return RunQuestion(f"What does {name} give for {shown}?", {"call": {"tool": name, "arguments": arguments, **more}})


def answer_value(answer: Answer) -> Any:
    """The answer as a value: its data, or else its text."""
    return str(answer) if answer.data is None else answer.data


def arguments_of(arguments: Any) -> Any:
    """The arguments of a call as values, even if a model wrote them as JSON text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def _json_or_text(value: Any) -> Any:
    try:
        return readable_json(value)
    except (TypeError, ValueError):
        return str(value)
