"""The seam between a model and what it may call: Tools, which MCP servers stand behind, and the loop that calls them.

Invariant: a tool that fails is told to the model as a failure, and never ends the task.
"""

from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field

from dragoman.engine.api import Run
from dragoman.model.message import Part


class Tool(Struct, frozen=True, kw_only=True):
    """A tool as a model is told of it. `parameters` is the JSON Schema of its arguments, an object.

    `repeatable`: calling it twice does no more than calling it once, so that a call that a crash cut off is made again.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    repeatable: bool = False


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a call came to. `text` is for the model; with `error` it says what went wrong, in words that help the model.

    `parts` are for the caller of the task: files, images and data that are given out as an artifact of their own.
    """

    text: str
    error: bool = False
    parts: tuple[Part, ...] = ()


@runtime_checkable
class Tools(Protocol):
    """Tools that a model may call, from any number of servers; names are unique in one Tools.

    Names are what the API takes: 1 to 64 of letters, digits, `_` and `-`. A Tools that is also `Living` is opened and
    closed with its agent; one that is `Checkable` is tried with it.
    """

    async def offered(self) -> tuple[Tool, ...]:
        """What can be called now, always in the same order. A server that is away offers nothing. Raises nothing."""
        ...

    def needs_approval(self, name: str) -> bool:
        """Whether the caller of the task is asked before this tool is called."""
        ...

    async def call(self, run: Run, name: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
        """Call it, in a bounded time. Raises nothing but CancelledError, by which the call is to be given up.

        `name` may be unknown, since models invent names. `call_id` is unique in the task and the same when the call is
        made again. Who tells the caller of the call's beginning and end is the loop, not this; it may report progress
        by `run.status`.
        """
        ...
