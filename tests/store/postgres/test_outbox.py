"""The outbox that several processes send from: one in flight a webhook, in order, nothing lost and nothing left."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from dragoman.model.ids import SystemClock
from dragoman.store.api import Append, OutcomeUnknown, Store
from dragoman.store.open import check_store, open_store
from dragoman.store.outbox import Due, Lane, Settled
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.opening import open_pool
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import read_statements
from dragoman.store.postgres.deliveries import tell
from dragoman.store.postgres.outbox import PostgresOutbox
from dragoman.store.postgres.writes import Told
from tests.soak import times
from tests.store.cases.bench import AGENTS, W, by_run, chunk, ending, new_task
from tests.store.cases.deliveries import arrived, telling, webhook

PATIENCE_S = 120
TASKS = 12
EVENTS = times(12, 200)
LONG_MS = 3_600_000


@asynccontextmanager
async def process(url: str, name: str) -> AsyncIterator[Store]:
    """A store as another process would have it."""
    store = open_store(url, SystemClock())
    await store.open(name)
    try:
        await store.replicas.join(name, address="", agents=AGENTS)
        yield store
    finally:
        await store.close()


class Receivers:
    """The calls of all processes, by webhook. A second call while one is under way is a fault."""

    def __init__(self) -> None:
        self.arrived: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._flying: set[tuple[str, str]] = set()

    async def call(self, due: Due, chance: random.Random) -> bool:
        """Send a delivery. Returns whether it arrived."""
        webhook = due.task_id, due.config.id
        assert webhook not in self._flying, f"two in flight to {webhook}"
        self._flying.add(webhook)
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        self._flying.discard(webhook)
        if chance.random() < 0.2:
            return False
        self.arrived[webhook].append(due.delivery.seq)
        return True


async def send(store: Store, receivers: Receivers, chance: random.Random, written: asyncio.Event) -> None:
    """A courier: sends what is due until nothing is owed any more."""
    while True:
        now_ms = store.clock.now_ms()
        lane = chance.choice(tuple(Lane))
        with_behind = chance.random() < 0.5
        dues = await store.outbox.claim(lane, now_ms, now_ms + LONG_MS, 8, 4, with_behind=with_behind)
        if not dues and written.is_set() and await store.outbox.owed_count() == (0, 0):
            return
        await asyncio.gather(*(deliver(store, receivers, chance, due) for due in dues))


async def deliver(store: Store, receivers: Receivers, chance: random.Random, due: Due) -> None:
    """Send a delivery, and those behind it as long as they arrive."""
    before: list[int] = []
    for one in (due, *due.behind):
        if not await receivers.call(one, chance):
            retry = Settled(number=one.number, outcome="retry", due_ms=store.clock.now_ms(), before=tuple(before))
            await store.outbox.settle(retry)
            return
        before.append(one.number)
    await store.outbox.settle(Settled(number=before[-1], outcome="delivered", before=tuple(before[:-1])))


async def work(store: Store, task_id: str, chance: random.Random) -> None:
    """A run that reports every event, and registers a second webhook in the middle."""
    new = replace(new_task(task_id), push=webhook(host=f"https://h{chance.randrange(3)}:443"))
    await store.create(replace(new, deliveries=(telling(1, kept=True),)))
    for seq in range(2, EVENTS + 1):
        if seq == EVENTS // 2:
            await store.outbox.register(task_id, webhook("x", host="https://h9:443"), ())
        owed = [telling(seq, kept=True)] + ([telling(seq, "x", kept=True)] if seq >= EVENTS // 2 else [])
        await store.append(replace(by_run(task_id, chunk("a")), deliveries=tuple(owed)))
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
    await store.append(ending(task_id, EVENTS))


@pytest.mark.parametrize("seed", range(times(2, 50)))
async def test_two_processes_send_everything_once_and_in_order(used_postgres_url: str, seed: int) -> None:
    receivers, written, chance = Receivers(), asyncio.Event(), random.Random(seed)
    async with asyncio.timeout(PATIENCE_S * times(1, 10)):
        async with process(used_postgres_url, "h1") as one, process(used_postgres_url, "h2") as other:
            couriers = [
                asyncio.create_task(send(store, receivers, random.Random(chance.random()), written))
                for store in (one, other, one, other)
            ]
            tasks = (work((one, other)[number % 2], f"t{number}", chance) for number in range(TASKS))
            await asyncio.gather(*tasks)
            written.set()
            await asyncio.gather(*couriers)
        for number in range(TASKS):
            assert receivers.arrived[f"t{number}", "w"] == list(range(1, EVENTS + 1))
            assert receivers.arrived[f"t{number}", "x"] == list(range(EVENTS // 2, EVENTS + 1))
        assert await check_store(used_postgres_url) == []


async def test_what_a_dead_process_had_in_flight_is_due_and_what_a_living_one_has_is_not(
    used_postgres_url: str,
) -> None:
    async with process(used_postgres_url, "h1") as alive:
        for task_id in ("t1", "t2"):
            await alive.create(replace(new_task(task_id), push=webhook(), deliveries=(telling(1),)))
        (mine,) = await alive.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1)
        async with process(used_postgres_url, "h2") as dies:
            (theirs,) = await dies.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1)
        assert {mine.task_id, theirs.task_id} == {"t1", "t2"}
        async with process(used_postgres_url, "h3") as starts:
            await starts.outbox.reclaim(starts.clock.now_ms())
            again = await starts.outbox.claim(Lane.UNKNOWN, starts.clock.now_ms(), 1 << 51, 10, 10)
            assert [due.task_id for due in again] == [theirs.task_id]


async def test_an_outcome_takes_account_of_what_is_being_written(used_postgres_url: str) -> None:
    sql = read_statements("outbox.sql", "dragoman")
    async with process(used_postgres_url, "h1") as store:
        await store.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1),)))
        (due,) = await store.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1)
        pool = await open_pool(parse_address(used_postgres_url))
        ((task,),) = await pool.read("SELECT task FROM dragoman.tasks")
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        async with asyncio.timeout(PATIENCE_S):
            async with pool.transaction() as connection:
                await tell(connection, sql, (Told(task, None, (telling(2),)),), 1)
                settling = store.outbox.settle(Settled(number=due.number, outcome="delivered"))
                while not settling.done() and await pool.read(waiting) == [(0,)]:
                    pass
            await settling
        await pool.close()
        (following,) = await store.outbox.claim(Lane.HEALTHY, 1 << 50, 1 << 51, 1, 1)
        assert following.delivery.seq == 2
    assert await check_store(used_postgres_url) == []


class Doubtful:
    """A pool that once does not hear that a transaction was committed."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.committed = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[DatabaseConnection]:
        async with self._pool.transaction() as connection:
            yield connection
        self.committed += 1
        if self.committed == 1:
            raise OutcomeUnknown


