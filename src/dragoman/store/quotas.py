"""Quotas: the room that owners and their teams have for new tasks, and what budgets have left for them.

Invariant: an owner without a quota costs nothing here, nor does a task without a budget. The tasks that others made are
counted once for each owner and day.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from dragoman.store.api import OverBudget, OverQuota, Quota, owner_range
from dragoman.store.budgets import BudgetClaim
from dragoman.store.codec import TERMINAL_FROM
from dragoman.store.members import TeamMembers


class QuotaBound(Struct, frozen=True):
    """The part of a quota that bounds one owner, or one team as a whole."""

    of: str | TeamMembers
    open_tasks: int
    daily_tasks: int
    day: int


def bounds(owner: str, quota: Quota | None) -> list[QuotaBound]:
    """The parts of the quota of an owner; none without a quota."""
    if quota is None:
        return []
    found = [QuotaBound(owner, quota.max_open_tasks, quota.max_daily_tasks, quota.day)]
    if quota.team is not None:
        found.append(QuotaBound(quota.team, quota.team_open_tasks, quota.team_daily_tasks, quota.day))
    return found


class Room:
    """The used quotas of owners and teams. Valid as long as tasks are only added, and each is reported to `take`.

    `open_tasks` says how many an owner or a team has open, and `day_tasks` how many were made in a day, by its number
    and the owner, or the team.
    """

    def __init__(
        self,
        open_tasks: Callable[[str | TeamMembers], int],
        day_tasks: Callable[[tuple[int, str | TeamMembers]], int],
    ) -> None:
        self._open_tasks = open_tasks
        self._day_tasks = day_tasks
        self._open: dict[str | TeamMembers, int] = {}
        self._made: dict[tuple[int, str | TeamMembers], int] = {}

    def refusal(self, owner: str, quota: Quota | None) -> OverQuota | None:
        """Why the owner may have no further task; None if it may."""
        for bound in bounds(owner, quota):
            if bound.open_tasks:
                if bound.of not in self._open:
                    self._open[bound.of] = self._open_tasks(bound.of)
                if self._open[bound.of] >= bound.open_tasks:
                    return OverQuota("max_open_tasks", of_team=isinstance(bound.of, TeamMembers))
            if bound.daily_tasks:
                day = (bound.day, bound.of)
                if day not in self._made:
                    self._made[day] = self._day_tasks(day)
                if self._made[day] >= bound.daily_tasks:
                    return OverQuota("max_daily_tasks", of_team=isinstance(bound.of, TeamMembers))
        return None

    def take(self, owner: str, quota: Quota | None, state: int) -> list[tuple[int, str]]:
        """Count one more task of the owner, in `state`. Returns the days for which it counts, if days are limited."""
        for of in (owner, None if quota is None else quota.team):
            if of in self._open and state < TERMINAL_FROM:
                self._open[of] += 1
        days: list[tuple[int, str]] = []
        for bound in bounds(owner, quota):
            if bound.daily_tasks:
                day = (bound.day, bound.of)
                if day in self._made:
                    self._made[day] += 1
                days.append((bound.day, owner_range(bound.of)[0]))
        return days


def over_budget(claims: Iterable[BudgetClaim], balance: Callable[[str], int]) -> OverBudget | None:
    """Why a task that makes these claims may not be made; None if it may.

    `balance` says how much of an account is used and reserved, by those that were admitted before, too.
    """
    for claim in claims:
        if claim.limit is not None and balance(claim.account) + claim.amount > claim.limit:
            return OverBudget(claim)
    return None
