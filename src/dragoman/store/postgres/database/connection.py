"""One connection to PostgreSQL: how it is made, which server it leads to, and how it is closed.

Invariant: nothing is set on a connection that a proxy, which pools transactions, would not pass on.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import asyncpg
from asyncpg.exceptions import TargetServerAttributeNotMatched
from msgspec import Struct

from dragoman.store.postgres.database.address import Address
from dragoman.store.postgres.database.translation import FAILURES

STATEMENTS_MAX = 500
"""Statements kept prepared on each connection, unless a proxy stands in front."""

IDENTIFY = """
SELECT pg_backend_pid(),
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       (SELECT system_identifier FROM pg_control_system())
"""

IDENTIFY_TIMELINE = """
SELECT pg_backend_pid(),
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       NULL::bigint
"""
"""For users and services that may not ask for the system's id."""

CLOSE_S = 1.0
"""How long a server may take to answer the end of a connection."""


class DatabaseConnection(Protocol):
    """The part of asyncpg's connection that is used here. asyncpg has no types."""

    async def execute(self, sql: str, *values: object, timeout: float | None = None) -> str:
        """Run statements, and return the status of the last one."""
        ...

    async def fetch(self, sql: str, *values: object, timeout: float | None = None) -> list[Any]:
        """The rows of a statement."""
        ...

    async def fetchrow(self, sql: str, *values: object, timeout: float | None = None) -> Any:
        """The first row of a statement; None if there is none."""
        ...

    async def fetchval(self, sql: str, *values: object, timeout: float | None = None) -> Any:
        """The first value of the first row; None if there is none."""
        ...

    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        records: Sequence[tuple[Any, ...]],
        columns: Sequence[str],
        schema_name: str,
        timeout: float,
    ) -> str:
        """Insert rows."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the connection in good order."""
        ...

    def terminate(self) -> None:
        """Close at once."""
        ...

    def is_closed(self) -> bool:
        """Whether the connection is closed, by either side."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def get_server_pid(self) -> int:
        """The process id that the server, or a proxy, announced at the beginning."""
        ...


class DatabaseIdentity(Struct, frozen=True):
    """The identity of a database and of its history. It changes when a standby takes over, whose log may be shorter."""

    timeline: str
    system: int | None

    @property
    def history(self) -> str:
        """A name of the history."""
        return self.timeline if self.system is None else f"{self.timeline}-{self.system:x}"


async def dial(address: Address, *, prepares: bool) -> DatabaseConnection:
    """A new connection. With `prepares` it keeps statements prepared, unless the address says otherwise.

    All hosts of the address are tried at once, so that one that does not answer keeps nobody waiting. Raises one of
    FAILURES.
    """
    first, *others = address.each_dsn
    if not others:
        return await _dial(address, first, prepares=prepares)
    dialing = {asyncio.create_task(_dial(address, dsn, prepares=prepares)) for dsn in (first, *others)}
    failed: list[BaseException] = []
    try:
        while dialing:
            done, dialing = await asyncio.wait(dialing, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                if (error := one.exception()) is None:
                    dialing |= done - {one}
                    return one.result()
                failed.append(error)
    finally:
        for one in dialing:
            one.cancel()
            one.add_done_callback(_hang_up)
    raise next((error for error in failed if isinstance(error, TargetServerAttributeNotMatched)), failed[-1])


def _hang_up(dialed: "asyncio.Task[DatabaseConnection]") -> None:
    """Close a connection that nobody needs."""
    if not dialed.cancelled() and dialed.exception() is None:
        dialed.result().terminate()


async def _dial(address: Address, dsn: str, *, prepares: bool) -> DatabaseConnection:
    size = address.statement_cache_size
    connection: DatabaseConnection = await asyncpg.connect(
        dsn,
        timeout=address.connect_s,
        command_timeout=address.timeout_s,
        statement_cache_size=(STATEMENTS_MAX if prepares else 0) if size is None else size,
        max_cached_statement_lifetime=0,
        server_settings={"application_name": address.application_name},
    )
    return connection


async def identify(connection: DatabaseConnection) -> tuple[bool, DatabaseIdentity | None]:
    """Whether a proxy stands in front of the server, and its identity; None for a standby. Raises one of FAILURES."""
    try:
        row = await connection.fetchrow(IDENTIFY)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedFunctionError):
        row = await connection.fetchrow(IDENTIFY_TIMELINE)
    pid, timeline, system = row
    return pid != connection.get_server_pid(), None if timeline is None else DatabaseIdentity(timeline, system)


async def close(connection: DatabaseConnection) -> None:
    """Close the connection in good order; after a second without an answer, close it anyway."""
    try:
        await connection.close(timeout=CLOSE_S)
    except FAILURES:
        connection.terminate()
    except asyncio.CancelledError:
        connection.terminate()
        raise
