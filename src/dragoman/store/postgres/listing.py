"""Pages of tasks and their totals.

Invariant: a page and its total are one statement, which sees one moment. Its cost does not grow with the number of
tasks: ranges of an index are merged, and totals come from counters; only a query that bounds the time, or asks for one
context that never had many tasks when it was listed, counts in the index, and one for the longest running sorts those
that run.
"""

import logging
import re
from asyncio import Future, get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dragoman.model.parts import Swaps
from dragoman.model.task import STATES
from dragoman.store.api import (
    CONTEXT_TASKS_MAX,
    RUNNING,
    ContextPage,
    ContextQuery,
    ContextRow,
    Listed,
    ListedRows,
    ListOrder,
    ListQuery,
    OutcomeUnknown,
    Owners,
    Stored,
    StoreError,
    make_context_page,
    owner_range,
)
from dragoman.store.damage import state_of
from dragoman.store.files import leaving_out, putting_back
from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import from_text, to_text
from dragoman.store.postgres.reads import PostgresReads
from dragoman.store.sql.tasks import read_task_rows

log = logging.getLogger("dragoman.store")

VALUE = re.compile(r"(?<!:):([a-z_]+)")

TYPES = {
    "limit": "int",
    "offset": "int",
    "max_bytes": "bigint",
    "files": "boolean",
    "owner": "text",
    "last_owner": "text",
    "agent": "text",
    "context": "text",
    "many": "int",
    "most": "int",
}
"""The types that PostgreSQL cannot infer from the position of a value."""

TASK_ROW = "task", "head", "state", "status_ms", "holder", "cancel"
"""The columns of a task without its log, before its text and title."""

MANY = 1_000
"""A context with as many tasks gets counters. To count them in the index costs 0.16 ms, a tenth of the whole list."""

LIMITS = "SET LOCAL lock_timeout = '50ms'; SET LOCAL statement_timeout = '500ms'"
"""While a context gets its counters, all writes wait: no longer than this for those that are under way, and for the
count itself, which takes 2 ms for 10,000 tasks."""

AGAIN_S = 60.0
"""How long to wait before contexts get counters again after that has failed: a dump, for example, locks for long."""


class TaskLists:
    """Lists tasks, and gives counters to the contexts in which that has to count many.

    `start` starts a write, which is finished before the store closes.
    """

    def __init__(
        self,
        door: PostgresDoor,
        reads: PostgresReads,
        sql: Mapping[str, str],
        start: Callable[[Callable[[], Awaitable[None]]], "Future[None]"],
    ) -> None:
        self._door = door
        self._reads = reads
        self._sql = sql
        self._start = start
        self._not_before_s = 0.0
        """When a context may get counters, a time of the loop."""

    async def page(self, query: ListQuery) -> Listed:
        """Read the page that `query` asks for."""
        reads, artifacts, history = self._reads, query.artifacts, query.history != 0
        rows = await self._read(query, "list", files=artifacts or history)
        found = [await reads.opened(row, chunks=artifacts) for row in rows if row["task"] is not None]
        opened = [one for one in found if one is not None]  # the others have been deleted meanwhile
        with_files = [one for one in opened if one.row["files"]]
        files = await reads.files(
            {one.row["task"]: one.numbers(artifacts=artifacts, history=history) for one in with_files}
        )
        tasks: list[Stored] = []
        for one in opened:
            swaps: Swaps | None = None
            if one.row["files"]:
                back = putting_back(files.fetcher(one.row["task"]))
                swaps = Swaps(back if artifacts else leaving_out, back if history else leaving_out, back)
            try:
                tasks.append(reads.stored(one, swaps))
            except KeyError as missing:
                if (damaged := await reads.without_file(one, missing)) is not None:
                    tasks.append(damaged)
        return Listed(tuple(tasks), rows[0]["total"], rows[0]["found"] > len(found))

    async def rows(self, query: ListQuery) -> ListedRows:
        """Read the same page without logs."""
        rows = await self._read(query, "list_rows")
        read = [
            (*(row[column] for column in TASK_ROW), from_text(row["text"]), from_text(row["title"] or ""))
            for row in rows
            if row["task"] is not None
        ]
        tasks = await read_task_rows(read, self._reads)
        return ListedRows(tasks, rows[0]["total"], rows[0]["found"] > len(read))

    async def _read(self, query: ListQuery, name: str, *, files: bool = False) -> Sequence[Any]:
        """The rows of a page, at least one. A large context is counted for the pages to come."""
        rows = await self._door().read(*_page(self._sql, query, name, files=files))
        if rows[0]["indexed"] >= MANY:
            self._count(query)
        return rows

    async def contexts(self, query: ContextQuery) -> ContextPage:
        """Read the page of contexts that `query` asks for."""
        tasks = ListQuery(owner=query.owner, agent=query.agent, before=query.before, limit=query.scan_max)
        order = tasks.order.name.lower()
        several = not isinstance(query.owner, str) or query.agent is None
        before = self._sql[f"before_{order}"] if query.before is not None else ""
        text = (
            self._sql["contexts"]
            .replace("LIST", self._sql["scopes" if several else "scope"].replace("BOUNDS", before))
            .replace("SCOPES", _scopes(self._sql, tasks))
            .replace("ORDERED", self._sql[order])
        )
        rows = await self._door().read(*_bind(text, tasks))
        return make_context_page(
            query, ((row["status_ms"], from_text(row["id"]), _context(row) if row["newest"] else None) for row in rows)
        )

    async def newest_of_context(self, owner: str, agent: str, context_id: str, limit: int) -> tuple[Stored, ...]:
        """The newest tasks of a context, oldest first."""
        query = ListQuery(owner=owner, agent=agent, context_id=context_id, limit=limit, artifacts=True)
        return (await self.page(query)).tasks[::-1]

    # -- counters of a context -----------------------------------------------------------------------------------------

    def _count(self, query: ListQuery) -> None:
        """Give counters to the context of a query, beside its caller, one context at a time."""
        now_s = get_running_loop().time()
        if now_s >= self._not_before_s:
            self._not_before_s = now_s + AGAIN_S
            self._start(lambda: self._count_context(query)).add_done_callback(_look)

    async def _count_context(self, query: ListQuery) -> None:
        """Count the tasks of a context while nobody writes, so that every later write adds to what was counted."""
        try:
            async with self._door().transaction() as connection:
                await connection.execute(LIMITS)
                await connection.execute(self._sql["lock_counted"])
                text, *values = _bind(self._sql["count_context"].replace("SCOPES", _scopes(self._sql, query)), query)
                await connection.execute(text, *values)
        except (StoreError, OutcomeUnknown) as error:
            log.info("the tasks of context %s are counted for each list: %s", query.context_id, error)
        else:
            self._not_before_s = 0.0