@pytest.mark.parametrize("act", ["register", "remove", "settle"])
async def test_a_change_whose_outcome_is_not_known_is_made_once(used_postgres_url: str, act: str) -> None:
    async with process(used_postgres_url, "h1") as store:
        await store.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1), telling(2))))
        (due,) = await store.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1)
        pool = await open_pool(parse_address(used_postgres_url))
        doubtful: Any = Doubtful(pool)

        def start(run: Callable[[], Awaitable[Any]], task_id: str | None = None) -> "asyncio.Future[Any]":
            return asyncio.ensure_future(run())

        outbox = PostgresOutbox(lambda: doubtful, start, store.clock, lambda: "h1", "dragoman")
        if act == "register":
            await outbox.register("t1", webhook("x"), (telling(3, "x"),))
            assert [owed.id for owed in await store.outbox.owed()] == ["w-1", "w-2", "x-3"]
        elif act == "remove":
            assert await outbox.remove("t1", "w")
            assert await store.outbox.configs("t1") == ()
        else:
            await outbox.settle(Settled(number=due.number, outcome="retry", due_ms=5))
            assert [owed.attempts for owed in await store.outbox.owed()] == [1, 0]
        assert doubtful.committed == 2
        await pool.close()
    assert await check_store(used_postgres_url) == []


async def test_a_claim_does_not_wait_for_a_write_to_another_webhook(used_postgres_url: str) -> None:
    async with process(used_postgres_url, "h1") as one, process(used_postgres_url, "h2") as other:
        for task_id in ("held", "free"):
            await one.create(replace(new_task(task_id), push=webhook(), deliveries=(telling(1),)))
        async with one.hold("held") as held:
            owing = Append(
                task_id="held",
                events=(chunk("a"),),
                state=W,
                status_ms=1,
                expected_seq=held.stored.seq,
                deliveries=(telling(2),),
            )
            async with asyncio.timeout(PATIENCE_S):
                now_ms = other.clock.now_ms() + 1000
                claimed = await other.outbox.claim(Lane.UNKNOWN, now_ms, 1 << 51, 10, 10)
            await held.append(owing)
        assert {due.task_id for due in claimed} >= {"free"}


