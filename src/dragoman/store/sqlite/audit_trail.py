"""The audit trail in the file.

Invariant: entries are only added, and deleted from the front when they are too old. No statement changes one.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from dragoman.store.audit import ACTS_MAX, AuditEntry, AuditFilter, AuditPage
from dragoman.store.sqlite.connection import fetch
from dragoman.store.sqlite.pool import Door
from dragoman.store.sqlite.reads import Reads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act

BATCH_ENTRIES = 500
"""Entries that go in one transaction of a sweep; each is one small row."""


NEWEST = (1 << 63) - 1
"""The number before which all entries are."""


class AuditTable:
    """The AuditTrail protocol on the store's connections."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def write(self, entries: Sequence[AuditEntry]) -> "asyncio.Future[None]":
        """As the protocol says; many rows a statement."""
        rows = [
            (
                entry.at_ms,
                entry.principal,
                entry.action,
                entry.agent,
                entry.task_id,
                entry.allowed,
                entry.reason,
                entry.peer,
                entry.subject,
                entry.key,
            )
            for entry in entries
        ]

        def run(tables: Tables, _: int) -> None:
            tables.execute_rows("add_audit", rows)

        return self._door().writer.submit(Act(run))

    async def read(
        self,
        *,
        principal: str | None = None,
        refused_only: bool = False,
        since_ms: int = 0,
        limit: int = 100,
    ) -> tuple[AuditEntry, ...]:
        """As the protocol says."""
        wanted = AuditFilter(principal=principal, refused=refused_only, since_ms=since_ms)
        return (await self.page(wanted, limit)).entries

    async def page(
        self, wanted: AuditFilter, limit: int, cursor: int | None = None, *, forward: bool = False
    ) -> AuditPage:
        """As the protocol says. Scans all entries if few match."""
        text = None if wanted.text is None else wanted.text.lower()
        filters = wanted.principal, wanted.action, wanted.agent, text, wanted.since_ms, wanted.until_ms, wanted.key
        if forward:
            name, values = "read_audit_forward", (cursor or 0, limit, *filters, wanted.refused)
        else:
            name, values = "read_refused" if wanted.refused else "read_audit", (cursor or NEWEST, limit, *filters)  # type: ignore[assignment]

        def read(reads: Reads) -> list[Any]:
            with reads.moment():
                return fetch(reads.cursor, reads.sql[name], values)

        rows = await self._door().readers.run(read)
        entries = (row[1:] for row in (rows if forward else reversed(rows)))
        return AuditPage(_entries(entries), rows[-1][0] if len(rows) == limit else None)

    async def acts(self, after: int | None) -> tuple[int, tuple[AuditEntry, ...]]:
        """As the protocol says. Scans all entries after `after`."""

        def read(reads: Reads) -> tuple[int, list[Any]]:
            with reads.moment():
                end = reads.cursor.execute(reads.sql["audit_end"]).get
                if after is None:
                    return end, []
                begin = after if after <= end else 0  # else all were swept, and the numbers began anew
                return end, fetch(reads.cursor, reads.sql["read_acts"], (begin, ACTS_MAX))

        end, rows = await self._door().readers.run(read)
        return end, _entries(reversed(rows))

    async def sweep(self, before_ms: int) -> int:
        """As the protocol says. Involves the writer only if there is something to delete."""
        opened = self._door()
        batch = (before_ms, BATCH_ENTRIES)

        def old(reads: Reads) -> Any:
            with reads.moment():
                return reads.cursor.execute(reads.sql["old_audit"], batch).get

        def run(tables: Tables, _: int) -> int:
            tables.cursor.execute(tables.sql["sweep_audit"], batch)
            return tables.connection.changes()

        if not await opened.readers.run(old):
            return 0
        return int(await opened.writer.submit(Act(run)))


def _entries(rows: Iterable[Any]) -> tuple[AuditEntry, ...]:
    return tuple(
        AuditEntry(
            at_ms=at_ms,
            principal=who,
            action=action,
            agent=agent,
            task_id=task_id,
            allowed=bool(allowed),
            reason=reason,
            peer=peer,
            subject=subject,
            key=key,
        )
        for at_ms, who, action, agent, task_id, allowed, reason, peer, subject, key in rows
    )
