"""The queries of jobs, such as those that find lost effects again: none reads the table of tasks. The soak asks over a
million of them."""

import json
from collections.abc import AsyncIterator

import asyncpg
import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store
from dragoman.store.postgres.database.statements import read_statements
from dragoman.store.sql.statements import statements_for_postgres
from tests.postgres import PostgresServer
from tests.soak import times
from tests.store.postgres.database import nodes

TASKS = times(100_000, 1_000_000)

ASLEEP_FROM = 1 << 40

FILL = f"""
INSERT INTO dragoman.scopes (owner, agent) SELECT 'o', 'a' || n FROM generate_series(1, 100) n;
INSERT INTO dragoman.tasks
    (seq, status_ms, log_bytes, scope, agent, epoch, state, files, pushed, id, context, holder, offered_until_ms,
    parent, deadline_ms, dialect, text, head)
SELECT 1, n, 1, 1 + n % 100, 'a' || n % 100, 1, CASE WHEN n % 10000 = 0 OR n % 10 = 7 THEN 1 ELSE 5 END, false, false,
    't' || n, 'c', CASE WHEN n % 10000 = 0 THEN 'h1' WHEN n % 10 = 7 THEN 'asleep' END,
    CASE WHEN n % 10 = 7 THEN {ASLEEP_FROM} + n END, CASE WHEN n % 2 = 0 THEN 't' || n / 2 END,
    CASE WHEN n % 4 = 0 THEN n END,
    '', '', ''
FROM generate_series(0, {TASKS - 1}) n;
INSERT INTO dragoman.state_spaces (revision, entries, bytes, ended, agent, owner, context, kind)
SELECT 1, 1, 1, 0, 'a' || n, 'o', 'gone', 'memory' FROM generate_series(1, 100) n;
ANALYZE dragoman.scopes, dragoman.tasks, dragoman.state_spaces;
"""
"""One in 10,000 is at work, and is delegated by a task that has ended. One in ten sleeps. A conversation of each agent
has no tasks left."""

LOOKS: dict[str, tuple[object, ...]] = {
    "orphans": ("", 1000),
    "overdue": (1 << 40, 1000),
    "children": ("t5",),
    "leased": ("h1",),
    "offered": ("h1",),
    "claim": ("h2", 10, 0, ["a1"], 0, 300, True, False),
    "claim_woken": ("h2", 10, ASLEEP_FROM + 1000, ["a7"], 0, 300, False, True),
    "next_wake": (ASLEEP_FROM,),
    "end_conversations": (list(range(1, 51)),),
}

STATEMENTS = statements_for_postgres() | {
    name: sql
    for file in ("tasks.sql", "looks.sql", "sweep.sql")
    for name, sql in read_statements(file, "dragoman").items()
}
STATEMENTS["claim_woken"] = STATEMENTS["claim"]

READ_MAX = 1_000
"""The 100 tasks at work, and the parents of these, some times over."""


@pytest.fixture(scope="module")
async def filled(postgres_server: PostgresServer) -> AsyncIterator[str]:
    with postgres_server.database() as url:
        store = open_store(url, SystemClock())
        await store.open("h2")
        await store.replicas.join("h2", address="", agents=("a7",))
        connection = await asyncpg.connect(url)
        await connection.execute(FILL)
        await connection.close()
        yield url
        await store.close()


@pytest.mark.parametrize("name", LOOKS)
async def test_no_look_for_effects_reads_the_table_of_tasks(filled: str, name: str) -> None:
    sql = STATEMENTS[name]
    connection = await asyncpg.connect(filled)
    try:
        explained = await connection.fetchval("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, *LOOKS[name])
    finally:
        await connection.close()
    of_tasks = [node for node in nodes(json.loads(explained)[0]["Plan"]) if node.get("Relation Name") == "tasks"]
    assert of_tasks
    assert "Seq Scan" not in {node["Node Type"] for node in of_tasks}
    read = sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in of_tasks
    )
    assert read <= READ_MAX
