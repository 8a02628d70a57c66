"""Migrations: brings the tables of a database to the version of this program.

Invariant: steps only go forward, and only add. All missing steps are one transaction with the version row, under an
advisory lock of that transaction. So any number of replicas may start at once, and those of the previous release keep
running.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from itertools import groupby
from zlib import crc32

from msgspec import Struct

from dragoman.store.api import StoreError, StoreReadOnly
from dragoman.store.postgres.database.address import Address
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import FOLDER, in_schema

LOCKS = 0x64726167
"""The first half of the numbers of our advisory locks. It tells them from the locks of other programs."""

MIGRATION_S = 3600.0
"""How long a step may take, and how long other replicas wait for it: an index of a large table takes minutes."""

PATIENCE = "; ".join(
    f"SET LOCAL {name} = 0" for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
)

VERSION = """
CREATE TABLE dragoman.schema_version (version integer NOT NULL, serves integer NOT NULL);
INSERT INTO dragoman.schema_version VALUES (0, 0);
"""
"""One row: the version of the tables, and the oldest program that may use them, by the version that it knows."""

SERVES = re.compile(r"^-- serves: (\d+)$", re.MULTILINE)


class Migration(Struct, frozen=True):
    """One step: the version that the tables have after it, and the oldest program, by version, that it still serves."""

    version: int
    serves: int
    sql: str


def migrations() -> tuple[Migration, ...]:
    """All steps in order. They ship beside this module as `0001_what.sql`."""
    found = (entry for entry in (files(FOLDER) / "migrations").iterdir() if entry.name.endswith(".sql"))
    return steps_of({entry.name: entry.read_text(encoding="utf-8") for entry in found})


def steps_of(texts: Mapping[str, str]) -> tuple[Migration, ...]:
    """The steps that are in files, by name. Files with the same number are one step, in the order of their names.

    A step that earlier programs can work with says so in a line `-- serves: <version>` of one of its files.
    """
    steps = []
    for number, names in groupby(sorted(texts), key=lambda name: name[:4]):
        version, sql = int(number), "\n".join(texts[name] for name in names)
        serves = SERVES.search(sql)
        steps.append(Migration(version, version if serves is None else int(serves[1]), sql))
    return tuple(steps)


async def migrated(pool: Pool) -> bool:
    """Whether the schema has tables of any version. Raises StoreError if the database cannot be asked."""
    (row,) = await pool.read("SELECT to_regclass($1) IS NOT NULL", f'"{pool.address.schema}".schema_version')
    return bool(row[0])


async def migrate(pool: Pool, steps: tuple[Migration, ...]) -> None:
    """Apply the missing steps.

    Raises StoreError, naming the fix, if the tables are too new for this program, or if its user may not make them.
    """
    schema = pool.address.schema
    try:
        async with pool.transaction() as connection:
            await connection.execute(PATIENCE)
            lock = LOCKS, crc32(schema.encode()) >> 1
            await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", *lock, timeout=MIGRATION_S)
            version = await _version(connection, pool.address, steps[-1].version)
            missing = [step for step in steps if step.version > version]
            for step in missing:
                await connection.execute(in_schema(step.sql, schema), timeout=MIGRATION_S)
            if missing:
                await connection.execute(
                    in_schema("UPDATE dragoman.schema_version SET version = $1, serves = $2", schema),
                    missing[-1].version,
                    max(step.serves for step in steps),
                )
    except StoreReadOnly as error:
        owners = await pool.read("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = $1", schema)
        raise _may_not(pool.address, owners[0][0] if owners else None, error) from error


async def _version(connection: DatabaseConnection, address: Address, known: int) -> int:
    """The version of the tables: 0 if there are none yet. Then schema and version row are made."""
    schema = address.schema
    if await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".schema_version') is None:
        if await connection.fetchval("SELECT true FROM pg_tables WHERE schemaname = $1", schema):
            raise StoreError(
                f"the schema {schema} of PostgreSQL at {address.shown} belongs to another program: add ?schema=NAME to "
                "the url"
            )
        if not await connection.fetchval("SELECT true FROM pg_namespace WHERE nspname = $1", schema):
            await connection.execute(f'CREATE SCHEMA "{schema}"')
        await connection.execute(in_schema(VERSION, schema))
        return 0
    version, serves = await connection.fetchrow(
        in_schema("SELECT version, serves FROM dragoman.schema_version", schema)
    )
    if serves > known:
        raise StoreError(
            f"the tables of PostgreSQL at {address.shown} are of version {version}, this program knows {known}: use a "
            "newer dragoman"
        )
    return int(version)


def _may_not(address: Address, owner: str | None, error: StoreError) -> StoreError:
    """The error for a user who may not make tables. `owner` owns the schema; None if there is no schema."""
    user, database = address.user, address.database
    if owner not in (None, user):
        return StoreError(
            f"the schema {address.schema} of PostgreSQL at {address.shown} belongs to the user {owner!r} "
            f"({error.__cause__}): name that user in the url, or add ?schema=NAME"
        )
    return StoreError(
        f"the user {user!r} may not make tables in PostgreSQL at {address.shown} ({error.__cause__}): run "
        f'CREATE SCHEMA {address.schema} AUTHORIZATION "{user}" in {database!r} as its owner, or '
        f'GRANT CREATE ON DATABASE "{database}" TO "{user}"'
    )