def _context(row: Mapping[str, Any]) -> ContextRow:
    return ContextRow(
        id=from_text(row["context"]),
        owner=from_text(row["owner"]),
        agent=from_text(row["agent"]),
        state=state_of(row["state"]),
        status_ms=row["status_ms"],
        tasks=row["tasks"],
        text=from_text(row["text"]),
    )


def _look(done: "Future[None]") -> None:
    """Look at the error of a count, which never began if the store was closed before. Nobody waits for it."""
    if not done.cancelled():
        done.exception()


def _page(sql: Mapping[str, str], query: ListQuery, name: str, *, files: bool) -> tuple[Any, ...]:
    """The statement `name` for a page, and its values."""
    in_context = query.context_id is not None
    several = not isinstance(query.owner, str) or query.agent is None
    after = sql["after"] if query.status_after_ms is not None else ""
    order = query.order.name.lower()
    before = sql[f"before_{order}"] if query.before is not None else ""
    arm = sql[("scopes" if several else "scope") + ("_context" if in_context else "")]
    total = sql["total" + ("_of_context" if in_context else "") + ("_in_index" if after else "")]
    total = total.replace("COUNTERS", " + ".join(f"c.n{state}" for state in _states(query)) or "0")
    any_state = len(_states(query)) == len(STATES)
    total = total.replace("STATES", "" if any_state else sql["in_states"]).replace("BOUNDS", after)
    text = (
        sql[name]
        .replace("LIST", arm.replace("BOUNDS", f"{after} {before}"))
        .replace("TOTAL", total)
        .replace("SCOPES", _scopes(sql, query))
        .replace("ORDERED", sql[order])
    )
    return _bind(text, query, files=files)


def _scopes(sql: Mapping[str, str], query: ListQuery) -> str:
    """The condition for the scopes of a query."""
    of_owner = [] if query.owner is Owners.ALL else [sql["of_owner" if isinstance(query.owner, str) else "of_owners"]]
    return " AND ".join([*of_owner, *([] if query.agent is None else [sql["of_agent"]])]) or "true"


def _states(query: ListQuery) -> list[int]:
    states = STATES if query.state is None else (query.state,)
    return [STATES.index(state) for state in states if query.order is not ListOrder.LONGEST_RUNNING or state in RUNNING]


def _bind(text: str, query: ListQuery, *, files: bool = False) -> tuple[Any, ...]:
    """The statement with numbers for names, and the values that it names in their order."""
    before_ms, before_id = query.before or (0, "")
    first, last = owner_range(query.owner)
    values = {
        "owner": to_text(first),
        "last_owner": to_text(last),
        "agent": None if query.agent is None else to_text(query.agent),
        "context": None if query.context_id is None else to_text(query.context_id),
        "states": _states(query),
        "after_ms": query.status_after_ms,
        "before_ms": before_ms,
        "before_id": to_text(before_id),
        "limit": query.limit,
        "offset": query.offset,
        "max_bytes": query.max_bytes,
        "files": files,
        "many": MANY,
        "most": CONTEXT_TASKS_MAX,
    }
    names: dict[str, int] = {}

    def number(hit: re.Match[str]) -> str:
        name = hit[1]
        kind = TYPES.get(name)
        return f"${names.setdefault(name, len(names) + 1)}" + ("" if kind is None else f"::{kind}")

    text = VALUE.sub(number, text)
    return (text, *(values[name] for name in names))
