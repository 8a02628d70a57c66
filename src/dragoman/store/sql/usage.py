"""UsageTable: the usage in the store.

Invariant: the ends of runs are counted by the driver, in the transactions that write them.
"""

from collections.abc import Awaitable, Callable, Sequence

from dragoman.store.api import Owners, owner_range
from dragoman.store.gathering import UsageGathering
from dragoman.store.members import TeamMembers
from dragoman.store.sql.statements import Statements, sweep_rows
from dragoman.store.usage import AnswerUsage, UsageDay, read_sum

BATCH_SUMS = 500
"""Sums deleted in one transaction; each is one small row."""


class UsageTable:
    """The UsageBook protocol. `add` is the driver's way to count direct answers."""

    def __init__(self, statements: Statements, add: Callable[[Sequence[AnswerUsage]], Awaitable[None]]) -> None:
        self._statements = statements
        self.gathering = UsageGathering(add)
        """The usage that is not written yet."""

    def gather(self, usage: AnswerUsage) -> None:
        """As the protocol says."""
        self.gathering.add(usage)

    async def days(self, first: int, last: int, members: TeamMembers | None = None) -> tuple[UsageDay, ...]:
        """As the protocol says."""
        owners = owner_range(Owners.ALL if members is None else members)
        rows = await self._statements.read("usage_days", first, last, *owners)
        return tuple(read_sum(name, numbers, day, owner, agent) for name, *numbers, day, owner, agent in rows)

    async def by_agent(self, first: int, last: int) -> tuple[UsageDay, ...]:
        """As the protocol says."""
        rows = await self._statements.read("usage_by_agent", first, last)
        return tuple(read_sum(name, map(int, numbers), day, "", agent) for name, *numbers, day, agent in rows)

    async def tokens(self, owner: str | TeamMembers, day: int) -> int:
        """A point read."""
        first, last = owner_range(owner)
        return int(await self._statements.point("day_tokens", first, day, last))

    async def sweep(self, before: int) -> int:
        """As the protocol says."""
        return await sweep_rows(self._statements, "usage", before, BATCH_SUMS)
