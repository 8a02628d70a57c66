"""Files: moves the bytes of file parts out of log and snapshot into rows of their own, and back.

Invariant: outside the store a part has its bytes and no `blob`. Inside, a large one has the number of a row in `files`
and no bytes. Equal bytes of one task share one row. An append refers only to files that are committed, or that come
with it. A file whose write is still under way comes again with the next write, under the same number, and the first
write to land inserts it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import Event
from dragoman.model.message import Part
from dragoman.model.parts import Swap, every_part, everywhere, swap_event, swap_record
from dragoman.model.task import Record
from dragoman.store.api import Appended

INLINE_BYTES = 1024
"""Up to this size bytes stay in their part; a row of their own would cost more than it saves."""

SAMPLE_BYTES = 4096
SAMPLES = 16

REMEMBERED_BYTES = 64 << 20
"""How many bytes of live tasks' files are remembered. Beyond that, equal bytes are looked up in the table."""

FindEqual = Callable[[str, bytes, bytes], int | None]
"""Finds the number under which a task has some bytes in the table, by its id, their digest and the bytes."""


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


def file_bytes(event: Event) -> int:
    """How many bytes of files are in `event`."""
    return sum(len(part.raw) for part in every_part((event,)) if part.raw is not None)


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


class KnownFile(Struct):
    """A file that was submitted, and whether it has been committed."""

    file: File
    committed: bool

    def commit(self) -> None:
        """Note that it has been committed."""
        self.committed = True


class TaskFiles:
    """Replaces large bytes in events and snapshots by file numbers before they are written. Used on the loop."""

    def __init__(self, numbers: Iterator[int]) -> None:
        """`numbers` has numbers that no other file of the task has, without an end."""
        self._numbers = numbers
        self.tasks: OrderedDict[str, dict[bytes, KnownFile]] = OrderedDict()
        """The files of live tasks, by the ids of the tasks and the digests of the files."""
        self._bytes = 0

    def take_out(
        self, find_equal: FindEqual | None, task_id: str, events: tuple[Event, ...], snapshot: Record | None
    ) -> tuple[tuple[Event, ...], Record | None, tuple[File, ...]]:
        """Return `events` and `snapshot` without large bytes, and the files to write with them.

        `find_equal` finds the files that the task has in the table; None for a task that has not been written yet.
        """
        found: dict[int, bytes] = {}  # by identity: an object that recurs is looked at once
        for part in every_part(events, snapshot):
            raw = part.raw
            if raw is not None and len(raw) > INLINE_BYTES:
                found[id(raw)] = raw
        if not found:
            return events, snapshot, ()
        numbers: dict[int, int] = {}
        travelling: dict[int, File] = {}
        for content in found.values():
            digest = digest_of(content)
            known = self._find(find_equal, task_id, digest, content)
            if known is None:
                known = KnownFile(File(next(self._numbers), digest, content), False)
                self._add(task_id, known)
            if not known.committed:
                travelling[known.file.number] = known.file
            numbers[id(content)] = known.file.number
        swaps = everywhere(taking_out(numbers))
        lighter = tuple(swap_event(event, swaps) for event in events)
        kept = None if snapshot is None else swap_record(snapshot, swaps)
        return lighter, kept, tuple(travelling.values())

    def written(self, task_id: str, files: tuple[File, ...], done: "asyncio.Future[Any]") -> None:
        """Note the outcome of the write of `files`."""
        if done.cancelled() or done.exception() is not None or not isinstance(done.result(), Appended):
            return  # the outcome is unknown, or nothing was written: they come again with the next write
        known = self.tasks.get(task_id, {})
        for file in files:
            entry = known.get(file.digest)
            if entry is not None and entry.file is file:
                entry.commit()

    def learn(self, task_id: str, number: int, content: bytes) -> None:
        """Remember a file that was read, since the task may write the same bytes again."""
        self._add(task_id, KnownFile(File(number, digest_of(content), content), True))

    def forget(self, task_id: str) -> None:
        """Forget the files of a task that has ended."""
        known = self.tasks.pop(task_id, None)
        if known:
            self._bytes -= sum(len(entry.file.content) for entry in known.values())

    def forget_all(self) -> None:
        """Forget every file, because the store may have lost some."""
        self.tasks.clear()
        self._bytes = 0

    def _find(self, find_equal: FindEqual | None, task_id: str, digest: bytes, content: bytes) -> KnownFile | None:
        known = self.tasks.get(task_id, {}).get(digest)
        if known is not None:
            same = known.file.content is content or known.file.content == content
            return known if same else None
        number = None if find_equal is None else find_equal(task_id, digest, content)
        if number is None:
            return None
        found = KnownFile(File(number, digest, content), True)
        self._add(task_id, found)
        return found

    def _add(self, task_id: str, known: KnownFile) -> None:
        size = len(known.file.content)
        if size > REMEMBERED_BYTES:
            return
        files = self.tasks.setdefault(task_id, {})
        self.tasks.move_to_end(task_id)
        previous = files.get(known.file.digest)
        self._bytes += size - (0 if previous is None else len(previous.file.content))
        files[known.file.digest] = known
        while self._bytes > REMEMBERED_BYTES:
            self.forget(next(iter(self.tasks)))
