"""AnswerCounts: the sums of usage in the file, to which direct answers that are stored nowhere are added.

Invariant: the answers that were gathered are counted in one transaction.
"""

from collections.abc import Sequence

from dragoman.store.sqlite.pool import SqliteDoor
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act
from dragoman.store.usage import AnswerUsage


class AnswerCounts:
    """Adds to the sums of the open store."""

    def __init__(self, door: SqliteDoor) -> None:
        self._door = door

    async def add(self, gathered: Sequence[AnswerUsage]) -> None:
        """Count these answers. Raises StoreError."""

        def run(tables: Tables, _: int) -> None:
            for each in gathered:
                tables.count_answer(each)

        await self._door().writer.submit(Act(run))
