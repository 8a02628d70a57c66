"""Pages of tasks and their totals.

Invariant: a page and its total are one statement, which sees one moment. Its cost does not grow with the number of
tasks: ranges of an index are merged, and totals come from counters; only a query that bounds the time, or asks for one
context, counts in the index.
"""

import re
from collections.abc import Mapping
from typing import Any

from dragoman.model.parts import Swaps
from dragoman.model.task import STATES
from dragoman.store.api import Listed, ListQuery, Owners, Stored
from dragoman.store.files import leaving_out, putting_back
from dragoman.store.postgres.database.statements import to_text
from dragoman.store.postgres.reads import Reads

VALUE = re.compile(r"(?<!:):([a-z_]+)")

TYPES = {"limit": "int", "offset": "int", "max_bytes": "bigint", "files": "boolean", "owner": "text", "agent": "text"}
"""The types that PostgreSQL cannot infer from the position of a value."""


async def list_tasks(reads: Reads, sql: Mapping[str, str], query: ListQuery) -> Listed:
    """Read the page that `query` asks for."""
    artifacts, history = query.artifacts, query.history != 0
    rows = await reads.pool.read(*_statement(sql, query, files=artifacts or history))
    total, found = rows[0]["total"], rows[0]["found"]
    opened = [await reads.opened(row) for row in rows if row["task"] is not None]
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
        except KeyError:
            continue  # it has been deleted meanwhile
    return Listed(tuple(tasks), total, found > len(opened))


async def newest_of_context(
    reads: Reads, sql: Mapping[str, str], owner: str, agent: str, context_id: str, limit: int
) -> tuple[Stored, ...]:
    """The newest tasks of a context, oldest first."""
    query = ListQuery(owner=owner, agent=agent, context_id=context_id, limit=limit, artifacts=True)
    return (await list_tasks(reads, sql, query)).tasks[::-1]


def _statement(sql: Mapping[str, str], query: ListQuery, *, files: bool) -> tuple[Any, ...]:
    """The statement for a page, and its values."""
    in_context = query.context_id is not None
    several = query.owner is Owners.ALL or query.agent is None
    of_owner = [] if query.owner is Owners.ALL else [sql["of_owner"]]
    scopes = " AND ".join([*of_owner, *([] if query.agent is None else [sql["of_agent"]])]) or "true"
    states = list(range(len(STATES))) if query.state is None else [STATES.index(query.state)]
    after = sql["after"] if query.status_after_ms is not None else ""
    before = sql["before"] if query.before is not None else ""
    arm = sql[("scopes" if several else "scope") + ("_context" if in_context else "")]
    if in_context:
        total = sql["total_of_context"].replace("STATES", "" if query.state is None else sql["in_states"])
    elif after:
        total = sql["total_in_index"]
    else:
        total = sql["total"].replace("COUNTERS", " + ".join(f"c.n{state}" for state in states))
    total = total.replace("BOUNDS", after)
    text = (
        sql["list"]
        .replace("LIST", arm.replace("BOUNDS", f"{after} {before}"))
        .replace("TOTAL", total)
        .replace("SCOPES", scopes)
    )
    before_ms, before_id = query.before or (0, "")
    values = {
        "owner": query.owner if isinstance(query.owner, Owners) else to_text(query.owner),
        "agent": None if query.agent is None else to_text(query.agent),
        "context": None if query.context_id is None else to_text(query.context_id),
        "states": states,
        "after_ms": query.status_after_ms,
        "before_ms": before_ms,
        "before_id": to_text(before_id),
        "limit": query.limit,
        "offset": query.offset,
        "max_bytes": query.max_bytes,
        "files": files,
    }
    return _bind(text, values)


def _bind(text: str, values: Mapping[str, object]) -> tuple[Any, ...]:
    """The statement with numbers for names, and the values that it names in their order."""
    names: dict[str, int] = {}

    def number(hit: re.Match[str]) -> str:
        name = hit[1]
        kind = TYPES.get(name)
        return f"${names.setdefault(name, len(names) + 1)}" + ("" if kind is None else f"::{kind}")

    text = VALUE.sub(number, text)
    return (text, *(values[name] for name in names))