async def test_a_webhook_that_is_registered_and_removed_by_several_processes_stays_whole(
    used_postgres_url: str,
) -> None:
    async with process(used_postgres_url, "h1") as one, process(used_postgres_url, "h2") as other:
        await one.create(new_task("t1"))
        chance = random.Random(1)

        async def change(store: Store) -> None:
            for _ in range(20):
                name = chance.choice(("a", "b"))
                if chance.random() < 0.5:
                    host = chance.choice(("https://h1:443", "https://h2:443"))
                    await store.outbox.register("t1", webhook(name, host=host), (telling(1, name),))
                else:
                    await store.outbox.remove("t1", name)

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(change(store) for store in (one, other, one, other)))
        stored = await one.load("t1")
        assert stored is not None
        configs = await other.outbox.configs("t1")
        assert stored.pushed == bool(configs)
        assert stored.webhooks_version > 0
        for config in configs:
            assert await other.outbox.remove("t1", config.id)
    assert await check_store(used_postgres_url) == []


async def test_a_receipt_writes_nothing_to_those_of_its_task_that_stay(used_postgres_url: str) -> None:
    """A task has up to a hundred: to lock them would write them all again for each delivery that arrives."""
    async with process(used_postgres_url, "h1") as store:
        await store.create(replace(new_task("t1"), push=webhook(), deliveries=tuple(map(telling, range(1, 9)))))
        while dues := [due for lane in Lane for due in await store.outbox.claim(lane, 1 << 50, 1 << 51, 1, 1)]:
            await asyncio.gather(*(store.outbox.settle(arrived(due, 1 << 50)) for due in dues))
        assert len(await store.receipts.page(task_id="t1")) == 8
    connection = await asyncpg.connect(used_postgres_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM dragoman.receipts WHERE xmax <> 0") == 0
    finally:
        await connection.close()


async def test_calls_in_flight_at_a_replica_that_dies_are_due_once_it_is_known_dead(used_postgres_url: str) -> None:
    async with process(used_postgres_url, "h1") as dying, process(used_postgres_url, "h2") as other:
        await dying.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1),)))
        until_ms = other.clock.now_ms() + LONG_MS
        (first,) = await dying.outbox.claim(Lane.UNKNOWN, 1 << 50, until_ms, 1, 1)
        await other.create(replace(new_task("t2"), push=webhook(), deliveries=(telling(2),)))
        (second,) = await other.outbox.claim(Lane.UNKNOWN, until_ms - 1, until_ms, 1, 1)
        assert await other.outbox.next_due_ms() == until_ms
        pool = await open_pool(parse_address(used_postgres_url))
        await pool.write("UPDATE dragoman.replicas SET beats_until = clock_timestamp() WHERE id = 'h1'")
        await pool.close()
        assert await other.claim("h2", 10, ()) == ()
        due_ms = await other.outbox.next_due_ms()
        assert due_ms is not None
        assert due_ms <= other.clock.now_ms()
        (again,) = await other.outbox.claim(Lane.UNKNOWN, due_ms, until_ms, 9, 9)
        assert (again.number, again.delivery.id) == (first.number, first.delivery.id)
        assert second.number != first.number
    assert await check_store(used_postgres_url) == []


async def test_calls_in_flight_at_a_replica_that_has_left_are_due_once_its_lease_is_over(
    used_postgres_url: str,
) -> None:
    """Until then it may still send them; it releases what it cannot, unless it is killed before."""
    async with process(used_postgres_url, "h1") as leaves, process(used_postgres_url, "h2") as other:
        await leaves.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1),)))
        until_ms = other.clock.now_ms() + LONG_MS
        (first,) = await leaves.outbox.claim(Lane.UNKNOWN, 1 << 50, until_ms, 1, 1)
        await leaves.replicas.leave("h1")
        assert await other.claim("h2", 10, ()) == ()
        assert await other.outbox.next_due_ms() == until_ms
        pool = await open_pool(parse_address(used_postgres_url))
        await pool.write("UPDATE dragoman.replicas SET beats_until = clock_timestamp() WHERE id = 'h1'")
        await pool.close()
        assert await other.claim("h2", 10, ()) == ()
        (again,) = await other.outbox.claim(Lane.UNKNOWN, other.clock.now_ms(), until_ms, 9, 9)
        assert (again.number, again.delivery.id) == (first.number, first.delivery.id)
    assert await check_store(used_postgres_url) == []


async def test_a_replica_that_has_left_claims_no_calls_and_reports_no_failure(used_postgres_url: str) -> None:
    async with process(used_postgres_url, "h1") as leaves:
        await leaves.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1),)))
        await leaves.replicas.leave("h1")
        assert await leaves.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1) == ()
        async with process(used_postgres_url, "h2") as stays:
            (due,) = await stays.outbox.claim(Lane.UNKNOWN, 1 << 50, 1 << 51, 1, 1)
            assert due.task_id == "t1"
