"""The rows of a PostgreSQL schema, to copy them into another store, or from one.

Invariant: a source is read in one transaction, so that all rows are as of one moment, whoever writes meanwhile. A copy
is made in a schema beside the store's, `<schema>_copy`, which takes its name in one transaction. Names of tables and
columns are those of `store.transfer`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dragoman.store.api import StoreError
from dragoman.store.postgres.database.address import Address, parse_address
from dragoman.store.postgres.database.connection import DatabaseConnection, close
from dragoman.store.postgres.database.migrations import migrate, migrations
from dragoman.store.postgres.database.opening import check_server, open_pool
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import from_text, in_schema, read_statements, to_text
from dragoman.store.postgres.database.translation import FAILURES, translate
from dragoman.store.sql.statements import statements_for_postgres
from dragoman.store.transfer import OF_TASKS, WHOLE, ColumnType, Row, Table

ORIGIN = "copy of"
"""The key under which an unfinished copy has the name of its source."""

STATEMENT_S = 600.0
"""How long a statement may take that reads or writes many rows."""

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresRows:
    """The rows of a schema, by one connection."""

    def __init__(self, pool: Pool, address: Address, connection: DatabaseConnection) -> None:
        identity = pool.identity
        system = "" if identity is None else identity.system
        self.name = f"postgresql:{system}/{address.database}/{address.schema}"
        self._pool = pool
        self._address = address
        self._connection = connection
        self.schema = pool.address.schema
        self.sql = {name: in_schema(sql, self.schema) for name, sql in statements_for_postgres().items()}
        self.sql |= read_statements("transfer.sql", self.schema)

    async def count(self) -> int:
        """As the protocol says."""
        return int(await self._value("count_tasks"))

    async def sizes(self, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """As the protocol says."""
        return [(task, size) for task, size in await self.fetch(self.sql["task_sizes"], after, limit)]

    async def rows(self, table: Table, after: Row | None, limit: int) -> Sequence[Row]:
        """As the protocol says."""
        return [_read(table, row) for row in await self._next(table, ", ".join(table.columns), after, limit)]

    async def weigh(self, table: Table, after: Row | None, limit: int) -> Sequence[int]:
        """As the protocol says."""
        return [row[0] for row in await self._next(table, f"octet_length({table.heavy})", after, limit)]

    async def _next(self, table: Table, columns: str, after: Row | None, limit: int) -> list[Any]:
        keys = ", ".join(list(table.columns)[: table.keys])
        marks = ", ".join(f"${place + 1}" for place in range(table.keys))
        where = "" if after is None else f"WHERE ({keys}) > ({marks})"
        values = () if after is None else map(_written, table.columns.values(), after)
        sql = f"SELECT {columns} FROM {self._place(table)} {where} ORDER BY {keys} LIMIT {limit}"
        return await self.fetch(sql, *values)

    async def rows_of(self, table: Table, tasks: tuple[int, int]) -> Sequence[Row]:
        """As the protocol says."""
        keys = ", ".join(list(table.columns)[: table.keys])
        where = "task BETWEEN $1 AND $2"
        if table.of == "config":
            where = f'config IN (SELECT config FROM "{self.schema}".push_configs WHERE {where})'
        sql = f"SELECT {', '.join(table.columns)} FROM {self._place(table)} WHERE {where} ORDER BY {keys}"
        return [_read(table, row) for row in await self.fetch(sql, *tasks)]

    async def numbers(self) -> Mapping[str, int]:
        """As the protocol says."""
        return {"deliveries": int(await self._value("last_delivery"))}

    async def close(self) -> None:
        """As the protocol says."""
        await close(self._connection)
        await self._pool.close()

    def _place(self, table: Table) -> str:
        return f'"{self.schema}".{table.name}'

    async def _value(self, name: str) -> Any:
        rows = await self.fetch(self.sql[name])
        return rows[0][0] if rows else None

    async def fetch(self, sql: str, *values: object) -> list[Any]:
        """The rows of a statement. Raises StoreError."""
        try:
            return await self._connection.fetch(sql, *values)
        except FAILURES as error:
            raise translate(error, self._address.shown) from error


class PostgresCopy(PostgresRows):
    """A schema beside the one whose place it takes at the end."""

    async def last_task(self) -> int:
        """As the protocol says."""
        return int(await self._value("last_task"))

    async def last_key(self, table: Table) -> Row | None:
        """As the protocol says."""
        keys = list(table.columns)[: table.keys]
        order = ", ".join(f"{key} DESC" for key in keys)
        rows = await self.fetch(f"SELECT {', '.join(keys)} FROM {self._place(table)} ORDER BY {order} LIMIT 1")
        return tuple(map(_plain, table.columns.values(), rows[0])) if rows else None

    async def write(self, rows: Collection[tuple[Table, Sequence[Row]]]) -> None:
        """As the protocol says."""
        async with self._pool.transaction() as connection:
            for table, some in rows:
                if some:
                    kinds = tuple(table.columns.values())
                    await connection.copy_records_to_table(
                        table.name,
                        schema_name=self.schema,
                        columns=list(table.columns),
                        records=[tuple(map(_written, kinds, row)) for row in some],
                        timeout=STATEMENT_S,
                    )

    async def clear(self) -> None:
        """As the protocol says."""
        async with self._pool.transaction() as connection:
            for table in WHOLE + OF_TASKS:
                await connection.execute(f"TRUNCATE {self._place(table)}")

    async def finish(self, numbers: Mapping[str, int]) -> None:
        """As the protocol says."""
        schema = self._address.schema
        async with self._pool.transaction() as connection:
            await connection.execute(self.sql["count_states"])
            await connection.execute(self.sql["name_agents"])
            await connection.execute(self.sql["go_on"])
            await connection.execute(self.sql["go_on_with_deliveries"], numbers.get("deliveries", 0))
            await connection.execute(self.sql["forget_origin"])
            await _check_empty(connection, self._address)
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
            await connection.execute(f'ALTER SCHEMA "{self.schema}" RENAME TO "{schema}"')


async def open_source(url: str) -> PostgresRows:
    """The store at `url`, which servers may have open, as of now. Raises StoreError, also if there is none."""
    address = replace(parse_address(url), timeout_s=STATEMENT_S)
    pool = await open_pool(address, make=False)
    try:
        connection = await pool.connect()
    except StoreError:
        await pool.close()
        raise
    rows = PostgresRows(pool, address, connection)
    try:
        await connection.execute(BEGIN)
    except FAILURES as error:
        await rows.close()
        raise translate(error, address.shown) from error
    return rows


async def open_target(url: str, source: str, *, restart: bool) -> PostgresCopy:
    """A schema that takes the place of the one at `url`, with what a killed copy of `source` has left.

    Raises StoreError if the store has data, if a replica has it open, or if there is an unfinished copy of another
    source, which `restart` deletes.
    """
    address = replace(parse_address(url), timeout_s=STATEMENT_S)
    if len(address.schema) > 58:
        raise StoreError(f"the schema {address.schema} of PostgreSQL at {address.shown} has too long a name for a copy")
    pool = Pool(replace(address, schema=f"{address.schema}_copy", pool_size=2))
    try:
        await check_server(pool)
        async with pool.transaction() as connection:
            await _check_empty(connection, address)
            if restart:
                await connection.execute(f'DROP SCHEMA IF EXISTS "{pool.address.schema}" CASCADE')
        await migrate(pool, migrations())
        copy = PostgresCopy(pool, address, await pool.connect())
    except BaseException:
        await pool.close()
        raise
    found = await copy.fetch(copy.sql["origin"], ORIGIN)
    if not found:
        await pool.write(copy.sql["note_origin"], ORIGIN, source.encode())
    elif found[0][0].decode() != source:
        await copy.close()
        raise StoreError(
            f"the schema {pool.address.schema} of PostgreSQL at {address.shown} is an unfinished copy of "
            f"{found[0][0].decode()}: finish it, or add --restart"
        )
    return copy


async def check(url: str) -> list[str]:
    """One line for each fault in the tables at `url`, as of one moment; none if all is well. Raises StoreError."""
    rows = await open_source(url)
    try:
        checks = read_statements("checks.sql", rows.schema)
        checks |= {name: in_schema(sql, rows.schema) for name, sql in statements_for_postgres(checks=True).items()}
        return [f"{name}: {tuple(row)}" for name, sql in checks.items() for row in await rows.fetch(sql)]
    finally:
        await rows.close()


async def _check_empty(connection: DatabaseConnection, address: Address) -> None:
    """Raises StoreError if the schema has data, or a replica has it open."""
    schema = address.schema
    found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    tables = {name for (name,) in found}
    if not tables:
        return
    if "schema_version" not in tables:
        raise StoreError(f"the schema {schema} of PostgreSQL at {address.shown} belongs to another program")
    alive = f'SELECT EXISTS (SELECT 1 FROM "{schema}".replicas WHERE NOT dead AND beats_until > clock_timestamp())'
    if await connection.fetchval(alive):
        raise StoreError(f"a server has the store at {address.shown} open: stop it first")
    names = [table.name for table in WHOLE + OF_TASKS if table.name in tables]
    full = [name for name in names if await connection.fetchval(f'SELECT EXISTS (SELECT 1 FROM "{schema}".{name})')]
    if full:
        raise StoreError(
            f"the schema {schema} of PostgreSQL at {address.shown} has data already ({', '.join(full)}): copy into an "
            "empty database, or add ?schema=NAME to the url"
        )


def _read(table: Table, row: Sequence[Any]) -> Row:
    return tuple(map(_plain, table.columns.values(), row))


def _plain(kind: ColumnType, value: Any) -> Any:
    if value is None:
        return None
    if kind is ColumnType.TEXT:
        return from_text(value)
    return list(map(from_text, value)) if kind is ColumnType.TEXTS else value


def _written(kind: ColumnType, value: Any) -> Any:
    if value is None:
        return None
    if kind is ColumnType.TEXT:
        return to_text(value)
    return list(map(to_text, value)) if kind is ColumnType.TEXTS else value
