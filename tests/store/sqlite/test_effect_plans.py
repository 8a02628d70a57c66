"""The looks for lost effects and for tasks that wait for workers: none reads the table, which has a million tasks."""

from collections.abc import Iterator

import apsw
import pytest

from dragoman.store.sql.statements import statements_for_sqlite
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import migrate, migrations, read_statements

TASKS = 1_000_000

FILL = f"""
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {TASKS - 1})
INSERT INTO tasks (id, scope, context, state, status_ms, seq, epoch, holder, log_bytes, head, parent, deadline_ms)
SELECT 't' || n, 1 + n % 100, 'c', CASE WHEN n % 10000 = 0 THEN 1 ELSE 5 END, n, 1, 1,
    CASE WHEN n % 10000 = 0 THEN 'h1' END, 1, x'', CASE WHEN n % 2 = 0 THEN 't' || n / 2 END,
    CASE WHEN n % 4 = 0 THEN n END
FROM numbers
"""
"""One in 10,000 is at work, and is delegated by a task that has ended."""

LOOKS: dict[str, tuple[object, ...]] = {
    "orphans": ("", 1000),
    "overdue": (1 << 40, 1000),
    "children": ("t5",),
    "asking": (),
    "leased": ("h1",),
    "offered": ("h1",),
    "queued": ("a1", 4),
    "claim": ("h2", "[]", 10, 0, '["a1"]', "[]", 0, True),
}


@pytest.fixture(scope="module")
def filled() -> Iterator[apsw.Connection]:
    location = locate("memory:")
    connection = connect(location)
    migrate(connection, location, migrations())
    connection.executemany("INSERT INTO scopes (owner, agent, n1) VALUES ('o', ?, 1)", [(f"a{n}",) for n in range(100)])
    connection.execute(FILL)
    yield connection
    connection.close()


@pytest.mark.parametrize("name", LOOKS)
def test_no_look_reads_the_table_of_tasks(filled: apsw.Connection, name: str) -> None:
    sql = (read_statements() | statements_for_sqlite())[name]
    plan = [row[3] for row in filled.execute("EXPLAIN QUERY PLAN " + sql, LOOKS[name])]
    of_tasks = [line for line in plan if line.partition(" ")[2].split(" ")[0] in ("tasks", "t", "c", "q")]
    assert of_tasks
    for line in of_tasks:
        assert "INDEX" in line or "PRIMARY KEY" in line, plan
        assert line.startswith("SEARCH") or "tasks_by_parent" in line, plan
