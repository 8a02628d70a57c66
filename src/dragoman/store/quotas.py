"""Quotas: the room that owners have for new tasks.

Invariant: an owner without a quota costs nothing here. The tasks that others made are counted once
for each owner and day.
"""

from collections.abc import Callable

from dragoman.store.api import OverQuota, Quota
from dragoman.store.codec import TERMINAL_FROM


class Room:
    """The used quotas of owners. Valid as long as tasks are only added, and each is reported to `take`.

    `open_tasks` says how many an owner has open, and `day_tasks` how many were made in a day, by its number and owner.
    """

    def __init__(self, open_tasks: Callable[[str], int], day_tasks: Callable[[tuple[int, str]], int]) -> None:
        self._open_tasks = open_tasks
        self._day_tasks = day_tasks
        self._open: dict[str, int] = {}
        self._made: dict[tuple[int, str], int] = {}

    def refusal(self, owner: str, quota: Quota | None) -> OverQuota | None:
        """Why the owner may have no further task; None if it may."""
        if quota is None:
            return None
        if quota.max_open_tasks:
            if owner not in self._open:
                self._open[owner] = self._open_tasks(owner)
            if self._open[owner] >= quota.max_open_tasks:
                return OverQuota("max_open_tasks")
        if quota.max_daily_tasks:
            day = (quota.day, owner)
            if day not in self._made:
                self._made[day] = self._day_tasks(day)
            if self._made[day] >= quota.max_daily_tasks:
                return OverQuota("max_daily_tasks")
        return None

    def take(self, owner: str, quota: Quota | None, state: int) -> tuple[int, str] | None:
        """Count one more task of the owner, in `state`. Returns the day for which it counts, if days are limited."""
        if owner in self._open and state < TERMINAL_FROM:
            self._open[owner] += 1
        if quota is None or not quota.max_daily_tasks:
            return None
        day = (quota.day, owner)
        if day in self._made:
            self._made[day] += 1
        return day
