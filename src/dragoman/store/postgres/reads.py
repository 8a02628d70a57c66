"""Reads: tasks, logs and calls as rows show them.

Invariant: a task is read by one statement, which sees one moment. Its files, which never change, are read by another; a
task whose files are gone has been deleted meanwhile.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import Event, Logged
from dragoman.model.message import Part
from dragoman.model.parts import Swaps, every_part, everywhere, swap_event, swap_record
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.api import Repeat, Stored, Unknown, Whose
from dragoman.store.codec import Codec, DamagedRow, Page, SkippedChunk, check_state
from dragoman.store.damage import DamageLog, RowFacts, bare_record, state_of
from dragoman.store.files import file_bytes, kept_apart, putting_back
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import from_text, to_text
from dragoman.store.postgres.finder import Finder

LARGE_BYTES = 1 << 20
"""A task of this size or more is decoded off the loop: that takes 3 ms and more."""


class FetchedFiles(Struct):
    """The bytes of files of some tasks, by the task's number and the file's."""

    contents: dict[tuple[int, int], bytes]

    def fetcher(self, task: int) -> Any:
        """The function that returns the bytes of a file of `task`. It raises KeyError if they are gone."""
        return lambda number: self.contents[task, number]


class OpenedRow(Struct):
    """A task's row, decoded, with the numbers of its files still in it."""

    row: Any
    head: TaskHead
    snapshot: Record | None
    pages: list[Page]
    """The pages after the snapshot."""

    def numbers(self, *, artifacts: bool = True, history: bool = True) -> set[int]:
        """The numbers of the files in its status, and in its artifacts and its history if they are wanted."""
        found: set[int] = set()

        def note(part: Part) -> Part:
            if part.blob is not None:
                found.add(part.blob)
            return part

        swaps = Swaps(note if artifacts else kept_apart, note if history else kept_apart, note)
        for _, _, page in self.pages:
            for event in page:
                if not isinstance(event, SkippedChunk):
                    swap_event(event, swaps)
        if self.snapshot is not None:
            swap_record(self.snapshot, swaps)
        return found


