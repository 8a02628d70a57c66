"""Receipts of deliveries that arrived: what they say, how long they stay, and sending the same once more.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio
from collections.abc import Iterable

from msgspec.structs import replace

from dragoman.store.api import Store
from dragoman.store.outbox import Lane, QueuedAgain, Settled
from dragoman.store.receipts import RECEIPTS_MAX, Receipt, digest_of_body
from tests.store.cases.bench import DAY_MS, START_MS, Bench, by_run, chunk, ending
from tests.store.cases.deliveries import (
    CLAIM_MS,
    SHOWN,
    any_claimed,
    arrival,
    arrived,
    claimed,
    pushed_task,
    telling,
    told,
    webhook,
)


async def deliver_all(bench: Bench, store: Store) -> int:
    """Deliver what is due, one after the other. Returns how many there were."""
    count = 0
    while dues := [due for lane in Lane for due in await claimed(bench, store, lane)]:
        await asyncio.gather(*(store.outbox.settle(arrived(due, bench.clock.ms)) for due in dues))
        count += len(dues)
    return count


def ids(receipts: Iterable[Receipt]) -> list[str]:
    """The ids of deliveries that arrived."""
    return [receipt.id for receipt in receipts]


async def test_a_delivery_that_arrived_leaves_a_receipt(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(2, kept=True),)))
        (due,) = await claimed(bench, store)
        later = bench.clock.ms + 5
        await store.outbox.settle(Settled(number=due.number, outcome="retry", due_ms=later, reason="HTTP 503"))
        bench.clock.ms = later
        (due,) = await claimed(bench, store, Lane.HEALTHY)
        await store.outbox.settle(arrived(due, later + 12))
        (receipt,) = await store.receipts.page()
        assert receipt == Receipt(
            number=due.number,
            id="w-1",
            task_id="t1",
            agent="echo",
            config_id="w",
            url=SHOWN,
            seq=1,
            part=0,
            dialect="",
            attempts=1,
            made_ms=START_MS,
            arrived_ms=later + 12,
            status=202,
            took_ms=12,
            size_bytes=len(due.delivery.body),
            reason="HTTP 503",
            digest=digest_of_body(due.delivery.body),
        )
        assert await store.receipts.find(due.number) == await store.receipts.find("w-1") == receipt
        assert await store.outbox.find(due.number) is None
        (due,) = await claimed(bench, store, Lane.HEALTHY)
        assert await store.receipts.find(due.number) is None
        await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        assert await store.receipts.page() == (receipt,), "without an arrival nothing is kept"
        assert await store.outbox.owed_count() == (0, 0)


async def test_receipts_come_newest_first_by_the_page_and_by_the_task(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id in ("t1", "t2"):
            await pushed_task(store, task_id, 1, 2, 3)
        assert await deliver_all(bench, store) == 6
        found = await store.receipts.page()
        numbers = [receipt.number for receipt in found]
        assert numbers == sorted(numbers, reverse=True)
        assert await store.receipts.page(limit=2) == found[:2]
        assert await store.receipts.page(limit=2, before=numbers[1]) == found[2:4]
        mine = await store.receipts.page(task_id="t1")
        assert ids(mine) == ["w-3", "w-2", "w-1"]
        assert {receipt.task_id for receipt in mine} == {"t1"}
        assert await store.receipts.page(task_id="t1", limit=1, before=mine[0].number) == mine[1:2]
        assert await store.receipts.page(task_id="nobody") == ()


async def test_deliveries_ahead_leave_receipts_with_the_last_one(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3)
        now = bench.clock.ms
        (due,) = await store.outbox.claim(Lane.UNKNOWN, now, now + CLAIM_MS, 10, 10, with_behind=True)
        done = [due, *due.behind]
        assert told(done) == ["w-1", "w-2", "w-3"]
        retry = Settled(
            number=done[2].number,
            outcome="retry",
            due_ms=now + 1,
            before=(done[0].number, done[1].number),
            arrivals=(arrival(done[0], now), arrival(done[1], now)),
        )
        await store.outbox.settle(retry)
        assert ids(await store.receipts.page()) == ["w-2", "w-1"]
        assert [owed.id for owed in await store.outbox.owed()] == ["w-3"]


async def test_a_delivery_that_arrived_twice_leaves_one_receipt(bench: Bench) -> None:
    """Its claim ran out while the first call was under way."""
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        (first,) = await claimed(bench, store)
        bench.clock.ms += CLAIM_MS
        (second,) = await claimed(bench, store)
        assert second.delivery.id == first.delivery.id
        settling = [store.outbox.settle(arrived(due, at)) for due, at in ((second, 7), (first, 8))]
        await asyncio.gather(*settling)
        await store.outbox.settle(arrived(first, 9))
        assert [receipt.arrived_ms for receipt in await store.receipts.page()] == [7]
        assert await store.outbox.owed_count() == (0, 0)


async def test_a_task_keeps_its_newest_receipts(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t2", 1)
        await pushed_task(store, "t1", 1)
        for first in range(2, RECEIPTS_MAX + 4, 10):
            told_now = tuple(telling(seq) for seq in range(first, min(first + 10, RECEIPTS_MAX + 4)))
            await store.append(replace(by_run("t1", chunk("a")), deliveries=told_now))
        await deliver_all(bench, store)
        found = await store.receipts.page(task_id="t1", limit=1000)
        assert [receipt.seq for receipt in found] == list(range(RECEIPTS_MAX + 3, 3, -1))
        assert ids(await store.receipts.page(task_id="t2")) == ["w-1"]


async def test_old_receipts_are_swept_and_no_others(bench: Bench) -> None:
    async with bench.store() as store:
        for day in range(3):
            await pushed_task(store, f"t{day}", 1)
            await deliver_all(bench, store)
            bench.clock.ms += DAY_MS
        assert await store.receipts.sweep(START_MS) == 0
        assert await store.receipts.sweep(START_MS + DAY_MS + 1) == 2
        assert await store.receipts.sweep(START_MS + DAY_MS + 1) == 0
        assert [receipt.task_id for receipt in await store.receipts.page()] == ["t2"]


async def test_receipts_go_with_their_task_and_not_with_their_webhook(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id in ("t1", "t2", "t3"):
            await pushed_task(store, task_id, 1)
        await deliver_all(bench, store)
        await store.append(replace(by_run("t3", chunk("a")), deliveries=(telling(2),)))
        (due,) = await claimed(bench, store, Lane.HEALTHY)
        await store.outbox.settle(Settled(number=due.number, outcome="gone"))
        assert await store.outbox.remove("t2", "w")
        assert sorted(receipt.task_id for receipt in await store.receipts.page()) == ["t1", "t2", "t3"]
        await store.append(ending("t1", 1))
        await store.append(ending("t2", 1))
        assert await store.delete(["t1"]) == ("t1",)
        assert sorted(receipt.task_id for receipt in await store.receipts.page()) == ["t2", "t3"]
        while await store.sweep(bench.clock.ms + DAY_MS, 0, -1, -1):
            pass
        assert [receipt.task_id for receipt in await store.receipts.page()] == ["t3"]


async def test_a_delivery_that_arrived_is_queued_again_behind_what_waits(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        await deliver_all(bench, store)
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(2),)))
        again = telling(1, kept=True)
        assert await store.outbox.queue_again("t1", again, bench.clock.ms) is QueuedAgain.QUEUED
        assert await store.outbox.queue_again("t1", again, bench.clock.ms) is QueuedAgain.THERE
        assert [owed.id for owed in await store.outbox.owed()] == ["w-2", "w-1"]
        assert ids(await store.receipts.page()) == ["w-1"], "that it arrived before is still known"
        seen: list[str] = []
        while dues := await claimed(bench, store, Lane.HEALTHY):
            seen += told(dues)
            await store.outbox.settle(arrived(dues[0], bench.clock.ms))
        assert seen == ["w-2", "w-1"]
        found = await store.receipts.page()
        assert ids(found) == ["w-1", "w-2", "w-1"]
        assert await store.receipts.find("w-1") == found[0], "the newest one"


async def test_nothing_is_queued_again_for_a_webhook_that_is_gone(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        again = telling(1, kept=True)
        (due,) = await claimed(bench, store)
        await store.outbox.settle(Settled(number=due.number, outcome="gone"))
        assert await store.outbox.queue_again("t1", again, bench.clock.ms) is QueuedAgain.STOPPED
        assert await store.outbox.queue_again("t1", telling(1, "x"), bench.clock.ms) is QueuedAgain.NO_CONFIG
        assert await store.outbox.queue_again("nobody", again, bench.clock.ms) is QueuedAgain.NO_CONFIG
        assert await store.outbox.remove("t1", "w")
        assert await store.outbox.queue_again("t1", again, bench.clock.ms) is QueuedAgain.NO_CONFIG
        await store.outbox.register("t1", webhook(), ())
        assert await store.outbox.queue_again("t1", again, bench.clock.ms) is QueuedAgain.QUEUED
        assert await any_claimed(bench, store) == ["w-1"]
