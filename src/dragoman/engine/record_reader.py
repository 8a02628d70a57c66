"""RecordReader: what operators have set, read from the store once for all parts of this process that need it.

    the operator's act ── `put_record` ──► store ── signal on the bus, or the poll ──► every reader ──► its feeds

Invariant: a feed shows what is committed, and of each record no version before a later one. Another replica's write is
shown `POLL_S` after its commit at the latest, and as soon as a signal comes. Signals may be lost.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from dragoman.bus.api import Bus, NoBus
from dragoman.store.api import Store, StoreError
from dragoman.store.operator_records import OperatorRecord
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

SIGNAL = "operators.records"
"""The signal between replicas: an operator's record was written."""

POLL_S = 1.0
"""How often the store is asked for what others have written. It is not asked if nobody else writes to it."""

STALE_S = 5.0
"""How old the last reading may be before this process may have missed an operator's act."""


class RecordFeed:
    """The records of one kind, as of the last reading. `records` has those that are not removed, by id.

    For one part, which waits for `next`, and may look at `records` at any time.
    """

    def __init__(self) -> None:
        self.records: Mapping[str, OperatorRecord] = {}
        self._news: dict[str, OperatorRecord] = {}
        self._changed = asyncio.Event()

    async def next(self) -> tuple[OperatorRecord, ...]:
        """Wait for changes. Returns the newest version of each record that has changed since the last call.

        One that was removed has no body.
        """
        await self._changed.wait()
        self._changed.clear()
        news, self._news = self._news, {}
        return tuple(news.values())

    def show(self, changed: Mapping[str, OperatorRecord]) -> None:
        """Show the newest versions of records that have changed, by id."""
        shown = {**self.records, **changed}
        self.records = {record_id: record for record_id, record in shown.items() if record.body is not None}
        self._news |= changed
        self._changed.set()


class RecordReader:
    """The reader of one process. The `bus` must not be open yet.

    `shared`: others write to the store, too. If not, nothing is read but after a write of this process.
    """

    def __init__(self, store: Store, bus: Bus | None = None, *, shared: bool) -> None:
        self._store = store
        self._bus: Bus = NoBus() if bus is None else bus
        self._shared = shared
        self._feeds: dict[str, RecordFeed] = {}
        self._known: dict[tuple[str, str], OperatorRecord] = {}
        self._last: OperatorRecord | None = None
        """The record with the highest revision that was read."""
        self._read_s: float | None = None
        """When the last reading began that succeeded, a time of the loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Asking asyncio for it costs a system call (getpid, CPython 3.11), which each message would pay."""
        self._reading = asyncio.Lock()
        self._heard: asyncio.Queue[bytes] = asyncio.Queue(1)
        self._bus.on_signal(SIGNAL, self._heard)

    def open_feed(self, kind: str) -> RecordFeed:
        """The feed of a kind: the same for each call. It shows at once all that has been read already."""
        feed = self._feeds.get(kind)
        if feed is None:
            feed = self._feeds[kind] = RecordFeed()
            if known := {record.id: record for record in self._known.values() if record.kind == kind}:
                feed.show(known)
        return feed

    @property
    def stale(self) -> bool:
        """Whether this process may not know what operators have set: nothing was read yet, or not for `STALE_S`."""
        if self._read_s is None or self._loop is None:
            return True
        return self._shared and self._loop.time() - self._read_s > STALE_S

    async def put_record(
        self, kind: str, record_id: str, body: bytes | None, *, version: int | None = None
    ) -> OperatorRecord:
        """Write a version: see `OperatorRecords.put_record`. The feeds of this process show it, and others are told.

        Raises RecordChanged, ValueError or StoreError.
        """
        written = await self._store.operator_records.put_record(kind, record_id, body, version=version)
        self._bus.signal(SIGNAL)
        with suppress(StoreError):  # the poll reads it; alone, there is nobody who would be told
            await self.refresh()
        return written

    async def refresh(self) -> None:
        """Read what was written since the last reading. Raises StoreError."""
        async with self._reading:
            self._loop = asyncio.get_running_loop()
            began_s, last = self._loop.time(), self._last
            rows = await self._store.operator_records.read_records(0 if last is None else last.revision)
            if last is not None and rows[:1] != (last,):
                await self._read_anew()
            elif news := rows if last is None else rows[1:]:
                self._take(news)
            self._read_s = began_s

    async def _read_anew(self) -> None:
        """Read all records: the store has lost some, as a standby does, or keeps the version read last no longer."""
        rows = await self._store.operator_records.read_records()
        found = {(record.kind, record.id): record for record in rows}
        lost = [replace(record, body=None) for key, record in self._known.items() if key not in found]
        self._known, self._last = {}, None
        self._show(lost)
        self._take(rows)

    def _take(self, rows: tuple[OperatorRecord, ...]) -> None:
        """Take in versions in the order of their revisions, and show them."""
        self._known |= {(record.kind, record.id): record for record in rows}
        self._last = rows[-1] if rows else None
        self._show(rows)

    def _show(self, rows: Iterable[OperatorRecord]) -> None:
        """Show the feeds of their kinds versions, the newest of a record last."""
        changed: dict[str, dict[str, OperatorRecord]] = {}
        for record in rows:
            changed.setdefault(record.kind, {})[record.id] = record
        for kind, news in changed.items():
            if (feed := self._feeds.get(kind)) is not None:
                feed.show(news)

    async def run(self) -> None:
        """Read for ever what other replicas write."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S if self._shared else None):
                    await self._heard.get()
            try:
                await self.refresh()
            except StoreError as error:
                log.warning("what operators set cannot be read: %s", error, extra=about("operators' records"))
