"""Pages of tasks and their totals.

Invariant: the cost of a page does not grow with the number of tasks. Ranges of an index are merged, and totals come
from counters; only a query that bounds the time counts in the index, and one for the longest running sorts those that
run.
"""

from collections.abc import Sequence
from typing import Any

from dragoman.model.parts import Swap
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
    Stored,
    TaskRow,
    make_context_page,
    owner_range,
)
from dragoman.store.damage import state_of
from dragoman.store.files import leaving_out
from dragoman.store.sql.tasks import make_task_row
from dragoman.store.sqlite.connection import fetch
from dragoman.store.sqlite.reads import SqliteReads

STATEMENTS = {
    (False, False): ("list_states", "scope_counts", "count_after"),
    (False, True): ("list_context_states", "context_counts", "count_context_after"),
    (True, False): ("list_states_of_all", "agent_counts", "count_after_of_all"),
    (True, True): ("list_context_states_of_all", "agent_context_counts", "count_context_after_of_all"),
}
"""The statements for a page of one state, for the counters, and to count one state from a time on: by whether the query
is about several scopes, and about one context."""


def list_tasks(reads: SqliteReads, query: ListQuery) -> Listed:
    """Read the page that `query` asks for."""
    with reads.moment():
        numbers, total = _find(reads, query)
        artifacts: Swap | None = None if query.artifacts else leaving_out
        history: Swap | None = leaving_out if query.history == 0 else None
        tasks = reads.by_number(numbers[: query.limit], artifacts, history, query.max_bytes)
        return Listed(tasks, total, len(numbers) > len(tasks))


def list_rows(reads: SqliteReads, query: ListQuery) -> ListedRows:
    """Read the same page without logs."""
    with reads.moment():
        numbers, total = _find(reads, query)
        rows: list[TaskRow] = []
        size = 0
        for number in numbers[: query.limit]:
            (row,) = fetch(reads.cursor, reads.sql["task_row"], (number,))
            size += len(row[1])
            if query.max_bytes is not None and size > query.max_bytes and rows:
                break
            rows.append(make_task_row(row, *reads.head_of(row[1], row[0])))
        return ListedRows(tuple(rows), total, len(numbers) > len(rows))


def _find(reads: SqliteReads, query: ListQuery) -> tuple[list[int], int]:
    """The numbers of the page's tasks, and of one more if there is one, and how many tasks match."""
    scope = _scope(reads, query)
    if scope is None:
        return [], 0
    states = [STATES.index(query.state)] if query.state is not None else list(range(len(STATES)))
    if query.order is ListOrder.LONGEST_RUNNING:
        states = [state for state in states if STATES[state] in RUNNING]
    total, holding = _total(reads, scope, query, states)
    return [task for task, _, _ in _page(reads, scope, query, holding)], total


def newest_of_context(reads: SqliteReads, owner: str, agent: str, context: str, limit: int) -> tuple[Stored, ...]:
    """The newest tasks of a context, oldest first."""
    with reads.moment():
        query = ListQuery(owner=owner, agent=agent, context_id=context, limit=limit)
        scope = _scope(reads, query)
        if scope is None:
            return ()
        rows = _page(reads, scope, query, list(range(len(STATES))))[:limit]
        return reads.by_number([task for task, _, _ in reversed(rows)], None, None)


def list_contexts(reads: SqliteReads, query: ContextQuery) -> ContextPage:
    """Read the page of contexts that `query` asks for."""
    with reads.moment():
        tasks = ListQuery(owner=query.owner, agent=query.agent, before=query.before, limit=query.scan_max)
        scope = _scope(reads, tasks)
        rows = [] if scope is None else _page(reads, scope, tasks, list(range(len(STATES))))[: query.scan_max]
        return make_context_page(query, ((at, task_id, _context(reads, task, at)) for task, at, task_id in rows))


def _context(reads: SqliteReads, task: int, status_ms: int) -> ContextRow | None:
    """The context of a task; None if another task of it has a newer status."""
    found = fetch(reads.cursor, reads.sql["context_of"], {"task": task, "most": CONTEXT_TASKS_MAX})
    if not found:
        return None
    owner, agent, context, state, tasks, text = found[0]
    return ContextRow(
        id=context,
        owner=owner,
        agent=agent,
        state=state_of(state),
        status_ms=status_ms,
        tasks=tasks,
        text=text,
    )


def _scope(reads: SqliteReads, query: ListQuery) -> int | None:
    """The number of an owner with an agent, None if it has no task. A query over several scopes has 0."""
    if _several(query):
        return 0
    found: int | None = reads.cursor.execute(reads.sql["find_scope"], (query.owner, query.agent)).get
    return found


def _several(query: ListQuery) -> bool:
    """Whether the query is about more than one owner with one agent."""
    return not isinstance(query.owner, str) or query.agent is None


def _statements(query: ListQuery) -> tuple[str, str, str]:
    return STATEMENTS[_several(query), query.context_id is not None]


def _values(scope: int, query: ListQuery) -> dict[str, Any]:
    """The values that the statements name."""
    before_ms, before_id = query.before or (0, "")
    first, last = owner_range(query.owner)
    return {
        "scope": scope,
        "owner": first,
        "last_owner": last,
        "agent": query.agent,
        "context": query.context_id,
        "after_ms": query.status_after_ms,
        "before_ms": before_ms,
        "before_id": before_id,
        "limit": query.limit + 1,
        "offset": query.offset,
    }


def _total(reads: SqliteReads, scope: int, query: ListQuery, states: Sequence[int]) -> tuple[int, list[int]]:
    """Return how many tasks match, and the states that have any."""
    _, counters, counting = _statements(query)
    values = _values(scope, query)
    counts: Sequence[Any] | None = reads.cursor.execute(reads.sql[counters], values).get
    if counts is None:
        return 0, []
    holding = [state for state in states if counts[state]]
    if query.status_after_ms is None:
        return int(sum(counts[state] for state in holding)), holding
    found: list[Any] = [reads.cursor.execute(reads.sql[counting], {**values, "state": state}).get for state in holding]
    return sum(found), holding


def _page(reads: SqliteReads, scope: int, query: ListQuery, states: Sequence[int]) -> list[tuple[Any, ...]]:
    """Number, status and id of the page's tasks, and of one more if there is one. Merges one range for each state."""
    if not states:
        return []
    sql = reads.sql
    order = query.order.name.lower()
    arm = sql[_statements(query)[0]]
    bounds = sql["bound_after"] if query.status_after_ms is not None else ""
    if query.before is not None:
        bounds = f"{bounds} {sql[f'bound_{order}']}"
    arms = [arm.replace("STATE", str(state)).replace("BOUNDS", bounds) for state in states]
    text = f"{' UNION ALL '.join(arms)} {sql['list_order']}".replace("ORDERED", sql[order])
    return fetch(reads.cursor, text, _values(scope, query))
