"""The rows of a SQLite file, to copy them into another store, or from one.

Invariant: the file is locked while it is read or written, so that no server has it. A copy is made in a file beside the
store's, `<name>.copy`, which takes its place by a rename.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec

from dragoman.store.api import StoreError
from dragoman.store.files import digest_of
from dragoman.store.sql.statements import statements_for_sqlite
from dragoman.store.sqlite.connection import Location, ProcessLock, connect, fetch, locate, translated
from dragoman.store.sqlite.schema import check as check_path
from dragoman.store.sqlite.schema import migrate, migrations, read_statements
from dragoman.store.transfer import OF_TASKS, UNKNOWN_TEXTS, WHOLE, ColumnType, Row, Table

ORIGIN = "copy of"
"""The key under which an unfinished copy has the name of its source."""


class SqliteRows:
    """The rows of a file."""

    def __init__(
        self, location: Location, connection: apsw.Connection, lock: ProcessLock | None, *, errors: str = "replace"
    ) -> None:
        """`errors` says how texts are read that are no UTF-8."""
        path = location.path
        assert path is not None
        self.name = f"sqlite:{path.absolute()}"
        self._path = path
        self._location = location
        self._connection = connection
        self._lock = lock
        self._errors = errors
        self.sql = statements_for_sqlite() | read_statements("transfer.sql")

    async def count(self) -> int:
        """As the protocol says."""
        return int(self.value(self.sql["count_tasks"]))

    async def sizes(self, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """As the protocol says."""
        return self.fetch(self.sql["task_sizes"], (after, limit))

    async def rows(self, table: Table, after: Row | None, limit: int) -> Sequence[Row]:
        """As the protocol says."""
        return [_read(table, row) for row in self._next(table, ", ".join(table.columns), after, limit)]

    async def weigh(self, table: Table, after: Row | None, limit: int) -> Sequence[int]:
        """As the protocol says."""
        return [size for (size,) in self._next(table, f"octet_length({table.heavy})", after, limit)]

    def _next(self, table: Table, columns: str, after: Row | None, limit: int) -> list[Any]:
        keys = ", ".join(list(table.columns)[: table.keys])
        key = tuple(map(_key, after or ()))
        kinds = zip(key, table.columns.values(), strict=False)  # the columns of the key come first
        marks = ", ".join("CAST(? AS TEXT)" if kind is ColumnType.TEXT else "?" for _, kind in kinds)
        where = f"WHERE ({keys}) > ({marks})" if after is not None else ""
        return self.fetch(f"SELECT {columns} FROM {table.name} {where} ORDER BY {keys} LIMIT {limit}", key)

    async def rows_of(self, table: Table, tasks: tuple[int, int]) -> Sequence[Row]:
        """As the protocol says."""
        keys = ", ".join(list(table.columns)[: table.keys])
        where = "task BETWEEN ? AND ?"
        if table.of == "config":
            where = f"config IN (SELECT config FROM push_configs WHERE {where})"
        sql = f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE {where} ORDER BY {keys}"
        return [_read(table, row) for row in self.fetch(sql, tasks)]

    async def numbers(self) -> Mapping[str, int]:
        """As the protocol says."""
        return dict(self.fetch(self.sql["numbers"]))

    async def close(self) -> None:
        """As the protocol says."""
        self.release()

    def release(self) -> None:
        """Close the file."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a statement. Raises StoreError."""
        try:
            return fetch(self._connection.cursor(), sql, tuple(values), self._errors)
        except apsw.Error as error:
            raise translated(error, self._location) from error

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first value of the first row; None if there is none. Raises StoreError."""
        rows = self.fetch(sql, values)
        return rows[0][0] if rows else None


class SqliteCopy(SqliteRows):
    """A file beside the one whose place it takes at the end."""

    async def last_task(self) -> int:
        """As the protocol says."""
        return int(self.value(self.sql["last_task"]))

    async def last_key(self, table: Table) -> Row | None:
        """As the protocol says."""
        keys = list(table.columns)[: table.keys]
        order = ", ".join(f"{key} DESC" for key in keys)
        rows = self.fetch(f"SELECT {', '.join(keys)} FROM {table.name} ORDER BY {order} LIMIT 1")
        return tuple(rows[0]) if rows else None

    async def write(self, rows: Collection[tuple[Table, Sequence[Row]]]) -> None:
        """As the protocol says."""
        try:
            with self._connection:
                for table, some in rows:
                    self._insert(table, some)
        except apsw.Error as error:
            raise translated(error, self._location) from error

    async def clear(self) -> None:
        """As the protocol says."""
        with self._connection:
            for table in WHOLE + OF_TASKS:
                self.fetch(f"DELETE FROM {table.name}")

    async def finish(self, numbers: Mapping[str, int]) -> None:
        """As the protocol says."""
        with self._connection:
            for name in ("count_scopes", "count_contexts", "time_hosts", "forget_origin"):
                self.fetch(self.sql[name])
            for table, number in numbers.items():
                self.fetch(self.sql["add_number"], (table,))
                self.fetch(self.sql["raise_number"], (table, number))
        self._connection.pragma("wal_checkpoint", "truncate")
        self._connection.close()
        _take_place(self._path)

    def _insert(self, table: Table, rows: Sequence[Row]) -> None:
        columns, extra = list(table.columns), []
        if table.name == "files":
            extra = ["digest"]
        marks = ", ".join("?" * (len(columns) + len(extra)))
        sql = f"INSERT INTO {table.name} ({', '.join(columns + extra)}) VALUES ({marks})"
        values = (_written(table, row) for row in rows)
        if extra:
            values = ((*row, digest_of(row[2])) for row in values)
        self._connection.executemany(sql, values)


def open_source(url: str) -> SqliteRows:
    """The file at `url`. Raises StoreError if it is not there, or a server has it open."""
    location = _file(url)
    if location.path is None or not location.path.exists():
        raise StoreError(f"there is no store file {location.path}: name the one that the server uses")
    lock = ProcessLock(location.path)
    try:
        return SqliteRows(location, _connect(location), lock)
    except BaseException:
        lock.release()
        raise


def open_target(url: str, source: str, *, restart: bool) -> SqliteCopy:
    """A file that takes the place of the one at `url`, with what a killed copy of `source` has left.

    Raises StoreError if the store has data, if a server has it open, or if there is an unfinished copy of another
    source, which `restart` deletes.
    """
    location = _file(url)
    path = location.path
    assert path is not None
    lock = ProcessLock(path)
    try:
        if path.exists() and path.stat().st_size:
            connection = _connect(location)
            full = [table.name for table in WHOLE + OF_TASKS if _has_rows(connection, table)]
            connection.close()
            if full:
                raise StoreError(
                    f"store file {path} has data already ({', '.join(full)}): copy into a file that does not exist yet"
                )
        if restart:
            _delete(_copy_path(path))
        beside = locate(f"sqlite:///{_copy_path(path)}")
        copy = SqliteCopy(location, _connect(beside), lock)
    except BaseException:
        lock.release()
        raise
    origin = copy.value(copy.sql["origin"], (ORIGIN,))
    if origin is None:
        copy.fetch(copy.sql["note_origin"], (ORIGIN, source.encode()))
    elif bytes(origin).decode() != source:
        copy.release()
        raise StoreError(
            f"{_copy_path(path)} is an unfinished copy of {bytes(origin).decode()}: finish it, or add --restart"
        )
    return copy


def check(url: str) -> list[str]:
    """One line for each fault in the file at `url`, which a server may have open. Raises StoreError."""
    location = _file(url)
    if location.path is None or not location.path.exists():
        raise StoreError(f"there is no store file {location.path}: name the one that the server uses")
    try:
        return check_path(location.path)
    except apsw.Error as error:
        raise translated(error, location) from error


@contextmanager
def read_beside(path: Path) -> Iterator[SqliteRows]:
    """Yield the rows of a file of this version, as of one moment. A server may have it open. Raises StoreError."""
    location = locate(f"sqlite:///{path}")
    try:
        connection = connect(location, readonly=True)
        connection.execute("BEGIN")
    except apsw.Error as error:
        raise translated(error, location) from error
    rows = SqliteRows(location, connection, None, errors="surrogateescape")
    try:
        yield rows
    finally:
        rows.release()


def _file(url: str) -> Location:
    location = locate(url)
    if location.path is None:
        raise StoreError("store 'memory:' is in its server's own memory, out of reach of commands")
    return location


def _connect(location: Location) -> apsw.Connection:
    try:
        connection = connect(location)
        migrate(connection, location, migrations())
    except apsw.Error as error:
        raise translated(error, location) from error
    return connection


def _delete(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


def _take_place(path: Path) -> None:
    """Put the copy beside `path` in its place, for good."""
    _delete(path)
    _copy_path(path).replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _has_rows(connection: apsw.Connection, table: Table) -> bool:
    return bool(connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table.name})").get)


def _copy_path(path: Path) -> Path:
    return path.with_name(path.name + ".copy")


def _key(value: Any) -> Any:
    """A value of a key as a statement takes it: a text that is no UTF-8 goes as the bytes that it was read from."""
    if not isinstance(value, str) or value.isascii() or not any("\udc80" <= sign <= "\udcff" for sign in value):
        return value
    return value.encode(errors="surrogateescape")


def _read(table: Table, row: Sequence[Any]) -> Row:
    return tuple(
        value
        if value is None or kind not in (ColumnType.TRUTH, ColumnType.TEXTS)
        else bool(value)
        if kind is ColumnType.TRUTH
        else _texts(value)
        for value, kind in zip(row, table.columns.values(), strict=True)
    )


def _texts(spelled: str) -> list[str]:
    try:
        return msgspec.json.decode(spelled, type=list[str])
    except (msgspec.MsgspecError, ValueError):
        return UNKNOWN_TEXTS


def _written(table: Table, row: Row) -> Row:
    return tuple(
        msgspec.json.encode(value).decode() if kind is ColumnType.TEXTS and value is not None else value
        for value, kind in zip(row, table.columns.values(), strict=True)
    )
