"""TeamRows: what the store has with the tasks of one team, for its operators.

Invariant: no row of another team is looked at: indexes lead from the team to its tasks, and from these to all else.
"""

from typing import Protocol

from msgspec import Struct

from dragoman.store.figures import OpenTasks
from dragoman.store.members import TeamMembers
from dragoman.store.outbox import Owed, OwedGroup
from dragoman.store.receipts import Receipt


class OwedCounts(Struct, frozen=True):
    """How many deliveries are pending, how many are dead, how many of the first wait for a paused host, and when the
    next one is due."""

    pending: int
    dead: int
    paused: int
    due_ms: int | None


class TeamRows(Protocol):
    """The rows of teams. Every method raises StoreError."""

    async def open_tasks(self, members: TeamMembers) -> tuple[OpenTasks, ...]:
        """As `StoreFigures.open_tasks`."""
        ...

    async def owed(
        self,
        members: TeamMembers,
        *,
        dead: bool | None = None,
        limit: int = 100,
        after: int = 0,
        host: str | None = None,
    ) -> tuple[Owed, ...]:
        """As `Outbox.owed`."""
        ...

    async def owed_groups(self, members: TeamMembers, limit: int) -> tuple[OwedGroup, ...]:
        """As `Outbox.owed_groups`. It reads the deliveries of all teams."""
        ...

    async def count_owed(self, members: TeamMembers) -> OwedCounts:
        """Count the deliveries that are pending or dead."""
        ...

    async def receipts(
        self, members: TeamMembers, *, limit: int = 100, before: int | None = None
    ) -> tuple[Receipt, ...]:
        """As `Receipts.page`."""
        ...