class PostgresReads:
    """Reads through the pool, while the store is open. Raises StoreError."""

    def __init__(self, door: PostgresDoor, sql: Mapping[str, str], codec: Codec, damage: DamageLog) -> None:
        self._door = door
        self._sql = sql
        self._codec = codec
        self._damage = damage
        self._finder = Finder(door, sql["find"])

    async def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        """Head, seq and state."""
        rows = await self._door().read(self._sql["head"], to_text(task_id))
        if not rows:
            return None
        data, seq, state, task = rows[0]
        try:
            return (await self.read_head(data, task))[0], seq, state_of(state)
        except Unknown:
            return None

    async def read_head(self, data: bytes, task: int) -> tuple[TaskHead, bool]:
        """The head of the task with a number, from its bytes or else its row, and whether the bytes can be decoded.

        Raises Unknown if the task has been deleted since they were read.
        """
        try:
            return self._codec.head(data), True
        except DamagedRow as error:
            rows = await self._door().read(self._sql["row_facts"], task)
            if not rows:
                raise Unknown(str(task)) from error
            task_id, owner, agent, context, dialect, parent, deadline_ms, status_ms = rows[0]
            head = RowFacts(
                id=from_text(task_id),
                owner=from_text(owner),
                agent=from_text(agent),
                context_id=from_text(context),
                dialect=from_text(dialect),
                parent=None if parent is None else from_text(parent),
                deadline_ms=deadline_ms,
                status_ms=status_ms,
            ).head()
            self._damage.name("task", head.id, error)
            return head, False

    async def size(self, task_id: str) -> int:
        """The bytes that `load` would read."""
        rows = await self._door().read(self._sql["size"], to_text(task_id))
        return int(rows[0][0]) if rows else 0

    async def recall(self, key: bytes, now_ms: int) -> Repeat | None:
        """The earlier call with this key, unless it has expired."""
        rows = await self._door().read(self._sql["find_call"], key, now_ms)
        return self.repeat(rows[0]) if rows else None

    def repeat(self, row: Any) -> Repeat:
        """Decode an earlier call."""
        task_id, digest, seq, answer = row
        return self._codec.repeat((None if task_id is None else from_text(task_id), digest, seq, answer))

    async def load(self, task_id: str, name: str = "load") -> Stored | None:
        """The task with all its bytes, as far as the statement `name` reads them."""
        rows = await self._door().read(self._sql[name], to_text(task_id))
        return await self._whole(rows[0], pages=name != "load_snapshot") if rows else None

    async def load_after(self, task_id: str, after: int) -> Stored | None:
        """The task with the pages behind seq `after`; the whole one if they do not follow it."""
        if not after:
            return await self.load(task_id)
        rows = await self._door().read(self._sql["load_after"], to_text(task_id), after)
        if not rows:
            return None
        row = rows[0]
        size = sum(map(len, row["pages"] or ()))
        try:
            opened: OpenedRow = await self._off_loop(
                size, partial(self._open, chunks=True, whole=True, after=after), row
            )
            files = await self.files({row["task"]: opened.numbers()} if row["files"] else {})
            swaps = everywhere(putting_back(files.fetcher(row["task"]))) if row["files"] else None
            stored = self.stored(opened, swaps)
        except (DamagedRow, KeyError):  # pruned, rewound, damaged or deleted
            return await self.load(task_id)
        return replace(stored, after=after, snapshot_bytes=row["snapshot_bytes"] or 0)

    async def find(self, task_id: str, owner: Whose, agent: str, bytes_max: int | None = None) -> Stored | int | None:
        """As the protocol says."""
        self._door()
        row = await self._finder.find(task_id, owner, agent, bytes_max)
        if row is None:
            return None
        if bytes_max is not None and row["size"] >= bytes_max:
            return int(row["size"])
        return await self._whole(row)

    def open(self) -> None:
        """Belong to the loop that runs from now on."""
        self._finder.open()

    async def close(self) -> None:
        """Wait for the reads under way."""
        await self._finder.close()

    async def load_in(self, connection: DatabaseConnection, task_id: str) -> Stored | None:
        """The task as a transaction sees it."""
        row = await connection.fetchrow(self._sql["load"], to_text(task_id))
        return None if row is None else await self._whole(row)

    async def load_many(self, tasks: Sequence[int]) -> tuple[Stored, ...]:
        """The tasks with these numbers, in their order, with all their bytes. Those that are gone are left out."""
        rows = await self._door().read(self._sql["load_many"], tasks)
        found = [await self._whole(row) for row in rows]
        return tuple(stored for stored in found if stored is not None)

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        """The events that follow seq `after`, until `limit_bytes` are reached."""
        found: list[Logged] = []
        more = True
        while more and limit_bytes > 0:
            rows = await self._door().read(self._sql["read"], to_text(task_id), after, limit_bytes)
            more = bool(rows) and rows[0][4]
            pages = [(row[0], row[1]) for row in rows]
            some = await self._following(task_id, rows[0][2], rows[0][3], pages, after, limit_bytes) if rows else ()
            if not some and rows:  # none of these pages can be decoded
                after, more = rows[-1][5], True
                continue
            if not some or (found and some[0].seq != found[-1].seq + 1):
                break
            found += some
            after = some[-1].seq
            limit_bytes -= sum(logged.size for logged in some)
        return tuple(found)

    async def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> Mapping[str, tuple[Logged, ...]]:
        """The events that follow these seqs, until `limit_bytes` are reached."""
        found: dict[str, tuple[Logged, ...]] = {}
        if not seen:
            return found
        ids, seqs = [to_text(task_id) for task_id, _ in seen], [seq for _, seq in seen]
        rows = await self._door().read(self._sql["read_many"], ids, seqs, limit_bytes)
        by_place: dict[int, list[Any]] = {}
        for row in rows:
            by_place.setdefault(row[0], []).append(row)
        for place, pages in by_place.items():
            task_id, after = seen[place - 1]
            task, files = pages[0][3], pages[0][4]
            logged = [(row[1], row[2]) for row in pages]
            events = await self._following(task_id, task, files, logged, after, limit_bytes)
            if events:
                found[task_id] = events
                limit_bytes -= sum(logged.size for logged in events)
            if limit_bytes <= 0:
                break
        return found

    # -- decoding ------------------------------------------------------------------------------------------------------

    async def _following(
        self, task_id: str, task: int, has_files: bool, pages: Sequence[tuple[int, bytes]], after: int, limit_bytes: int
    ) -> tuple[Logged, ...]:
        """The events of pages that follow seq `after`, with their files, until `limit_bytes` are reached.

        They end before a page that cannot be decoded, or begin behind it.
        """
        decode = partial(self._decode_pages, task_id)
        decoded = await self._off_loop(sum(len(page) for _, page in pages), decode, pages)
        if not has_files:
            return tuple(_limited(decoded, after, limit_bytes, None))
        wanted = {part.blob for _, _, page in decoded for part in every_part(page) if part.blob is not None}
        files = await self.files({task: wanted})
        try:
            return tuple(_limited(decoded, after, limit_bytes, everywhere(putting_back(files.fetcher(task)))))
        except KeyError:
            return ()  # the task has been deleted meanwhile

    async def _whole(self, row: Any, *, pages: bool = True) -> Stored | None:
        """A task from its row, with its files; None if it has been deleted meanwhile."""
        opened = await self.opened(row, pages=pages)
        if opened is None or not row["files"]:
            return None if opened is None else self.stored(opened, None)
        task = row["task"]
        files = await self.files({task: opened.numbers()})
        try:
            return self.stored(opened, everywhere(putting_back(files.fetcher(task))))
        except KeyError as missing:
            return await self.without_file(opened, missing)

    async def opened(self, row: Any, *, chunks: bool = True, pages: bool = True) -> OpenedRow | None:
        """Decode a task's row, perhaps without the chunks of artifacts, off the loop if it is large.

        `pages`: those after the snapshot are in the row. Returns None if it has been deleted meanwhile.
        """
        size = len(row["record"] or b"") + sum(map(len, row["pages"] or ()))
        try:
            opened: OpenedRow = await self._off_loop(size, partial(self._open, chunks=chunks, whole=pages), row)
        except DamagedRow as error:
            return await self._damaged(row, error)
        return opened

    async def _damaged(self, row: Any, error: DamagedRow) -> OpenedRow | None:
        """A task that cannot be read, as its row has it; None if it has been deleted meanwhile."""
        try:
            head, _ = await self.read_head(row["head"], row["task"])
        except Unknown:
            return None
        self._damage.name("task", head.id, error)
        record = bare_record(head, row["seq"], state_of(row["state"]), row["status_ms"])
        with suppress(DamagedRow):
            if row["record"] is not None:
                kept = self._codec.record(row["record"], head, _no_note)
                record = kept if kept.unreadable else record
        return OpenedRow(row, head, record, [])

    async def without_file(self, opened: OpenedRow, missing: KeyError) -> Stored | None:
        """A task of which a file is missing; None if the task has been deleted meanwhile."""
        if not await self._door().read(self._sql["row_facts"], opened.row["task"]):
            return None
        damaged = await self._damaged(opened.row, DamagedRow(f"its file {missing} is missing"))
        return None if damaged is None else self.stored(damaged, None)

    async def files(self, wanted: Mapping[int, Iterable[int]]) -> FetchedFiles:
        """The bytes of files of tasks, as far as they are there."""
        files = FetchedFiles({})
        for task, numbers in wanted.items():
            if numbers:
                for number, content in await self._door().read(self._sql["files"], task, list(numbers)):
                    files.contents[task, number] = content
        return files

    def stored(self, opened: OpenedRow, swaps: Swaps | None) -> Stored:
        """The task, its parts swapped. Raises KeyError if a file is gone."""
        row, snapshot = opened.row, opened.snapshot
        if snapshot is not None and swaps is not None:
            snapshot = swap_record(snapshot, swaps)
        events: list[Logged] = []
        for first, size, page in opened.pages:
            for number, event in enumerate(page, first):
                if isinstance(event, SkippedChunk):
                    continue
                whole = event if swaps is None else swap_event(event, swaps)
                events.append(Logged(number, whole, size if swaps is None else size + file_bytes(whole)))
        stored = Stored(
            head=opened.head,
            seq=row["seq"],
            epoch=row["epoch"],
            state=state_of(row["state"]),
            status_ms=row["status_ms"],
            holder=row["holder"],
            cancel_requested=row["cancel"],
            snapshot=snapshot,
            events=tuple(events),
            snapshot_bytes=len(row["record"] or b""),
            log_bytes_since=row["log_bytes"],
            pushed=row["pushed"],
            keeper=row["keeper"],
            webhooks_version=row["webhooks_version"],
            delivered=row["delivered"],
        )  # of more than 15 named arguments CPython makes a dict first
        offered_until_ms = row["offered_until_ms"]
        return stored if offered_until_ms is None else replace(stored, offered_until_ms=offered_until_ms)

    def _open(self, row: Any, *, chunks: bool, whole: bool, after: int = 0) -> OpenedRow:
        check_state(row["state"])
        head, record = self._codec.head(row["head"]), row["record"]
        snapshot = None if record is None else self._codec.record(record, head, _no_note)
        if not whole:
            return OpenedRow(row, head, snapshot, [])
        pages = zip(row["firsts"] or (), row["pages"] or (), strict=True)
        after = after if snapshot is None else snapshot.seq
        return OpenedRow(row, head, snapshot, self._codec.log(pages, after, row["seq"], chunks=chunks))

    def _decode_pages(
        self, task_id: str, pages: Iterable[tuple[int, bytes]]
    ) -> list[tuple[int, int, tuple[Event, ...]]]:
        decoded: list[tuple[int, int, tuple[Event, ...]]] = []
        for first, page in pages:
            try:
                events = self._codec.events(page)
            except DamagedRow as error:
                self._damage.name("task", task_id, error)
                if decoded:
                    break  # the next read begins behind the gap, and its reader sees that
                continue
            decoded.append((first, len(page) // len(events), events))
        return decoded

    async def _off_loop(self, size: int, decode: Any, value: Any) -> Any:
        if size < LARGE_BYTES:
            return decode(value)
        return await asyncio.to_thread(decode, value)


def _limited(
    pages: Iterable[tuple[int, int, tuple[Event, ...]]], after: int, limit_bytes: int, swaps: Swaps | None
) -> Iterator[Logged]:
    taken = 0
    for first, mean, events in pages:
        for number, event in enumerate(events, first):
            if number <= after:
                continue
            if taken >= limit_bytes:
                return
            whole = event if swaps is None else swap_event(event, swaps)
            size = mean if swaps is None else mean + file_bytes(whole)
            taken += size
            yield Logged(number, whole, size)


def _no_note(seq: int) -> None:
    """No snapshot in this store lacks its note."""
