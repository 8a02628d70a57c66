"""A search through tasks by what no index answers, and the tasks whose status has changed lately.

Invariant: no log is read. A search looks at so many rows of the table and no more, in the order of their numbers.
"""

from typing import Any

from dragoman.model.task import STATES
from dragoman.store.api import Owners, SearchPage, StatusRow, TaskRow, TaskSearch
from dragoman.store.sqlite.reads import Reads

NUMBER_MAX = (1 << 63) - 1
"""No task has this number."""


def search_tasks(reads: Reads, query: TaskSearch) -> SearchPage:
    """Look through the tasks as `query` says."""
    below = NUMBER_MAX if query.below is None else query.below
    with reads.moment():
        end: int | None = reads.cursor.execute(reads.sql["search_end"], {"below": below, "scan": query.scan_max}).get
        values = {
            "end": 0 if end is None else end,
            "below": below,
            "owner": None if query.owner is Owners.ALL else query.owner,
            "agent": query.agent,
            "context": query.context_id,
            "state": None if query.state is None else STATES.index(query.state),
            "dialect": query.dialect,
            "text": query.text,
            "after_ms": query.status_after_ms,
            "before_ms": query.status_before_ms,
            "limit": query.limit,
        }
        found: list[Any] = reads.cursor.execute(reads.sql["search"], values).fetchall()
    rows = tuple(
        TaskRow(
            head=reads.codec.head(head),
            state=STATES[state],
            status_ms=status_ms,
            holder=holder,
            cancel_requested=bool(cancel),
            text=text,
        )
        for _, head, state, status_ms, holder, cancel, text in found
    )
    return SearchPage(rows, found[-1][0] if len(found) == query.limit else end)


def changed_tasks(reads: Reads, since_ms: int, limit: int) -> tuple[StatusRow, ...]:
    """The tasks whose status is not older than a time."""
    with reads.moment():
        found: list[Any] = reads.cursor.execute(reads.sql["changes"], (since_ms, limit)).fetchall()
    return tuple(
        StatusRow(
            id=task_id,
            agent=agent,
            owner=owner,
            context_id=context,
            state=STATES[state],
            status_ms=status_ms,
            seq=seq,
        )
        for task_id, agent, owner, context, state, status_ms, seq in found
    )
