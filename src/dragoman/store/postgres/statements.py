"""PostgresStatements: runs the statements that both databases share on the store's connections.

Invariant: each statement has a snapshot of its own, and a batch of writes is one transaction.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from dragoman.store.postgres.database.opening import PostgresDoor
from dragoman.store.postgres.database.statements import from_text, in_schema, read_statements, to_text
from dragoman.store.sql.statements import Procedure, Value, statements_for_postgres

T = TypeVar("T")


class PostgresStatements:
    """The Statements protocol on the store's connections, for tables in `schema`."""

    def __init__(self, door: PostgresDoor, schema: str) -> None:
        self._door = door
        self._sql = {name: in_schema(sql, schema) for name, sql in statements_for_postgres().items()}
        for name in ("audit", "figures", "looks", "outbox", "principals"):
            self._sql |= read_statements(f"{name}.sql", schema)

    async def point(self, name: str, *values: Value) -> Any:
        """As the protocol says."""
        rows = await self.read(name, *values)
        if not rows:
            return None
        return rows[0][0] if len(rows[0]) == 1 else rows[0]

    async def read(self, name: str, *values: Value) -> list[tuple[Any, ...]]:
        """As the protocol says."""
        rows = await self._door().read(self._sql[name], *map(_encode, values))
        return [tuple(map(_decode, row)) for row in rows]

    async def write(self, *batch: tuple[Any, ...]) -> int:
        """As the protocol says. A single statement commits by itself."""
        statements = [(self._sql[name], tuple(map(_encode, values))) for name, *values in batch]
        if len(statements) == 1:
            ((sql, values),) = statements
            return len(await self._door().write(sql, *values))
        returned = 0
        async with self._door().transaction() as connection:
            for sql, values in statements:
                returned = len(await connection.fetch(sql, *values))
                if not returned:
                    break
        return returned

    async def carry_out(self, procedure: Callable[[], Procedure[T]]) -> T:
        """As the protocol says. An exception in it undoes the transaction."""
        steps, outcome = procedure(), None
        async with self._door().transaction() as connection:
            try:
                name, *values = next(steps)
                while True:
                    rows = await connection.fetch(self._sql[name], *map(_encode, values))
                    name, *values = steps.send([tuple(map(_decode, row)) for row in rows])
            except StopIteration as end:
                outcome = end.value
        return cast("T", outcome)


def _encode(value: Value) -> object:
    if isinstance(value, str):
        return to_text(value)
    return list(map(to_text, value)) if isinstance(value, tuple) else value


def _decode(value: Any) -> Any:
    if isinstance(value, str):
        return from_text(value)
    return tuple(map(from_text, value)) if isinstance(value, list) else value
