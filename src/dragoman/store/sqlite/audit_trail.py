"""The writing of the audit trail in the file.

Invariant: entries of one call are written in one transaction, in their order.
"""

from asyncio import Future
from collections.abc import Sequence

from msgspec.structs import astuple

from dragoman.store.audit import AuditEntry
from dragoman.store.sqlite.pool import SqliteDoor
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act


def add_entries(door: SqliteDoor, entries: Sequence[AuditEntry]) -> "Future[None]":
    """As `AuditTrail.write` says; many rows a statement."""
    rows = [astuple(entry) for entry in entries]  # its fields are in the order of the columns

    def run(tables: Tables, _: int) -> None:
        tables.execute_rows("add_audit", rows)

    return door().writer.submit(Act(run))
