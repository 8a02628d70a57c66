"""A search through tasks by what no index answers, and the tasks whose status has changed lately.

Invariant: no log is read. A search looks at so many rows of the table and no more, in the order of their numbers.
"""

from collections.abc import Sequence
from typing import Any

from dragoman.model.task import STATES
from dragoman.store.api import Owners, SearchPage, StatusRow, TaskRow, TaskSearch
from dragoman.store.damage import state_of
from dragoman.store.sqlite.connection import fetch
from dragoman.store.sqlite.reads import Reads

NUMBER_MAX = (1 << 63) - 1
"""The largest number that a task may have. The smallest is 1."""


def search_tasks(reads: Reads, query: TaskSearch) -> SearchPage:
    """Look through the tasks as `query` says."""
    first, last = 1, NUMBER_MAX
    with reads.moment():
        if query.oldest:
            first = first if query.after is None else query.after + 1
        else:
            last = last if query.after is None else query.after - 1
        bounds = {"first": first, "last": last, "scan": query.scan_max}
        direction = "ASC" if query.oldest else "DESC"
        end: int | None = reads.cursor.execute(reads.sql["search_end"].replace("DESC", direction), bounds).get
        if end is not None:
            first, last = (first, end) if query.oldest else (end, last)
        values = {
            "first": first,
            "last": last,
            "owner": None if query.owner is Owners.ALL else query.owner,
            "agent": query.agent,
            "context": query.context_id,
            "state": None if query.state is None else STATES.index(query.state),
            "dialect": query.dialect,
            "key": query.key,
            "text": query.text,
            "after_ms": query.status_after_ms,
            "before_ms": query.status_before_ms,
            "limit": query.limit,
        }
        found: list[Any] = fetch(reads.cursor, reads.sql["search"].replace("DESC", direction), values)
        rows = tuple(task_row(reads, row) for row in found)
    return SearchPage(rows, found[-1][0] if len(found) == query.limit else end)


def task_row(reads: Reads, row: Sequence[Any]) -> TaskRow:
    """Decode the columns of a task without its log: number, head, state, status, holder, cancel and text."""
    task, head_bytes, state, status_ms, holder, cancel, text = row
    head, readable = reads.head_of(head_bytes, task)
    return TaskRow(
        head=head,
        state=state_of(state),
        status_ms=status_ms,
        holder=holder,
        cancel_requested=bool(cancel),
        text=text,
        unreadable=not readable,
    )


def changed_tasks(reads: Reads, since_ms: int, limit: int) -> tuple[StatusRow, ...]:
    """The tasks whose status is not older than a time."""
    with reads.moment():
        found: list[Any] = fetch(reads.cursor, reads.sql["changes"], (since_ms, limit))
    return tuple(
        StatusRow(
            id=task_id,
            agent=agent,
            owner=owner,
            context_id=context,
            state=state_of(state),
            status_ms=status_ms,
            seq=seq,
        )
        for task_id, agent, owner, context, state, status_ms, seq in found
    )
