"""The four extensions of protoLabs: their entries on a card, and the data parts that carry them.

Invariant: their URIs and media types are protoLabs' own, as of May 2026; a data part names its media type in
`metadata.mimeType`.
"""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from dragoman.model.card import AgentExtension
from dragoman.model.ids import timestamp_ms
from dragoman.model.message import Part
from dragoman.model.task import Record, Usage

_BASE = "https://proto-labs.ai/a2a/ext/"

COST = f"{_BASE}cost-v1"
WORLDSTATE_DELTA = f"{_BASE}worldstate-delta-v1"
TOOL_CALL = f"{_BASE}tool-call-v1"
"""Also the key of a tool call in a status's metadata: `{"toolCallId", "name", "phase", …}`."""
CONFIDENCE = f"{_BASE}confidence-v1"

EXTENSIONS = (
    AgentExtension(uri=COST, description="Tokens used and time taken, with the result"),
    AgentExtension(uri=WORLDSTATE_DELTA, description="What the agent changed in the world, with the result"),
    AgentExtension(uri=TOOL_CALL, description="Start and end of each tool call, while the agent works"),
    AgentExtension(uri=CONFIDENCE, description="How sure the agent is of its result"),
)
"""The entries for `capabilities.extensions` of a card at `/a2a`."""

COST_TYPE = "application/vnd.protolabs.cost-v1+json"
WORLDSTATE_DELTA_TYPE = "application/vnd.protolabs.worldstate-delta+json"
TOOL_CALL_TYPE = "application/vnd.protolabs.tool-call-v1+json"
CONFIDENCE_TYPE = "application/vnd.protolabs.confidence-v1+json"

MIME_TYPE = "mimeType"
"""The member of a data part's metadata that names the type of its data."""

_ANY = "application/json"

_PHASES = {"started": "start", "completed": "end", "failed": "end"}
"""The later spellings of a tool call's phases, and their spelling in 0.3."""

Json = dict[str, Any]


def cost(record: Record) -> Json:
    """Build `usage` and `durationMs`, up to the last status. Usage that the agent did not report is zeros."""
    used = record.usage or Usage()
    duration_ms = record.duration_ms
    if duration_ms is None:
        duration_ms = max(0, timestamp_ms(record.status.timestamp) - timestamp_ms(record.head.created_at))
    return {
        "usage": {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "total_tokens": used.total_tokens,
        },
        "durationMs": duration_ms,
    }


def data_part(data: Json, media_type: str) -> Part:
    """Build a data part of an extension."""
    return Part(data=data, metadata={MIME_TYPE: media_type})


def media_type(part: Part) -> str | None:
    """Return the media type that a data part names; None if it names none, or just JSON."""
    if part.data is UNSET:
        return None
    if part.media_type not in (None, _ANY):
        return part.media_type
    named = (part.metadata or {}).get(MIME_TYPE)
    return named if isinstance(named, str) else None


def marked(part: Part) -> Part:
    """Return a data part that has a media type with that type in its metadata; any other part unchanged."""
    kind = media_type(part)
    return part if kind is None else replace(part, metadata={**(part.metadata or {}), MIME_TYPE: kind})


def tool_call(metadata: Json | None) -> Part | None:
    """Return the data part for a status's tool call, with the phase `start` or `end`; None if it has none."""
    call = (metadata or {}).get(TOOL_CALL)
    if not isinstance(call, dict):
        return None
    phase = call.get("phase", "start")
    return data_part(
        {**call, "phase": _PHASES.get(phase, phase) if isinstance(phase, str) else "start"}, TOOL_CALL_TYPE
    )
