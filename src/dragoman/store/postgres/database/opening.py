"""Opens a database: checks it, brings its tables up to date, and returns the pool of its connections.

Invariant: a database that cannot work is refused before anything is written, in one line that names the fix. After a
refusal no connection stays open.
"""

import logging
import os
import time

import asyncpg
from asyncpg.exceptions import (
    InvalidAuthorizationSpecificationError,
    InvalidCatalogNameError,
    InvalidPasswordError,
    UndefinedObjectError,
)
from msgspec import Struct

from dragoman.store.api import StoreError
from dragoman.store.postgres.database.address import Address
from dragoman.store.postgres.database.connection import close
from dragoman.store.postgres.database.history import HistoryCount
from dragoman.store.postgres.database.migrations import migrate, migrated, migrations
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.translation import FAILURES

log = logging.getLogger("dragoman.store")

OLDEST = 15
"""The oldest major version with which this was tested, and that PostgreSQL's makers support at the time of writing."""

APART_MAX_MS = 60_000
"""How far the clock of this machine may be from the database's. Tasks have the database's time, but tokens, signatures
and webhooks are dated by this machine, and their readers grant about a minute."""

ASK = """
SELECT current_setting('server_version_num')::int / 10000 AS major,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('default_transaction_isolation') AS isolation,
       current_setting('server_encoding') AS encoding,
       current_setting('transaction_read_only') AS read_only,
       current_setting('fsync') AS fsync,
       extract(epoch FROM clock_timestamp())::float8 * 1000 AS now_ms
"""


class PostgresDoor:
    """Gives out the pool of the store at `address` while that is open."""

    __slots__ = ("_address", "_pool")

    def __init__(self, address: Address) -> None:
        self._address = address
        self._pool: Pool | None = None

    def __call__(self) -> Pool:
        """The pool that is open now. Raises StoreError if none is."""
        if self._pool is None:
            raise self.not_open()
        return self._pool

    def open(self, pool: Pool) -> None:
        """Give out `pool` from now on."""
        self._pool = pool

    def close(self) -> None:
        """Give out nothing any more."""
        self._pool = None

    def not_open(self) -> StoreError:
        """The error of whoever uses a store that is not open."""
        return StoreError(f"store {self._address.shown!r} is not open")


async def open_pool(address: Address, history: HistoryCount | None = None, *, make: bool = True) -> Pool:
    """The connections to the database at `address`, whose tables have the version of this program or a later one.

    Raises StoreError, naming the fix; also if there is no store yet, unless `make` lets it be made.
    """
    pool = Pool(address, history)
    try:
        await check_server(pool)
        if not make and not await migrated(pool):
            raise StoreError(
                f"there is no store in the schema {address.schema} of PostgreSQL at {address.shown}: name the one that "
                "the servers use; the first of them makes it when it starts"
            )
        await migrate(pool, migrations())
    except BaseException:
        await pool.close()
        raise
    return pool


class DatabaseFacts(Struct, frozen=True):
    """A server's description of itself. This machine's clock is at least `apart_ms` ahead of it."""

    major: int
    synchronous_commit: str
    isolation: str
    encoding: str
    read_only: bool
    apart_ms: float


def refusal(facts: DatabaseFacts, address: Address) -> str | None:
    """Why a server cannot be used, with the fix; None if it can."""
    at, user = f"PostgreSQL at {address.shown}", f'"{address.user}"'
    if facts.major < OLDEST:
        return f"{at} is of version {facts.major}: use version {OLDEST} or later"
    if facts.encoding != "UTF8":
        return f"{at} has the encoding {facts.encoding}: make the database with ENCODING 'UTF8' TEMPLATE template0"
    if facts.synchronous_commit == "off":
        return (
            f"{at} has synchronous_commit off, so that it forgets what callers were told: run "
            f"ALTER ROLE {user} SET synchronous_commit = on"
        )
    if facts.isolation != "read committed":
        return (
            f"{at} has default_transaction_isolation {facts.isolation!r}: run "
            f"ALTER ROLE {user} SET default_transaction_isolation = 'read committed'"
        )
    if facts.read_only:
        return (
            f"{at} has default_transaction_read_only on, so that it takes no writes: run "
            f"ALTER ROLE {user} SET default_transaction_read_only = off, or name another server in the url"
        )
    if abs(facts.apart_ms) > APART_MAX_MS:
        ahead = "ahead of" if facts.apart_ms > 0 else "behind"
        return f"the clock of this machine is {abs(facts.apart_ms) / 1000:.0f} s {ahead} that of {at}: set both by NTP"
    return None


async def check_server(pool: Pool) -> None:
    """Raises StoreError, naming the fix, if the database cannot be reached or used."""
    try:
        connection = await pool.connect()
    except StoreError as error:
        raise _unreachable(error, pool.address) from error
    try:
        before_ms = time.time_ns() / 1e6
        row = await connection.fetchrow(ASK)
        apart_ms = _apart(row["now_ms"], before_ms, time.time_ns() / 1e6)
    except FAILURES as error:
        raise _unreachable(error, pool.address) from error
    finally:
        await close(connection)
    facts = DatabaseFacts(
        row["major"], row["synchronous_commit"], row["isolation"], row["encoding"], row["read_only"] == "on", apart_ms
    )
    fault = refusal(facts, pool.address)
    if fault is not None:
        raise StoreError(fault)
    if row["fsync"] == "off":
        log.warning("%s has fsync off: stored data may not survive a crash of its machine", pool.address.shown)


def _apart(database_ms: float, before_ms: float, after_ms: float) -> float:
    if before_ms <= database_ms <= after_ms:
        return 0
    return before_ms - database_ms if database_ms < before_ms else after_ms - database_ms


def _unreachable(error: Exception, address: Address) -> StoreError:
    """The error for a database that cannot be reached, in words of the url."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    match cause:
        case InvalidCatalogNameError():
            return StoreError(
                f"PostgreSQL at {address.shown} has no database {address.database!r}: run "
                f'CREATE DATABASE "{address.database}" OWNER "{address.user}"'
            )
        case InvalidPasswordError():
            return StoreError(
                f"PostgreSQL at {address.shown} refuses the password of {address.user!r}: correct it in the url, or in "
                "PGPASSWORD or ~/.pgpass"
            )
        case InvalidAuthorizationSpecificationError():
            return StoreError(f"PostgreSQL at {address.shown} refuses {address.user!r}: {cause}")
        case UndefinedObjectError():  # PostgreSQL takes what is left of the query as its own settings
            return StoreError(f"store url {address.shown!r}: {cause}: correct its query")
        case asyncpg.InterfaceError():
            return StoreError(f"store url {address.shown!r}: {' '.join(str(cause).split())}")  # has lines of hints
        case FileNotFoundError() if "ssl" in address.dsn:  # it has no name: the file is read by OpenSSL
            return StoreError(f"store url {address.shown!r}: a file that its ssl… settings name is not there")
        case OSError():
            refused = isinstance(cause, ConnectionError) and cause.errno
            said = os.strerror(refused) if refused else cause.strerror or str(cause) or "no answer"
            return StoreError(f"PostgreSQL at {address.shown} cannot be reached ({said}): start it, or correct the url")
    return error if isinstance(error, StoreError) else StoreError(f"PostgreSQL at {address.shown}: {error}")
