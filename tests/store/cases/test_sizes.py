"""Deliveries by size, and those that are claimed together with the one before them.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.store.api import Store
from dragoman.store.outbox import BEHIND_MAX, SMALL_BYTES_MAX, Delivery, Due, Lane, Settled
from tests.store.cases.bench import Bench, by_run, chunk, new_task
from tests.store.cases.deliveries import CLAIM_MS, HOST, any_claimed, claimed, telling, told, webhook

LARGE = SMALL_BYTES_MAX + 1
SILENT = "https://silent.example:443"


def sized(seq: int, size: int = LARGE) -> Delivery:
    """A delivery whose body has so many bytes."""
    return replace(telling(seq), body=bytes([65 + seq % 26]) * size)


async def owing(store: Store, task_id: str, *deliveries: Delivery, host: str = HOST) -> None:
    """A task to whose webhook these are owed."""
    await store.create(replace(new_task(task_id), push=webhook(host=host), deliveries=deliveries))


async def taken(
    bench: Bench, store: Store, bytes_max: int | None, *, alone: bool = False, limit: int = 10
) -> list[str]:
    """The tasks of what is claimed with so much room."""
    now, until = bench.clock.ms, bench.clock.ms + CLAIM_MS
    dues = await store.outbox.claim(Lane.UNKNOWN, now, until, limit, 10, bytes_max=bytes_max, alone=alone)
    for due in dues:
        assert len(set(due.delivery.body)) == 1 or due.delivery == telling(due.delivery.seq)
    return [f"{due.task_id}:{len(due.delivery.body)}" for due in dues]


async def taken_with_behind(bench: Bench, store: Store) -> list[Due]:
    """The deliveries claimed of hosts that do well, with those behind them."""
    now, until = bench.clock.ms, bench.clock.ms + CLAIM_MS
    return list(await store.outbox.claim(Lane.HEALTHY, now, until, 10, 10, with_behind=True))


async def healthy(bench: Bench, store: Store, host: str = HOST) -> None:
    """The host has taken something."""
    await owing(store, "first", telling(1), host=host)
    (due,) = await claimed(bench, store)
    await store.outbox.settle(Settled(number=due.number, outcome="delivered"))


async def test_large_bodies_are_claimed_as_there_is_room(bench: Bench) -> None:
    async with bench.store() as store:
        for number, size in enumerate((LARGE, 2 * LARGE, LARGE, SMALL_BYTES_MAX, LARGE)):
            await owing(store, f"t{number}", sized(1, size), host=f"https://h{number}:443")
            bench.clock.ms += 1
        small = f"t3:{SMALL_BYTES_MAX}"
        assert await taken(bench, store, 0, limit=1) == [small], "a small one passes all that are large"
        assert await taken(bench, store, 0) == []
        assert await taken(bench, store, LARGE) == [f"t0:{LARGE}"]
        assert await taken(bench, store, 2 * LARGE - 1) == [], "what is smaller does not pass what has waited longer"
        assert await taken(bench, store, 2 * LARGE - 1, alone=True) == [f"t1:{2 * LARGE}"], "alone it goes"
        assert await taken(bench, store, 2 * LARGE) == [f"t2:{LARGE}", f"t4:{LARGE}"]
        await owing(store, "t5", sized(1, 9 * LARGE))
        assert await taken(bench, store, None) == [f"t5:{9 * LARGE}"]


async def test_large_bodies_keep_no_small_ones_waiting(bench: Bench) -> None:
    async with bench.store() as store:
        await asyncio.gather(*(owing(store, f"a{n}", sized(1), host=f"https://a{n}:443") for n in range(300)))
        await asyncio.gather(*(owing(store, f"b{n}", sized(1), host=SILENT) for n in range(300)))
        bench.clock.ms += 1
        await owing(store, "s1", telling(1), host=SILENT)
        await owing(store, "s2", telling(1))
        for room in (0, 1):
            bench.clock.ms += 1
            await owing(store, f"s3{room}", telling(1), host="https://a7:443")
            found = await taken(bench, store, room)
            assert {name.partition(":")[0] for name in found} == ({"s1", "s2", "s30"} if room == 0 else {"s31"})


async def test_both_sizes_of_a_host_are_few_at_a_time(bench: Bench) -> None:
    async with bench.store() as store:
        for number in range(6):
            await owing(store, f"t{number}", sized(1, LARGE if number % 2 else 1))
        assert len(await claimed(bench, store, per_host=4)) == 4
        assert len(await claimed(bench, store, per_host=4)) == 2


async def test_what_is_owed_next_may_be_of_another_size(bench: Bench) -> None:
    async with bench.store() as store:
        ends = [replace(sized(seq, LARGE if seq % 2 else 1), kept=True) for seq in range(1, 6)]
        await owing(store, "t1", *ends)
        (due,) = await claimed(bench, store)
        assert await store.outbox.next_due_ms() == bench.clock.ms + CLAIM_MS
        dead = Settled(number=due.number, outcome="dead")
        for outcome in (dead, replace(dead, outcome="delivered"), replace(dead, outcome="retry")):
            await store.outbox.settle(replace(outcome, number=due.number, due_ms=bench.clock.ms))
            assert await store.outbox.next_due_ms() == bench.clock.ms
            (due,) = await claimed(bench, store, Lane.HEALTHY)
        assert due.delivery == ends[2]
        bench.clock.ms += CLAIM_MS
        await store.outbox.revive(None, bench.clock.ms)
        for end in (ends[0], *ends[2:]):
            (due,) = await claimed(bench, store, Lane.HEALTHY)
            assert due.delivery == end
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(sized(9), telling(10))))
        assert await taken_healthy(bench, store, 0) == []
        assert await taken_healthy(bench, store, LARGE) == ["w-9"]


async def taken_healthy(bench: Bench, store: Store, bytes_max: int) -> list[str]:
    """The ids of what is claimed of hosts that do well, with so much room."""
    now, until = bench.clock.ms, bench.clock.ms + CLAIM_MS
    return told(list(await store.outbox.claim(Lane.HEALTHY, now, until, 10, 10, bytes_max=bytes_max)))


async def test_what_is_behind_comes_with_a_claim(bench: Bench) -> None:
    async with bench.store() as store:
        await healthy(bench, store)
        await owing(store, "t1", *(telling(seq) for seq in range(1, 5)))
        await owing(store, "t2", telling(9))
        (due, alone) = await taken_with_behind(bench, store)
        assert (due.behind[0].number, alone.behind) == (due.number + 1, ())
        assert [one.delivery for one in due.behind] == [telling(seq) for seq in range(2, 5)]
        assert replace(due.behind[0], number=due.number, delivery=due.delivery) == replace(due, behind=())
        assert await any_claimed(bench, store) == [], "it is in flight"
        assert await store.outbox.owes(due.behind[0])
        await store.outbox.register("t1", webhook(path="/elsewhere"), ())
        assert not await store.outbox.owes(due.behind[0]), "it goes elsewhere now"
        await store.outbox.remove("t2", "w")
        assert not await store.outbox.owes(alone)
        third = Settled(number=due.behind[1].number, outcome="delivered", before=(due.number, due.behind[0].number))
        await store.outbox.settle(third)
        assert [one.number for one in await store.outbox.owed()] == [due.behind[2].number]
        await store.outbox.settle(third)
        (last,) = await taken_with_behind(bench, store)
        assert (last.delivery, last.behind) == (telling(4), ())
        bench.clock.ms += CLAIM_MS
        assert await taken_with_behind(bench, store) == [last], "its claim ran out"


async def test_a_failure_is_of_the_one_that_failed(bench: Bench) -> None:
    async with bench.store() as store:
        await healthy(bench, store)
        await owing(store, "t1", *(telling(seq, kept=True) for seq in range(1, 5)))
        (due,) = await taken_with_behind(bench, store)
        later = bench.clock.ms + 1
        await store.outbox.settle(
            Settled(number=due.behind[0].number, outcome="retry", due_ms=later, before=(due.number,))
        )
        assert await taken_with_behind(bench, store) == []
        bench.clock.ms = later
        (due,) = await taken_with_behind(bench, store)
        assert (due.delivery.seq, due.attempts, [one.delivery.seq for one in due.behind]) == (2, 1, [3, 4])
        await store.outbox.settle(Settled(number=due.behind[0].number, outcome="dead", before=(due.number,)))
        (due,) = await taken_with_behind(bench, store)
        assert (due.delivery.seq, await store.outbox.owed_count()) == (4, (1, 1))
        await store.outbox.settle(Settled(number=due.number, outcome="gone"))
        assert await store.outbox.owed_count() == (0, 0)


async def test_what_is_behind_is_small_and_has_not_failed(bench: Bench) -> None:
    async with bench.store() as store:
        await healthy(bench, store)
        await owing(store, "t1", sized(1, SMALL_BYTES_MAX), sized(2, SMALL_BYTES_MAX), sized(3), telling(4))
        await owing(store, "t2", sized(1), telling(2))
        await owing(store, "t3", *(telling(seq, kept=True) for seq in range(1, 20)))
        found = {due.task_id: len(due.behind) for due in await taken_with_behind(bench, store)}
        assert found == {"t1": 1, "t2": 0, "t3": BEHIND_MAX}


async def test_one_that_failed_before_does_not_go_out_early(bench: Bench) -> None:
    async with bench.store() as store:
        await healthy(bench, store)
        await owing(store, "t1", *(telling(seq, kept=True) for seq in range(1, 4)))
        (due,) = await taken_with_behind(bench, store)
        await store.outbox.settle(Settled(number=due.number, outcome="dead"))
        (second,) = await taken_with_behind(bench, store)
        await store.outbox.settle(Settled(number=second.number, outcome="retry", due_ms=bench.clock.ms + CLAIM_MS))
        await store.outbox.revive(None, bench.clock.ms)
        (due,) = await taken_with_behind(bench, store)
        assert (due.delivery.seq, due.behind) == (1, ())


async def test_a_delivery_keeps_its_dialect(bench: Bench) -> None:
    async with bench.store() as store:
        await owing(store, "t1", replace(telling(1), dialect="0.3"), telling(2))
        elsewhere = webhook(path="/new")
        await store.outbox.register("t1", replace(elsewhere, config=replace(elsewhere.config, dialect="x")), ())
        for lane, dialect in ((Lane.UNKNOWN, "0.3"), (Lane.HEALTHY, "")):
            (due,) = await claimed(bench, store, lane)
            assert (due.delivery.dialect, due.config.dialect) == (dialect, "x")
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
