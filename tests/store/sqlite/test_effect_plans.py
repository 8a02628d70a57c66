"""The looks for lost effects and for tasks that wait for workers: none reads the table of tasks, however long it is."""

from collections.abc import Iterator

import apsw
import pytest

from dragoman.store.sql.statements import statements_for_sqlite
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import migrate, migrations, read_statements

LOOKS: dict[str, tuple[object, ...]] = {
    "orphans": ("", 1000),
    "overdue": (1 << 40, 1000),
    "children": ("t5",),
    "asking": (),
    "leased": ("h1",),
    "offered": ("h1",),
    "queued": ("a1", 4),
    "claim": ("h2", "[]", 10, 0, '["a1"]', "[]", 0, True),
    "claim_woken": ("h2", "[]", 10, 0, '["a1"]', "[]", 0),
    "next_wake": (0,),
}


@pytest.fixture(scope="module")
def empty() -> Iterator[apsw.Connection]:
    """Tables without a row, nor statistics: SQLite plans by those alone, and without them as for a million rows."""
    location = locate("memory:")
    connection = connect(location)
    migrate(connection, location, migrations())
    assert not list(connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'sqlite_stat%'"))
    yield connection
    connection.close()


@pytest.mark.parametrize("name", LOOKS)
def test_no_look_reads_the_table_of_tasks(empty: apsw.Connection, name: str) -> None:
    sql = (read_statements() | statements_for_sqlite())[name]
    plan = [row[3] for row in empty.execute("EXPLAIN QUERY PLAN " + sql, LOOKS[name])]
    of_tasks = [line for line in plan if line.partition(" ")[2].split(" ")[0] in ("tasks", "t", "c", "q")]
    assert of_tasks
    for line in of_tasks:
        assert "INDEX" in line or "PRIMARY KEY" in line, plan
        assert line.startswith("SEARCH") or "tasks_by_parent" in line, plan
