"""Migrates the tables of a store file to the version of this program, forward only.

Invariant: each migration is one transaction together with its number (`PRAGMA user_version`), so a file is always at
exactly one version.
"""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import apsw
from msgspec import Struct

from dragoman.store.api import StoreError
from dragoman.store.sqlite.codec import Codec
from dragoman.store.sqlite.connection import InUse, Location, ProcessLock, connect, translated

FUNCTIONS: dict[str, Callable[..., int | str | None]] = {
    "parent_of": lambda head: Codec().head(head).parent,
    "deadline_of": lambda head: Codec().head(head).deadline_ms,
}
"""SQL functions for migrations that read encoded values."""


class Migration(Struct, frozen=True):
    """One step: the version a file has after it, and the SQL."""

    version: int
    name: str
    sql: str


def migrations() -> tuple[Migration, ...]:
    """All steps in order. They ship beside this module as `0001_what.sql`."""
    found = (entry for entry in (files(__package__) / "migrations").iterdir() if entry.name.endswith(".sql"))
    steps = [Migration(int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8")) for entry in found]
    return tuple(sorted(steps, key=lambda step: step.version))


def migrate(connection: apsw.Connection, location: Location, steps: tuple[Migration, ...]) -> None:
    """Apply the missing steps. Raises StoreError if the file is newer than this program, or is another program's."""
    version = int(connection.pragma("user_version"))
    newest = steps[-1].version
    if version > newest:
        raise StoreError(
            f"store file {location.path} is of version {version}, this program knows {newest}: use a newer dragoman"
        )
    if not version and int(connection.pragma("schema_version")):
        raise StoreError(f"store file {location.path} belongs to another program: use another path")
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


def migrate_beside(location: Location, path: Path, steps: tuple[Migration, ...]) -> None:
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
