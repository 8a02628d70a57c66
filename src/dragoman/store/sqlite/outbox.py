"""SqliteOutbox: the writes to the outbox in the file.

Invariant: only the owner of the file sends from it. A command beside the server may change what is pending or dead.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import apsw

from dragoman.store.api import StoreError
from dragoman.store.deliveries import DeliveryClaim
from dragoman.store.outbox import Delivery, Due, QueuedAgain, Registration, Settled
from dragoman.store.sql.outbox import OwedChange
from dragoman.store.sqlite.claims import claim
from dragoman.store.sqlite.connection import translated
from dragoman.store.sqlite.deliveries import (
    drop,
    drop_pending,
    encode_webhook,
    hasten,
    queue_again,
    reclaim,
    release,
    revive,
)
from dragoman.store.sqlite.pool import SqliteDoor
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writer import SqliteWriter
from dragoman.store.sqlite.writes import Act, Registering, Removal, Settlement, Write

CHANGES: Mapping[OwedChange, Callable[[Tables, Sequence[int], int], int]] = {
    OwedChange.HASTEN: hasten,
    OwedChange.DROP_PENDING: drop_pending,
    OwedChange.REVIVE: revive,
    OwedChange.DROP: drop,
}


class SqliteOutbox:
    """The OutboxWrites protocol on the store's connections. A file loses no commits while it is open."""

    shared = False
    rewinds = 0

    def __init__(self, door: SqliteDoor) -> None:
        self._door = door

    def register(
        self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]
    ) -> "asyncio.Future[None]":
        """As the protocol says."""
        return self._submit(Registering(task_id, encode_webhook(registration), deliveries))

    async def settings(self, task_id: str) -> Sequence[bytes]:
        """On the loop."""
        opened = self._door()
        try:
            return opened.reads.settings(task_id)
        except apsw.Error as error:
            raise translated(error, opened.location) from error

    async def remove(self, task_id: str, config_id: str) -> bool:
        """As the protocol says."""
        return bool(await self._own().submit(Removal(task_id, config_id)))

    async def reclaim(self, now_ms: int, held: Collection[int]) -> None:
        """As the protocol says, in one walk through the index of due webhooks."""
        await self._own().submit(Act(lambda tables, _: reclaim(tables, now_ms, held)))

    async def release(self, numbers: Collection[int], now_ms: int) -> None:
        """As the protocol says, in one transaction."""
        await self._own().submit(Act(lambda tables, _: release(tables, numbers, now_ms)))

    async def claim(self, ask: DeliveryClaim) -> tuple[Due, ...]:
        """As the protocol says, by two indexes: the hosts of a lane and the webhooks of a host, by time and by size."""
        taken: tuple[Due, ...] = await self._own().submit(Act(lambda tables, _: claim(tables, ask)))
        return taken

    def settle(self, settled: Settled) -> "asyncio.Future[None]":
        """As the protocol says. Those of one batch are written together."""
        return self._submit(Settlement(settled))

    async def change(self, change: OwedChange, numbers: Sequence[int], now_ms: int) -> int:
        """As the protocol says."""
        act = Act(lambda tables, _: CHANGES[change](tables, numbers, now_ms))
        return int(await self._door().writer.submit(act))

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """As the protocol says."""
        act = Act(lambda tables, _: queue_again(tables, task_id, delivery, now_ms))
        queued: QueuedAgain = await self._door().writer.submit(act)
        return queued

    def _submit(self, write: Write) -> "asyncio.Future[Any]":
        try:
            return self._own().submit(write)
        except StoreError as error:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            return future

    def _own(self) -> SqliteWriter:
        """The writer, for writes that only the owner of the file may make."""
        opened = self._door()
        if opened.beside:
            raise StoreError(f"store {opened.location.url!r} is open beside its server, which alone may do this")
        return opened.writer
