"""Tools: the interface between a model's tool loop and the MCP servers that provide the tools.

Invariant: a tool that fails is reported to the model as a failure, and never ends the task.
"""

from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field

from dragoman.engine.api import Run
from dragoman.model.message import Part


class Tool(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it. `parameters` is the JSON Schema of its arguments, an object.

    `repeatable`: two calls have the same effect as one, so a call that a crash interrupted is made again.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    repeatable: bool = False


class ToolResult(Struct, frozen=True, kw_only=True):
    """The outcome of a call. `text` is for the model; with `error`, it explains the failure to the model.

    `parts` are for the caller of the task: files, images and data, which are emitted as an artifact of their own.
    """

    text: str
    error: bool = False
    parts: tuple[Part, ...] = ()


@runtime_checkable
class Tools(Protocol):
    """Tools that a model may call, from any number of servers. Names are unique within one Tools.

    Names are what the API accepts: 1 to 64 letters, digits, `_` and `-`. A Tools that is also `Living` is opened and
    closed with its agent; one that is `Checkable` is checked with it.
    """

    async def offered(self) -> tuple[Tool, ...]:
        """The tools that can be called now, in a stable order. Unreachable servers offer none. Raises nothing."""
        ...

    def needs_approval(self, name: str) -> bool:
        """Whether the caller of the task must approve each call of this tool."""
        ...

    async def call(self, run: Run, name: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
        """Call the tool, in a bounded time. Raises only CancelledError, which means that the call must be given up.

        `name` may be unknown, since models invent names. `call_id` is unique in the task and stays the same when the
        call is made again. The loop reports the start and the end of the call to the caller, not this method; this
        method may report progress by `run.status`.
        """
        ...
