"""Moves the bytes of file parts out of log and snapshot into rows of their own, and back.

Invariant: outside the store a part has its bytes and no `blob`. Inside, a large one has the number of a row in `files`
and no bytes. Equal bytes of one task share one row.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import Event
from dragoman.model.message import Part
from dragoman.model.parts import Swap, every_parts
from dragoman.model.task import Record

INLINE_BYTES = 1024
"""Up to this size bytes stay in their part; a row of their own would cost more than it saves."""

SAMPLE_BYTES = 4096
SAMPLES = 16


class File(Struct, frozen=True):
    """A row of `files` to write."""

    number: int
    digest: bytes
    content: bytes


def digest_of(content: bytes) -> bytes:
    """A quick digest of length and samples. Different bytes rarely share it; equality is then checked in full."""
    step = max(SAMPLE_BYTES, len(content) // SAMPLES)
    digest = blake2b(len(content).to_bytes(8, "big"), digest_size=12)
    view = memoryview(content)
    for start in range(0, len(content), step):
        digest.update(view[start : start + SAMPLE_BYTES])
    digest.update(view[-SAMPLE_BYTES:])
    return digest.digest()


def large_files(events: Iterable[Event], snapshot: Record | None) -> list[bytes]:
    """The bytes in `events` and `snapshot` that get a row of their own. An object that recurs is listed once."""
    found: dict[int, bytes] = {}
    for parts in every_parts(events, snapshot):
        for part in parts:
            raw = part.raw
            if raw is not None and len(raw) > INLINE_BYTES:
                found[id(raw)] = raw
    return list(found.values())


def file_bytes(event: Event) -> int:
    """How many bytes of files are in `event`."""
    return sum(len(part.raw) for parts in every_parts((event,), None) for part in parts if part.raw is not None)


def taking_out(numbers: dict[int, int]) -> Swap:
    """The swap that replaces bytes by their number, which `numbers` holds by `id(raw)`."""

    def swap(part: Part) -> Part:
        number = numbers.get(id(part.raw)) if part.raw is not None else None
        return part if number is None else replace(part, raw=None, blob=number)

    return swap


def putting_back(fetch: Callable[[int], bytes]) -> Swap:
    """The swap that replaces numbers by the bytes that `fetch` returns."""

    def swap(part: Part) -> Part:
        return part if part.blob is None else replace(part, raw=fetch(part.blob), blob=None)

    return swap


def kept_apart(part: Part) -> Part:
    """Leave everything as it is."""
    return part


def leaving_out(part: Part) -> Part | None:
    """Drop the parts whose bytes have a row of their own."""
    return part if part.blob is None else None
