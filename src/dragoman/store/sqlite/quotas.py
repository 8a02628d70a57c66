"""Quotas: counts the tasks of owners within the transaction under way.

Invariant: an owner without a quota costs nothing here.
"""

import msgspec

from dragoman.store.api import OverQuota, Quota
from dragoman.store.sqlite.codec import TERMINAL_FROM
from dragoman.store.sqlite.tables import Tables


class Room:
    """The used quotas of owners. Valid as long as tasks are only added, and each is reported to `take`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._open: dict[str, int] = {}
        self._made: dict[tuple[int, str], int] = {}

    def refusal(self, owner: str, quota: Quota | None) -> OverQuota | None:
        """Why the owner may have no further task; None if it may."""
        if quota is None:
            return None
        if quota.max_open_tasks:
            if owner not in self._open:
                self._open[owner] = _open_tasks(self._tables, owner)
            if self._open[owner] >= quota.max_open_tasks:
                return OverQuota("max_open_tasks")
        if quota.max_daily_tasks:
            day = (quota.day, owner)
            if day not in self._made:
                self._made[day] = _day_tasks(self._tables, day)
            if self._made[day] >= quota.max_daily_tasks:
                return OverQuota("max_daily_tasks")
        return None

    def take(self, owner: str, quota: Quota | None, state: int) -> None:
        """Count one more task of the owner, in `state`, and for its day if days are limited."""
        if owner in self._open and state < TERMINAL_FROM:
            self._open[owner] += 1
        if quota is not None and quota.max_daily_tasks:
            day = (quota.day, owner)
            days = self._tables.tally.days
            days[day] = days.get(day, 0) + 1
            if day in self._made:
                self._made[day] += 1


def _open_tasks(tables: Tables, owner: str) -> int:
    row = tables.cursor.execute(tables.sql["open_tasks"], (owner,)).get
    scopes = dict(msgspec.json.decode(str(row), type=list[tuple[int, int]]))
    moved = sum(sum(counts[:TERMINAL_FROM]) for (scope, _), counts in tables.tally.contexts.items() if scope in scopes)
    return sum(scopes.values()) + moved


def _day_tasks(tables: Tables, day: tuple[int, str]) -> int:
    found = tables.cursor.execute(tables.sql["day_tasks"], day).get
    return int(found or 0) + tables.tally.days.get(day, 0)
