"""ReceiptTable: the deliveries that arrived, in the file.

Invariant: receipts are written in the transactions that settle deliveries.
"""

from typing import Any

from dragoman.store.receipts import Receipt
from dragoman.store.sqlite.connection import fetch
from dragoman.store.sqlite.pool import Door
from dragoman.store.sqlite.reads import Reads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act

BATCH_RECEIPTS = 500
"""Receipts deleted in one transaction; each is one small row."""

NEWEST = (1 << 63) - 1
"""No delivery has a higher number."""


class ReceiptTable:
    """The Receipts protocol on the store's connections."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def page(
        self, *, limit: int = 100, before: int | None = None, task_id: str | None = None
    ) -> tuple[Receipt, ...]:
        """On a reader thread."""
        below = NEWEST if before is None else before
        return await self._door().readers.run(lambda reads: _page(reads, below, limit, task_id))

    async def find(self, wanted: int | str) -> Receipt | None:
        """On a reader thread."""

        def read(reads: Reads) -> Receipt | None:
            number = wanted
            if isinstance(number, str):
                number = reads.point("find_receipt", (number,)) or 0
            found = _page(reads, number + 1, 1, None)
            return found[0] if found and found[0].number == number else None

        return await self._door().readers.run(read)

    async def sweep(self, before_ms: int) -> int:
        """As the protocol says. Involves the writer only if there is something to delete."""
        opened = self._door()

        def run(tables: Tables, _: int) -> int:
            tables.cursor.execute(tables.sql["sweep_receipts"], (before_ms, BATCH_RECEIPTS))
            return tables.connection.changes()

        if not await opened.readers.run(lambda reads: reads.point("old_receipts", (before_ms,))):
            return 0
        return int(await opened.writer.submit(Act(run)))


def _page(reads: Reads, below: int, limit: int, task_id: str | None) -> tuple[Receipt, ...]:
    values = (below, limit) if task_id is None else (below, limit, task_id)
    kept = reads.sql["kept_of_all" if task_id is None else "kept_of_task"]
    with reads.moment():
        rows: list[Any] = fetch(reads.cursor, reads.sql["receipts"].replace("KEPT", kept), values)
    return tuple(map(_receipt, rows))


def _receipt(row: tuple[Any, ...]) -> Receipt:
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
