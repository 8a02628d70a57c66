"""Opening SQLite: where a url points, how connections are set, and the lock that keeps other processes out.

Invariant: a connection from here never answers "busy": a file is in WAL mode, where readers and the one writer do not
meet; in memory, where they do, every transaction holds the `gate`. A command that writes beside a server writes a few
rows at a time, far below the timeout.
"""

import ctypes
import fcntl
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from uuid import uuid4

import apsw
from msgspec import Struct

from dragoman.store.api import StoreError, StoreFull, StoreReadOnly

CHECKPOINT_PAGES = 12000
"""The WAL is folded into the file when it is this long (48 MB): a stall of 10 to 30 ms. What a thousand streams write
again and again, 80 MB a second, is copied a third as often as with a third of it."""

WAL_KEPT_BYTES = 64 << 20
"""What a large file part leaves of the WAL on the disk."""

MEMORY_LIMIT_BYTES = 1 << 40
"""SQLite's own limit for a database in memory is 1 GB; this leaves it to the machine."""


STATEMENTS_MAX = 800
"""That are kept prepared: what is written of many rows at once is another one for each number of rows, up to 32."""

CACHE_KB = 4_000
"""Of each connection: what a thousand tasks that stream write to. A page that is not there is read from the WAL again,
which costs less than memory that a single task of 10 MB would fill."""


class InUse(StoreError):
    """Another process has the file: its id is `owner`."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(
            f"store file {path} is in use by another server (process {owner}): stop it, or use another file"
        )
        self.owner = owner


class Location(Struct, frozen=True):
    """Where a store is. `path` is None for one in memory; `uri` is how SQLite spells it."""

    url: str
    uri: str
    path: Path | None

    def gate(self) -> AbstractContextManager[object]:
        """What a transaction holds while it runs: nothing for a file, a lock in memory."""
        return nullcontext() if self.path else threading.Lock()


def locate(url: str) -> Location:
    """Where `url` points. Raises StoreError, naming the fix, if it is no url of this driver."""
    if url == "memory:":
        return Location(url, f"file:/dragoman-{uuid4()}?vfs=memdb", None)
    scheme, _, name = url.partition(":///")
    if scheme != "sqlite" or not name or name.endswith("/") or "\0" in name or "?" in name:
        raise StoreError(f"store url {url!r}: use sqlite:///path, sqlite:////absolute/path or memory:")
    return Location(url, name, Path(name))


def connect(location: Location, *, readonly: bool = False) -> apsw.Connection:
    """A connection to `location`, set up for its part: the writer's, or one that only reads."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    if location.path is None:
        flags |= apsw.SQLITE_OPEN_URI
    elif not location.path.exists():
        _make_private(location.path)
    connection = apsw.Connection(location.uri, flags=flags, statementcachesize=STATEMENTS_MAX)
    connection.set_busy_timeout(10_000)
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
    """An empty file that is its owner's only, since keys will be in it; SQLite gives the WAL the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # SQLite will say why


def note_server(path: Path, url: str) -> None:
    """Write down where the server is reached that has the store open, below its process id, for commands beside it."""
    try:
        with _lock_file(path).open("a", encoding="utf-8") as file:
            file.write(f"{url}\n")
    except OSError:
        pass  # a command then says what the configuration says


def noted_server(path: Path) -> str | None:
    """What was noted last; a server that has stopped meanwhile was there. None if nothing was."""
    try:
        lines = _lock_file(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return lines[-1] if len(lines) > 1 else None


def _lock_file(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


class ProcessLock:
    """The right of one process to a file; the kernel takes it back when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        """Take it. Raises InUse if another process has it, StoreError if the directory cannot be written."""
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
        """Let the next process have it."""
        os.close(self._descriptor)


def translated(error: apsw.Error, location: Location) -> StoreError:
    """What the driver said, as the store says it."""
    if isinstance(error, apsw.FullError):
        return StoreFull(f"store {location.url!r} is full: free some space")
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError):
        return StoreReadOnly(f"store file {location.path}: {error}: run this as the user whose file it is")
    if isinstance(error, apsw.NotADBError):
        return StoreError(f"store file {location.path} is no SQLite database: use another path")
    return StoreError(f"store {location.url!r}: {error}")
