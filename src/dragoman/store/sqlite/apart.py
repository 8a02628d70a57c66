"""FilesApart: remembers which bytes of live tasks have a row of their own, so that none is written twice.

Invariant: an append refers only to files that are committed, or that come with it. A file whose write is still under
way comes again with the next write, under the same number, and the first write to land inserts it.
"""

import asyncio
from collections import OrderedDict
from typing import Any

from msgspec import Struct

from dragoman.model.events import Event
from dragoman.model.parts import everywhere, swap_event, swap_record
from dragoman.model.task import Record
from dragoman.store.api import Appended
from dragoman.store.sqlite.files import File, digest_of, large_files, taking_out
from dragoman.store.sqlite.reads import Reads

REMEMBERED_BYTES = 64 << 20
"""How many bytes of live tasks' files are remembered. Beyond that, equal bytes are looked up in the table."""


class Known(Struct):
    """A file that was submitted, and whether it has been committed."""

    file: File
    committed: bool


class FilesApart:
    """Replaces large bytes in events and snapshots by file numbers before they are written. Used on the loop."""

    def __init__(self) -> None:
        self.last_file = 0
        self._tasks: OrderedDict[str, dict[bytes, Known]] = OrderedDict()
        self._bytes = 0

    def take_out(
        self, reads: Reads | None, task_id: str, events: tuple[Event, ...], snapshot: Record | None
    ) -> tuple[tuple[Event, ...], Record | None, tuple[File, ...]]:
        """Return `events` and `snapshot` without large bytes, and the files to write with them.

        `reads` finds the files that the task has in the table; None for a task that has not been written yet.
        """
        large = large_files(events, snapshot)
        if not large:
            return events, snapshot, ()
        numbers: dict[int, int] = {}
        travelling: dict[int, File] = {}
        for content in large:
            digest = digest_of(content)
            known = self._find(reads, task_id, digest, content)
            if known is None:
                self.last_file += 1
                known = Known(File(self.last_file, digest, content), False)
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
        known = self._tasks.get(task_id, {})
        for file in files:
            entry = known.get(file.digest)
            if entry is not None and entry.file is file:
                entry.committed = True

    def learn(self, task_id: str, number: int, content: bytes) -> None:
        """Remember a file that was read, since the task may write the same bytes again."""
        self._add(task_id, Known(File(number, digest_of(content), content), True))

    def forget(self, task_id: str) -> None:
        """Forget the files of a task that has ended."""
        known = self._tasks.pop(task_id, None)
        if known:
            self._bytes -= sum(len(entry.file.content) for entry in known.values())

    def _find(self, reads: Reads | None, task_id: str, digest: bytes, content: bytes) -> Known | None:
        known = self._tasks.get(task_id, {}).get(digest)
        if known is not None:
            same = known.file.content is content or known.file.content == content
            return known if same else None
        number = None if reads is None else reads.equal_file(task_id, digest, content)
        if number is None:
            return None
        found = Known(File(number, digest, content), True)
        self._add(task_id, found)
        return found

    def _add(self, task_id: str, known: Known) -> None:
        size = len(known.file.content)
        if size > REMEMBERED_BYTES:
            return
        files = self._tasks.setdefault(task_id, {})
        self._tasks.move_to_end(task_id)
        previous = files.get(known.file.digest)
        self._bytes += size - (0 if previous is None else len(previous.file.content))
        files[known.file.digest] = known
        while self._bytes > REMEMBERED_BYTES:
            self.forget(next(iter(self._tasks)))
