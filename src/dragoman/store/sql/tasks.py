"""The looks of a store at tasks without their logs: a search, changes, leases, and delegated tasks that have not ended.

Invariant: no log is read. A search looks at so many rows of the table and no more, in the order of their numbers. All
other looks are served by an index.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Protocol

from dragoman.model.task import STATES, TaskHead
from dragoman.store.api import HolderRow, SearchPage, StatusRow, TaskRow, TaskSearch, Unknown
from dragoman.store.damage import state_of
from dragoman.store.members import TeamMembers
from dragoman.store.sql.statements import Statements, Value

NUMBER_MAX = (1 << 63) - 1
"""The largest number that a task may have. The smallest is 1."""


SEARCHES = {
    (False, False): ("search_end", "search"),
    (False, True): ("search_end_oldest", "search_oldest"),
    (True, False): ("search_team_end", "search_team"),
    (True, True): ("search_team_end_oldest", "search_team_oldest"),
}
"""The statements for the end of a search and for what fits: by whether it is about a team, whose tasks alone are looked
at then, and whether the oldest come first."""


class HeadReader(Protocol):
    """Decodes the heads of tasks."""

    async def read_head(self, data: bytes, task: int) -> tuple[TaskHead, bool]:
        """Decode a head, and say whether that was possible. Raises Unknown if the task of that number is gone."""
        ...


class TaskTable:
    """The methods of the Store protocol that look at tasks without their logs, for both databases."""

    def __init__(self, statements: Statements, heads: HeadReader) -> None:
        self._statements = statements
        self._heads = heads

    async def search(self, query: TaskSearch) -> SearchPage:
        """Look through the tasks as `query` says. Those that are made meanwhile are not looked at."""
        first, last = 1, NUMBER_MAX
        if query.oldest:
            first = first if query.after is None else query.after + 1
        else:
            last = last if query.after is None else query.after - 1
        named = query.owner.team if isinstance(query.owner, TeamMembers) else query.team
        team = () if named is None else (named,)
        look, search = SEARCHES[bool(team), query.oldest]
        ends = await self._statements.read(look, first, last, query.scan_max, *team)
        end: int | None = ends[0][0] if ends else None
        if end is not None:
            first, last = (first, end) if query.oldest else (end, last)
        found = await self._statements.read(
            search,
            first,
            last,
            query.owner if isinstance(query.owner, str) else None,
            query.agent,
            query.context_id,
            None if query.state is None else STATES.index(query.state),
            query.status_after_ms,
            query.status_before_ms,
            query.dialect,
            query.text,
            query.limit,
            query.key,
            None if query.asleep is None else int(query.asleep),
            query.anywhere,
            *team,
        )
        rows = await read_task_rows(found, self._heads)
        return SearchPage(rows, found[-1][0] if len(found) == query.limit else end)

    async def changes(self, since_ms: int, limit: int, members: TeamMembers | None = None) -> tuple[StatusRow, ...]:
        """The tasks whose status is not older than a time."""
        if members is None:
            rows = await self._statements.read("changes", since_ms, limit)
        else:
            rows = await self._statements.read("changes_of_owners", since_ms, limit, members.first, members.last)
        return tuple(_read_status(*row) for row in rows)

    async def missing(self, task_ids: Collection[str]) -> frozenset[str]:
        """A point read for each id."""
        return frozenset(await self._ids("missing", tuple(sorted(set(task_ids)))))

    async def queued(self, agent: str, limit: int) -> tuple[str, ...]:
        """By the index of tasks that nobody has."""
        return await self._ids("queued", agent, limit)

    async def leased(self, holder: str, *, offered: bool = False) -> tuple[str, ...]:
        """By the index of open tasks, or of those that are offered."""
        return await self._ids("offered" if offered else "leased", holder)

    async def leased_of(self, agents: Collection[str], limit: int) -> tuple[HolderRow, ...]:
        """By the index of open tasks."""
        return tuple(HolderRow(*row) for row in await self._statements.read("leased_of", tuple(sorted(agents)), limit))

    async def cancels(self, holder: str) -> tuple[str, ...]:
        """By the index of open tasks."""
        return await self._ids("cancels", holder)

    async def children(self, parent_id: str) -> tuple[TaskHead, ...]:
        """By the index of delegated tasks that have not ended, as the methods that follow."""
        return await self._read_heads(await self._statements.read("children", parent_id))

    async def asking(self) -> tuple[TaskHead, ...]:
        """Reads all that wait."""
        return await self._read_heads(await self._statements.read("asking"))

    async def orphans(self, after: str, limit: int) -> tuple[tuple[TaskHead, ...], str]:
        """Reads one entry of the index for each parent."""
        rows = await self._statements.read("orphans", after, limit)
        heads = await self._read_heads((head, task) for _, head, task in rows if head is not None)
        return heads, rows[-1][0] if len({parent for parent, _, _ in rows}) == limit else ""

    async def overdue(self, now_ms: int, limit: int) -> tuple[TaskHead, ...]:
        """The earliest deadline first."""
        return await self._read_heads(await self._statements.read("overdue", now_ms, limit))

    async def next_wake(self, after_ms: int) -> int | None:
        """One entry of the index of offers, or of tasks that sleep."""
        ((wake_ms,),) = await self._statements.read("next_wake", after_ms)
        return None if wake_ms is None else int(wake_ms)

    async def _ids(self, name: str, *values: Value) -> tuple[str, ...]:
        return tuple(task_id for (task_id,) in await self._statements.read(name, *values))

    async def _read_heads(self, rows: Iterable[tuple[bytes, int]]) -> tuple[TaskHead, ...]:
        """Decode heads. Those of tasks that have been deleted meanwhile are left out."""
        found: list[TaskHead] = []
        for data, task in rows:
            with suppress(Unknown):
                found.append((await self._heads.read_head(data, task))[0])
        return tuple(found)


def _read_status(task_id: str, agent: str, owner: str, context: str, state: int, status_ms: int, seq: int) -> StatusRow:
    return StatusRow(
        id=task_id, agent=agent, owner=owner, context_id=context, state=state_of(state), status_ms=status_ms, seq=seq
    )


async def read_task_rows(rows: Iterable[tuple[Any, ...]], heads: HeadReader) -> tuple[TaskRow, ...]:
    """Decode tasks without their logs. Those that have been deleted meanwhile are left out."""
    found: list[TaskRow] = []
    for row in rows:
        with suppress(Unknown):
            found.append(make_task_row(row, *await heads.read_head(row[1], row[0])))
    return tuple(found)


def make_task_row(row: tuple[Any, ...], head: TaskHead, readable: bool) -> TaskRow:
    """Make a task without its log from its number, the bytes of its head, and the columns from state to title."""
    _, _, state, status_ms, holder, cancel, text, title = row
    return TaskRow(
        head=head,
        state=state_of(state),
        status_ms=status_ms,
        holder=holder,
        cancel_requested=bool(cancel),
        text=text,
        title=title or "",
        unreadable=not readable,
    )
