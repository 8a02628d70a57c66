"""The values of a task that 0.3 has no field for (progress, usage, duration), in `metadata` under the URIs of our
extensions.

Invariant: the URIs and their values are those of the 1.0 dialect.
"""

from typing import Any

from dragoman.dialects.extensions import PROGRESS, USAGE, progress_metadata, usage_metadata
from dragoman.model.events import StatusChanged
from dragoman.model.task import Record


def record_metadata(record: Record) -> dict[str, Any] | None:
    """Build the metadata of a Task."""
    if record.usage is None and record.duration_ms is None:
        return None
    return {USAGE: usage_metadata(record.usage, record.duration_ms)}


def event_metadata(event: StatusChanged) -> dict[str, Any] | None:
    """Build the metadata of a status update."""
    metadata = dict(event.metadata or {})
    if event.progress is not None:
        metadata[PROGRESS] = progress_metadata(event.progress)
    if event.usage is not None or event.duration_ms is not None:
        metadata[USAGE] = usage_metadata(event.usage, event.duration_ms)
    return metadata or None
