"""The SQL of the driver: its statements by name, with the tables in the schema of the store, and strings as values.

Invariant: all SQL is in the files that are read here, except what begins and ends transactions and what asks the server
about itself. The files name the schema `dragoman`; another one takes its place when they are read, because a connection
has no search path of its own. `from_text(to_text(value)) == value`, and different values stay different.
"""

import re
from importlib.resources import files

from dragoman.store.postgres.database.address import DEFAULT_SCHEMA
from dragoman.store.sql.statements import split_statements

FOLDER = "dragoman.store.postgres"
"""The package with the files."""

TABLE = re.compile(rf"\b{DEFAULT_SCHEMA}\.")


def read_statements(name: str, schema: str) -> dict[str, str]:
    """Every statement of the file `name`, by its own name, without the comments, for tables in `schema`."""
    statements = split_statements((files(FOLDER) / name).read_text(encoding="utf-8"))
    return {title: in_schema(sql, schema) for title, sql in statements.items()}


def in_schema(sql: str, schema: str) -> str:
    """`sql` for tables in `schema`."""
    return TABLE.sub(f'"{schema}".', sql)


def to_text(value: str) -> str:
    """Escape NULs, which PostgreSQL cannot store, and the backslash that escapes them."""
    if "\0" in value or "\\" in value:
        return value.replace("\\", "\\\\").replace("\0", "\\0")
    return value


def from_text(value: str) -> str:
    """Undo `to_text`."""
    if "\\" not in value:
        return value
    return "\\".join(piece.replace("\\0", "\0") for piece in value.split("\\\\"))
