"""A search through tasks by what no index answers, and the tasks whose status has changed lately.

Invariant: no log is read. A search looks at so many rows of the table and no more, in the order of their numbers.
"""

from collections.abc import Mapping
from typing import Any

from dragoman.model.task import STATES
from dragoman.store.api import Owners, SearchPage, StatusRow, TaskRow, TaskSearch
from dragoman.store.codec import Codec
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import from_text, to_text

NUMBER_MAX = (1 << 63) - 1
"""The largest number that a task may have. The smallest is 1."""


async def search_tasks(pool: Pool, sql: Mapping[str, str], codec: Codec, query: TaskSearch) -> SearchPage:
    """Look through the tasks as `query` says. Raises StoreError."""
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
    )
    return SearchPage(
        tuple(task_row(codec, row) for row in found), found[-1]["task"] if len(found) == query.limit else end
    )


def task_row(codec: Codec, row: Mapping[str, Any]) -> TaskRow:
    """Decode a task without its log."""
    return TaskRow(
        head=codec.head(row["head"]),
        state=STATES[row["state"]],
        status_ms=row["status_ms"],
        holder=row["holder"],
        cancel_requested=row["cancel"],
        text=from_text(row["text"]),
    )


async def changed_tasks(pool: Pool, sql: Mapping[str, str], since_ms: int, limit: int) -> tuple[StatusRow, ...]:
    """The tasks whose status is not older than a time. Raises StoreError."""
    return tuple(
        StatusRow(
            id=from_text(row["id"]),
            agent=from_text(row["agent"]),
            owner=from_text(row["owner"]),
            context_id=from_text(row["context"]),
            state=STATES[row["state"]],
            status_ms=row["status_ms"],
            seq=row["seq"],
        )
        for row in await pool.read(sql["changes"], since_ms, limit)
    )


def _text(value: str | None) -> str | None:
    return None if value is None else to_text(value)
