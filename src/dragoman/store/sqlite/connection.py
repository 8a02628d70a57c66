"""Opens SQLite: resolves the url, sets up connections, and holds the lock that keeps other processes out.

Invariant: a connection from here never answers "busy". A file is in WAL mode, where readers and the one writer do not
block each other; in memory, where they would, every transaction holds the `gate`. A command that writes beside a server
writes a few rows at a time, far below the timeout.
"""

import ctypes
import fcntl
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
from msgspec import Struct

from dragoman.store.api import StoreError, StoreFull, StoreReadOnly

CHECKPOINT_PAGES = 12000
"""The WAL is folded into the file at this length (48 MB), which stalls writes for 10 to 30 ms. A thousand streams
rewrite the same pages at 80 MB a second; at a third of this length these would be copied three times as often."""

WAL_KEPT_BYTES = 64 << 20
"""The WAL is cut back to this size after a large file part has made it longer."""

MEMORY_LIMIT_BYTES = 1 << 40
"""The limit of a database in memory. SQLite's own is 1 GB; this one leaves it to the machine."""


STATEMENTS_MAX = 512
"""Statements kept prepared, the most that apsw keeps. It forgets a statement that did not run among the last 512. A
busy server runs a dozen for each batch."""

CACHE_KB = 4_000
"""The page cache of each connection: the pages that a thousand streaming tasks write to. Reading another page from the
WAL again costs less than a cache that a single task of 10 MB would fill."""


class InUse(StoreError):
    """Another process holds the file: its process id is `owner`."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(
            f"store file {path} is in use by another server (process {owner}): stop it, or use another file (--store); "
            "several processes, such as the workers of uvicorn, share PostgreSQL only"
        )
        self.owner = owner


class Location(Struct, frozen=True):
    """The location of a store. `path` is None for one in memory; `uri` is the spelling for SQLite."""

    url: str
    uri: str
    path: Path | None

    def gate(self) -> AbstractContextManager[object]:
        """The guard that a transaction holds while it runs: none for a file, a lock in memory."""
        return nullcontext() if self.path else threading.Lock()


def locate(url: str) -> Location:
    """Resolve `url`. Raises StoreError, naming the fix, if the url is not one of this driver's."""
    if url == "memory:":
        return Location(url, f"file:/dragoman-{uuid4()}?vfs=memdb", None)
    scheme, _, name = url.partition(":///")
    if scheme != "sqlite" or not name or name.endswith("/") or "\0" in name or "?" in name:
        raise StoreError(f"store url {url!r}: use sqlite:///path, sqlite:////absolute/path or memory:")
    return Location(url, name, Path(name))


def connect(location: Location, *, readonly: bool = False) -> apsw.Connection:
    """Open a connection to `location`, set up as the writer's, or as one that only reads."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    if location.path is None:
        flags |= apsw.SQLITE_OPEN_URI
    elif not location.path.exists():
        _make_private(location.path)
    connection = apsw.Connection(location.uri, flags=flags, statementcachesize=STATEMENTS_MAX)
    connection.set_busy_timeout(10_000)
    # Plans do not depend on the values bound, else SQLite plans many statements anew at each execution, at seven times
    # the cost of a point read.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("trusted_schema", False)
    if readonly:
        connection.pragma("query_only", True)
        return connection
    if location.path is None:
        connection.pragma("journal_mode", "memory")
        limit = ctypes.c_int64(MEMORY_LIMIT_BYTES)
        connection.file_control("main", apsw.SQLITE_FCNTL_SIZE_LIMIT, ctypes.addressof(limit))
    else:
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        connection.pragma("journal_size_limit", WAL_KEPT_BYTES)
    connection.pragma("temp_store", "memory")
    connection.pragma("cache_size", -CACHE_KB)
    return connection


def _make_private(path: Path) -> None:
    """Create an empty file that only its owner may read, since it will hold keys. SQLite does the same for the WAL."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # SQLite will report the cause


def note_server(path: Path, url: str) -> None:
    """Write down the address of the server that has the store open, below its process id, for commands beside it."""
    try:
        with _lock_file(path).open("a", encoding="utf-8") as file:
            file.write(f"{url}\n")
    except OSError:
        pass  # commands then use the address of the configuration


def noted_server(path: Path) -> str | None:
    """The last noted address, whose server may have stopped meanwhile; None if none was noted."""
    try:
        lines = _lock_file(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return lines[-1] if len(lines) > 1 else None


def _lock_file(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


class ProcessLock:
    """The exclusive right of one process to a file. The kernel releases it when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises InUse if another process has it, StoreError if the directory cannot be written."""
        name = _lock_file(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StoreError(f"store file {path}: {error.strerror}: choose a path that can be written") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._descriptor, 20).decode("ascii", "replace").partition("\n")[0].strip() or "unknown"
            os.close(self._descriptor)
            raise InUse(path, owner) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # the disk is full: the lock holds without the process id, which only messages name

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def fetch(
    cursor: apsw.Cursor, sql: str, values: Sequence[Any] | Mapping[str, Any] = (), errors: str = "replace"
) -> list[Any]:
    """The rows that a query finds. A text that is no UTF-8 must not hide the others: what is wrong in it becomes �.

    `errors` may say otherwise, as for `bytes.decode`.
    """
    try:
        return cursor.execute(sql, values).fetchall()
    except UnicodeDecodeError:
        names = [f"c{number}" for number in range(len(cursor.connection.execute(sql, values).get_description()))]
        columns = ", ".join(
            f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name}), typeof({name})" for name in names
        )
        rows = cursor.execute(f"WITH r ({', '.join(names)}) AS ({sql}) SELECT {columns} FROM r", values)
        return [
            tuple(
                value.decode(errors=errors) if kind == "text" else value
                for value, kind in zip(row[::2], row[1::2], strict=True)
            )
            for row in rows
        ]


def translated(error: apsw.Error, location: Location) -> StoreError:
    """The driver's error as the store's."""
    if isinstance(error, apsw.FullError):
        return StoreFull(f"store {location.url!r} is full: free some space")
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError):
        if location.path is not None and location.path.is_dir():
            return StoreError(f"store file {location.path} is a folder: name a file in it")
        return StoreReadOnly(
            f"store file {location.path}: {error}: run this as the user whose file it is, in a folder that this user "
            "can write to"
        )
    if isinstance(error, apsw.NotADBError):
        return StoreError(f"store file {location.path} is no SQLite database: use another path")
    return StoreError(f"store {location.url!r}: {error}")
