"""ConnectionPool: the connections of an open store: the writer, the loop's own reader, and the readers on threads.

Invariant: a connection is used by one job at a time. A pool exists only between `open` and `close`; at other times the
door raises StoreError.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import apsw
from msgspec import Struct

from dragoman.store.api import StoreError
from dragoman.store.sqlite.connection import Location, translated
from dragoman.store.sqlite.reads import SqliteReads
from dragoman.store.sqlite.writer import SqliteWriter

T = TypeVar("T")


class Readers:
    """The threads and their connections."""

    THREADS = 2
    """During one long listing, one thread is left for the tails of streams. More would only compete for the GIL."""

    def __init__(self, reads: Sequence[SqliteReads], location: Location) -> None:
        self._location = location
        self._idle: SimpleQueue[SqliteReads] = SimpleQueue()
        for one in reads:
            self._idle.put(one)
        self._all = tuple(reads)
        self._pool = ThreadPoolExecutor(len(reads), thread_name_prefix="store-reader")

    async def run(self, job: Callable[[SqliteReads], T]) -> T:
        """Run `job` with a connection on one of the threads. Raises StoreError if SQLite cannot read."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._job, job)
        except apsw.Error as error:
            raise translated(error, self._location) from error

    def close(self) -> None:
        """Finish the jobs under way, and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for reads in self._all:
            reads.connection.close()

    def _job(self, job: Callable[[SqliteReads], T]) -> T:
        reads = self._idle.get()
        try:
            return job(reads)
        finally:
            self._idle.put(reads)


class ConnectionPool(Struct, frozen=True):
    """The writer, the loop's own connection, and those of the reader threads.

    `beside`: another process may own the store. Nothing that the owner caches is written then: no task, no log.
    """

    location: Location
    writer: SqliteWriter
    reads: SqliteReads
    readers: Readers
    beside: bool = False


class SqliteDoor:
    """Gives out the pool of the store at `url` while that is open."""

    __slots__ = ("_url", "opened")

    def __init__(self, url: str) -> None:
        self._url = url
        self.opened: ConnectionPool | None = None
        """The pool that is open now."""

    def __call__(self) -> ConnectionPool:
        """The pool that is open now. Raises StoreError if none is."""
        if self.opened is None:
            raise self.not_open()
        return self.opened

    def open(self, pool: ConnectionPool) -> None:
        """Give out `pool` from now on."""
        self.opened = pool

    def close(self) -> None:
        """Give out nothing any more."""
        self.opened = None

    def not_open(self) -> StoreError:
        """The error of whoever uses a store that is not open."""
        return StoreError(f"store {self._url!r} is not open")
