"""Totals of contexts that have counters of their own: they are as exact as those that are counted in an index."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import ListQuery, Owners, Store
from dragoman.store.open import open_store
from dragoman.store.postgres import listing
from dragoman.store.postgres.transfer import check
from tests.store.cases import test_lists
from tests.store.cases.bench import START_MS, Bench, Case, SetClock, cases_of, ending, new_task
from tests.store.postgres.database import connected

CASES = cases_of(test_lists)

DEADLINE_S = 60

IN_C1 = ListQuery(owner="ann", agent="echo", context_id="c1", limit=10)

COUNTED = "SELECT count(*) FROM dragoman.counted_contexts"

WAITS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid())"


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context gets counters when it has three tasks, however soon after a failure."""
    monkeypatch.setattr(listing, "MANY", 3)
    monkeypatch.setattr(listing, "AGAIN_S", 0.0)


@asynccontextmanager
async def opened(url: str, holder: str = "h1") -> AsyncIterator[Store]:
    store = open_store(url, SetClock())
    await store.open(holder)
    try:
        await store.replicas.join(holder, address="", agents=("echo",))
        yield store
    finally:
        await store.close()


async def until(connection: asyncpg.Connection, question: str, answer: object) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await connection.fetchval(question) != answer:
            await asyncio.sleep(0.001)


async def total(store: Store, query: ListQuery = IN_C1, state: TaskState | None = None) -> int:
    return (await store.list(replace(query, state=state))).total


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])  # type: ignore[attr-defined]
async def test_lists_conform_whatever_has_counters(
    case: Case, used_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MANY", 1)
    await case(Bench(lambda clock: open_store(used_postgres_url, clock), durable=True, shared=True))
    assert await check(used_postgres_url) == []


async def test_totals_of_a_large_context_come_from_its_counters(used_postgres_url: str) -> None:
    """A count that was changed on purpose shows where a total comes from."""
    async with opened(used_postgres_url) as store, connected(used_postgres_url) as connection:
        for number in range(3):
            await store.create(new_task(f"t{number}"))
            await store.create(new_task(f"o{number}", context_id="c2"))
        assert await total(store, state=TaskState.COMPLETED) == 0  # the whole context counts, not what was found
        await until(connection, COUNTED, 1)
        await store.create(new_task("t3"))
        await store.append(ending("t3", 1))
        assert (await total(store), await total(store, state=TaskState.COMPLETED)) == (4, 1)
        assert await total(store, replace(IN_C1, owner=Owners.ALL, agent=None)) == 4
        assert await check(used_postgres_url) == []
        await connection.execute("UPDATE dragoman.counts SET n1 = n1 + 1000 WHERE context > 0 AND replica = 'h1'")
        assert (await total(store), await total(store, state=TaskState.COMPLETED)) == (1004, 1)
        assert await total(store, replace(IN_C1, context_id=None)) == 7
        assert [line.split(":")[0] for line in await check(used_postgres_url)] == ["context_counters"]


async def test_a_write_under_way_keeps_a_context_from_getting_counters(
    used_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have looked for counters before they were there. The list does not wait for it."""
    caplog.set_level("INFO", "dragoman.store")
    async with (
        opened(used_postgres_url) as store,
        opened(used_postgres_url, "h2") as other,
        connected(used_postgres_url) as connection,
    ):
        for number in range(3):
            await store.create(new_task(f"t{number}"))
        async with connection.transaction():
            await connection.execute("SELECT FROM dragoman.tasks WHERE id = 't1' FOR UPDATE")
            write = store.append(ending("t1", 1))
            await until(connection, WAITS, True)
            assert await total(other) == 3
            async with asyncio.timeout(DEADLINE_S):
                while "are counted for each list" not in caplog.text:
                    await asyncio.sleep(0.001)
            assert await connection.fetchval(COUNTED) == 0
        await write
        assert await total(other, state=TaskState.COMPLETED) == 1
        await until(connection, COUNTED, 1)
        assert await total(other, state=TaskState.COMPLETED) == 1
        assert await check(used_postgres_url) == []


async def test_totals_stay_exact_while_contexts_get_counters_under_many_writers(used_postgres_url: str) -> None:
    async with (
        opened(used_postgres_url) as store,
        opened(used_postgres_url, "h2") as other,
        connected(used_postgres_url) as connection,
    ):

        async def write(one: Store, name: str) -> None:
            for number in range(10):
                task_id = f"{name}-{number}"
                await one.create(new_task(task_id, context_id=f"c{number % 3}"))
                await one.append(ending(task_id, 1))

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(write((store, other)[number % 2], f"w{number}"))
            while (done := await total(other, replace(IN_C1, context_id="c0"), TaskState.COMPLETED)) < 32:
                assert done <= await total(store, replace(IN_C1, context_id="c0"))
        for number, tasks in enumerate((32, 24, 24)):
            in_context = replace(IN_C1, context_id=f"c{number}")
            assert await total(other, in_context) == await total(other, in_context, TaskState.COMPLETED) == tasks
        await until(connection, COUNTED, 3)
        assert await check(used_postgres_url) == []


async def test_a_context_without_tasks_has_no_counters(used_postgres_url: str) -> None:
    async with opened(used_postgres_url) as store, connected(used_postgres_url) as connection:
        for number in range(3):
            await store.create(new_task(f"t{number}"))
            await store.append(ending(f"t{number}", 1))
        await total(store)
        await until(connection, COUNTED, 1)
        await store.sweep(START_MS + 10_000, 20_000, -1, -1)
        assert await connection.fetchval(COUNTED) == 1
        while await store.sweep(START_MS + 10_000, 5_000, -1, -1):
            pass
        assert await connection.fetchval(COUNTED) == 0
        assert await connection.fetchval("SELECT count(*) FROM dragoman.counts WHERE context > 0") == 0
        await store.create(new_task("t1"))
        assert await total(store) == 1


async def test_counters_of_replicas_that_are_gone_are_added_up_though_something_expires_every_time(
    used_postgres_url: str,
) -> None:
    counters = "SELECT count(*) FROM dragoman.counts WHERE replica = 'h1'"
    async with opened(used_postgres_url, "h2") as store, connected(used_postgres_url) as connection:
        async with opened(used_postgres_url) as gone:
            for name, at_ms in (("old", START_MS), ("new", START_MS + 10_000)):
                await gone.create(new_task(name, at=at_ms))
                await gone.append(ending(name, 1, at=at_ms))
        assert await connection.fetchval(counters) > 0
        assert await store.sweep(START_MS + 10_000, 5_000, -1, -1) > 0
        assert await connection.fetchval(counters) == 0
        assert await total(store) == 1
