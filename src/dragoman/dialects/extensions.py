"""The URIs under which Dragoman says in `metadata` what A2A has no field for.

Invariant: a URI names one shape for ever; a changed shape gets a new version. `metadata` keyed by extension URIs is
A2A 1.0 §4.6.
"""

import re
from collections.abc import Sequence
from typing import Any

from dragoman.model.card import AgentExtension
from dragoman.model.task import Progress, TaskHead, Usage

PROGRESS = "urn:dragoman:progress:v1"
"""`{"current", "total", "message"}`, in the metadata of status updates."""

USAGE = "urn:dragoman:usage:v1"
"""`{"inputTokens", "outputTokens", "totalTokens", "durationMs"}`, in the metadata of tasks and of final updates."""


PARENT = "urn:dragoman:parent:v1"
"""`{"taskId", "agent"}`, in the metadata of a task that another task's agent delegated: whose, and through whom."""

LINEAGE = "urn:dragoman:lineage:v1"
"""`["server/agent", …]`, in the metadata of messages from agent to agent: through whom it came, the first one first."""

DEDUPE = "urn:dragoman:dedupe:v1"
"""On cards: a message that is sent again is taken for the same one. `params.window` (`600s`) is for how long."""

DEDUPES_S = 600
"""What is meant where the window is not named, and what is offered (DESIGN: dedupe)."""

DEDUPES = AgentExtension(
    uri=DEDUPE,
    description="A message sent again with the same Idempotency-Key, or the same id if that is a UUID, is taken once",
    params={"window": f"{DEDUPES_S}s"},  # text, as protobuf spells a duration: its numbers come back as 600.0
)
"""For `capabilities.extensions` of our own cards."""

_WINDOW = re.compile(r"([0-9]{1,9})s", re.ASCII)


def dedupes_s(extensions: Sequence[dict[str, Any]]) -> float:
    """For how long the agent that lists these takes a message sent again for the same one; 0: it does not say so."""
    ours = next((each for each in extensions if each.get("uri") == DEDUPE), None)
    if ours is None:
        return 0.0
    params = ours.get("params")
    window = params.get("window", f"{DEDUPES_S}s") if isinstance(params, dict) else f"{DEDUPES_S}s"
    match = _WINDOW.fullmatch(window) if isinstance(window, str) else None
    return float(match[1]) if match else 0.0


def parent_metadata(head: TaskHead) -> dict[str, Any]:
    """The value under PARENT, of a task that has one."""
    return {"taskId": head.parent, "agent": head.lineage[-1] if head.lineage else ""}


def progress_metadata(progress: Progress) -> dict[str, Any]:
    """The value under PROGRESS."""
    value: dict[str, Any] = {"current": progress.current, "total": progress.total}
    if progress.message:
        value["message"] = progress.message
    return value


def usage_metadata(usage: Usage | None, duration_ms: int | None) -> dict[str, Any]:
    """The value under USAGE; what an agent did not report is three zeros."""
    used = usage or Usage()
    value = {"inputTokens": used.input_tokens, "outputTokens": used.output_tokens, "totalTokens": used.total_tokens}
    if duration_ms is not None:
        value["durationMs"] = duration_ms
    return value
