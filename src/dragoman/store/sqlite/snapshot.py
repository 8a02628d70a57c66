"""Snapshots of a store file: a copy as of one moment, made while a server writes, and how a copy becomes a store again.

Invariant: a copy holds everything that was committed before one moment, and nothing that was committed later.
"""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from dragoman.model.parts import every_part
from dragoman.store.api import StoreError
from dragoman.store.blobs.api import BlobAddress
from dragoman.store.codec import Codec, DamagedRow
from dragoman.store.sqlite.connection import Location, connect, locate, translated
from dragoman.store.sqlite.schema import check, migrate, migrations, read_statements

STEP_PAGES = 1000
"""Pages copied at once (4 MB). Ctrl-C and the progress bar wait for as long."""

Show = Callable[[str, int, int], None]
"""Shows the progress of a stage: its name, how much is done, and of how much."""


class Totals(Struct, frozen=True):
    """The rows of a store file, counted. `events` are those of all logs; `files` have rows of their own."""

    tasks: int
    events: int
    files: int
    keys: int


class Contents(Struct, frozen=True):
    """A store file of schema `version`. `kid` is the id of its signing key; `owed` counts pending webhook calls."""

    version: int
    totals: Totals
    owed: int
    kid: str


def schema_version() -> int:
    """The version of the tables that this program writes."""
    return migrations()[-1].version


def take_snapshot(path: Path, target: Path, show: Show) -> None:
    """Copy the file at `path` as it is at this moment to a new file `target`, while others write.

    A read transaction holds the moment, so that no write makes the copy begin again; writers never wait for it. The
    write-ahead log is not folded beyond that moment until the copy ends, so it grows meanwhile. Raises StoreError.
    """
    location = _file(path)
    place = _file(target)
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        source = connect(location, readonly=True)
        try:
            source.execute("BEGIN")
            source.pragma("user_version")  # the moment
            _copy_pages(source, place, show)
            source.execute("COMMIT")
        finally:
            source.close()
    except apsw.FullError as error:
        raise translated(error, place) from error
    except apsw.Error as error:
        raise translated(error, location) from error


def _copy_pages(source: apsw.Connection, place: Location, show: Show) -> None:
    copy = apsw.Connection(place.uri)
    try:
        copy.pragma("synchronous", "off")  # the archive is synced, not this
        copy.pragma("journal_mode", "off")
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(STEP_PAGES)
                show("Copying", backup.page_count - backup.remaining, backup.page_count)
        copy.pragma("journal_mode", "delete")  # one file, without a write-ahead log
    finally:
        copy.close()


def read_contents(path: Path) -> Contents:
    """Count what the file at `path` holds. Raises StoreError if it is no store of Dragoman."""
    location = _file(path)
    sql = read_statements("backup.sql")
    try:
        connection = connect(location, readonly=True)
        try:
            version = int(connection.pragma("user_version"))
            if not version:
                raise StoreError(f"store file {path} has no tables of Dragoman: name the one that the server uses")
            tables = {name for (name,) in connection.execute(sql["tables"])}
            totals: Any = connection.execute(sql["totals"]).get
            owed: Any = connection.execute(sql["owed"]).get if "deliveries" in tables else 0
            keys: Any = connection.execute(sql["count_keys"]).get if "keys" in tables else 0
            kid: Any = connection.execute(sql["signing_key"]).get if "signing_keys" in tables else None
        finally:
            connection.close()
    except apsw.Error as error:
        raise translated(error, location) from error
    tasks, events, files = totals
    return Contents(version, Totals(tasks, events, files, keys), owed, kid or "")


def find_faults(path: Path) -> list[str]:
    """One line for each fault in the file at `path`; none if all is well.

    A file of an earlier version is only checked for what SQLite itself can tell. Raises StoreError.
    """
    location = _file(path)
    try:
        connection = connect(location, readonly=True)
        try:
            if int(connection.pragma("user_version")) != schema_version():
                told = connection.execute(read_statements("checks.sql")["pages"])
                return [f"pages: {row}" for row in told]
        finally:
            connection.close()
        return check(path)
    except apsw.Error as error:
        raise translated(error, location) from error


def stored_files(path: Path) -> Iterator[BlobAddress]:
    """The places in the blob store that the logs and snapshots in the file at `path` name, each once.

    Raises StoreError.
    """
    location = _file(path)
    codec = Codec()
    try:
        connection = connect(location, readonly=True)
        try:
            seen = set[str]()
            for head, content, is_page in connection.execute(read_statements("backup.sql")["stored_files"]):
                try:
                    if is_page:
                        parts = every_part(codec.events(content))
                    else:
                        parts = every_part((), codec.record(content, codec.head(head), lambda _: None))
                except DamagedRow:
                    continue  # a fault of its own: see `damage_check`
                for part in parts:
                    place = None if part.file is None else BlobAddress.read(part.file)
                    if place is not None and str(place) not in seen:
                        seen.add(str(place))
                        yield place
        finally:
            connection.close()
    except apsw.Error as error:
        raise translated(error, location) from error


def present_tasks(path: Path, task_ids: Collection[str]) -> set[str]:
    """Those of the tasks that the file at `path` has now. Raises StoreError."""
    location = _file(path)
    try:
        connection = connect(location, readonly=True)
        try:
            ids = msgspec.json.encode(sorted(task_ids)).decode()
            found: Any = connection.execute(read_statements("backup.sql")["present"], (ids,))
            return {task_id for (task_id,) in found}
        finally:
            connection.close()
    except apsw.Error as error:
        raise translated(error, location) from error


def revive(path: Path, *, drop_webhooks: bool) -> None:
    """Make a copy at `path` ready for a server: today's tables, no lease that counts, nothing in flight.

    With `drop_webhooks` the pending webhook calls are deleted. Raises StoreError, also if the file has faults.
    """
    location = _file(path)
    sql = read_statements("backup.sql")
    try:
        connection = connect(location)
        try:
            migrate(connection, location, migrations())
            names = ["void_leases", "forget_shared"]
            names += ["drop_owed", "settle_webhooks", "settle_hosts"] if drop_webhooks else ["void_all_claims"]
            with connection:
                for name in names:
                    connection.execute(sql[name])
            connection.pragma("wal_checkpoint", "truncate")
            connection.pragma("journal_mode", "delete")
        finally:
            connection.close()
        if faults := check(path):
            raise StoreError(f"the store in the backup has faults: {'; '.join(faults[:3])}: use another backup")
    except apsw.Error as error:
        raise translated(error, location) from error


def _file(path: Path) -> Location:
    return locate(f"sqlite:///{path}")
