"""SharedTable: the shared entries, buckets and counts in the file.

Invariant: an expired row is as good as none, whether the sweep has been there or not.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from dragoman.model.ids import Clock
from dragoman.store.shared import SharedEntry, Spending
from dragoman.store.sqlite.connection import fetch, translated
from dragoman.store.sqlite.pool import SqliteDoor
from dragoman.store.sqlite.reads import SqliteReads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act

BATCH_ROWS = 500
"""Rows that one transaction of a sweep deletes; each is small."""


class SharedTable:
    """The Shared protocol on the store's connections."""

    def __init__(self, door: SqliteDoor, clock: Clock) -> None:
        self._door = door
        self._clock = clock

    async def get(self, key: str) -> SharedEntry | None:
        """As the protocol says."""
        opened = self._door()
        try:
            row = opened.reads.point("get_entry", (key, self._clock.now_ms()))
        except apsw.Error as error:
            raise translated(error, opened.location) from error
        return None if row is None else SharedEntry(*row)

    async def scan(self, prefix: str) -> tuple[SharedEntry, ...]:
        """As the protocol says."""
        values = (prefix, self._clock.now_ms(), len(prefix))

        def read(reads: SqliteReads) -> list[Any]:
            with reads.moment():
                return fetch(reads.cursor, reads.sql["scan_entries"], values)

        return tuple(SharedEntry(*row) for row in await self._door().readers.run(read))

    async def put(self, key: str, value: bytes, ttl_ms: int, *, version: int | None = None) -> int | None:
        """As the protocol says."""

        def run(tables: Tables, now_ms: int) -> Any:
            return tables.cursor.execute(tables.sql["put_entry"], (key, value, now_ms + ttl_ms, now_ms, version)).get

        written: int | None = await self._door().writer.submit(Act(run))
        return written

    async def renew(self, keys: Collection[str], ttl_ms: int) -> frozenset[str]:
        """As the protocol says."""
        listed = msgspec.json.encode(list(keys)).decode()

        def run(tables: Tables, now_ms: int) -> frozenset[str]:
            values = listed, now_ms, now_ms + ttl_ms
            rows: list[Any] = tables.cursor.execute(tables.sql["renew_entries"], values).fetchall()
            return frozenset(key for (key,) in rows)

        renewed: frozenset[str] = await self._door().writer.submit(Act(run))
        return renewed

    async def delete(self, key: str, *, version: int | None = None) -> bool:
        """As the protocol says."""

        def run(tables: Tables, now_ms: int) -> bool:
            tables.cursor.execute(tables.sql["delete_entry"], (key, now_ms, version))
            return tables.connection.changes() > 0

        return bool(await self._door().writer.submit(Act(run)))

    async def spend(self, spendings: Sequence[Spending]) -> tuple[int, ...]:
        """As the protocol says."""

        def run(tables: Tables, now_ms: int) -> tuple[int, ...]:
            sql, now_us = tables.sql["spend"], now_ms * 1000
            return tuple(int(tables.cursor.execute(sql, (spent.key, spent.cost_us, now_us)).get) for spent in spendings)

        left: tuple[int, ...] = await self._door().writer.submit(Act(run))
        return left

    async def tally(self, counter: str, counts: Mapping[str, int], ttl_ms: int) -> Mapping[str, int]:
        """As the protocol says."""
        listed = msgspec.json.encode(list(counts)).decode()

        def run(tables: Tables, now_ms: int) -> dict[str, int]:
            for key, count in counts.items():
                if count:
                    tables.cursor.execute(tables.sql["put_count"], (key, counter, count, now_ms + ttl_ms))
                else:
                    tables.cursor.execute(tables.sql["drop_count"], (key, counter))
            rows: list[Any] = fetch(tables.cursor, tables.sql["sum_counts"], (listed, counter, now_ms))
            return dict.fromkeys(counts, 0) | dict(rows)

        others: dict[str, int] = await self._door().writer.submit(Act(run))
        return others

    async def sweep(self) -> int:
        """As the protocol says. Involves the writer only if there is something to delete."""
        opened = self._door()
        if not opened.reads.point("old_shared", (self._clock.now_ms(),)):
            return 0

        def run(tables: Tables, now_ms: int) -> int:
            tables.cursor.execute(tables.sql["sweep_shared"], (now_ms, BATCH_ROWS))
            return tables.connection.changes()

        return int(await opened.writer.submit(Act(run)))
