"""ReceiptTable: the deliveries that arrived, in the store.

Invariant: receipts are written by the driver, in the transactions that settle deliveries.
"""

from typing import Any

from dragoman.store.receipts import Receipt
from dragoman.store.sql.statements import Statements, sweep_rows

BATCH_RECEIPTS = 500
"""Receipts deleted in one transaction; each is one small row."""

NEWEST = (1 << 63) - 1
"""No delivery has a higher number."""


class ReceiptTable:
    """The Receipts protocol."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    async def page(
        self, *, limit: int = 100, before: int | None = None, task_id: str | None = None
    ) -> tuple[Receipt, ...]:
        """As the protocol says."""
        below = NEWEST if before is None else before
        if task_id is None:
            rows = await self._statements.read("receipts", below, limit)
        else:
            rows = await self._statements.read("receipts_of_task", below, limit, task_id)
        return tuple(map(read_receipt, rows))

    async def find(self, wanted: int | str) -> Receipt | None:
        """As the protocol says."""
        number = wanted
        if isinstance(number, str):
            ((newest,),) = await self._statements.read("find_receipt", number)
            number = newest or 0
        found = await self.page(limit=1, before=number + 1)
        return found[0] if found and found[0].number == number else None

    async def sweep(self, before_ms: int) -> int:
        """As the protocol says."""
        return await sweep_rows(self._statements, "receipts", before_ms, BATCH_RECEIPTS)


def read_receipt(row: tuple[Any, ...]) -> Receipt:
    """The receipt of a row of `receipt_columns`."""
    (number, name, task_id, agent, config_id, url, seq, part, dialect, attempts, made_ms, arrived_ms, *answer) = row
    status, took_ms, size, reason, digest = answer
    return Receipt(
        number=number,
        id=name,
        task_id=task_id,
        agent=agent,
        config_id=config_id,
        url=url,
        seq=seq,
        part=part,
        dialect=dialect,
        attempts=attempts,
        made_ms=made_ms,
        arrived_ms=arrived_ms,
        status=status,
        took_ms=took_ms,
        size_bytes=size,
        reason=reason,
        digest=digest,
    )
