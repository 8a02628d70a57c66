"""A search through tasks by what no index answers, and the tasks whose status has changed lately.

Invariant: no log is read. A search looks at so many rows of the table and no more, in the order of their numbers.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from dragoman.model.task import STATES, TaskHead
from dragoman.store.api import Owners, SearchPage, StatusRow, TaskRow, TaskSearch, Unknown
from dragoman.store.damage import state_of
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import from_text, to_text
from dragoman.store.postgres.reads import Reads

NUMBER_MAX = (1 << 63) - 1
"""The largest number that a task may have. The smallest is 1."""


async def search_tasks(reads: Reads, sql: Mapping[str, str], query: TaskSearch) -> SearchPage:
    """Look through the tasks as `query` says. Raises StoreError."""
    pool = reads.pool
    first, last = 1, NUMBER_MAX
    if query.oldest:
        first = first if query.after is None else query.after + 1
    else:
        last = last if query.after is None else query.after - 1
    direction = "ASC" if query.oldest else "DESC"
    ends = await pool.read(sql["search_end"].replace("DESC", direction), first, last, query.scan_max)
    end: int | None = ends[0][0] if ends else None
    if end is not None:
        first, last = (first, end) if query.oldest else (end, last)
    found = await pool.read(
        sql["search"].replace("DESC", direction),
        first,
        last,
        None if isinstance(query.owner, Owners) else to_text(query.owner),
        _text(query.agent),
        _text(query.context_id),
        None if query.state is None else STATES.index(query.state),
        query.status_after_ms,
        query.status_before_ms,
        _text(query.dialect),
        _text(query.text),
        query.limit,
        _text(query.key),
    )
    rows = await task_rows(reads, found)
    return SearchPage(rows, found[-1]["task"] if len(found) == query.limit else end)


async def task_rows(reads: Reads, rows: Iterable[Mapping[str, Any]]) -> tuple[TaskRow, ...]:
    """Decode tasks without their logs. Those that have been deleted meanwhile are left out."""
    found: list[TaskRow] = []
    for row in rows:
        with suppress(Unknown):
            head, readable = await reads.head_of(row["head"], row["task"])
            found.append(_task_row(row, head, readable=readable))
    return tuple(found)


def _task_row(row: Mapping[str, Any], head: TaskHead, *, readable: bool) -> TaskRow:
    return TaskRow(
        head=head,
        state=state_of(row["state"]),
        status_ms=row["status_ms"],
        holder=row["holder"],
        cancel_requested=row["cancel"],
        text=from_text(row["text"]),
        unreadable=not readable,
    )


async def changed_tasks(pool: Pool, sql: Mapping[str, str], since_ms: int, limit: int) -> tuple[StatusRow, ...]:
    """The tasks whose status is not older than a time. Raises StoreError."""
    return tuple(
        StatusRow(
            id=from_text(row["id"]),
            agent=from_text(row["agent"]),
            owner=from_text(row["owner"]),
            context_id=from_text(row["context"]),
            state=state_of(row["state"]),
            status_ms=row["status_ms"],
            seq=row["seq"],
        )
        for row in await pool.read(sql["changes"], since_ms, limit)
    )


def _text(value: str | None) -> str | None:
    return None if value is None else to_text(value)
