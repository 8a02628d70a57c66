"""Migrations: bring the tables of a database to the version of this program, while replicas use them.

Invariant: steps only go forward, and each is whole together with its number in `schema_version`, or it is not there. A
program that is killed at any statement leaves a store that works, and the next start goes on from there. No statement
holds, or waits for, a lock against writers for more than `BRIEF_S`.

A step is a file `migrations/NNNN_what.sql`, numbered without a gap (the first step has several files). A change of the
tables goes over several steps, and over two releases if something goes away:

* **expand**: statements that only change the catalogue, such as a new table, a nullable column or one with a constant
  default, a function. The file is one transaction. A statement that waits for a lock is given up at once, and the step
  is tried again after a pause. So it must not read or rewrite a table that has rows: no index, no `SET NOT NULL`, no
  default that has to be computed, no `UPDATE`.
* **index**: a file with one statement, `CREATE INDEX CONCURRENTLY name ON dragoman.table …`. An invalid index, which a
  build that was cut off leaves, is dropped and built again.
* **contract**: an expand step of a later release that drops what the release before it no longer uses.

A step beside which programs of an earlier version still work says so in a line `-- serves: <version>`. A step without
it serves nobody but those who know it. It is refused while a replica is alive that it would not serve.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from itertools import accumulate, groupby
from zlib import crc32

from asyncpg.exceptions import (
    ConnectionDoesNotExistError,
    DeadlockDetectedError,
    DuplicateTableError,
    IdleInTransactionSessionTimeoutError,
    InterfaceError,
    InternalClientError,
    LockNotAvailableError,
    QueryCanceledError,
)
from msgspec import Struct

from dragoman.store.api import OutcomeUnknown, StoreError, StoreReadOnly
from dragoman.store.postgres.database.address import Address
from dragoman.store.postgres.database.connection import DatabaseConnection, close
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import FOLDER, in_schema
from dragoman.store.postgres.database.translation import FAILURES, translate

log = logging.getLogger("dragoman.store")

MAKES, MIGRATES = 0x64726167, 0x64726168
"""The first halves of the numbers of our advisory locks, which tell them from the locks of other programs. A program of
version 1 waits for the first one in a statement, so that it is held only while a new store is made."""

MIGRATION_S = 3600.0
"""How long an expand step is tried, and how long other replicas wait for the one that migrates."""

BUILD_S = 86_400.0
"""How long an index may take, which disturbs nobody."""

BRIEF_S = 0.7
"""How long an expand step may take from its first statement to its commit. Writers wait for at most that long."""

BRIEF = """
SET LOCAL lock_timeout = '300ms'; SET LOCAL statement_timeout = '600ms';
SET LOCAL idle_in_transaction_session_timeout = '600ms'
"""
"""The server's own bounds for each wait and each statement of an expand step, and each pause of the program in it."""

BUSY = LockNotAvailableError, QueryCanceledError, DeadlockDetectedError, TimeoutError
"""An attempt at an expand step took too long."""

ENDED = IdleInTransactionSessionTimeoutError, ConnectionDoesNotExistError, InterfaceError, InternalClientError
"""The server ended the session of a program that stood still in an expand step."""

PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Pauses between the attempts of an expand step, in which the writers that waited go on. The last one is repeated."""

LOOK_S = 0.2
"""Pause between two looks at a migration that somebody else does."""

KEEP_S = 5.0
"""How often a long build says something on the connection that holds the turn, so that nothing closes it as idle."""

TURN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL idle_in_transaction_session_timeout = '60s'
"""

ANYTHING = "SELECT 1"
"""Keeps the turn. As a simple query it also ends what a statement with values leaves open, and with it the snapshot for
which the build of an index would wait."""

INDEX = re.compile(r"CREATE INDEX CONCURRENTLY (\w+) ON dragoman\.\w+[^;]*;?")

FIND_INDEX = """
SELECT i.indisvalid, EXISTS (SELECT 1 FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid)
FROM pg_index i WHERE i.indexrelid = to_regclass($1)
"""

