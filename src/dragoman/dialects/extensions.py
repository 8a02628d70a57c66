"""The URIs of Dragoman's entries in `metadata`, for values that have no field in A2A.

Invariant: a URI names one shape for ever; a changed shape gets a new version. `metadata` keyed by extension URIs is A2A
1.0 §4.6.
"""

import re
from collections.abc import Sequence
from typing import Any

from dragoman.model.acting_chain import Chain, read_chain
from dragoman.model.card import AgentExtension
from dragoman.model.task import Progress, Record, TaskHead, Usage

PROGRESS = "urn:dragoman:progress:v1"
"""`{"current", "total", "message"}`, in the metadata of status updates."""

USAGE = "urn:dragoman:usage:v1"
"""`{"inputTokens", "outputTokens", "totalTokens", "durationMs"}`, in the metadata of tasks and of final updates."""


SLEEP = "urn:dragoman:sleep:v1"
"""`{"until"}`, in the metadata of the status update with which a task goes to sleep: when it wakes, spelled like any
other timestamp."""

UNREADABLE = "urn:dragoman:unreadable:v1"
"""`true`, in the metadata of tasks, and alone there: the server's record of the task is damaged. Id, context, state and
time are all that it can still tell.
"""

UNREADABLE_PART = "urn:dragoman:unreadable-part:v1"
"""`true`, in the metadata of a part that another agent sent without the content of its kind. `data` holds what came."""

PARENT = "urn:dragoman:parent:v1"
"""`{"taskId", "agent"}`, in the metadata of a delegated task: the parent task, and the agent that delegated it."""

LINEAGE = "urn:dragoman:lineage:v1"
"""`["server/agent", …]`, in the metadata of messages between agents: the chain of agents that a message came through,
in order.
"""

ACTING = "urn:dragoman:acting:v1"
"""`[{"subject", "actors", "client", "issuer", "audience", "scope", "at"}, …]`, in the metadata of messages between
Dragomans: the acting chain so far (`model.acting_chain`), as its sender tells it.
"""

DEDUPE = "urn:dragoman:dedupe:v1"
"""On cards: the agent recognises a message that is sent again. `params.window` (`600s`) says for how long."""

DEDUPES_S = 600
"""The window that Dragoman offers, and that of a card that names none."""

DEDUPES = AgentExtension(
    uri=DEDUPE,
    description="A message sent again with the same Idempotency-Key, or the same id if that is a UUID, is taken once",
    params={"window": f"{DEDUPES_S}s"},  # text, as in protobuf durations; a number would come back as 600.0
)
"""The entry for `capabilities.extensions` of our own cards."""

EVENT_ID = "urn:dragoman:event-id:v1"
"""`"7"`, in the metadata of the items of a stream over gRPC, if the caller declares it: `last-event-id` resumes after
that event. SSE has an `id:` for it.
"""

EVENT_IDS = AgentExtension(
    uri=EVENT_ID,
    description="Each item of a stream over gRPC has its id in the metadata; last-event-id resumes a stream after it",
)
"""The entry for `capabilities.extensions` of our own cards, where gRPC is served."""

_WINDOW = re.compile(r"([0-9]{1,9})s", re.ASCII)


def dedupes_s(extensions: Sequence[dict[str, Any]]) -> float:
    """Return for how many seconds the agent recognises a message that is sent again; 0 if its card does not say."""
    ours = next((each for each in extensions if each.get("uri") == DEDUPE), None)
    if ours is None:
        return 0.0
    params = ours.get("params")
    window = params.get("window", f"{DEDUPES_S}s") if isinstance(params, dict) else f"{DEDUPES_S}s"
    match = _WINDOW.fullmatch(window) if isinstance(window, str) else None
    return float(match[1]) if match else 0.0


def told_chain(metadata: dict[str, Any] | None) -> Chain:
    """The acting chain that came with a message: of another server, or of the task that delegated ours."""
    return () if not metadata or ACTING not in metadata else read_chain(metadata[ACTING])


def parent_metadata(head: TaskHead) -> dict[str, Any]:
    """Build the value under PARENT for a task that has a parent."""
    return {"taskId": head.parent, "agent": head.lineage[-1] if head.lineage else ""}


def progress_metadata(progress: Progress) -> dict[str, Any]:
    """Build the value under PROGRESS."""
    value: dict[str, Any] = {"current": progress.current, "total": progress.total}
    if progress.message:
        value["message"] = progress.message
    return value


def unreadable_metadata(record: Record) -> dict[str, Any]:
    """Build the member `metadata` of a task, for dialects whose tasks have none otherwise; empty if it can be read."""
    return {"metadata": {UNREADABLE: True}} if record.unreadable else {}


def usage_metadata(usage: Usage | None, duration_ms: int | None) -> dict[str, Any]:
    """Build the value under USAGE; usage that the agent did not report is three zeros.

    `cachedTokens` is there if a cache had some of the tokens that went in.
    """
    used = usage or Usage()
    value = {"inputTokens": used.input_tokens, "outputTokens": used.output_tokens, "totalTokens": used.total_tokens}
    if used.cached_tokens:
        value["cachedTokens"] = used.cached_tokens
    if duration_ms is not None:
        value["durationMs"] = duration_ms
    return value
