"""Parts: visits or replaces every part in events and records.

Invariant: pure. No part of an event or a record is left out, and a value that no swap changes stays the same object.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import (
    ArtifactChunk,
    Delegated,
    Event,
    Intervened,
    MessageReceived,
    Noted,
    StatusChanged,
    StepBegun,
    Stepped,
    Submitted,
)
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import Record

TEXT_CHARACTERS = 200
"""Most characters that operators see of a message, and that are kept of the first one to look for tasks."""

Swap = Callable[[Part], Part | None]
"""Returns the replacement of a part; None leaves the part out."""


def beginning(parts: Sequence[Part]) -> str:
    """How the text in `parts` begins: its first TEXT_CHARACTERS characters."""
    return " ".join(part.text[:TEXT_CHARACTERS] for part in parts if part.text)[:TEXT_CHARACTERS]


def every_part(events: Iterable[Event], record: Record | None = None) -> list[Part]:
    """The parts of all artifacts and messages in `events` and `record`."""
    found = [part for event in events for part in event.all_parts]
    if record is not None:
        for artifact in record.artifacts:
            found += artifact.parts
        for message in record.history:
            found += message.parts
        if record.status.message is not None:
            found += record.status.message.parts
    return found


class Swaps(Struct, frozen=True):
    """The swaps for the parts of artifacts, of messages in the history, and of the message of a status."""

    artifacts: Swap
    history: Swap
    status: Swap


def everywhere(swap: Swap) -> Swaps:
    """The same swap for all parts."""
    return Swaps(swap, swap, swap)


def swap_event(event: Event, swaps: Swaps) -> Event:
    """`event` with its parts swapped."""
    match event:
        case ArtifactChunk():
            return replace(event, artifact=swap_artifact(event.artifact, swaps.artifacts))
        case StatusChanged():
            return replace(event, message=swap_message(event.message, swaps.status))
        case Submitted() | MessageReceived():
            return replace(event, message=swap_message(event.message, swaps.history))
        case Noted() | Intervened() | StepBegun():
            return event
        case Stepped():
            return replace(event, result=swap_parts(event.result, swaps.artifacts))
        case Delegated():
            artifacts = tuple(swap_artifact(artifact, swaps.artifacts) for artifact in event.artifacts)
            return replace(event, message=swap_message(event.message, swaps.status), artifacts=artifacts)


def swap_record(record: Record, swaps: Swaps) -> Record:
    """`record` with its parts swapped."""
    return replace(
        record,
        status=replace(record.status, message=swap_message(record.status.message, swaps.status)),
        artifacts=tuple(swap_artifact(artifact, swaps.artifacts) for artifact in record.artifacts),
        history=tuple(swap_message(message, swaps.history) for message in record.history),
    )


def swap_artifact(artifact: Artifact, swap: Swap) -> Artifact:
    """`artifact` with its parts swapped; itself, if nothing changes."""
    parts = swap_parts(artifact.parts, swap)
    return artifact if parts is artifact.parts else replace(artifact, parts=parts)


def swap_message(message: Message | None, swap: Swap) -> Message | None:
    """`message` with its parts swapped; itself, if nothing changes."""
    if message is None:
        return None
    parts = swap_parts(message.parts, swap)
    return message if parts is message.parts else replace(message, parts=parts)


def swap_parts(parts: tuple[Part, ...], swap: Swap) -> tuple[Part, ...]:
    """`parts` swapped; themselves, if nothing changes."""
    swapped = tuple(new for part in parts if (new := swap(part)) is not None)
    return parts if len(swapped) == len(parts) and all(map(_same, swapped, parts)) else swapped


def _same(new: Part, old: Part) -> bool:
    return new is old
