"""Jobs that one replica does for all: who has one, and who takes it over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.server.jobs import Job
from dragoman.store.api import Store
from dragoman.store.open import open_store
from tests.store.cases.bench import SetClock


@asynccontextmanager
async def opened(*, shared: bool) -> AsyncIterator[tuple[Store, SetClock]]:
    clock = SetClock()
    store = open_store("memory:", clock)
    await store.open("r1")
    store.replicas.shared = shared
    for name in ("r1", "r2", "r3"):
        await store.replicas.join(name, address="", agents=())
    try:
        yield store, clock
    finally:
        await store.close()


class Process:
    """A process with the replica of an id."""

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id


def job(store: Store, replica: str, name: str = "sweep") -> Job:
    return Job(store, name, Process(replica), 10)


async def test_one_replica_has_a_job_and_keeps_it() -> None:
    async with opened(shared=True) as (store, clock):
        jobs = [job(store, name) for name in ("r1", "r2", "r3")]
        first = await asyncio.gather(*(each.take() for each in jobs))
        assert sum(first) == 1
        clock.ms += 9_000
        for _ in range(3):
            assert [await each.take() for each in jobs] == first
        assert await job(store, "r2", "another").take()


async def test_a_replica_that_says_nothing_more_loses_its_job() -> None:
    async with opened(shared=True) as (store, clock):
        one, other = job(store, "r1"), job(store, "r2")
        assert await one.take()
        assert not await other.take()
        clock.ms += 10_000
        assert await other.take()
        assert await job(store, "r2").take()
        assert not await job(store, "r1").take()


async def test_the_job_of_a_replica_that_is_gone_is_free_at_once() -> None:
    async with opened(shared=True) as (store, _):
        assert await job(store, "r1").take()
        assert not await job(store, "r2").take()
        await store.replicas.leave("r1")
        assert await job(store, "r2").take()
        assert not await job(store, "r3").take()


async def test_a_replica_that_was_fenced_has_a_job_no_more_and_keeps_one_under_its_new_id() -> None:
    async with opened(shared=True) as (store, _):
        process = Process("r1")
        one, other = Job(store, "sweep", process, 10), job(store, "r2")
        assert await one.take()
        await store.replicas.leave("r1")
        assert await other.take()
        process.replica_id = "r3"
        assert not await one.take()
        await store.replicas.leave("r2")
        assert await one.take()
        assert not await job(store, "r4").take()


async def test_an_owner_that_takes_its_job_again_keeps_it_for_longer() -> None:
    async with opened(shared=True) as (store, clock):
        for _ in range(5):
            assert await job(store, "r1").take()
            clock.ms += 9_000
            assert not await job(store, "r2").take()


async def test_a_process_that_is_alone_has_every_job_and_asks_nobody() -> None:
    async with opened(shared=False) as (store, _):
        assert await job(store, "r1").take()
        assert await job(store, "r2").take()
        assert await store.shared.get("job/sweep") is None
