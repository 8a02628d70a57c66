"""The SQL that both databases share: every statement is named once, described, used, and understood by SQLite.

That PostgreSQL understands it is shown with the SQL of its own.
"""

import re
from pathlib import Path

import pytest

import dragoman.store.sql
from dragoman.store.sql.statements import NAME, split_statements, statements_for_postgres, statements_for_sqlite
from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.schema import migrate, migrations

FOLDER = Path(dragoman.store.sql.__file__).parent
FILES = sorted(FOLDER.glob("*.sql"))

WORD = re.compile(r"PIECE|FALSE\(|BY_INDEX|PLACE_OF|KIND|COUNTED_SCOPES|ENTRY_BYTES|TRUE\(")
VALUE = re.compile(r"\?\d+")

PIECES = {"audit_fits", "owed_columns", "owed_tables", "receipt_columns", "searched", "space_of", "state_columns"}
"""These are parts of others."""

ALONE = {"backup.sql", "checks.sql"}
"""Files that are read for themselves, so that their names meet no others."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_statement_has_a_description_and_one_end(path: Path) -> None:
    names, pieces = NAME.findall(path.read_text()), NAME.split(path.read_text())[2::2]
    assert names
    for name, piece in zip(names, pieces, strict=True):
        assert piece.strip().startswith("-- "), piece
        assert piece.rstrip().endswith(";") == (name not in PIECES), piece
        assert ";" not in split_statements(path.read_text())[name], piece


def test_a_name_is_one_statement_whoever_reads_it() -> None:
    shared = [name for path in FILES if path.name not in ALONE for name in NAME.findall(path.read_text())]
    assert len(shared) == len(set(shared))
    for folder in ("sqlite", "postgres"):
        paths = [path for path in (FOLDER.parent / folder).glob("*.sql") if path.name not in ALONE]
        own = [name for path in paths for name in NAME.findall(path.read_text())]
        assert set(shared).isdisjoint(own)


def test_every_statement_is_used() -> None:
    code = "".join(path.read_text() for path in FOLDER.parent.glob("*/*.py"))
    swept = {f"{verb}_{name}" for name in ("audit", "receipts", "usage") for verb in ("old", "sweep")}
    assert {name for name in statements_for_sqlite() if f'"{name}"' not in code} == swept | PIECES


def test_sqlite_understands_every_statement() -> None:
    location = locate("memory:")
    connection = connect(location)
    migrate(connection, location, migrations())
    for name, sql in statements_for_sqlite().items():
        if name not in PIECES:
            connection.execute("EXPLAIN " + sql, (None,) * len(set(VALUE.findall(sql)))).fetchall()
    connection.close()


def test_no_word_of_these_files_is_left_to_a_database() -> None:
    for statements in (statements_for_sqlite(), statements_for_postgres()):
        for sql in statements.values():
            assert WORD.search(sql) is None, sql
    assert not any("$" in sql or "::" in sql or "dragoman." in sql for sql in statements_for_sqlite().values())


def test_refusals_are_found_by_their_index() -> None:
    location = locate("memory:")
    connection = connect(location)
    migrate(connection, location, migrations())
    plan = connection.execute("EXPLAIN QUERY PLAN " + statements_for_sqlite()["read_refused"], (1,) * 12).fetchall()
    assert "audit_refused" in plan[0][3]
    connection.close()
