"""OutboxTables: the outbox in the file.

Invariant: its tables are not cached, because a command beside the server may make dead deliveries due.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import apsw
import msgspec

from dragoman.model.operations import PushConfig
from dragoman.store.api import StoreError
from dragoman.store.codec import Unreadable, decode
from dragoman.store.deliveries import DeliveryClaim
from dragoman.store.outbox import (
    Delivery,
    Due,
    HostBacklog,
    KeyWebhook,
    Lane,
    Owed,
    OwedDetails,
    PausedHost,
    QueuedAgain,
    Registration,
    Settled,
)
from dragoman.store.sqlite.claims import claim
from dragoman.store.sqlite.connection import fetch, translated
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
from dragoman.store.sqlite.reads import Reads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writer import Writer
from dragoman.store.sqlite.writes import Act, Registering, Removal, Settlement

BATCH_DEAD = 500
"""Most dead deliveries that one transaction revives or drops."""

WHICH = {None: "", False: "AND d.dead = 0", True: "AND d.dead = 1"}


class OutboxTables:
    """The Outbox protocol on the store's connections."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._decoder = msgspec.msgpack.Decoder(PushConfig)
        self._changes = 0

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
            return opened.reads.settings(task_id, self._decoder)
        except apsw.Error as error:
            raise translated(error, opened.location) from error

    async def made_with(self, key_id: str, limit: int) -> tuple[KeyWebhook, ...]:
        """On a reader thread."""

        def read(reads: Reads) -> list[Any]:
            with reads.moment():
                return reads.cursor.execute(reads.sql["webhooks_of_key"], (key_id, limit)).fetchall()

        return tuple(
            KeyWebhook(task_id=task_id, agent=agent, config_id=config_id, host=host)
            for task_id, agent, config_id, host in await self._door().readers.run(read)
        )

    async def keyless(self, owner: str) -> int:
        """On a reader thread."""
        return int(await self._door().readers.run(lambda reads: reads.point("keyless_webhooks", (owner,))))

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

    async def owed(
        self, *, dead: bool | None = None, limit: int = 100, after: int = 0, task_id: str | None = None
    ) -> tuple[Owed, ...]:
        """On a reader thread."""

        def read(reads: Reads) -> tuple[Owed, ...]:
            values = (after, limit) if task_id is None else (after, limit, task_id)
            tables = reads.sql["owed_by_all" if task_id is None else "owed_by_task"]
            with reads.moment():
                sql = reads.sql["owed"].replace("WHICH", WHICH[dead]).replace("OWED", tables)
                rows: list[Any] = fetch(reads.cursor, sql, values)
            return tuple(self._owed(*row) for row in rows)

        return await self._door().readers.run(read)

    async def find(self, wanted: int | str) -> OwedDetails | None:
        """On a reader thread."""

        def read(reads: Reads) -> OwedDetails | None:
            with reads.moment():
                number = wanted
                if isinstance(number, str):
                    number = reads.cursor.execute(reads.sql["find_number"], (number,)).get or 0
                sql = reads.sql["owed"].replace("WHICH", "").replace("OWED", reads.sql["owed_by_all"])
                row: Any = reads.cursor.execute(sql, (number - 1, 1)).get
                if row is None or row[0] != number:
                    return None
                standing: Any = reads.cursor.execute(reads.sql["delivery_standing"], (number,)).get
            part, kept, dialect, size, lane, until_ms, before, behind = standing
            return OwedDetails(
                owed=self._owed(*row),
                part=part,
                kept=bool(kept),
                dialect=dialect,
                size_bytes=size,
                lane=Lane(lane),
                claimed_until_ms=until_ms,
                before=before,
                behind=behind,
            )

        return await self._door().readers.run(read)

    async def owed_count(self) -> tuple[int, int]:
        """On a reader thread."""
        waiting, dead = await self._door().readers.run(lambda reads: reads.point("owed_count"))
        return waiting, dead

    async def pause(self, host: PausedHost) -> bool:
        """As the protocol says."""
        self._changes += 1

        def run(tables: Tables, _: int) -> bool:
            tables.cursor.execute(tables.sql["pause_host"], (host.name, host.at_ms, host.by))
            return tables.connection.changes() > 0

        return bool(await self._door().writer.submit(Act(run)))

    async def resume(self, name: str) -> bool:
        """As the protocol says."""

        def run(tables: Tables, _: int) -> bool:
            tables.cursor.execute(tables.sql["resume_host"], (name,))
            return tables.connection.changes() > 0

        return bool(await self._door().writer.submit(Act(run)))

    async def paused(self) -> tuple[PausedHost, ...]:
        """On a reader thread. Costs as much as there are hosts, if any is paused, and deliveries to paused ones."""

        def read(reads: Reads) -> list[Any]:
            with reads.moment():
                return fetch(reads.cursor, reads.sql["paused_hosts"])

        rows = await self._door().readers.run(read)
        return tuple(PausedHost(name=name, at_ms=at_ms, by=by, waiting=waiting) for name, at_ms, by, waiting in rows)

    async def backlog(self, name: str, now_ms: int) -> HostBacklog:
        """As `paused`."""

        def read(reads: Reads) -> Any:
            with reads.moment():
                return reads.cursor.execute(reads.sql["host_backlog"], (name, now_ms)).fetchone()

        waiting, held, later, next_ms = await self._door().readers.run(read)
        return HostBacklog(waiting=waiting, held=held or 0, later=later or 0, next_ms=next_ms)

    async def paused_count(self) -> int:
        """As `paused`."""
        return int(await self._door().readers.run(lambda reads: reads.point("paused_count")))

    async def hasten(self, numbers: Collection[int], now_ms: int) -> int:
        """In batches, each a transaction."""
        done = 0
        for some in _batches(numbers):
            done += await self._door().writer.submit(Act(partial(_hasten, some, now_ms)))
        return done

    async def drop_pending(self, numbers: Collection[int], now_ms: int) -> int:
        """In batches, each a transaction."""
        self._changes += 1
        done = 0
        for some in _batches(numbers):
            done += await self._door().writer.submit(Act(partial(_drop_pending, some, now_ms)))
        return done

    async def revive(self, numbers: Collection[int] | None, now_ms: int) -> int:
        """In batches, each a transaction."""
        done = 0
        async for some in self._some_dead(numbers):
            done += await self._door().writer.submit(Act(partial(_revive, some, now_ms)))
        return done

    async def drop(self, numbers: Collection[int] | None) -> int:
        """In batches, each a transaction."""
        done = 0
        async for some in self._some_dead(numbers):
            done += await self._door().writer.submit(Act(partial(_drop, some)))
        return done

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """As the protocol says."""

        def run(tables: Tables, _: int) -> QueuedAgain:
            return queue_again(tables, task_id, delivery, now_ms)

        queued: QueuedAgain = await self._door().writer.submit(Act(run))
        return queued

    async def _some_dead(self, numbers: Collection[int] | None) -> AsyncIterator[list[int]]:
        """Yield batches of `numbers`, or (None) of the numbers of all deliveries that are dead now."""
        if numbers is not None:
            for some in _batches(numbers):
                yield some
            return
        readers = self._door().readers
        last, after = await readers.run(lambda reads: reads.point("last_dead")), 0
        while last is not None and after < last:
            some = await readers.run(partial(_next_dead, after, last))
            if not some:
                return
            yield some
            after = some[-1]

    def _owed(
        self,
        number: int,
        name: str,
        task_id: str,
        agent: str,
        config_id: str,
        settings: bytes,
        seq: int,
        attempts: int,
        dead: int,
        due_ms: int | None,
        made_ms: int,
        reason: str,
        host: str,
        paused: int,
    ) -> Owed:
        return Owed(
            number=number,
            id=name,
            task_id=task_id,
            agent=agent,
            config_id=config_id,
            url=self._url(settings),
            seq=seq,
            attempts=attempts,
            dead=bool(dead),
            due_ms=due_ms,
            made_ms=made_ms,
            reason=reason,
            host=host,
            paused=bool(paused),
        )

    def _url(self, settings: bytes) -> str:
        try:
            return decode(self._decoder, settings).url
        except Unreadable:
            return ""

    def _own(self) -> Writer:
        """The writer, for writes that only the owner of the file may make."""
        opened = self._door()
        if opened.beside:
            raise StoreError(f"store {opened.location.url!r} is open beside its server, which alone may do this")
        return opened.writer


def _batches(numbers: Collection[int]) -> Iterator[list[int]]:
    given = sorted(set(numbers))
    for start in range(0, len(given), BATCH_DEAD):
        yield given[start : start + BATCH_DEAD]


def _next_dead(after: int, last: int, reads: Reads) -> list[int]:
    with reads.moment():
        return [number for (number,) in reads.cursor.execute(reads.sql["next_dead"], (after, last, BATCH_DEAD))]


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
