"""SqliteStatements: runs the statements that both databases share on the connections to a file.

Invariant: reads see one moment, and a batch of writes is one transaction of the writer.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import apsw
import msgspec

from dragoman.store.api import Refused
from dragoman.store.sql.statements import Procedure, Value
from dragoman.store.sqlite.connection import fetch, translated
from dragoman.store.sqlite.pool import SqliteDoor
from dragoman.store.sqlite.reads import SqliteReads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Act

T = TypeVar("T")


class SqliteStatements:
    """The Statements protocol on the store's connections."""

    def __init__(self, door: SqliteDoor) -> None:
        self._door = door

    async def point(self, name: str, *values: Value) -> Any:
        """On the loop."""
        opened = self._door()
        try:
            return opened.reads.point(name, values)
        except apsw.Error as error:
            raise translated(error, opened.location) from error

    async def read(self, name: str, *values: Value) -> list[tuple[Any, ...]]:
        """On a reader thread."""

        def run(reads: SqliteReads) -> list[tuple[Any, ...]]:
            with reads.moment():
                return fetch(reads.cursor, reads.sql[name], tuple(map(_encode, values)))

        return await self._door().readers.run(run)

    async def write(self, *batch: tuple[Any, ...]) -> int:
        """In the writer's next batch."""
        encoded = [(name, tuple(map(_encode, values))) for name, *values in batch]

        def run(tables: Tables, _: int) -> int:
            returned = 0
            for name, values in encoded:
                returned = len(tables.cursor.execute(tables.sql[name], values).fetchall())
                if not returned:
                    break
            return returned

        return int(await self._door().writer.submit(Act(run)))

    async def carry_out(self, procedure: Callable[[], Procedure[T]]) -> T:
        """In the writer's next batch, which a refusal does not undo."""

        def run(tables: Tables, _: int) -> T | Refused | ValueError:
            steps, rows = procedure(), None
            try:
                while True:
                    name, *values = next(steps) if rows is None else steps.send(rows)
                    rows = fetch(tables.cursor, tables.sql[name], tuple(map(_encode, values)))
            except StopIteration as end:
                outcome: T = end.value
                return outcome
            except (Refused, ValueError) as error:
                return error

        outcome: T = await self._door().writer.submit(Act(run))
        return outcome


def _encode(value: Value) -> Value:
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value
