"""Checks a store file: counters match rows, logs have no gaps, nothing belongs to a missing task.

Invariant: it only reads.
"""

from pathlib import Path

import apsw

from dragoman.store.sqlite.connection import connect, locate
from dragoman.store.sqlite.statements import read_statements


def check(path: Path) -> list[str]:
    """Return one line for each fault in the file at `path`; none if all is well.

    Raises StoreError or apsw.Error if it cannot be read.
    """
    connection = connect(locate(f"sqlite:///{path}"), readonly=True)
    try:
        return [
            f"{name}: {row}" for name, sql in read_statements("checks.sql").items() for row in _rows(connection, sql)
        ]
    finally:
        connection.close()


def _rows(connection: apsw.Connection, sql: str) -> list[tuple[object, ...]]:
    return list(connection.execute(sql))
