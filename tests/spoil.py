"""Spoils rows of a store behind its back, in the file or the database itself.

Invariant: only the rows that a condition selects change, and at least one does.
"""

from pathlib import Path

import apsw
import asyncpg

from tests.store.cases.bench import Spoil
from tests.store.cases.spoiling import Way


def spoil_file(path: Path) -> Spoil:
    """Spoil rows of a SQLite file."""

    async def spoil(table: str, column: str, where: str, way: Way) -> None:
        connection = apsw.Connection(str(path))
        try:
            if not column:
                connection.execute(f"DELETE FROM {table} WHERE {where}")
            else:
                connection.create_scalar_function("spoiled", lambda *data: way(bytes(data[0])), 1)
                spoiled = f"spoiled(CAST({column} AS BLOB))"
                text = f"CAST({spoiled} AS TEXT)"
                value = (
                    f"CASE typeof({column}) WHEN 'text' THEN {text} WHEN 'integer' THEN CAST({text} AS INTEGER)"
                    f" ELSE {spoiled} END"
                )
                connection.execute(f"UPDATE {table} SET {column} = {value} WHERE {column} IS NOT NULL AND ({where})")
            assert connection.changes()
        finally:
            connection.close()

    return spoil


def spoil_database(url: str) -> Spoil:
    """Spoil rows of a PostgreSQL database."""

    async def spoil(table: str, column: str, where: str, way: Way) -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("SET search_path TO dragoman")
            if not column:
                assert await connection.execute(f"DELETE FROM {table} WHERE {where}") != "DELETE 0"
                return
            found = f"SELECT ctid, {column} FROM {table} WHERE {column} IS NOT NULL AND ({where})"
            rows = await connection.fetch(found)
            assert rows
            for place, data in rows:
                spoiled: object
                match data:
                    case str():
                        spoiled = way(data.encode()).decode()
                    case int():
                        spoiled = int(way(str(data).encode()))
                    case _:
                        spoiled = way(data)
                await connection.execute(f"UPDATE {table} SET {column} = $1 WHERE ctid = $2", spoiled, place)
        finally:
            await connection.close()

    return spoil
