"""Pages of tasks and their totals.

Invariant: the cost of a page does not grow with the number of tasks. Ranges of an index are merged, and totals come
from counters; only a query that bounds the time counts in the index.
"""

from collections.abc import Sequence
from typing import Any

from dragoman.model.parts import Swap
from dragoman.store.api import Listed, ListQuery, Stored
from dragoman.store.sqlite.codec import STATES
from dragoman.store.sqlite.files import leaving_out
from dragoman.store.sqlite.reads import Reads


def list_tasks(reads: Reads, query: ListQuery) -> Listed:
    """Read the page that `query` asks for."""
    with reads.moment():
        scope = reads.cursor.execute(reads.sql["find_scope"], (query.owner, query.agent)).get
        if scope is None:
            return Listed((), 0, False)
        states = [STATES.index(query.state)] if query.state is not None else list(range(len(STATES)))
        total, holding = _total(reads, scope, query, states)
        rows = _page(reads, scope, query, holding)
        numbers = [task for task, _, _ in rows[: query.limit]]
        artifacts: Swap | None = None if query.artifacts else leaving_out
        history: Swap | None = leaving_out if query.history == 0 else None
        tasks = reads.by_number(numbers, artifacts, history, query.max_bytes)
        return Listed(tasks, total, len(rows) > len(tasks))


def newest_of_context(reads: Reads, owner: str, agent: str, context: str, limit: int) -> tuple[Stored, ...]:
    """The newest tasks of a context, oldest first."""
    with reads.moment():
        scope = reads.cursor.execute(reads.sql["find_scope"], (owner, agent)).get
        if scope is None:
            return ()
        query = ListQuery(owner=owner, agent=agent, context_id=context, limit=limit)
        rows = _page(reads, scope, query, list(range(len(STATES))))[:limit]
        return reads.by_number([task for task, _, _ in reversed(rows)], None, None)


def _total(reads: Reads, scope: Any, query: ListQuery, states: Sequence[int]) -> tuple[int, list[int]]:
    """Return how many tasks match, and the states that have any."""
    context = query.context_id
    if context is None:
        counts: Sequence[Any] | None = reads.cursor.execute(reads.sql["scope_counts"], (scope,)).get
    else:
        counts = reads.cursor.execute(reads.sql["context_counts"], (scope, context)).get
    if counts is None:
        return 0, []
    holding = [state for state in states if counts[state]]
    if query.status_after_ms is None:
        return sum(counts[state] for state in holding), holding
    name = "count_after" if context is None else "count_context_after"
    values = {"scope": scope, "context": context, "after_ms": query.status_after_ms}
    found: list[Any] = [reads.cursor.execute(reads.sql[name], {**values, "state": state}).get for state in holding]
    return sum(found), holding


def _page(reads: Reads, scope: Any, query: ListQuery, states: Sequence[int]) -> list[tuple[Any, ...]]:
    """Number, status and id of the page's tasks, and of one more if there is one. Merges one range for each state."""
    if not states:
        return []
    sql = reads.sql
    arm = sql["list_states" if query.context_id is None else "list_context_states"]
    bounds = sql["bound_after"] if query.status_after_ms is not None else ""
    if query.before is not None:
        bounds = f"{bounds} {sql['bound_before']}"
    arms = [arm.replace("STATE", str(state)).replace("BOUNDS", bounds) for state in states]
    before_ms, before_id = query.before or (0, "")
    values = {
        "scope": scope,
        "context": query.context_id,
        "after_ms": query.status_after_ms,
        "before_ms": before_ms,
        "before_id": before_id,
        "limit": query.limit + 1,
        "offset": query.offset,
    }
    return reads.cursor.execute(" UNION ALL ".join(arms) + " " + sql["list_order"], values).fetchall()
