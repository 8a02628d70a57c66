"""The audit trail in the database.

Invariant: entries are only added, and deleted from the front when they are too old. No statement changes one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.audit import ACTS_MAX, AuditEntry, AuditFilter, AuditPage
from dragoman.store.postgres.database.opening import Door
from dragoman.store.postgres.database.statements import from_text, read_statements, to_text

BATCH_ENTRIES = 500
"""Entries that go in one transaction of a sweep; each is one small row."""

NEWEST = (1 << 63) - 1
"""The number before which all entries are."""

Submit = Callable[[Callable[[], Awaitable[Any]]], "asyncio.Future[Any]"]
"""Starts a write, which the store finishes before it closes."""


class AuditTable:
    """The AuditTrail protocol on the store's connections, for tables in `schema`."""

    def __init__(self, door: Door, submit: Submit, schema: str) -> None:
        self._door = door
        self._submit = submit
        self._sql = read_statements("keys.sql", schema)

    def write(self, entries: Sequence[AuditEntry]) -> "asyncio.Future[None]":
        """As the protocol says, in one statement. An outcome that is not known counts as a failure."""
        columns = zip(*map(_row, entries), strict=True) if entries else [()] * 10
        values = [list(column) for column in columns]

        async def run() -> None:
            try:
                await self._door().write(self._sql["add_audit"], *values)
            except OutcomeUnknown as error:
                raise StoreError(str(error)) from error

        return self._submit(run)

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
        words = wanted.principal, wanted.action, wanted.agent, None if wanted.text is None else wanted.text.lower()
        texts = [None if word is None else to_text(word) for word in words]
        key = None if wanted.key is None else to_text(wanted.key)
        values = (limit, *texts, wanted.since_ms, wanted.until_ms, key)
        if forward:
            name, values = "read_audit_forward", (*values, wanted.refused)
        else:
            name = "read_refused" if wanted.refused else "read_audit"
        begin = cursor or (0 if forward else NEWEST)
        rows = await self._door().read(self._sql[name], begin, *values)
        entries = (tuple(row)[1:] for row in (rows if forward else reversed(rows)))
        return AuditPage(_entries(entries), rows[-1][0] if len(rows) == limit else None)

    async def acts(self, after: int | None) -> tuple[int, tuple[AuditEntry, ...]]:
        """As the protocol says. An end is the number of a transaction, so no entry that commits late is missed."""
        if after is None:
            ((end,),) = await self._door().read(self._sql["acts_end"])
            return end, ()
        rows = await self._door().read(self._sql["read_acts"], after, ACTS_MAX)
        end = max((row[0] + 1 for row in rows), default=after)
        return end, _entries(row[1:] for row in map(tuple, reversed(rows)))

    async def sweep(self, before_ms: int) -> int:
        """As the protocol says."""
        try:
            return len(await self._door().write(self._sql["sweep_audit"], before_ms, BATCH_ENTRIES))
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error


def _row(entry: AuditEntry) -> tuple[object, ...]:
    return (
        entry.at_ms,
        to_text(entry.principal),
        to_text(entry.action),
        to_text(entry.agent),
        to_text(entry.task_id),
        entry.allowed,
        to_text(entry.reason),
        to_text(entry.peer),
        to_text(entry.subject),
        to_text(entry.key),
    )


def _entries(rows: Iterable[Any]) -> tuple[AuditEntry, ...]:
    return tuple(
        AuditEntry(
            at_ms=at_ms,
            principal=from_text(who),
            action=from_text(action),
            agent=from_text(agent),
            task_id=from_text(task_id),
            allowed=allowed,
            reason=from_text(reason),
            peer=from_text(peer),
            subject=from_text(subject),
            key=from_text(key),
        )
        for at_ms, who, action, agent, task_id, allowed, reason, peer, subject, key in rows
    )
