"""The files of SQL say what each statement is for, and no statement is left over."""

import re
from pathlib import Path

import apsw
import pytest

import dragoman.store.sqlite
from dragoman.store.api import ListOrder
from dragoman.store.sql.statements import NAME, statements_for_sqlite
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import for_rows, migrate, migrations, read_statements
from dragoman.store.sqlite.tables import ROWS_MAX, SIZES, Tables

VALUE = re.compile(r"\?\d+")

TABLES = {"receipts", "tasks", "deliveries", "push_configs", *"aorndc"}
"""The tables that grow, and the names that the statements about receipts give them."""

FOLDER = Path(dragoman.store.sqlite.__file__).parent
FILES = sorted(path.name for path in FOLDER.glob("*.sql"))


@pytest.mark.parametrize("name", FILES)
def test_every_statement_has_one_name_and_a_description(name: str) -> None:
    text = (FOLDER / name).read_text()
    names = NAME.findall(text)
    assert len(names) == len(set(names)) == len(read_statements(name))
    for piece in NAME.split(text)[2::2]:
        assert piece.strip().startswith("-- "), piece
        assert piece.strip().count(";") - piece.count("--") <= 1


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("backup.sql", "checks.sql")])
def test_every_statement_is_used(name: str) -> None:
    code = "".join(path.read_text() for name in ("sqlite", "sql") for path in FOLDER.parent.glob(f"{name}/*.py"))
    ordered = {f"{prefix}{order.name.lower()}" for order in ListOrder for prefix in ("", "bound_")}
    left_over = [
        one for one in read_statements(name) if one not in ordered and f'"{one}"' not in code and f"'{one}'" not in code
    ]
    assert left_over == []


def test_a_statement_of_many_rows_has_a_place_for_each_value() -> None:
    assert for_rows("UPDATE t FROM (VALUES ROWS(2)) v WHERE ?", 2) == "UPDATE t FROM (VALUES (?,?),(?,?)) v WHERE ?"
    assert for_rows("INSERT INTO t VALUES ROWS(2) ON ?", 1) == "INSERT INTO t VALUES (?,?) ON ?"


def written_rows(connection: apsw.Connection, count: int) -> list[tuple[int, str]]:
    """Write so many rows with `Tables.execute_rows`, and return what is in the table then."""
    sql = {"last_numbers": "SELECT 0, 0, 0", "add": "INSERT INTO t VALUES ROWS(2)"}
    sql["change"] = "UPDATE t SET name = v.column2 FROM (VALUES ROWS(2)) v WHERE number = v.column1"
    tables = Tables(connection, sql, {})
    assert tables.execute_rows("add", [(number, "?") for number in range(count)]) == count
    assert tables.execute_rows("change", [(number, str(number)) for number in range(count)]) == count
    return connection.execute("SELECT number, name FROM t ORDER BY number").fetchall()


def test_statements_of_any_number_of_rows_write_these_rows_and_are_few() -> None:
    """Those of numbers that come seldom would be prepared anew each time."""
    prepared = set()
    for count in range(1, 3 * ROWS_MAX):
        connection = apsw.Connection(":memory:")
        connection.execute("CREATE TABLE t (number INTEGER, name TEXT)")
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: prepared.add(event["sql"]))
        assert written_rows(connection, count) == [(number, str(number)) for number in range(count)]
        connection.close()
    assert len([sql for sql in prepared if "VALUES" in sql]) == 2 * len(SIZES)


RECEIPTS = read_statements("receipts.sql") | {
    name: sql for name, sql in statements_for_sqlite().items() if "receipts" in sql and name != "oldest_rows"
}


@pytest.mark.parametrize("name", RECEIPTS)
def test_no_statement_about_receipts_reads_them_all(name: str) -> None:
    location = locate("memory:")
    connection = connect(location)
    migrate(connection, location, migrations())
    sql = for_rows(RECEIPTS[name], 2)
    values = set(VALUE.findall(sql)) if "?1" in sql else "?" * sql.count("?")
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, (0,) * len(values))]
    assert not [line for line in plan if line.startswith("SCAN") and line.split()[1] in TABLES], plan
    connection.close()


def test_a_statement_is_planned_once_whatever_values_it_is_given() -> None:
    location = locate("memory:")
    connection = connect(location)
    migrate(connection, location, migrations())
    planned = 0

    def planning(*_: object) -> int:
        """SQLite asks for permission whenever it prepares a statement, and at no other time."""
        nonlocal planned
        planned += 1
        return apsw.SQLITE_OK

    connection.authorizer = planning
    load = read_statements()["load_by_number"]
    connection.execute(load, (1,)).fetchall()
    once = planned
    connection.execute(load, (2,)).fetchall()
    assert once
    assert planned == once
    connection.close()
