"""Bytes of file parts on their way in and out of log and snapshot.

Invariant: outside the store a part has its bytes and no `blob`; inside, a large one has the number of a row in `files`
and no bytes. Equal bytes of one task are one row.
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import ArtifactChunk, Delegated, Event, MessageReceived, Noted, StatusChanged, Submitted
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import Record

INLINE_BYTES = 1024
"""Bytes up to this many stay in their part; a row of their own would cost more than it saves."""

SAMPLE_BYTES = 4096
SAMPLES = 16


class File(Struct, frozen=True):
    """A row of `files`, to be written."""

    number: int
    digest: bytes
    content: bytes


Swap = Callable[[Part], Part | None]
"""What becomes of a part; None leaves it out."""


def digest_of(content: bytes) -> bytes:
    """What equal bytes have in common and others hardly: their length and samples. Equality is then checked in full."""
    step = max(SAMPLE_BYTES, len(content) // SAMPLES)
    digest = blake2b(len(content).to_bytes(8, "big"), digest_size=12)
    view = memoryview(content)
    for start in range(0, len(content), step):
        digest.update(view[start : start + SAMPLE_BYTES])
    digest.update(view[-SAMPLE_BYTES:])
    return digest.digest()


def large_files(events: Iterable[Event], snapshot: Record | None) -> list[bytes]:
    """The bytes in `events` and `snapshot` that get a row of their own; an object that recurs is named once."""
    found: dict[int, bytes] = {}
    for parts in _parts(events, snapshot):
        for part in parts:
            raw = part.raw
            if raw is not None and len(raw) > INLINE_BYTES:
                found[id(raw)] = raw
    return list(found.values())


def _parts(events: Iterable[Event], snapshot: Record | None) -> Iterator[tuple[Part, ...]]:
    for event in events:
        if isinstance(event, ArtifactChunk):
            yield event.artifact.parts
            continue
        if isinstance(event, Noted):
            continue
        if isinstance(event, Delegated):
            for artifact in event.artifacts:
                yield artifact.parts
        if event.message is not None:
            yield event.message.parts
    if snapshot is not None:
        for artifact in snapshot.artifacts:
            yield artifact.parts
        for message in snapshot.history:
            yield message.parts
        if snapshot.status.message is not None:
            yield snapshot.status.message.parts


class Swaps(Struct, frozen=True):
    """What becomes of the parts of artifacts, of messages of the history, and of the message of a status."""

    artifacts: Swap
    history: Swap
    status: Swap


def everywhere(swap: Swap) -> Swaps:
    """The same for all parts."""
    return Swaps(swap, swap, swap)


def swap_event(event: Event, swaps: Swaps) -> Event:
    """`event` with its parts swapped."""
    match event:
        case ArtifactChunk():
            return replace(event, artifact=_swap_artifact(event.artifact, swaps.artifacts))
        case StatusChanged():
            return replace(event, message=_swap_message(event.message, swaps.status))
        case Submitted() | MessageReceived():
            return replace(event, message=_swap_message(event.message, swaps.history))
        case Noted():
            return event
        case Delegated():
            artifacts = tuple(_swap_artifact(artifact, swaps.artifacts) for artifact in event.artifacts)
            return replace(event, message=_swap_message(event.message, swaps.status), artifacts=artifacts)


def swap_record(record: Record, swaps: Swaps) -> Record:
    """`record` with its parts swapped."""
    return replace(
        record,
        status=replace(record.status, message=_swap_message(record.status.message, swaps.status)),
        artifacts=tuple(_swap_artifact(artifact, swaps.artifacts) for artifact in record.artifacts),
        history=tuple(_swap_message(message, swaps.history) for message in record.history),
    )


def file_bytes(event: Event) -> int:
    """How many bytes of files are in `event`."""
    return sum(len(part.raw) for parts in _parts((event,), None) for part in parts if part.raw is not None)


def _swap_artifact(artifact: Artifact, swap: Swap) -> Artifact:
    parts = _swap_parts(artifact.parts, swap)
    return artifact if parts is artifact.parts else replace(artifact, parts=parts)


def _swap_message(message: Message | None, swap: Swap) -> Message | None:
    if message is None:
        return None
    parts = _swap_parts(message.parts, swap)
    return message if parts is message.parts else replace(message, parts=parts)


def _swap_parts(parts: tuple[Part, ...], swap: Swap) -> tuple[Part, ...]:
    swapped = tuple(new for part in parts if (new := swap(part)) is not None)
    return parts if len(swapped) == len(parts) and all(map(_same, swapped, parts)) else swapped


def _same(new: Part, old: Part) -> bool:
    return new is old


def taking_out(numbers: dict[int, int]) -> Swap:
    """Replace bytes by their number; `numbers` has them by `id(raw)`."""

    def swap(part: Part) -> Part:
        number = numbers.get(id(part.raw)) if part.raw is not None else None
        return part if number is None else replace(part, raw=None, blob=number)

    return swap


def putting_back(fetch: Callable[[int], bytes]) -> Swap:
    """Replace numbers by the bytes that `fetch` has for them."""

    def swap(part: Part) -> Part:
        return part if part.blob is None else replace(part, raw=fetch(part.blob), blob=None)

    return swap


def kept_apart(part: Part) -> Part:
    """Leave everything as it is."""
    return part


def leaving_out(part: Part) -> Part | None:
    """Drop the parts whose bytes are kept apart."""
    return part if part.blob is None else None
