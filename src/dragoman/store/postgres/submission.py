"""Submission: the way to the writer of a store for writes that are no new tasks and no appends.

Invariant: a write that was started is finished before the store closes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.ledger import PostgresLedger
from dragoman.store.postgres.writer import PostgresWriter
from dragoman.store.postgres.writes import OtherWrite
from dragoman.store.usage import AnswerUsage

AUDIT = "\0audit"
"""The writes to the audit trail stay in order like those of a task with this id."""


class Submission:
    """Starts writes while the store is open."""

    def __init__(self, door: PostgresDoor) -> None:
        self._door = door
        self._ways: tuple[PostgresLedger, PostgresWriter] | None = None

    def open(self, ledger: PostgresLedger, writer: PostgresWriter) -> None:
        """Start writes with these from now on."""
        self._ways = ledger, writer

    def close(self) -> None:
        """Start nothing any more."""
        self._ways = None

    def start(self, run: Callable[[], Awaitable[Any]], task_id: str | None = None) -> "asyncio.Future[Any]":
        """Start a write. With the id of a task, it has its place among the writes of that task."""
        if self._ways is None:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(self._door.not_open())
            return future
        return self._ways[1].submit(OtherWrite(run, task_id))

    def start_audit(self, run: Callable[[], Awaitable[Any]]) -> "asyncio.Future[Any]":
        """Start a write to the audit trail, after those before it."""
        return self.start(run, AUDIT)

    async def add_answers(self, gathered: Sequence[AnswerUsage]) -> None:
        """Count direct answers that are not stored. Raises StoreError, OutcomeUnknown."""
        await self.start(lambda: self._count(gathered))

    def forget_scopes(self) -> None:
        """Forget the numbers of scopes: see `PostgresLedger.forget_scopes`."""
        if self._ways is not None:
            self._ways[0].forget_scopes()

    async def _count(self, gathered: Sequence[AnswerUsage]) -> None:
        if self._ways is None:
            raise self._door.not_open()
        await self._ways[0].count_answers(gathered)