FIND_OLDEST = """
SELECT a.pid, a.application_name, extract(epoch FROM clock_timestamp() - a.xact_start)::int
FROM pg_stat_activity a WHERE a.xact_start IS NOT NULL AND a.datname = current_database() AND a.pid IN (
    SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relnamespace = $1::regnamespace)
ORDER BY a.xact_start LIMIT 1
"""

FIND_UNSERVED = """
SELECT id, address FROM dragoman.replicas r WHERE NOT dead AND beats_until > clock_timestamp()
    AND coalesce((to_jsonb(r) ->> 'knows')::int, 1) < $1 ORDER BY started LIMIT 1
"""
"""Tables before version 3 have no column `knows`."""

VERSION = """
CREATE TABLE dragoman.schema_version (version integer NOT NULL, serves integer NOT NULL);
INSERT INTO dragoman.schema_version VALUES (0, 0);
"""
"""One row: the version of the tables, and the oldest program that may use them, by the version that it knows."""

NOTE_VERSION = "UPDATE dragoman.schema_version SET version = $1, serves = greatest(serves, $2) WHERE version < $1"

SERVES = re.compile(r"^-- serves: (\d+)$", re.MULTILINE)


class PostgresMigration(Struct, frozen=True):
    """One step: the version that the tables have after it, and the oldest program, by version, that it still serves."""

    version: int
    serves: int
    sql: str

    @property
    def index(self) -> str | None:
        """The index that the step builds concurrently; None for one that is a transaction."""
        found = INDEX.fullmatch(_bare(self.sql))
        return None if found is None else found[1]


def migrations() -> tuple[PostgresMigration, ...]:
    """All steps in order. They ship beside this module as `0001_what.sql`."""
    found = (entry for entry in (files(FOLDER) / "migrations").iterdir() if entry.name.endswith(".sql"))
    return steps_of({entry.name: entry.read_text(encoding="utf-8") for entry in found})


def steps_of(texts: Mapping[str, str]) -> tuple[PostgresMigration, ...]:
    """The steps that are in files, by name. Files with the same number are one step, in the order of their names.

    A step that earlier programs can work with says so in a line `-- serves: <version>` of one of its files.
    """
    steps = []
    for number, names in groupby(sorted(texts), key=lambda name: name[:4]):
        version, sql = int(number), "\n".join(texts[name] for name in names)
        serves = SERVES.search(sql)
        steps.append(PostgresMigration(version, version if serves is None else int(serves[1]), sql))
    return tuple(steps)


async def migrated(pool: Pool) -> bool:
    """Whether the schema has tables of any version. Raises StoreError if the database cannot be asked."""
    (row,) = await pool.read("SELECT to_regclass($1) IS NOT NULL", f'"{pool.address.schema}".schema_version')
    return bool(row[0])


async def migrate(pool: Pool, steps: tuple[PostgresMigration, ...]) -> None:
    """Apply the missing steps, one after the other.

    If several programs start at once, one does it, and the others wait. A program whose steps are all there waits
    for nobody. Raises StoreError, naming the fix, if the tables do not serve this program any more, if they would not
    serve a replica that is alive, or if the user may not change them. Nothing is written then.
    """
    newest, schema = steps[-1].version, pool.address.schema
    try:
        if await _read_version(pool, newest) >= newest:
            return
        async with _turn(pool, newest) as turn:
            if turn is None:
                return
            version = await _read_version(pool, newest) or await _make(pool, steps)
            if version >= newest:
                return
            await _check_served(pool, max(step.serves for step in steps))
            log.info("%s: migrating its tables from version %d to %d", pool.address.shown, version, newest)
            for step, serves in zip(steps, accumulate((step.serves for step in steps), max), strict=True):
                if step.version > version:
                    await _check_served(pool, serves)  # one may have started meanwhile
                    if step.index is None:
                        await _expand(pool, step, serves)
                    else:
                        await _build(pool, turn, step, step.index, serves)
            log.info("%s: its tables are of version %d", pool.address.shown, newest)
    except StoreReadOnly as error:
        owners = await pool.read("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = $1", schema)
        raise _may_not(pool.address, owners[0][0] if owners else None, error) from error


