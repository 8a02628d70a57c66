"""What becomes of a task when its worker's lease changes at the moment of somebody else's write."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.store.api import Append, Appended, Store, Stored
from dragoman.store.open import open_store
from dragoman.store.worker_leases import WORKER, WorkerLease, WorkerLeaseChange
from tests.store.cases.bench import START_MS, loaded
from tests.store.cases.worker_leases import Q, answered, leased, single, told

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
async def stores(used_postgres_url: str) -> AsyncIterator[tuple[Store, Store]]:
    """The store as two replicas have it."""
    first, second = (open_store(used_postgres_url, SystemClock()) for _ in range(2))
    await first.open("h1")
    await second.open("h2")
    try:
        yield first, second
    finally:
        await first.close()
        await second.close()


def given_back(stored: Stored, lease: WorkerLease) -> Append:
    """The worker gives the task back while its question is open."""
    return Append(
        task_id=stored.head.id,
        events=(),
        state=Q,
        status_ms=START_MS,
        expected_epoch=stored.epoch,
        lease=WorkerLeaseChange(replace(lease, version=lease.version + 1, ended="lease"), over=True),
    )


async def waiting(connection: asyncpg.Connection, count: int) -> None:
    async with asyncio.timeout(60):
        while await connection.fetchval(WAITING) < count:
            await asyncio.sleep(0.01)


async def test_an_answer_while_the_lease_is_given_back_puts_the_task_into_the_queue(
    stores: tuple[Store, Store], used_postgres_url: str
) -> None:
    first, second = stores
    lease = await leased(first)
    lease = replace(lease, version=1, questions=1)
    await first.append(told(await loaded(first, "t1"), lease, state=Q))
    asked = await loaded(first, "t1")
    holding, watching = [await asyncpg.connect(used_postgres_url) for _ in range(2)]
    try:
        async with holding.transaction():
            await holding.execute("SELECT 1 FROM dragoman.tasks WHERE id = 't1' FOR UPDATE")
            giving = asyncio.ensure_future(first.append(given_back(asked, lease)))
            await waiting(watching, 1)
            answering = asyncio.ensure_future(second.append(answered(asked)))
            await waiting(watching, 2)
        assert isinstance(await giving, Appended)
        assert isinstance(await answering, Appended)
    finally:
        await holding.close()
        await watching.close()
    stored = await loaded(first, "t1")
    assert stored.holder != WORKER
    assert await first.queued("echo", 10) == ("t1",)


async def test_renewals_and_words_of_many_tasks_do_not_wait_for_each_other_in_a_circle(
    stores: tuple[Store, Store], used_postgres_url: str
) -> None:
    first, second = stores
    ids = [f"t{number:02}" for number in range(80)]
    leases = {task_id: await leased(first, task_id) for task_id in reversed(ids)}  # not in the order of their numbers
    read = {task_id: await loaded(first, task_id) for task_id in ids}
    tokens = [(task_id, leases[task_id].token) for task_id in ids]

    async def renew() -> None:
        while not told_all.is_set():
            assert len(await second.worker_leases.renew(tokens, 3_600_000)) == len(ids)

    told_all = asyncio.Event()
    renewing = asyncio.create_task(renew())
    for number in range(1, 16):
        await asyncio.gather(*(first.append(single(read[each], leases[each], number)) for each in ids))
    told_all.set()
    await renewing
    connection = await asyncpg.connect(used_postgres_url)
    try:
        await asyncio.sleep(1)  # until the sessions have reported what they counted
        assert await connection.fetchval(DEADLOCKS) == 0
    finally:
        await connection.close()
