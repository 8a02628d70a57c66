"""OutboxTables: the outbox in the file.

Invariant: its tables are not cached, because a command beside the server may make dead deliveries due.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import apsw
import msgspec

from dragoman.model.operations import PushConfig
from dragoman.store.api import StoreError
from dragoman.store.deliveries import DeliveryClaim
from dragoman.store.outbox import (
    Delivery,
    Due,
    Lane,
    PausedHost,
    QueuedAgain,
    Registration,
    Settled,
)
from dragoman.store.sql.owed import PUSH_CONFIGS, OwedDeliveries
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
from dragoman.store.sqlite.pool import Door
from dragoman.store.sqlite.statements import SqliteStatements
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writer import Writer
from dragoman.store.sqlite.writes import Act, Registering, Removal, Settlement


class OutboxTables:
    """The Outbox protocol on the store's connections."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._changes = 0
        self._operated = operated = OwedDeliveries(SqliteStatements(door))
        # the methods that both databases share
        self.owed, self.find, self.owed_count = operated.owed, operated.find, operated.owed_count
        self.resume, self.paused, self.backlog = operated.resume, operated.paused, operated.backlog
        self.paused_count, self.made_with, self.keyless = operated.paused_count, operated.made_with, operated.keyless

    def register(
        self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]
    ) -> "asyncio.Future[None]":
        """As the protocol says."""
        self._changes += 1
        try:
            return self._own().submit(Registering(task_id, encode_webhook(registration), deliveries))
        except StoreError as error:
            return _failed(error)

    async def configs(self, task_id: str) -> tuple[PushConfig, ...]:
        """As the protocol says."""
        opened = self._door()
        try:
            return opened.reads.settings(task_id, PUSH_CONFIGS)
        except apsw.Error as error:
            raise translated(error, opened.location) from error

    async def remove(self, task_id: str, config_id: str) -> bool:
        """As the protocol says."""
        self._changes += 1
        return bool(await self._own().submit(Removal(task_id, config_id)))

    @property
    def rewinds(self) -> int:
        """A file loses no commits while it is open."""
        return 0

    async def reclaim(self, now_ms: int, held: Collection[int] = ()) -> None:
        """As the protocol says, in one walk through the index of due webhooks."""

        def run(tables: Tables, _: int) -> None:
            reclaim(tables, now_ms, held)

        await self._own().submit(Act(run))

    async def release(self, numbers: Collection[int], now_ms: int) -> None:
        """As the protocol says, in one transaction."""

        def run(tables: Tables, _: int) -> None:
            release(tables, numbers, now_ms)

        await self._own().submit(Act(run))

    async def claim(
        self,
        lane: Lane,
        now_ms: int,
        until_ms: int,
        limit: int,
        per_host: int,
        busy: Collection[str] = (),
        *,
        bytes_max: int | None = None,
        alone: bool = False,
        with_behind: bool = False,
    ) -> tuple[Due, ...]:
        """As the protocol says, by two indexes: the hosts of a lane and the webhooks of a host, by time and by size."""
        ask = DeliveryClaim(
            lane, now_ms, until_ms, limit, per_host, tuple(busy), bytes_max, alone, with_behind, self._changes
        )

        def run(tables: Tables, _: int) -> tuple[Due, ...]:
            return claim(tables, ask)

        taken: tuple[Due, ...] = await self._own().submit(Act(run))
        return taken

    async def next_due_ms(self) -> int | None:
        """As the protocol says, from the front of an index, once for each lane."""
        opened = self._door()
        try:
            found: int | None = opened.reads.point("next_due")
        except apsw.Error as error:
            raise translated(error, opened.location) from error
        return found

    async def owes(self, due: Due) -> bool:
        """As the protocol says. Reads nothing if no configuration has changed since the claim."""
        if due.as_of == self._changes:
            return True
        opened = self._door()
        try:
            settings: bytes | None = opened.reads.point("owes", (due.number,))
        except apsw.Error as error:
            raise translated(error, opened.location) from error
        return settings is not None and settings == msgspec.msgpack.encode(due.config)

    def settle(self, settled: Settled) -> "asyncio.Future[None]":
        """As the protocol says. Those of one batch are written together."""
        try:
            return self._own().submit(Settlement(settled))
        except StoreError as error:
            return _failed(error)

    async def pause(self, host: PausedHost) -> bool:
        """As the protocol says."""
        self._changes += 1
        return await self._operated.pause(host)

    async def hasten(self, numbers: Collection[int], now_ms: int) -> int:
        """In batches, each a transaction."""
        done = 0
        async for some in self._operated.batches(numbers):
            done += await self._door().writer.submit(Act(partial(_hasten, some, now_ms)))
        return done

    async def drop_pending(self, numbers: Collection[int], now_ms: int) -> int:
        """In batches, each a transaction."""
        self._changes += 1
        done = 0
        async for some in self._operated.batches(numbers):
            done += await self._door().writer.submit(Act(partial(_drop_pending, some, now_ms)))
        return done

    async def revive(self, numbers: Collection[int] | None, now_ms: int) -> int:
        """In batches, each a transaction."""
        done = 0
        async for some in self._operated.batches(numbers):
            done += await self._door().writer.submit(Act(partial(_revive, some, now_ms)))
        return done

    async def drop(self, numbers: Collection[int] | None) -> int:
        """In batches, each a transaction."""
        done = 0
        async for some in self._operated.batches(numbers):
            done += await self._door().writer.submit(Act(partial(_drop, some)))
        return done

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """As the protocol says."""

        def run(tables: Tables, _: int) -> QueuedAgain:
            return queue_again(tables, task_id, delivery, now_ms)

        queued: QueuedAgain = await self._door().writer.submit(Act(run))
        return queued

    def _own(self) -> Writer:
        """The writer, for writes that only the owner of the file may make."""
        opened = self._door()
        if opened.beside:
            raise StoreError(f"store {opened.location.url!r} is open beside its server, which alone may do this")
        return opened.writer


def _revive(numbers: Sequence[int], due_ms: int, tables: Tables, _: int) -> int:
    return revive(tables, numbers, due_ms)


def _drop(numbers: Sequence[int], tables: Tables, _: int) -> int:
    return drop(tables, numbers)


def _hasten(numbers: Sequence[int], now_ms: int, tables: Tables, _: int) -> int:
    return hasten(tables, numbers, now_ms)


def _drop_pending(numbers: Sequence[int], now_ms: int, tables: Tables, _: int) -> int:
    return drop_pending(tables, numbers, now_ms)


def _failed(error: StoreError) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
