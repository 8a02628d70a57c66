"""The SQL files of the driver: every statement has a name and one end, is used, and is understood by the server."""

from pathlib import Path

import pytest
from asyncpg import PostgresError

import dragoman.store.postgres
from dragoman.store.postgres.database.address import DEFAULT_SCHEMA, parse_address
from dragoman.store.postgres.database.opening import open_pool
from dragoman.store.postgres.database.statements import in_schema, read_statements
from dragoman.store.postgres.ledger import BOTH, ENDS, NEW, OLD, write_forms
from dragoman.store.sql.statements import NAME, statements_for_postgres
from tests.store.test_shared_statements import PIECES as SHARED_PIECES

FOLDER = Path(dragoman.store.postgres.__file__).parent
FILES = sorted(path.name for path in FOLDER.glob("*.sql"))

PIECES = "lists.sql"
"""Its statements are put together from pieces."""


WRITE = ("write", "write_usual", "sums", "bookings", "booked", "lessons")
"""The statements that write a batch of tasks, and their pieces."""


def whole_statements(name: str) -> list[tuple[str, str]]:
    """The statements of a file by their names, put together from their pieces."""
    sql = dict(read_statements(name, "elsewhere"))
    if name != "tasks.sql":
        return list(sql.items())
    forms = [(f"write {number}", text) for number, text in enumerate(write_forms(sql).values())]
    return [*forms, *((title, text) for title, text in sql.items() if title not in WRITE)]


@pytest.mark.parametrize("name", FILES)
def test_every_statement_has_one_name_and_one_end(name: str) -> None:
    text = (FOLDER / name).read_text()
    names = NAME.findall(text)
    assert len(names) == len(set(names)) == len(read_statements(name, DEFAULT_SCHEMA))
    assert all(";" not in sql for sql in read_statements(name, DEFAULT_SCHEMA).values())


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("checks.sql", PIECES)])
def test_every_statement_is_used(name: str) -> None:
    code = "".join(path.read_text() for name in ("postgres", "sql") for path in FOLDER.parent.glob(f"{name}/*.py"))
    assert [one for one in read_statements(name, DEFAULT_SCHEMA) if f'"{one}"' not in code] == []


def test_no_form_of_a_batch_has_a_part_that_it_does_not_name() -> None:
    forms = write_forms(read_statements("tasks.sql", DEFAULT_SCHEMA))
    assert {parts for parts, *_ in forms} == {NEW, OLD, OLD | ENDS, BOTH, BOTH | ENDS, None}
    tables = {"made": "new", "called": "new", "moved": "old", "kept": "ends", "used": "ends"}
    for (parts, *_), text in forms.items():
        assert {part for name, part in tables.items() if f"{name} AS (" in text} == (parts or BOTH | ENDS) - {"both"}
        assert not [word for word in ("/*", "SUMS", "BOOK", "SOURCE") if word in text]


async def test_every_statement_is_understood(postgres_url: str) -> None:
    pool = await open_pool(parse_address(f"{postgres_url}?schema=elsewhere"))
    connection = await pool.connect()
    for name in FILES:
        for title, sql in whole_statements(name) if name != PIECES else ():
            try:
                await connection.execute(f'PREPARE "{name} {title}" AS {sql}')
            except PostgresError as error:
                raise AssertionError(f"{name}: {title}: {error}") from error
    for title, sql in statements_for_postgres().items():
        if title not in SHARED_PIECES:
            await connection.execute(f'PREPARE "shared {title}" AS {in_schema(sql, "elsewhere")}')
    await connection.close()
    await pool.close()


def test_tables_are_looked_for_in_the_schema_of_the_store() -> None:
    assert in_schema("SELECT 1 FROM dragoman.tasks t, my_dragoman.x", "mine") == (
        'SELECT 1 FROM "mine".tasks t, my_dragoman.x'
    )
