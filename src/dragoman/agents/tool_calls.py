"""Reports an agent's tool calls to the caller of the task.

Invariant: a call is reported by at most two statuses, its start and its end, with the same id. Each is readable by
people (a text) and by programs (tool-call-v1 of protoLabs, in the metadata of the status).
"""

from typing import Any

from msgspec import Struct

from dragoman.agents.content import json_of, parts_of
from dragoman.dialects.protoagent.extensions import TOOL_CALL
from dragoman.engine.api import Run

RESULT_CHARS_MAX = 4_000
"""The longest result that callers are shown: a tool's result is meant for the model, and may be a whole page."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """One call of a tool: as it begins, or, if `done`, as it ended. `error` says why it failed."""

    id: str
    name: str
    arguments: Any = None
    result: Any = None
    error: str | None = None
    done: bool = False

    async def told(self, run: Run) -> None:
        """Report the call as a status. Raises TypeError or ValueError if a value has no JSON form."""
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
