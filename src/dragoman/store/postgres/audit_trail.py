"""The writing of the audit trail in the database.

Invariant: entries of one call are written in one statement, in their order.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import astuple

from dragoman.store.audit import AuditEntry
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import read_statements, to_text
from dragoman.store.sql.statements import settled

Submit = Callable[[Callable[[], Awaitable[Any]]], "Future[Any]"]
"""Starts a write, which the store finishes before it closes."""


class AuditWriter:
    """Writes entries, for tables in `schema`."""

    def __init__(self, door: PostgresDoor, submit: Submit, schema: str) -> None:
        self._door = door
        self._submit = submit
        self._sql = read_statements("audit.sql", schema)["add_audit"]

    def add(self, entries: Sequence[AuditEntry]) -> "Future[None]":
        """As `AuditTrail.write` says. An outcome that is not known counts as a failure."""
        columns: list[list[Any]] = [[] for _ in range(10)]
        for entry in entries:  # its fields are in the order of the columns
            for column, value in zip(columns, astuple(entry), strict=True):
                column.append(to_text(value) if isinstance(value, str) else value)
        return self._submit(lambda: settled(self._door().write(self._sql, *columns)))
