"""Encoder: turns new tasks and appends into writes.

Invariant: the bytes of large files are taken out before anything is encoded, and remembered as long as the task may
refer to them again.
"""

from asyncio import Future
from collections.abc import Iterator
from operator import attrgetter
from secrets import randbits

from dragoman.model.events import StatusChanged
from dragoman.model.ids import Clock
from dragoman.model.parts import beginning, every_part
from dragoman.model.task import TERMINAL
from dragoman.store.api import Append, Appended, Moved, NewTask, Repeat
from dragoman.store.codec import TERMINAL_FROM, Codec, first_parts
from dragoman.store.files import INLINE_BYTES, File, TaskFiles
from dragoman.store.postgres.database.history import HistoryCount
from dragoman.store.postgres.database.statements import to_text
from dragoman.store.postgres.worker_leases import encode_change
from dragoman.store.postgres.writes import Addition, Creation, Row
from dragoman.store.usage import Used, used_by_task

NO_FILES: tuple[File, ...] = ()

NOTHING_USED: tuple[Used, ...] = ()

_raw = attrgetter("raw")


class Encoder:
    """Used on the loop."""

    def __init__(self, codec: Codec, clock: Clock, history: HistoryCount) -> None:
        self._history = history
        self._known = history.number
        """The history during which the files were written that are remembered."""
        self._codec = codec
        self._clock = clock
        self._files = TaskFiles(_any_numbers())

    def creation(self, new: NewTask) -> Creation:
        """Encode a new task. Raises TypeError or ValueError."""
        head, holder = new.head, new.holder
        events, files = new.events, NO_FILES
        if any(map(_raw, every_part(events))):
            events, _, files = self._remembered().take_out(None, head.id, events, None)
        state, page, head_bytes = self._codec.numbers[new.state], self._codec.encode(events), self._codec.encode(head)
        epoch = int(holder is not None)
        row: Row = {
            "id": to_text(head.id),
            "agent": to_text(head.agent),
            "context": to_text(head.context_id),
            "state": state,
            "status_ms": new.status_ms,
            "events": len(events),
            "epoch": epoch,
            "holder": None if state >= TERMINAL_FROM else holder,
            "files": bool(files),
            "pushed": new.push is not None,
            "parent": None if head.parent is None or head.detached else to_text(head.parent),
            "deadline_ms": head.deadline_ms,
            "dialect": to_text(head.dialect),
            "text": to_text(beginning(first_parts(new.events))),
            "key_id": to_text(head.key) if head.key else None,
            "read_seq": 0,
            "write": new.write,
        }
        return Creation(
            head.id,
            head.owner,
            head.agent,
            state,
            len(events),
            epoch,
            row,
            page,
            head_bytes,
            files,
            new.dedupe,
            new.push,
            new.deliveries,
            new.quota,
            len(page) + len(head_bytes) + sum(len(file.content) for file in files),
        )

    def addition(self, append: Append) -> Addition:
        """Encode an append. Raises TypeError, ValueError or Moved."""
        task_id, expected, kept = append.task_id, append.expected_seq, append.snapshot
        if not task_id.isascii():
            task_id.encode()
        if kept is not None:
            before = kept.seq - len(append.events)
            if expected is not None and expected != before:
                raise Moved(f"{task_id}: the snapshot follows seq {before}, not {expected}")
            expected = before
        terminal = append.state in TERMINAL
        events, files = append.events, NO_FILES
        small = append.content_bytes is not None and append.content_bytes <= INLINE_BYTES
        if not small and any(map(_raw, every_part(events, kept))):
            events, kept, files = self._remembered().take_out(None, task_id, events, kept)
        page = self._codec.encode(events)
        record = None if kept is None else bytes(self._codec.encode_record(kept))
        row: Row = {
            "id": to_text(task_id),
            "events": len(events),
            "state": self._codec.numbers[append.state],
            "status_ms": append.status_ms,
            "holder": append.holder,
            "ends_lease": terminal or (append.release and append.holder is None),
            "files": bool(files),
            "keeper": append.keeper,
            "offered_until_ms": None if append.offered_ms is None else self._clock.now_ms() + append.offered_ms,
            "run_epoch": append.epoch,
            "expected_seq": expected,
            "expected_epoch": append.expected_epoch,
            "read_seq": append.read_seq,
            "write": append.write,
            "webhooks": append.webhooks_version,
        }
        if append.to_worker:
            row["to_worker"] = True
        if append.lease is not None:
            row |= encode_change(append.lease)
            if append.lease.number is not None and any(isinstance(event, StatusChanged) for event in events):
                row["dated"] = True
        return Addition(
            task_id,
            row,
            append.epoch,
            expected,
            append.expected_epoch,
            page,
            record,
            files,
            append.dedupe,
            append.push,
            append.deliveries,
            append.webhooks_version,
            len(page) + len(record or b"") + sum(len(file.content) for file in files),
            terminal,
            used_by_task(append.snapshot) if terminal and append.snapshot is not None else NOTHING_USED,
            append.status_ms,
            append.history,
        )

    def note(self, write: Creation | Addition, future: "Future[Appended | Repeat]") -> None:
        """Remember the files of a write that was submitted."""
        if isinstance(write, Addition) and write.terminal:
            self._files.forget(write.id)
        elif write.files:
            future.add_done_callback(lambda done: self._files.written(write.id, write.files, done))

    def _remembered(self) -> TaskFiles:
        """The files of live tasks: none that an earlier history of the database had."""
        if self._known != self._history.number:
            self._known = self._history.number
            self._files.forget_all()
        return self._files


def _any_numbers() -> Iterator[int]:
    """Numbers for files, each of which no other file of its task has."""
    while True:
        yield randbits(62)
