"""Pool: a limited number of connections to one database, and the ways to use one.

Invariant: a connection is used by one job at a time, and carries nothing from one job to the next: no session state, so
that a proxy which pools transactions may stand in front. Every wait has a limit. A connection that failed in an unclear
way is discarded.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from dragoman.store.api import StoreError, StoreStandby, StoreUnreachable
from dragoman.store.postgres.database.address import Address
from dragoman.store.postgres.database.connection import DatabaseConnection, DatabaseIdentity, close, dial, identify
from dragoman.store.postgres.database.history import HistoryChanged, HistoryCount
from dragoman.store.postgres.database.translation import FAILURES, LOST, translate, translate_write

ROLLBACK_S = 1.0
"""How long a connection may take to undo a transaction that failed."""


class Pool:
    """Connections to the database at an address, made when they are needed."""

    def __init__(self, address: Address, history: HistoryCount | None = None) -> None:
        """`history` counts whenever another server, or another history of it, is behind the address."""
        self.address = address
        self.history = HistoryCount() if history is None else history
        self.identity: DatabaseIdentity | None = None
        """The identity of the server at the last look; None before the first."""
        self.proxied: bool | None = None
        """Whether the connections go through a proxy that pools them; None before the first one."""
        self._idle: list[tuple[DatabaseConnection, float]] = []
        """Idle connections, and since when by the monotonic clock: those that were used last come last."""
        self._waiting: deque[asyncio.Future[DatabaseConnection | None]] = deque()
        self._made = 0
        self._dialing = 0
        """How many of the connections are still being made."""
        self._closed = False
        self._sets_limits = _limits(address.timeout_s)

    # -- statements ----------------------------------------------------------------------------------------------------

    async def read(self, sql: str, *values: object) -> list[Any]:
        """The rows of a statement that changes nothing. It is asked again if its connection turns out to be lost.

        Raises StoreError.
        """
        try:
            try:
                return await self._run(sql, values)
            except LOST:
                self._discard_idle()
                return await self._run(sql, values)
        except FAILURES as error:
            raise self._error(error) from error

    async def write(self, sql: str, *values: object, during: int | None = None) -> list[Any]:
        """The rows of one statement, which commits by itself. Raises StoreError or OutcomeUnknown.

        Raises HistoryChanged instead if it is to run `during` a history that is over.
        """
        try:
            return await self._run(sql, values, during)
        except FAILURES as error:
            raise translate_write(error, self.address.shown) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[DatabaseConnection]:
        """A connection in a transaction that commits at the end, or undoes everything if an exception leaves the block.

        The server ends each statement, each wait for a lock and each wait for the next statement after `timeout_s`.
        Raises StoreError, or OutcomeUnknown if the connection is lost during the commit.
        """
        connection = await self.take()
        try:
            try:
                await connection.execute(self._sets_limits, timeout=self.address.timeout_s)
                yield connection
            except FAILURES as error:
                raise self._error(error) from error
            try:
                done = await connection.execute("COMMIT", timeout=self.address.timeout_s)
            except FAILURES as error:
                raise translate_write(error, self.address.shown) from error
            if done != "COMMIT":
                raise StoreError(f"PostgreSQL at {self.address.shown} undid a transaction after an error in it")
        except asyncio.CancelledError:
            self.discard(connection)
            raise
        except BaseException:
            await self._undo(connection)
            raise
        else:
            self.release(connection)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def take(self) -> DatabaseConnection:
        """A connection that nobody else uses until it is given back. Raises StoreError."""
        if (ready := self._ready()) is not None:
            return ready
        limit_s = self.address.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    found = self._ready() or await self._next()
                    if found is not None:
                        return found
        except TimeoutError as error:
            at = f"PostgreSQL at {self.address.shown}"
            if self._made - self._dialing < self.address.pool_size:
                raise StoreUnreachable(
                    f"{at} gave no connection for {limit_s:g} s: raise its max_connections, or the pool of the proxy "
                    "before it, or lower pool_size in the url"
                ) from error
            raise StoreUnreachable(
                f"all {self.address.pool_size} connections to {at} were busy for {limit_s:g} s: raise pool_size in the "
                "url"
            ) from error

    def release(self, connection: DatabaseConnection) -> None:
        """Give back a connection, which is thrown away unless it is ready for the next job."""
        if self._closed or connection.is_closed() or connection.is_in_transaction():
            self.discard(connection)
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connection)
                return
        self._idle.append((connection, time.monotonic()))

    def discard(self, connection: DatabaseConnection) -> None:
        """Throw away a connection that was taken."""
        connection.terminate()
        self._free()

    async def connect(self) -> DatabaseConnection:
        """A connection outside of the pool, which the caller closes. Raises StoreError, for a standby as well."""
        try:
            connection = await dial(self.address, prepares=self.proxied is False)
            try:
                proxied, identity = await identify(connection)
            except BaseException:
                connection.terminate()
                raise
        except FAILURES as error:
            raise self._error(error) from error
        if identity is None:
            connection.terminate()
            raise StoreStandby(
                f"PostgreSQL at {self.address.shown} is a standby, which takes no writes: name the primary in the url"
            )
        self.identified(proxied, identity)
        return connection

    def identified(self, proxied: bool, identity: DatabaseIdentity) -> None:
        """Note which server is behind the address."""
        self.proxied = bool(self.proxied) or proxied
        self.identity = identity
        self.history.see(identity.history)

    async def close(self) -> None:
        """Close the connections that are idle, and each other one when it is given back."""
        self._closed = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await close(connection)

    @property
    def counts(self) -> tuple[int, int]:
        """How many connections there are, and how many of them are idle."""
        return self._made, len(self._idle)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _run(self, sql: str, values: Sequence[object], during: int | None = None) -> list[Any]:
        connection = await self.take()
        if during is not None and during != self.history.number:
            self.release(connection)
            raise HistoryChanged
        try:
            rows: list[Any] = await connection.fetch(sql, *values, timeout=self.address.timeout_s)
        except asyncpg.PostgresError:
            self.release(connection)
            raise
        except BaseException:
            self.discard(connection)
            raise
        self.release(connection)
        return rows

    def _ready(self) -> DatabaseConnection | None:
        while self._idle:
            connection, since_s = self._idle.pop()
            if not connection.is_closed() and time.monotonic() - since_s < self.address.idle_s:
                return connection
            self.discard(connection)
        return None

    async def _next(self) -> DatabaseConnection | None:
        """A new connection, or one that is given back. None: look again."""
        if self._closed:
            raise StoreError(f"store {self.address.shown!r} is not open")
        if self._made < self.address.pool_size:
            self._made += 1
            self._dialing += 1
            try:
                return await self.connect()
            except BaseException:
                self._free()
                raise
            finally:
                self._dialing -= 1
        waiting: asyncio.Future[DatabaseConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                given = waiting.result()
                if given is None:
                    self._wake()
                else:
                    self.release(given)
            raise

    def _discard_idle(self) -> None:
        """Discard the idle connections: one was lost, so the others probably are."""
        while self._idle:
            self.discard(self._idle.pop()[0])

    def _free(self) -> None:
        self._made -= 1
        self._wake()

    def _wake(self) -> None:
        """Wake the first waiter."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    async def _undo(self, connection: DatabaseConnection) -> None:
        """Roll back, so that the connection can be used again; if that is not possible, throw it away."""
        try:
            if not connection.is_closed() and connection.is_in_transaction():
                await connection.execute("ROLLBACK", timeout=ROLLBACK_S)
        except FAILURES:
            connection.terminate()
        except asyncio.CancelledError:
            self.discard(connection)
            raise
        self.release(connection)

    def _error(self, error: Exception) -> StoreError:
        return translate(error, self.address.shown)


def _limits(timeout_s: float) -> str:
    """The statements that begin a transaction. They hold for it alone."""
    limit = f"{int(timeout_s * 1000)}ms"
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; " + "; ".join(
        f"SET LOCAL {name} = '{limit}'" for name in names
    )
