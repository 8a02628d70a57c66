"""The SQL of the driver: its statements, the migrations of the tables, and the checks of a file.

Invariant: all SQL is in the files that are read here, except BEGIN, COMMIT and pragmas. A migration goes forward only
and is one transaction together with its number (`PRAGMA user_version`), so a file is always at exactly one version.
"""

import logging
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec import Struct

from dragoman.store.api import StoreError
from dragoman.store.codec import Codec, DamagedRow
from dragoman.store.sql.statements import covers, split_statements, statements_for_sqlite
from dragoman.store.sqlite.connection import InUse, Location, ProcessLock, connect, fetch, locate, translated

log = logging.getLogger("dragoman.store")

ROWS = re.compile(r"ROWS\((\d+)\)")
INSERTED = re.compile(r"(?<!\()VALUES ROWS\(\d+\)")
PAUSED = re.compile(r"PAUSED\(([\w.]+)\)")
GUARD = re.compile(r"GUARD\((\S+), (\S+), (\S+), (\S+), (\S+), (\S+), (\S+)\)")

GUARDED = "EPOCH", "EXPECTED", "READ", "WRITE", "WEBHOOKS", "LEASE", "STATE"
"""The names of the values in the guard, in the order in which a statement gives them."""

T = TypeVar("T")


def _reading(read: Callable[[Codec, bytes], T], otherwise: T) -> Callable[[bytes], T]:
    """A function of encoded bytes. Those that cannot be decoded must not keep a file from being migrated."""

    def function(data: bytes) -> T:
        try:
            return read(Codec(), data)
        except DamagedRow:
            return otherwise

    return function


FUNCTIONS: dict[str, Callable[..., int | str | None]] = {
    "parent_of": _reading(lambda codec, head: codec.head(head).parent, None),
    "deadline_of": _reading(lambda codec, head: codec.head(head).deadline_ms, None),
    "detached": _reading(lambda codec, head: int(codec.head(head).detached), 0),
    "dialect_of": _reading(lambda codec, head: codec.head(head).dialect, ""),
    "text_of_page": _reading(Codec.text_of_page, ""),
    "text_of_record": _reading(Codec.text_of_record, ""),
}
"""SQL functions for migrations that read encoded values."""


# -- statements --------------------------------------------------------------------------------------------------------


def read_statements(name: str = "queries.sql") -> dict[str, str]:
    """Read every statement of the file `name`, by its own name, without the comments, with its markers written out.

    `PAUSED(host)` says whether a host is paused.
    """
    text = (files(__package__) / name).read_text(encoding="utf-8")
    statements = {name: _paused(sql) for name, sql in split_statements(text).items()}
    guard = statements.get("guard", "")
    return {name: GUARD.sub(lambda hit: _guard(guard, hit), sql) for name, sql in statements.items()}


def for_rows(sql: str, count: int) -> str:
    """`sql` with its marker `ROWS(n)` written out for `count` rows of n values.

    If there are several, it takes no row whose first value is null, so that some may be filled up with nulls. There are
    no spaces between them, since apsw hashes the whole text at each execution.
    """
    if count > 1:
        sql = INSERTED.sub(lambda hit: f"SELECT * FROM ({hit[0]}) v WHERE v.column1 IS NOT NULL", sql)
    return ROWS.sub(lambda hit: ",".join(["(" + ",".join("?" * int(hit[1])) + ")"] * count), sql)


def _paused(sql: str) -> str:
    return PAUSED.sub(lambda hit: f"EXISTS (SELECT 1 FROM paused_hosts q WHERE {covers('q.name', hit[1])})", sql)


def _guard(guard: str, hit: re.Match[str]) -> str:
    for name, value in zip(GUARDED, hit.groups(), strict=True):
        guard = guard.replace(name, value)
    return guard


# -- migrations --------------------------------------------------------------------------------------------------------


class SqliteMigration(Struct, frozen=True):
    """One step: the version a file has after it, and the SQL."""

    version: int
    name: str
    sql: str


def migrations() -> tuple[SqliteMigration, ...]:
    """All steps in order. They ship beside this module as `0001_what.sql`."""
    found = (entry for entry in (files(__package__) / "migrations").iterdir() if entry.name.endswith(".sql"))
    steps = [SqliteMigration(int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8")) for entry in found]
    return tuple(sorted(steps, key=lambda step: step.version))


def migrate(connection: apsw.Connection, location: Location, steps: tuple[SqliteMigration, ...]) -> None:
    """Apply the missing steps. Raises StoreError if the file is newer than this program, or is another program's."""
    version = int(connection.pragma("user_version"))
    newest = steps[-1].version
    if version > newest:
        raise StoreError(
            f"store file {location.path} is of version {version}, this program knows {newest}: use a newer dragoman"
        )
    if not version and int(connection.pragma("schema_version")):
        raise StoreError(f"store file {location.path} belongs to another program: use another path")
    if 0 < version < newest:
        log.info("store file %s: migrating its tables from version %d to %d", location.path, version, newest)
    if steps[version:]:
        for name, function in FUNCTIONS.items():
            connection.create_scalar_function(name, function, 1, deterministic=True)
    for step in steps[version:]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(step.sql)
            connection.execute(f"PRAGMA user_version = {step.version}")
            connection.execute("COMMIT")
        except apsw.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, apsw.FullError):
                raise translated(error, location) from error
            raise StoreError(f"store {location.url!r}: migration {step.name} failed: {error}") from error
    if 0 < version < newest:
        log.info("store file %s: its tables are of version %d", location.path, newest)


def migrate_beside(location: Location, path: Path, steps: tuple[SqliteMigration, ...]) -> None:
    """Migrate a file that a server may have open; if one has, only check the version.

    Raises StoreError if the server's tables have another version than this program, apsw.Error if the file cannot be
    read.
    """
    version = _version(location) if path.exists() else 0
    if version == steps[-1].version:
        return
    try:
        lock = ProcessLock(path)
    except InUse as error:
        raise StoreError(
            f"store file {path} is of version {version}, this program is for {steps[-1].version}, and a server "
            f"(process {error.owner}) has it: use the dragoman of that server, or stop it first"
        ) from error
    try:
        connection = connect(location)
        try:
            migrate(connection, location, steps)
        finally:
            connection.close()
    finally:
        lock.release()


def _version(location: Location) -> int:
    connection = connect(location, readonly=True)
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


# -- checks ------------------------------------------------------------------------------------------------------------


def check(path: Path) -> list[str]:
    """Return one line for each fault in the file at `path`; none if all is well. It only reads.

    Counters match rows, logs have no gaps, nothing belongs to a missing task. Raises StoreError or apsw.Error if the
    file cannot be read.
    """
    checks = read_statements("checks.sql") | statements_for_sqlite(checks=True)
    connection = connect(locate(f"sqlite:///{path}"), readonly=True)
    try:
        return [f"{name}: {row}" for name, sql in checks.items() for row in fetch(connection.cursor(), sql)]
    finally:
        connection.close()
