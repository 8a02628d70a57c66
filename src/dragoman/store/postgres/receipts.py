"""ReceiptTable: the deliveries that arrived, in the database.

Invariant: receipts are written by the statements that settle deliveries.
"""

from typing import Any

from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.postgres.database.opening import Door
from dragoman.store.postgres.database.statements import from_text, read_statements, to_text
from dragoman.store.receipts import Receipt

BATCH_RECEIPTS = 500
"""Receipts deleted in one transaction; each is one small row."""

NEWEST = (1 << 63) - 1
"""No delivery has a higher number."""


class ReceiptTable:
    """The Receipts protocol on the store's connections, for tables in `schema`."""

    def __init__(self, door: Door, schema: str) -> None:
        self._door = door
        self._sql = read_statements("receipts.sql", schema)

    async def page(
        self, *, limit: int = 100, before: int | None = None, task_id: str | None = None
    ) -> tuple[Receipt, ...]:
        """As the protocol says."""
        values: tuple[object, ...] = NEWEST if before is None else before, limit
        if task_id is None:
            rows = await self._door().read(self._sql["receipts"], *values)
        else:
            rows = await self._door().read(self._sql["receipts_of_task"], *values, to_text(task_id))
        return tuple(_receipt(tuple(row)) for row in rows)

    async def find(self, wanted: int | str) -> Receipt | None:
        """As the protocol says."""
        number = wanted
        if isinstance(number, str):
            rows = await self._door().read(self._sql["find_receipt"], to_text(number))
            number = rows[0][0] or 0
        found = await self.page(limit=1, before=number + 1)
        return found[0] if found and found[0].number == number else None

    async def sweep(self, before_ms: int) -> int:
        """As the protocol says."""
        try:
            rows = await self._door().write(self._sql["sweep_receipts"], before_ms, BATCH_RECEIPTS)
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error
        return int(rows[0][0])


def _receipt(row: tuple[Any, ...]) -> Receipt:
    (number, name, task_id, agent, config_id, url, seq, part, dialect, attempts, made_ms, arrived_ms, *answer) = row
    status, took_ms, size, reason, digest = answer
    return Receipt(
        number=number,
        id=from_text(name),
        task_id=from_text(task_id),
        agent=from_text(agent),
        config_id=from_text(config_id),
        url=from_text(url),
        seq=seq,
        part=part,
        dialect=from_text(dialect),
        attempts=attempts,
        made_ms=made_ms,
        arrived_ms=arrived_ms,
        status=status,
        took_ms=took_ms,
        size_bytes=size,
        reason=from_text(reason),
        digest=digest,
    )
