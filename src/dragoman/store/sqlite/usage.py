"""UsageTable: the stored usage in the file.

Invariant: sums are added up by `Tables`, in the transaction of the runs that they count.
"""

from typing import Any

import apsw

from dragoman.store.gathering import UsageGathering
from dragoman.store.sqlite.answer_counts import AnswerCounts
from dragoman.store.sqlite.connection import fetch, translated
from dragoman.store.sqlite.pool import Door
from dragoman.store.sqlite.reads import Reads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act
from dragoman.store.usage import AnswerUsage, UsageDay

BATCH_SUMS = 500
"""Sums deleted in one transaction; each is one small row."""


class UsageTable:
    """The UsageBook protocol on the store's connections."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.gathering = UsageGathering(AnswerCounts(door).add)
        """The usage that is not written yet."""

    def gather(self, usage: AnswerUsage) -> None:
        """As the protocol says."""
        self.gathering.add(usage)

    async def days(self, first: int, last: int) -> tuple[UsageDay, ...]:
        """As the protocol says."""

        def read(reads: Reads) -> list[Any]:
            with reads.moment():
                return fetch(reads.cursor, reads.sql["usage_days"], (first, last))

        rows = await self._door().readers.run(read)
        return tuple(UsageDay(*row[:9], day=row[9], owner=row[10], agent=row[11]) for row in rows)

    async def tokens(self, owner: str, day: int) -> int:
        """A point read."""
        opened = self._door()
        try:
            return int(opened.reads.point("day_tokens", (owner, day)))
        except apsw.Error as error:
            raise translated(error, opened.location) from error

    async def sweep(self, before: int) -> int:
        """As the protocol says. Involves the writer only if there is something to delete."""
        opened = self._door()

        def run(tables: Tables, _: int) -> int:
            tables.cursor.execute(tables.sql["sweep_usage"], (before, BATCH_SUMS))
            return tables.connection.changes()

        if not await opened.readers.run(lambda reads: reads.point("old_usage", (before,))):
            return 0
        return int(await opened.writer.submit(Act(run)))
