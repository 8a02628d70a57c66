"""Reads: reads tasks and logs through one connection.

Invariant: every read of a task sees one moment: a read of several statements is one transaction.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from dragoman.model.events import Logged
from dragoman.model.parts import Swap, Swaps, everywhere, swap_event, swap_record
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.api import Repeat, Stored, Unknown
from dragoman.store.codec import NOTE_MARKS, TERMINAL_FROM, Codec, DamagedRow, SkippedChunk, check_state
from dragoman.store.damage import DamageLog, RowFacts, bare_record, state_of
from dragoman.store.files import file_bytes, kept_apart, putting_back
from dragoman.store.sqlite.connection import fetch

Row = tuple[
    int,
    int,
    int,
    int,
    int,
    str | None,
    int,
    int,
    int,
    bytes | None,
    bytes | None,
    int | None,
    bytes | None,
    int,
    str | None,
    int | None,
    int,
    int,
]
"""The task's columns as far as its head; its snapshot; first seq and events of a page; the rest of its columns."""

APART = everywhere(kept_apart)
"""Leaves parts as they are: those of a task without files."""

Learn = Callable[[str, int, bytes], None]
"""Called with each file that was read: the task's id, the file's number, the bytes."""


class SqliteReads:
    """A read-only connection. Not to be used by two threads at once."""

    def __init__(
        self,
        connection: apsw.Connection,
        sql: dict[str, str],
        codec: Codec,
        gate: AbstractContextManager[object],
        damage: DamageLog,
    ) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.sql = sql
        self.codec = codec
        self.damage = damage
        self._gate = gate

    @contextmanager
    def moment(self) -> Iterator[None]:
        """A context in which every statement sees the same state of the store."""
        with self._gate:
            self.cursor.execute("BEGIN")
            try:
                yield
            finally:
                self.cursor.execute("COMMIT")

    def point(self, name: str, values: Sequence[Any] = ()) -> Any:
        """Return the one row that a statement finds, as a tuple or its only value, or None."""
        with self._gate:
            return self.cursor.execute(self.sql[name], values).get

    def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        """Head, seq and state."""
        with self._gate:
            row = self.cursor.execute(self.sql["row_head"], (task_id,)).get
            try:
                return None if row is None else (self.head_of(row[0], row[3])[0], row[1], state_of(row[2]))
            except Unknown:
                return None

    def head_of(self, data: bytes | None, task: int) -> tuple[TaskHead, bool]:
        """The head of the task with a number, from its bytes or else its row, and whether the bytes can be decoded.

        Raises Unknown if the task has been deleted since they were read, which needs no care in a `moment`.
        """
        try:
            if data is None:  # see the statement `load`
                raise DamagedRow("its log does not begin where its snapshot ends")
            return self.codec.head(data), True
        except DamagedRow as error:
            facts: Any = self.connection.execute(self.sql["row_facts"], (task,)).get
            if facts is None:
                raise Unknown(str(task)) from error
            head = RowFacts(*facts).head()
            self.damage.name("task", head.id, error)
            return head, False

    def recall(self, key: bytes, now_ms: int) -> Repeat | None:
        """The earlier call with this key, unless it has expired."""
        with self._gate:
            found = self.cursor.execute(self.sql["find_call"], (key, now_ms)).get
        return None if found is None else self.codec.repeat(found)

    def load(self, task_id: str, learn: Learn | None = None) -> Stored | None:
        """The task with all its bytes, which `learn` gets if it is live. One statement if the task has no files."""
        with self._gate:
            rows = self._rows("load", task_id)
        if rows and rows[0][8]:
            with self.moment():
                rows = self._rows("load", task_id)
                live = bool(rows) and rows[0][3] < TERMINAL_FROM
                return self.stored(rows, everywhere(self.fetching(task_id, learn if live else None))) if rows else None
        try:
            return self.stored(rows, APART) if rows else None
        except Unknown:
            return None

    def load_snapshot(self, task_id: str) -> Stored | None:
        """The task without the events that follow its snapshot."""
        with self.moment():
            rows = self._rows("load_snapshot", task_id)
            swaps = everywhere(self.fetching(task_id, None))
            return self.stored(rows, swaps, whole=False) if rows else None

    def settings(self, task_id: str) -> list[bytes]:
        """The webhooks of the task, oldest first, encoded."""
        with self._gate:
            rows: list[Any] = fetch(self.cursor, self.sql["settings"], (task_id,))
        return [settings for (settings,) in rows]

    def equal_file(self, task_id: str, digest: bytes, content: bytes) -> int | None:
        """The number under which the task already has these bytes, or None."""
        with self._gate:
            found = self.cursor.execute(self.sql["equal_files"], (task_id, digest)).get
        return found[0] if found is not None and found[1] == content else None

    def stored(self, rows: Sequence[Row], swaps: Swaps, *, chunks: bool = True, whole: bool = True) -> Stored:
        """Build a task from the rows of `load`, its parts swapped, perhaps without the chunks of artifacts.

        `whole`: the pages after the snapshot are among them. Needs a `moment` if the task has files.
        """
        task, seq, epoch, state, status_ms, holder, cancel, log_bytes, files, head_bytes, kept, *_ = rows[0]
        pushed, keeper, offered_until_ms, webhooks_version, delivered = rows[0][13:]
        head, readable = self.head_of(head_bytes, task)
        snapshot: Record | None = None
        events: list[Logged] = []
        try:
            check_state(state)
            if kept is not None:
                snapshot = self.codec.record(kept, head, partial(self._logged_note, task))
                if files:
                    snapshot = swap_record(snapshot, swaps)
            if whole and (snapshot is None or snapshot.seq != seq):
                pages = [(row[11], row[12]) for row in rows if row[11] is not None and row[12] is not None]
                for first, size, page in self.codec.log(
                    pages, 0 if snapshot is None else snapshot.seq, seq, chunks=chunks
                ):
                    for number, event in enumerate(page, first):
                        if isinstance(event, SkippedChunk):
                            continue
                        full = swap_event(event, swaps) if files else event
                        events.append(Logged(number, full, size + file_bytes(full) if files else size))
        except DamagedRow as error:
            self.damage.name("task", head.id, error)
            readable = False
        if not (readable or (snapshot is not None and snapshot.unreadable)):
            snapshot, events = bare_record(head, seq, state_of(state), status_ms), []
        stored = Stored(
            head=head,
            seq=seq,
            epoch=epoch,
            state=state_of(state),
            status_ms=status_ms,
            holder=holder,
            cancel_requested=bool(cancel),
            snapshot=snapshot,
            events=tuple(events),
            snapshot_bytes=0 if kept is None else len(kept),
            log_bytes_since=log_bytes,
            pushed=bool(pushed),
            keeper=keeper,
            webhooks_version=webhooks_version,
            delivered=delivered,
        )  # of more than 15 named arguments CPython makes a dict first
        return stored if offered_until_ms is None else replace(stored, offered_until_ms=offered_until_ms)

    def by_number(
        self, numbers: Sequence[int], artifacts: Swap | None, history: Swap | None, max_bytes: int | None = None
    ) -> tuple[Stored, ...]:
        """The tasks with these numbers, in their order. Needs a `moment`.

        `artifacts` and `history` swap their parts, else these have the bytes of their files. With `artifacts` the
        chunks of the log are left out.

        The list ends before the task that would take it past `max_bytes`, but has at least one.
        """
        found: list[Stored] = []
        size = 0

        def learn(owner: str, number: int, content: bytes) -> None:
            nonlocal size
            size += len(content)

        for number in numbers:
            rows = self._rows("load_by_number", number)
            size += sum(len(row[12] or b"") for row in rows) + len(rows[0][10] or b"")
            back = self.fetching("", learn)
            stored = self.stored(rows, Swaps(artifacts or back, history or back, back), chunks=artifacts is None)
            if max_bytes is not None and size > max_bytes and found:
                break
            found.append(stored)
        return tuple(found)

    def whole(self, numbers: Sequence[int]) -> tuple[Stored, ...]:
        """The tasks with these numbers, in their order, with all their bytes."""
        with self.moment():
            return self.by_number(numbers, None, None)

    def calls_of(self, task_ids: Sequence[str]) -> tuple[int, ...]:
        """The numbers of the calls that are remembered with these tasks."""
        ids = msgspec.json.encode(task_ids).decode()
        with self._gate:
            return tuple(call for (call,) in self.cursor.execute(self.sql["calls_of_tasks"], (ids,)))

    def size_bytes(self, path: Path | None) -> int:
        """The size of the store, whose file is `path`."""
        if path is None:
            return int(self.point("size_bytes"))
        size = 0
        for file in (path, path.with_name(f"{path.name}-wal")):
            with suppress(FileNotFoundError):  # there is no WAL while nothing is written
                size += file.stat().st_size
        return size

    def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        """The events that follow seq `after`, until `limit_bytes` are reached."""
        with self.moment():
            row = self.cursor.execute(self.sql["task_number"], (task_id,)).get
            return () if row is None else tuple(self._following(row[0], row[1], task_id, after, limit_bytes))

    def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> dict[str, tuple[Logged, ...]]:
        """The events that follow these seqs, until `limit_bytes` are reached."""
        found: dict[str, tuple[Logged, ...]] = {}
        with self.moment():
            moved: list[Any] = fetch(self.cursor, self.sql["moved"], (msgspec.json.encode(seen).decode(),))
            for task, files, task_id, after in moved:
                events = tuple(self._following(task, files, task_id, after, limit_bytes))
                if events:  # a pruned log has none
                    found[task_id] = events
                    limit_bytes -= sum(logged.size for logged in events)
                if limit_bytes <= 0:
                    break
        return found

    def _following(self, task: int, files: int, task_id: str, after: int, limit_bytes: int) -> Iterator[Logged]:
        taken, given = 0, False
        swaps = everywhere(self.fetching(task_id, None))
        for first, page in self.cursor.execute(self.sql["pages_after"], (task, after)):
            try:
                events = self.codec.events(page)
                whole = [swap_event(event, swaps) for event in events] if files else events
            except DamagedRow as error:
                self.damage.name("task", task_id, error)
                if given:
                    return  # the next read begins behind the gap, and its reader sees that
                continue
            for number, event in enumerate(whole, first):
                if number <= after:
                    continue
                if taken >= limit_bytes:
                    return
                size = len(page) // len(events) + (file_bytes(event) if files else 0)
                taken += size
                given = True
                yield Logged(number, event, size)

    def _logged_note(self, task: int, until: int) -> dict[str, str] | None:
        """Read the note of a task as of seq `until` from the log.

        It costs no more than the snapshot that lacks the note, because pages without a mark are not decoded.
        """
        pages = self.cursor.execute(self.sql["pages_with_notes"], (task, until, *NOTE_MARKS))
        return self.codec.note(page for (page,) in pages)

    def _rows(self, name: str, task: str | int) -> Sequence[Row]:
        rows: Any
        try:  # not by `fetch`, which costs a call for each task
            rows = self.cursor.execute(self.sql[name], (task,)).fetchall()
        except UnicodeDecodeError:
            rows = fetch(self.cursor, self.sql[name], (task,))
        found: Sequence[Row] = rows
        return found

    def fetching(self, task_id: str, learn: Learn | None) -> Swap:
        """The swap that puts the bytes of one task's files back, each read once. Needs a `moment`."""
        fetched: dict[int, bytes] = {}

        def fetch(number: int) -> bytes:
            content = fetched.get(number)
            if content is None:
                found = self.connection.execute(self.sql["file"], (number,)).get
                if found is None:
                    raise DamagedRow(f"its file {number} is missing")
                content = bytes(found)
                fetched[number] = content
                if learn is not None:
                    learn(task_id, number, content)
            return content

        return putting_back(fetch)
