"""SharedRows: the shared entries, buckets and counts in the database.

Invariant: the clock of the database decides what has expired. Each method is one statement, which commits by itself.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import read_statements
from dragoman.store.shared import SharedEntry, Spending

BATCH_ROWS = 500
"""Rows that one statement of a sweep deletes; each is small."""


class SharedRows:
    """The Shared protocol on the store's connections, for tables in `schema`."""

    def __init__(self, door: PostgresDoor, schema: str) -> None:
        self._door = door
        self._sql = read_statements("shared.sql", schema)

    async def get(self, key: str) -> SharedEntry | None:
        """As the protocol says."""
        rows = await self._door().read(self._sql["get_entry"], key)
        return SharedEntry(*rows[0]) if rows else None

    async def scan(self, prefix: str) -> tuple[SharedEntry, ...]:
        """As the protocol says."""
        return tuple(SharedEntry(*row) for row in await self._door().read(self._sql["scan_entries"], prefix))

    async def put(self, key: str, value: bytes, ttl_ms: int, *, version: int | None = None) -> int | None:
        """As the protocol says."""
        if version:
            rows = await self._write("replace_entry", key, value, ttl_ms, version)
        else:
            rows = await self._write("put_entry", key, value, ttl_ms, version is not None)
        return rows[0][0] if rows else None

    async def renew(self, keys: Collection[str], ttl_ms: int) -> frozenset[str]:
        """As the protocol says."""
        return frozenset(row[0] for row in await self._write("renew_entries", list(keys), ttl_ms))

    async def delete(self, key: str, *, version: int | None = None) -> bool:
        """As the protocol says."""
        return bool(await self._write("delete_entry", key, version))

    async def spend(self, spendings: Sequence[Spending]) -> tuple[int, ...]:
        """As the protocol says."""
        keys, costs = [spent.key for spent in spendings], [spent.cost_us for spent in spendings]
        left = {row[0]: int(row[1]) for row in await self._write("spend", keys, costs)}
        return tuple(left[key] for key in keys)

    async def tally(self, counter: str, counts: Mapping[str, int], ttl_ms: int) -> Mapping[str, int]:
        """As the protocol says."""
        rows = await self._write("tally", list(counts), counter, list(counts.values()), ttl_ms)
        return dict.fromkeys(counts, 0) | {row[0]: int(row[1]) for row in rows}

    async def sweep(self) -> int:
        """As the protocol says."""
        return len(await self._write("sweep_shared", BATCH_ROWS))

    async def _write(self, name: str, *values: object) -> list[Any]:
        """Run a statement. Raises StoreError, also if its outcome is unknown."""
        try:
            return await self._door().write(self._sql[name], *values)
        except OutcomeUnknown as unknown:
            raise StoreError(str(unknown)) from unknown
