"""The outcome of a tool call, for the model and for the caller of the task.

Invariant: files and links, which a model cannot be given, are described to it in words.
"""

from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from dragoman.agents.tools import ToolResult
from dragoman.dialects.mcp.results import Outcome
from dragoman.model.message import Part

TEXT_CHARS_MAX = 200_000
"""The longest text of one result that a model is given: it must fit into the model's input with everything else."""


def result_of(outcome: Outcome) -> ToolResult:
    """The result of a call. Files, web links, and data without a text are for the caller, too."""
    text = "\n".join(map(_describe, outcome.parts))
    if len(text) > TEXT_CHARS_MAX:
        text = f"{text[:TEXT_CHARS_MAX]}\n[cut: the result has {len(text)} characters]"
    if outcome.failed:
        return ToolResult(text=text or "The tool failed and does not say why.", error=True)
    given = tuple(part for part in outcome.parts if _is_given(part))
    return ToolResult(text=text or "The tool is done; it gives no result.", parts=given)


def _is_given(part: Part) -> bool:
    if part.url is not None:
        return urlsplit(part.url).scheme in ("http", "https")
    return part.text is None


def _describe(part: Part) -> str:
    named = f" {part.filename}" if part.filename else ""
    kind = f" ({part.media_type})" if part.media_type else ""
    if part.text is not None:
        return f"{part.filename}:\n{part.text}" if part.filename else part.text
    if part.raw is not None:
        return f"[file{named}{kind}, {len(part.raw)} bytes: the user is given it]"
    if part.url is not None:
        return f"[link{named}{kind}: {part.url}]"
    return "" if part.data is UNSET else msgspec.json.encode(part.data).decode()
