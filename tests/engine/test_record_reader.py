"""The reader of operators' records: who hears of a write, when, and what a process without others costs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.engine.record_reader import POLL_S, STALE_S, RecordFeed, RecordReader
from dragoman.store.api import RecordChanged, Store, StoreError
from dragoman.store.open import open_store
from dragoman.store.operator_records import OperatorRecord
from tests.buses import Hub
from tests.engine.house import StandingClock
from tests.virtual_time import Waited, in_virtual_time


class Seam:
    """The store as one process has it: it counts reads, may be away, or may have lost what was written last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records = Waited(store).operator_records
        self.operator_records = self
        self.reads: Counter[int] = Counter()
        self.away = False
        self.lost: frozenset[int] = frozenset()

    async def put_record(self, *given: Any, **named: Any) -> Any:
        return await self._records.put_record(*given, **named)

    async def read_records(self, revision: int = 0) -> tuple[OperatorRecord, ...]:
        self.reads[revision] += 1
        if self.away:
            raise StoreError("away")
        found = await self._records.read_records(revision)
        return tuple(record for record in found if record.revision not in self.lost)


class Process:
    """A reader with its feed, at work."""

    def __init__(self, store: Store, hub: Hub, *, shared: bool) -> None:
        self.store: Any = Seam(store)
        self.bus = hub.bus()
        self.reader = RecordReader(self.store, self.bus, shared=shared)
        self.feed: RecordFeed = self.reader.open_feed("switch")

    @property
    def bodies(self) -> dict[str, bytes | None]:
        """What the feed shows."""
        return {record_id: record.body for record_id, record in self.feed.records.items()}


@asynccontextmanager
async def processes(count: int, *, shared: bool = True, hub: Hub | None = None) -> AsyncIterator[list[Process]]:
    store, hub = open_store("memory:", StandingClock()), hub or Hub()
    await store.open("first")
    made = [Process(store, hub, shared=shared) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for one in made:
            await one.bus.open()
            await one.reader.refresh()
        jobs = [group.create_task(one.reader.run()) for one in made]
        await asyncio.sleep(0)
        yield made
        for job in jobs:
            job.cancel()
    await store.close()


@in_virtual_time
async def test_a_write_is_shown_here_when_it_returns_and_elsewhere_as_soon_as_the_bus_says_so() -> None:
    async with processes(2) as (one, other):
        written = await one.reader.put_record("switch", "echo", b"off", version=0)
        assert one.bodies == {"echo": b"off"}
        # Whether others have been told when the write returns depends on the turns that `wait_for` takes: one on 3.11.
        assert await other.feed.next() == (written,)
        assert asyncio.get_running_loop().time() == 0
        await other.reader.put_record("agent", "echo", b"x")
        assert one.bodies == {"echo": b"off"}, "another kind is another feed's"


@in_virtual_time
async def test_without_the_bus_it_is_shown_elsewhere_by_the_next_poll() -> None:
    hub = Hub()
    hub.down = True
    async with processes(2, hub=hub) as (one, other):
        await one.reader.put_record("switch", "echo", b"off")
        await asyncio.sleep(POLL_S / 2)
        assert other.bodies == {}
        await asyncio.sleep(POLL_S / 2 + 0.1)
        assert other.bodies == {"echo": b"off"}
        before = other.store.reads.total()
        await asyncio.sleep(10 * POLL_S)
        assert other.store.reads.total() == before + 10


@in_virtual_time
async def test_a_feed_tells_the_newest_version_of_each_record_once_and_removals() -> None:
    async with processes(1) as (one,):
        for record_id, body in (("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", None)):
            await one.reader.put_record("switch", record_id, body)
        told = await one.feed.next()
        assert {record.id: (record.version, record.body) for record in told} == {"a": (2, b"2"), "b": (2, None)}
        assert one.bodies == {"a": b"2"}
        waiting = asyncio.ensure_future(one.feed.next())
        await asyncio.sleep(5 * POLL_S)
        assert not waiting.done()
        waiting.cancel()


@in_virtual_time
async def test_a_process_without_others_asks_the_store_only_when_it_has_written() -> None:
    async with processes(1, shared=False) as (alone,):
        before = alone.store.reads.total()
        await asyncio.sleep(100 * POLL_S)
        assert alone.store.reads.total() == before
        assert not alone.reader.stale
        await alone.reader.put_record("switch", "echo", b"off")
        assert alone.bodies == {"echo": b"off"}
        assert alone.store.reads.total() == before + 1


@in_virtual_time
async def test_a_process_that_cannot_read_for_long_says_that_it_may_have_missed_something() -> None:
    async with processes(1) as (one,):
        assert not one.reader.stale
        one.store.away = True
        await asyncio.sleep(STALE_S - POLL_S / 2)
        assert not one.reader.stale
        await asyncio.sleep(POLL_S)
        assert one.reader.stale
        one.store.away = False
        await asyncio.sleep(POLL_S)
        assert not one.reader.stale


@in_virtual_time
async def test_a_write_is_made_and_told_even_if_this_process_cannot_read_it_at_once() -> None:
    async with processes(2) as (one, other):
        one.store.away = True
        await one.reader.put_record("switch", "echo", b"off")
        await other.feed.next()
        assert (one.bodies, other.bodies) == ({}, {"echo": b"off"})
        one.store.away = False
        await asyncio.sleep(POLL_S + 0.1)
        assert one.bodies == {"echo": b"off"}


@in_virtual_time
async def test_what_the_store_has_lost_is_shown_no_more_and_what_takes_its_place_is() -> None:
    """A standby that takes over may lack the last writes, and gives their revisions again."""
    async with processes(1) as (one,):
        await one.reader.put_record("switch", "a", b"1")
        await one.reader.put_record("switch", "b", b"1")
        one.store.lost = frozenset({2})
        await asyncio.sleep(POLL_S + 0.1)
        assert one.bodies == {"a": b"1"}
        told = {record.id: record.body for record in await one.feed.next()}
        assert told == {"a": b"1", "b": None}
        anew = one.store.reads[0]
        await asyncio.sleep(5 * POLL_S)
        assert one.store.reads[0] == anew, "all records are read once, not by each poll"
        await one.reader.put_record("switch", "a", b"2")
        assert one.bodies == {"a": b"2"}


@in_virtual_time
async def test_a_version_that_is_not_expected_is_refused() -> None:
    async with processes(2) as (one, other):
        await one.reader.put_record("switch", "echo", b"1", version=0)
        with pytest.raises(RecordChanged):
            await other.reader.put_record("switch", "echo", b"2", version=0)
        assert other.bodies in ({}, {"echo": b"1"})
