"""TeamTable: what the store has with the tasks of one team.

Invariant: it only reads.
"""

from dragoman.store.figures import OpenTasks, read_open_tasks
from dragoman.store.members import TeamMembers
from dragoman.store.outbox import Owed, OwedGroup
from dragoman.store.receipts import Receipt
from dragoman.store.sql.outbox import read_group, read_owed
from dragoman.store.sql.receipts import NEWEST, read_receipt
from dragoman.store.sql.statements import Statements
from dragoman.store.team_rows import OwedCounts


class TeamTable:
    """The TeamRows protocol."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    async def open_tasks(self, members: TeamMembers) -> tuple[OpenTasks, ...]:
        """As the protocol says."""
        return read_open_tasks(await self._statements.read("open_by_agent", members.first, members.last))

    async def owed(
        self,
        members: TeamMembers,
        *,
        dead: bool | None = None,
        limit: int = 100,
        after: int = 0,
        host: str | None = None,
    ) -> tuple[Owed, ...]:
        """As the protocol says."""
        rows = await self._statements.read("owed_of_team", after, limit, members.team, dead, host)
        return tuple(read_owed(*row) for row in rows)

    async def owed_groups(self, members: TeamMembers, limit: int) -> tuple[OwedGroup, ...]:
        """As the protocol says."""
        return tuple(map(read_group, await self._statements.read("owed_groups", members.team, limit)))

    async def count_owed(self, members: TeamMembers) -> OwedCounts:
        """As the protocol says."""
        ((pending, dead, paused, due_ms),) = await self._statements.read("owed_count_of_team", members.team)
        return OwedCounts(pending, dead, paused, due_ms)

    async def receipts(
        self, members: TeamMembers, *, limit: int = 100, before: int | None = None
    ) -> tuple[Receipt, ...]:
        """As the protocol says."""
        below = NEWEST if before is None else before
        rows = await self._statements.read("receipts_of_team", below, limit, members.team)
        return tuple(map(read_receipt, rows))
