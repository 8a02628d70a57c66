"""Tools: the interface between a model's tool loop and the MCP servers that provide the tools, and reports of calls.

A call is over with its result, or it is pending: then the loop records what is known of it, asks the caller of the task
what the tool asks, and goes on with the call, in this run or a later one.

Invariant: a tool that fails is reported to the model as a failure, and never ends the task. A call is reported to the
caller of the task by at most two statuses, its start and its end, with the same id; one that is made again after a
crash starts again. Each is readable by people (a text) and by programs (tool-call-v1 of protoLabs, in the metadata of
the status).
"""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from dragoman.agents.content import json_of, parts_of
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.api import CheckResult, Run
from dragoman.model.message import Part
from dragoman.telemetry.job_group import JobGroup

if TYPE_CHECKING:
    from dragoman.client.token_exchange import TokenExchange

RESULT_CHARS_MAX = 4_000
"""The longest result that callers are shown: a tool's result is meant for the model, and may be a whole page."""


class ModelTool(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it. `parameters` is the JSON Schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolResult(Struct, frozen=True, kw_only=True):
    """The outcome of a call. `text` is for the model; with `error`, it explains the failure to the model.

    `parts` are for the caller of the task: files, images and data, which are emitted as an artifact of their own.
    """

    text: str
    error: bool = False
    parts: tuple[Part, ...] = ()


class ToolQuestion(Struct, frozen=True, kw_only=True):
    """A question of a tool to the caller of the task. `asker` is the server that asks, `id` unique in its call.

    `form` is the JSON Schema of the answer, a flat object; with `url`, the caller is to open that address instead.
    """

    id: str
    asker: str
    text: str
    form: dict[str, Any] = {}
    url: str = ""


class ToolAnswer(Struct, frozen=True):
    """The caller's answer to a question of a tool. `content` fits its form, and is None unless the caller accepts."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ToolPending(Struct, frozen=True, kw_only=True):
    """A call that is not over. `handle` is for the tools that gave it, who go on with the call by it.

    The `questions` are to be answered first. `repeatable`: to go on twice does no more than to go on once.
    """

    handle: str
    questions: tuple[ToolQuestion, ...] = ()
    repeatable: bool = False


@runtime_checkable
class Tools(Protocol):
    """Tools that a model may call, from any number of servers. Names are unique within one Tools.

    Names are what the API accepts: 1 to 64 letters, digits, `_` and `-`. A class that names this protocol as its base
    needs `list_tools`, `needs_approval` and `call`; the other methods are for tools that depend on something, must not
    be called twice, or whose calls may be pending.
    """

    @property
    def degraded(self) -> str | None:
        """Why not all of them can be called, in words for any caller; None if no fault is known."""
        return None

    @property
    def exchanges(self) -> "tuple[TokenExchange, ...]":
        """How callers' tokens are exchanged for those of the tools. A run has its caller's before it lists or calls."""
        return ()

    async def open(self, group: JobGroup) -> None:
        """Get ready, before the first task of the agent: see `Runner.open`."""
        return

    async def close(self) -> None:
        """Release what is open."""
        return

    async def check(self) -> AsyncIterator[CheckResult]:
        """Yield findings about them: see `Runner.check`. None are yielded if there is nothing to look at."""
        none: tuple[CheckResult, ...] = ()
        for finding in none:
            yield finding

    async def list_tools(self) -> tuple[ModelTool, ...]:
        """The tools that can be called now, in a stable order. Unreachable servers offer none. Raises nothing."""
        ...

    def needs_approval(self, name: str) -> bool:
        """Whether the caller of the task must approve each call of this tool."""
        ...

    def at_most_once(self, name: str) -> bool:
        """Whether a call of this tool is not made again after a crash, when nobody knows whether it was made."""
        return False

    async def call(self, run: Run, name: str, arguments: dict[str, Any], key: str) -> ToolResult | ToolPending:
        """Call the tool, in a bounded time. Raises only CancelledError, which means that the call must be given up.

        `name` may be unknown, since models invent names. `key` is that of the step: no other call has it, and it stays
        the same when the call is made again. The loop reports the start and the end of the call to the caller, not
        this method; this method may report progress by `run.status`. A call that is pending is recorded, and continued
        by `resume`.
        """
        ...

    async def resume(
        self, run: Run, arguments: dict[str, Any], key: str, handle: str, answers: Mapping[str, ToolAnswer]
    ) -> ToolResult | ToolPending:
        """Go on with a pending call, perhaps in another process, with the answers to its questions by their ids.

        As `call` in all else. A run that is cut off, and not canceled, leaves the call as it is.
        """
        return ToolResult(text="The tool does not know this call.", error=True)

    async def give_up(self, handle: str) -> None:
        """Give up a pending call, because its task is canceled, within a bounded time. Raises nothing."""
        return


class ToolReport(Struct, frozen=True, kw_only=True):
    """One call of a tool: as it begins, or, if `done`, as it ended. `error` says why it failed."""

    id: str
    name: str
    arguments: Any = None
    result: Any = None
    error: str | None = None
    done: bool = False

    async def send(self, run: Run) -> None:
        """Report the call to the task's caller. Raises TypeError or ValueError if a value has no JSON form."""
        await run.status(parts_of(self.text), metadata={TOOL_CALL: self._metadata()})

    @property
    def phase(self) -> str:
        """`started`, `completed` or `failed`."""
        if self.error is not None:
            return "failed"
        return "completed" if self.done else "started"

    @property
    def text(self) -> str:
        """The text for people."""
        match self.phase:
            case "started":
                return f"Calling {self.name}"
            case "completed":
                return f"{self.name} is done"
            case _:
                return f"{self.name} failed: {_shorten(self.error)}"

    def _metadata(self) -> dict[str, Any]:
        said: dict[str, Any] = {"toolCallId": self.id, "name": self.name, "phase": self.phase}
        if self.arguments is not None:
            said["args"] = json_of(self.arguments)
        if self.result is not None:
            said["result"] = _shorten(json_of(self.result))
        if self.error is not None:
            said["error"] = _shorten(self.error)
        return said


def _shorten(result: Any) -> Any:
    if isinstance(result, str) and len(result) > RESULT_CHARS_MAX:
        return result[:RESULT_CHARS_MAX] + "…"
    return result
