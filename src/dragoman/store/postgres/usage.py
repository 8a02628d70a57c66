"""UsageTable: the stored usage in the database, for tables in `schema`.

Invariant: sums are added up by the statements that write the ends of runs.
"""

from collections.abc import Awaitable, Callable, Sequence

from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.gathering import UsageGathering
from dragoman.store.postgres.database.opening import Door
from dragoman.store.postgres.database.statements import from_text, read_statements, to_text
from dragoman.store.usage import AnswerUsage, UsageDay

BATCH_SUMS = 500
"""Sums that one statement of a sweep deletes; each is one small row."""


class UsageTable:
    """The UsageBook protocol on the store's connections."""

    def __init__(self, door: Door, add: Callable[[Sequence[AnswerUsage]], Awaitable[None]], schema: str) -> None:
        """`add` counts direct answers."""
        self._door = door
        self.gathering = UsageGathering(add)
        """The usage that is not written yet."""
        self._sql = read_statements("usage.sql", schema)

    def gather(self, usage: AnswerUsage) -> None:
        """As the protocol says."""
        self.gathering.add(usage)

    async def days(self, first: int, last: int) -> tuple[UsageDay, ...]:
        """As the protocol says."""
        rows = await self._door().read(self._sql["usage_days"], first, last)
        return tuple(
            UsageDay(from_text(row[0]), *row[1:9], day=row[9], owner=from_text(row[10]), agent=from_text(row[11]))
            for row in rows
        )

    async def tokens(self, owner: str, day: int) -> int:
        """As the protocol says."""
        rows = await self._door().read(self._sql["day_tokens"], to_text(owner), day)
        return int(rows[0][0])

    async def sweep(self, before: int) -> int:
        """As the protocol says."""
        try:
            rows = await self._door().write(self._sql["sweep_usage"], before, BATCH_SUMS)
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error
        return int(rows[0][0])
