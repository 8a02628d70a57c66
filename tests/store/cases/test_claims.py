"""Claims of deliveries: lanes, busy hosts, claims of a dead process, and the effect of the sweep.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.store.api import Store
from dragoman.store.outbox import Lane, Settled
from tests.store.cases.bench import DAY_MS, START_MS, Bench, by_run, chunk, ending, new_task
from tests.store.cases.deliveries import (
    CLAIM_MS,
    HOST,
    any_claimed,
    claimed,
    pushed_task,
    telling,
    told,
    webhook,
)

DEAD = "https://dead.example:443"


async def owing(store: Store, host: str, count: int, name: str = "") -> None:
    """So many tasks with one delivery each to `host`."""
    await asyncio.gather(*(pushed_task(store, f"{name or host}-{n}", n, host=host) for n in range(count)))


async def test_a_host_is_in_the_lane_of_how_it_did(bench: Bench) -> None:
    async with bench.store() as store:
        ends = tuple(telling(seq, kept=True) for seq in range(1, 8))  # these are never merged
        await store.create(replace(new_task("t1"), push=webhook(), deliveries=ends))
        later = bench.clock.ms
        steps: list[tuple[Lane, Settled, Lane]] = [
            (Lane.UNKNOWN, Settled(number=0, outcome="retry", due_ms=later, reached=True), Lane.HEALTHY),
            (Lane.HEALTHY, Settled(number=0, outcome="retry", due_ms=later, reached=False), Lane.FAILING),
            (Lane.FAILING, Settled(number=0, outcome="retry", due_ms=later, reached=True), Lane.FAILING),
            (Lane.FAILING, Settled(number=0, outcome="delivered"), Lane.HEALTHY),
            (Lane.HEALTHY, Settled(number=0, outcome="dead", reached=True), Lane.HEALTHY),
            (Lane.HEALTHY, Settled(number=0, outcome="dead", reached=False), Lane.FAILING),
        ]
        for lane, settled, following in steps:
            (due,) = await claimed(bench, store, lane)
            await store.outbox.settle(replace(settled, number=due.number))
            for other in set(Lane) - {following}:
                assert await claimed(bench, store, other) == []
        (due,) = await claimed(bench, store, Lane.FAILING)
        await store.outbox.settle(Settled(number=due.number, outcome="gone"))
        await store.create(replace(new_task("t2"), push=webhook(), deliveries=(telling(1),)))
        assert told(await claimed(bench, store, Lane.HEALTHY)) == ["w-1"]


async def test_the_last_of_those_that_are_settled_together_says_how_a_host_did(bench: Bench) -> None:
    async with bench.store() as store:
        await owing(store, HOST, 2)
        lane = Lane.UNKNOWN
        for outcomes, following in (
            ((True, False), Lane.FAILING),
            ((True, False), Lane.FAILING),
            ((False, True), Lane.HEALTHY),
        ):
            dues = await claimed(bench, store, lane)
            assert len(dues) == 2
            await asyncio.gather(
                *(
                    store.outbox.settle(
                        Settled(number=due.number, outcome="delivered")
                        if arrived
                        else Settled(number=due.number, outcome="retry", due_ms=bench.clock.ms, reached=False)
                    )
                    for due, arrived in zip(dues, outcomes, strict=True)
                )
            )
            lane = following
            for due, arrived in zip(dues, outcomes, strict=True):
                if arrived:
                    await store.append(replace(by_run(due.task_id, chunk("a")), deliveries=(telling(9),)))
        assert len(await claimed(bench, store, lane)) == 2


async def test_a_claim_takes_a_few_of_each_host_and_none_of_a_busy_one(bench: Bench) -> None:
    async with bench.store() as store:
        hosts = [f"https://h{n}.example:443" for n in range(4)]
        for host in hosts:
            await owing(store, host, 5)
            bench.clock.ms += 1
        now, until = bench.clock.ms, bench.clock.ms + CLAIM_MS
        taken = await store.outbox.claim(Lane.UNKNOWN, now, until, 5, 2, busy=[hosts[0]])
        assert [due.host for due in taken] == [hosts[1], hosts[1], hosts[2], hosts[2], hosts[3]], "who waited longest"
        taken = await store.outbox.claim(Lane.UNKNOWN, now, until, 100, 2, busy={hosts[1], hosts[2]})
        assert [due.host for due in taken] == [hosts[0], hosts[0], hosts[3], hosts[3]]
        assert await store.outbox.claim(Lane.UNKNOWN, now, until, 100, 100, busy=hosts) == ()
        assert await store.outbox.claim(Lane.UNKNOWN, now, until, 0, 100) == ()
        taken = await store.outbox.claim(Lane.UNKNOWN, now, until, 100, 100)
        assert len(taken) == 20 - 9
        assert await any_claimed(bench, store) == []


async def test_a_host_that_fails_delays_no_other(bench: Bench) -> None:
    async with bench.store() as store:
        await owing(store, DEAD, 300)
        (due,) = await claimed(bench, store, limit=1)
        await store.outbox.settle(
            Settled(number=due.number, outcome="retry", due_ms=bench.clock.ms + 1000, reached=False)
        )
        bench.clock.ms += 1
        await owing(store, HOST, 2)
        assert {due.host for due in await claimed(bench, store, limit=2)} == {HOST}
        dues = await claimed(bench, store, Lane.FAILING, per_host=100, limit=1000)
        assert len(dues) == 100
        await asyncio.gather(
            *(
                store.outbox.settle(
                    Settled(number=due.number, outcome="retry", due_ms=bench.clock.ms + DAY_MS, reached=False)
                )
                for due in dues
            )
        )
        assert len(await claimed(bench, store, Lane.FAILING, per_host=1000, limit=1000)) == 199


async def test_the_next_time_is_known(bench: Bench) -> None:
    async with bench.store() as store:
        assert await store.outbox.next_due_ms() is None
        await pushed_task(store, "t1", 1)
        assert await store.outbox.next_due_ms() == START_MS
        (due,) = await claimed(bench, store)
        assert await store.outbox.next_due_ms() == START_MS + CLAIM_MS, "when its claim runs out"
        await store.outbox.settle(Settled(number=due.number, outcome="retry", due_ms=START_MS + 5000))
        assert await store.outbox.next_due_ms() == START_MS + 5000
        await pushed_task(store, "t2", 1, host=DEAD)
        assert await store.outbox.next_due_ms() == START_MS
        bench.clock.ms += 5000
        for due in [*await claimed(bench, store), *await claimed(bench, store, Lane.HEALTHY)]:
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        bench.clock.ms += CLAIM_MS
        assert await any_claimed(bench, store) == []
        assert await store.outbox.next_due_ms() is None


async def test_claims_of_the_process_before_are_void(bench: Bench) -> None:
    if not bench.durable:
        return
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        await pushed_task(store, "t2", 3, host=DEAD)
        before = await claimed(bench, store)
        assert len(before) == 2
    async with bench.store("h2") as store:
        assert await any_claimed(bench, store) == []
        assert await store.outbox.configs("t1") == (webhook().config,)
        bench.clock.ms += 1
        await store.outbox.reclaim(bench.clock.ms)
        assert await store.outbox.next_due_ms() == bench.clock.ms
        assert await claimed(bench, store) == before
    async with bench.store("h3") as store:
        await store.outbox.reclaim(bench.clock.ms)
        assert sorted(await any_claimed(bench, store)) == ["w-1", "w-3"]


async def test_claims_of_which_the_process_does_not_know_are_void(bench: Bench) -> None:
    """As after a failover that lost the outcome of a call."""
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        await pushed_task(store, "t2", 3, host=DEAD)
        known, lost = await claimed(bench, store)
        await store.outbox.reclaim(bench.clock.ms, [known.number])
        assert await claimed(bench, store) == [lost]
        await store.outbox.reclaim(bench.clock.ms, [known.number, lost.number])
        assert await any_claimed(bench, store) == []


async def test_a_claim_that_is_given_up_is_due_at_once(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        await pushed_task(store, "t2", 3, host=DEAD)
        await pushed_task(store, "t3", 4, host=DEAD)
        first, second, settled = sorted(await claimed(bench, store, per_host=2), key=lambda due: due.number)
        await store.outbox.settle(Settled(number=settled.number, outcome="retry", due_ms=bench.clock.ms + 5000))
        bench.clock.ms += 1
        await store.outbox.release([first.number, settled.number], bench.clock.ms)
        assert await store.outbox.next_due_ms() == bench.clock.ms
        assert await claimed(bench, store, per_host=2) == [first], "what others have in flight stays there"
        await store.outbox.release([second.number], bench.clock.ms)
        assert await claimed(bench, store, Lane.HEALTHY) == [second], "the retry waits"


async def test_a_swept_task_takes_its_webhooks_with_it(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id in ("t1", "t2"):
            await pushed_task(store, task_id, 1, 2, host=HOST if task_id == "t1" else DEAD)
        (due,) = [due for due in await claimed(bench, store) if due.task_id == "t1"]
        await store.outbox.settle(Settled(number=due.number, outcome="dead"))
        await store.append(replace(ending("t1", 1), deliveries=(telling(3, kept=True),)))
        await store.create(new_task("t3"))
        await store.append(ending("t3", 1))
        while await store.sweep(START_MS + DAY_MS, DAY_MS // 2, -1, -1):
            pass
        assert await store.load("t1") is None
        assert await store.load("t3") is None
        assert await store.outbox.configs("t1") == ()
        assert await store.outbox.owed_count() == (2, 0)
        assert [owed.task_id for owed in await store.outbox.owed()] == ["t2", "t2"]
        await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        await pushed_task(store, "t4", 1)
        assert told(await claimed(bench, store)) == ["w-1"], "a host that comes anew is not known"