# -- whose turn it is --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _turn(pool: Pool, newest: int) -> AsyncIterator[DatabaseConnection | None]:
    """The connection whose transaction holds the lock of those who migrate. None: another program has done it all.

    The transaction does nothing else. Nobody waits within a statement for the lock: the build of an index waits for
    every statement that began before it, and so for ever for one that waits for the end of the build.
    """
    connection = await pool.connect()
    deadline_s, told = time.monotonic() + MIGRATION_S, False
    try:
        while True:
            await connection.execute(TURN)
            lock = MIGRATES, _number(pool.address)
            if await connection.fetchval("SELECT pg_try_advisory_xact_lock($1, $2)", *lock):
                await connection.execute(ANYTHING)
                yield connection
                return
            await connection.execute("ROLLBACK")
            if await _read_version(pool, newest) >= newest:
                yield None
                return
            if time.monotonic() > deadline_s:
                raise StoreError(f"another program has been migrating {pool.address.shown} for an hour: see its log")
            if not told:
                log.info("%s: another program migrates the tables; waiting for it", pool.address.shown)
                told = True
            await asyncio.sleep(LOOK_S)
    except FAILURES as error:
        raise translate(error, pool.address.shown) from error
    finally:
        await close(connection)


async def _read_version(pool: Pool, known: int) -> int:
    """The version of the tables; 0 if there are none. Raises StoreError if they do not serve who knows only `known`."""
    if not await migrated(pool):
        return 0
    ((version, serves),) = await pool.read(
        in_schema("SELECT version, serves FROM dragoman.schema_version", pool.address.schema)
    )
    check_version(pool.address, version, serves, known)
    return int(version)


def check_version(address: Address, version: int, serves: int, known: int) -> None:
    """Raises StoreError if tables of `version`, which serve programs from `serves` on, do not serve one of `known`."""
    if serves > known:
        raise StoreError(
            f"the tables of PostgreSQL at {address.shown} are of version {version}, this program knows {known}: use a "
            "newer dragoman"
        )


async def _check_served(pool: Pool, serves: int) -> None:
    """Raises StoreError if a replica is alive whose program knows only tables before the version `serves`."""
    if serves == 1:
        return
    found = await pool.read(in_schema(FIND_UNSERVED, pool.address.schema), serves)
    if found:
        replica, address = found[0]
        raise StoreError(
            f"the replica {replica} at {address} is of a release that does not know the tables that this one needs: "
            "stop it, and all others of its release, then start this one"
        )


# -- steps -------------------------------------------------------------------------------------------------------------


async def _make(pool: Pool, steps: tuple[PostgresMigration, ...]) -> int:
    """Make the tables of a new store, in one transaction, since nobody uses them yet. Returns their version.

    It is an earlier one if a program that knows only that has made them at the same moment.
    """
    schema = pool.address.schema
    async with pool.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        lock = MAKES, _number(pool.address)
        await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", *lock, timeout=MIGRATION_S)
        if await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".schema_version') is not None:
            version = await connection.fetchval(in_schema("SELECT version FROM dragoman.schema_version", schema))
            return int(version)
        if await connection.fetchval("SELECT true FROM pg_tables WHERE schemaname = $1", schema):
            raise StoreError(
                f"the schema {schema} of PostgreSQL at {pool.address.shown} belongs to another program: add "
                "?schema=NAME to the url"
            )
        if not await connection.fetchval("SELECT true FROM pg_namespace WHERE nspname = $1", schema):
            await connection.execute(f'CREATE SCHEMA "{schema}"')
        sql = [VERSION, *(step.sql.replace(" CONCURRENTLY ", " ") for step in steps)]
        await connection.execute(in_schema("\n".join(sql), schema), timeout=MIGRATION_S)
        values = steps[-1].version, max(step.serves for step in steps)
        await connection.execute(in_schema(NOTE_VERSION, schema), *values)
    return steps[-1].version


