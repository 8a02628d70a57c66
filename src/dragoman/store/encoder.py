"""Encoder: turns new tasks and appends into writes.

Invariant: the bytes of large files are taken out before anything is encoded, and remembered as long as the task may
refer to them again.
"""

from asyncio import Future
from operator import attrgetter

from dragoman.model.ids import Clock
from dragoman.model.parts import beginning, every_part
from dragoman.model.task import TERMINAL
from dragoman.model.title import asked_title, noted_title
from dragoman.store.api import Append, Appended, NewTask, Repeat
from dragoman.store.codec import TERMINAL_FROM, Codec, first_message
from dragoman.store.files import INLINE_BYTES, File, FindEqual, TaskFiles
from dragoman.store.guard import expect_seq
from dragoman.store.usage import Used, used_by_task
from dragoman.store.worker_leases import LeaseFault
from dragoman.store.writes import Addition, Creation

NO_FILES: tuple[File, ...] = ()

NOTHING_USED: tuple[Used, ...] = ()

_raw = attrgetter("raw")


class Encoder:
    """Used on the loop. `files` are those that live tasks have in the store, as far as they are remembered."""

    def __init__(self, codec: Codec, clock: Clock) -> None:
        self._codec = codec
        self._clock = clock

    def creation(self, new: NewTask, files: TaskFiles) -> Creation:
        """Encode a new task. Raises TypeError or ValueError."""
        head, events, taken = new.head, new.events, NO_FILES
        if any(map(_raw, every_part(events))):
            events, _, taken = files.take_out(None, head.id, events, None)
        holder = None if new.state in TERMINAL else new.holder
        first = first_message(new.events)
        return Creation(
            head.id,
            new,
            self._codec.numbers[new.state],
            int(new.holder is not None),
            holder,
            self._codec.encode(events),
            self._codec.encode(head),
            "" if first is None else beginning(first.parts),
            noted_title(new.events) or asked_title(head.metadata, None if first is None else first.metadata),
            taken,
        )

    def addition(
        self,
        append: Append,
        files: TaskFiles,
        find_equal: FindEqual | None = None,
        fault: LeaseFault | None = None,
    ) -> Addition:
        """Encode an append. Raises TypeError, ValueError or Moved, and whatever `find_equal` does."""
        task_id, events, kept, taken = append.task_id, append.events, append.snapshot, NO_FILES
        if not task_id.isascii():
            task_id.encode()
        expected = append.expected_seq if kept is None else expect_seq(append)
        small = append.content_bytes is not None and append.content_bytes <= INLINE_BYTES
        if not small and any(map(_raw, every_part(events, kept))):
            events, kept, taken = files.take_out(find_equal, task_id, events, kept)
        terminal = append.state in TERMINAL
        return Addition(
            task_id,
            append,
            self._codec.numbers[append.state],
            expected,
            terminal or (append.release and append.holder is None),
            append.wakes_ms if append.offered_ms is None else self._clock.now_ms() + append.offered_ms,
            self._codec.encode(events),
            None if kept is None else self._codec.encode_record(kept),
            taken,
            used_by_task(kept) if terminal and kept is not None else NOTHING_USED,
            fault,
            noted_title(append.events),
        )


def note_files(write: Creation | Addition, files: TaskFiles, future: "Future[Appended | Repeat]") -> None:
    """Remember the files of a write that was submitted. Those of a task that ends are forgotten."""
    if isinstance(write, Addition) and write.state >= TERMINAL_FROM:
        files.forget(write.id)
    elif write.files:
        future.add_done_callback(lambda done: files.written(write.id, write.files, done))
