"""AuditTable: the audit trail in the store.

Invariant: entries are only added, and deleted from the front when they are too old. No statement here changes one; the
name of a deleted principal gives way to an alias (`store/sql/principals.py`).
"""

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dragoman.store.audit import ACTS_MAX, AuditEntry, AuditFilter, AuditPage
from dragoman.store.members import TeamMembers
from dragoman.store.sql.statements import Statements, sweep_rows

BATCH_ENTRIES = 500
"""Entries that go in one transaction of a sweep; each is one small row."""

NEWEST = (1 << 63) - 1
"""The number before which all entries are."""


class AuditTable:
    """The AuditTrail protocol. `add` is the driver's way to write entries."""

    def __init__(self, statements: Statements, add: Callable[[Sequence[AuditEntry]], "Future[None]"]) -> None:
        self._statements = statements
        self._add = add

    def write(self, entries: Sequence[AuditEntry]) -> "Future[None]":
        """As the protocol says."""
        return self._add(entries)

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
        times = wanted.since_ms, wanted.until_ms
        without = f" {' '.join(wanted.without)} " if wanted.without else None
        fields = wanted.principal, wanted.action, wanted.agent, text, *times, wanted.key
        filters = *fields, *_range(wanted.members), without
        if forward:
            rows = await self._statements.read("read_audit_forward", cursor or 0, limit, *filters, wanted.refused)
        else:
            name = "read_refused" if wanted.refused else "read_audit"
            rows = await self._statements.read(name, cursor or NEWEST, limit, *filters)
        entries = (row[1:] for row in (rows if forward else reversed(rows)))
        return AuditPage(_entries(entries), rows[-1][0] if len(rows) == limit else None)

    async def acts(self, after: int | None, members: TeamMembers | None = None) -> tuple[int, tuple[AuditEntry, ...]]:
        """As the protocol says. No entry that is committed late is missed.

        In SQLite it scans all entries after `after`.
        """
        ((end,),) = await self._statements.read("acts_end")
        if after is None or after == end:
            return end, ()
        begin = after if after <= end else 0  # else all were swept, and the numbers began anew
        rows = await self._statements.read("read_acts", begin, end, ACTS_MAX, *_range(members))
        return end, _entries(reversed(rows))

    async def sweep(self, before_ms: int) -> int:
        """As the protocol says."""
        return await sweep_rows(self._statements, "audit", before_ms, BATCH_ENTRIES)


def _range(members: TeamMembers | None) -> tuple[str | None, str | None]:
    return (None, None) if members is None else (members.first, members.last)


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