async def _expand(pool: Pool, step: PostgresMigration, serves: int) -> None:
    """Apply a step in one short transaction; as often as it takes until all its locks are free at once."""
    schema, deadline_s, attempts = pool.address.schema, time.monotonic() + MIGRATION_S, 0
    while True:
        try:
            async with pool.transaction() as connection:
                await connection.execute(BRIEF)
                await connection.execute(in_schema(step.sql, schema), timeout=BRIEF_S)
                await connection.execute(in_schema(NOTE_VERSION, schema), step.version, serves)
            return
        except OutcomeUnknown:
            if await _read_version(pool, step.version) >= step.version:
                return
        except StoreError as error:
            if not isinstance(error.__cause__, (*BUSY, *ENDED)) or time.monotonic() > deadline_s:
                raise
            if not attempts and isinstance(error.__cause__, BUSY):
                log.warning(
                    "%s: step %d of the tables waits for a lock%s; it is tried again until that is free, and nobody "
                    "waits for it meanwhile",
                    pool.address.shown,
                    step.version,
                    await _oldest(pool),
                )
        await asyncio.sleep(PAUSES_S[min(attempts, len(PAUSES_S) - 1)])
        attempts += 1


async def _oldest(pool: Pool) -> str:
    """The oldest transaction that uses the tables, in words for the log; empty if none is seen."""
    found = await pool.read(FIND_OLDEST, f'"{pool.address.schema}"')
    if not found:
        return ""
    pid, application, age_s = found[0]
    return f" (the oldest transaction on the tables is that of process {pid}, {application!r}, {age_s} s old)"


async def _build(pool: Pool, turn: DatabaseConnection, step: PostgresMigration, index: str, serves: int) -> None:
    """Build an index beside writers.

    The server finishes a build whose program was killed, if it is not killed itself. So an index that is not valid is
    waited for while somebody works on it, and is dropped otherwise.
    """
    address = pool.address
    began_s, name = time.monotonic(), f'"{address.schema}".{index}'
    log.info("%s: building the index %s; nobody waits for it", address.shown, index)
    while not (found := await pool.read(FIND_INDEX, name)) or not found[0][0]:
        if not found:
            try:
                await _run_alone(pool, turn, in_schema(_bare(step.sql), address.schema), "0")
            except DuplicateTableError:
                pass  # a killed program's build has just begun
        elif found[0][1]:
            await turn.execute(ANYTHING)
            await asyncio.sleep(LOOK_S)
        else:
            log.info("%s: the build of the index %s was cut off; it begins again", address.shown, index)
            try:
                await _run_alone(pool, turn, f"DROP INDEX CONCURRENTLY IF EXISTS {name}", "2s")
            except LockNotAvailableError:
                pass  # somebody works on it after all
    await pool.write(in_schema(NOTE_VERSION, address.schema), step.version, serves)
    log.info("%s: built the index %s in %.1f s", address.shown, index, time.monotonic() - began_s)


async def _run_alone(pool: Pool, turn: DatabaseConnection, sql: str, lock_timeout: str) -> None:
    """Run a statement that may not be in a transaction, on a connection of its own, and keep the turn meanwhile.

    Raises one of FAILURES. Behind a proxy the limits of the role hold, because a setting would reach other sessions.
    """
    connection = await pool.connect()
    try:
        if not pool.proxied:
            await connection.execute(f"SET statement_timeout = 0; SET lock_timeout = '{lock_timeout}'")
        running = asyncio.ensure_future(connection.execute(sql, timeout=BUILD_S))
        try:
            while not (await asyncio.wait({running}, timeout=KEEP_S))[0]:
                await turn.execute(ANYTHING)
        finally:
            running.cancel()
        await running
    finally:
        await close(connection)


def _number(address: Address) -> int:
    """The second half of a lock's number: each schema has its own."""
    return crc32(address.schema.encode()) >> 1


def _bare(sql: str) -> str:
    return "\n".join(line for line in sql.splitlines() if not line.startswith("--")).strip()


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
