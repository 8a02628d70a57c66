"""Paused hosts, and what operators do to deliveries that are still pending.

Invariant: a case uses nothing but the Store protocol.
"""

from msgspec.structs import replace

from dragoman.store.api import Store
from dragoman.store.outbox import SMALL_BYTES_MAX, HostBacklog, Lane, PausedHost, Settled
from tests.store.cases.bench import DAY_MS, START_MS, Bench
from tests.store.cases.deliveries import CLAIM_MS, HOST, any_claimed, claimed, pushed_task, telling, webhook

OTHER = "https://other.example:8443"


def paused(name: str) -> PausedHost:
    return PausedHost(name=name, at_ms=START_MS, by="key:ops")


async def deliver(bench: Bench, store: Store, name: str) -> None:
    """Claim one delivery, which must be the one of that name, and settle it."""
    found = [due for lane in Lane for due in await claimed(bench, store, lane)]
    assert [due.delivery.id for due in found] == [name]
    await store.outbox.settle(Settled(number=found[0].number, outcome="delivered"))


async def test_deliveries_to_a_paused_host_wait_and_go_on_in_order(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        await pushed_task(store, "t2", 1, host=OTHER)
        assert await store.outbox.pause(paused("hooks.example"))
        assert not await store.outbox.pause(replace(paused("hooks.example"), by="key:else"))
        await store.outbox.register("t1", webhook("w"), (telling(2), telling(3)))
        assert await store.outbox.paused() == (replace(paused("hooks.example"), waiting=3),)
        assert await store.outbox.paused_count() == 3
        assert [(one.host, one.paused) for one in await store.outbox.owed()] == [
            (HOST, True),
            (OTHER, False),
            (HOST, True),
            (HOST, True),
        ]
        await deliver(bench, store, "w-1")
        bench.clock.ms += 365 * DAY_MS
        assert await any_claimed(bench, store) == []
        assert await store.outbox.next_due_ms() is None, "only those of the paused host are pending"
        assert await store.outbox.owed_count() == (3, 0)
        assert {one.attempts for one in await store.outbox.owed()} == {0}
        assert await store.outbox.resume("hooks.example")
        assert not await store.outbox.resume("hooks.example")
        assert await store.outbox.next_due_ms() is not None
        assert (await store.outbox.paused(), await store.outbox.paused_count()) == ((), 0)
        for name in ("w-1", "w-2", "w-3"):
            await deliver(bench, store, name)


async def test_a_name_covers_a_host_a_port_or_an_origin(bench: Bench) -> None:
    hosts = (
        "https://a.example:443",
        "https://a.example:8443",
        "http://a.example:8443",
        "http://[::1]:80",
        "http://10.0.0.1:80",
        "https://b.a.example:443",
    )
    covered = {
        "a.example": (0, 1, 2),
        "a.example:8443": (1, 2),
        "https://a.example:8443": (1,),
        "[::1]": (3,),
        "[::1]:80": (3,),
        "10.0.0.1": (4,),
        "10.0.0": (),
        "a.example:": (),
        "example": (),
    }
    async with bench.store() as store:
        for place, host in enumerate(hosts):
            await pushed_task(store, f"t{place}", place + 1, host=host)
        for name, places in covered.items():
            await store.outbox.pause(paused(name))
            assert [each.waiting for each in await store.outbox.paused()] == [len(places)], name
            left = {f"w-{place + 1}" for place in range(len(hosts)) if place not in places}
            assert set(await any_claimed(bench, store)) == left, name
            bench.clock.ms += CLAIM_MS
            await store.outbox.resume(name)


async def test_what_waits_for_a_paused_host_says_what_goes_out_without_the_pause(bench: Bench) -> None:
    async with bench.store() as store:
        assert await store.outbox.backlog("hooks.example", bench.clock.ms) == HostBacklog()
        await pushed_task(store, "t1", 1)
        await store.outbox.register("t1", webhook("w"), (telling(2),))
        (due,) = await claimed(bench, store, Lane.UNKNOWN)
        next_ms = bench.clock.ms + DAY_MS
        await store.outbox.settle(
            Settled(number=due.number, outcome="retry", due_ms=next_ms, reason="HTTP 503", reached=True)
        )
        await pushed_task(store, "t2", 2)
        await pushed_task(store, "t3", 3, host=OTHER)
        for name in ("hooks.example", "https://other.example:8443"):
            await store.outbox.pause(paused(name))
        whole = HostBacklog(waiting=3, later=2, next_ms=next_ms)
        assert await store.outbox.backlog("hooks.example", bench.clock.ms) == whole
        assert await store.outbox.backlog("hooks.example", next_ms) == HostBacklog(waiting=3)
        assert await store.outbox.backlog(HOST, bench.clock.ms) == HostBacklog(), "no pause has that name"
        await store.outbox.pause(paused(HOST))
        for name in ("hooks.example", HOST):
            assert await store.outbox.backlog(name, bench.clock.ms) == HostBacklog(waiting=3, held=3), name


async def test_a_large_delivery_waits_for_a_paused_host_too(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1")
        large = replace(telling(1), body=b"x" * (SMALL_BYTES_MAX + 1))
        await store.outbox.register("t1", webhook("w"), (large,))
        await store.outbox.pause(paused(HOST))
        now = bench.clock.ms
        assert await store.outbox.claim(Lane.UNKNOWN, now, now + CLAIM_MS, 10, 10, alone=True) == ()
        assert await store.outbox.next_due_ms() is None
        await store.outbox.resume(HOST)
        assert len(await store.outbox.claim(Lane.UNKNOWN, now, now + CLAIM_MS, 10, 10, alone=True)) == 1


async def test_what_follows_a_claim_is_not_sent_to_a_host_that_was_paused_since(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        now = bench.clock.ms
        (due,) = await store.outbox.claim(Lane.UNKNOWN, now, now + CLAIM_MS, 1, 1, with_behind=True)
        (behind,) = due.behind
        assert await store.outbox.owes(behind)
        await store.outbox.pause(paused("hooks.example:443"))
        assert not await store.outbox.owes(behind)
        await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        assert await store.outbox.paused_count() == 1


async def test_a_pause_survives_a_restart_and_the_last_webhook_of_its_host(bench: Bench) -> None:
    if not bench.durable:
        return
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        await store.outbox.pause(paused("hooks.example"))
        await store.outbox.remove("t1", "w")
    async with bench.store("h2") as store:
        await pushed_task(store, "t2", 1)
        assert await any_claimed(bench, store) == []
        assert await store.outbox.paused() == (replace(paused("hooks.example"), waiting=1),)


async def test_a_pending_delivery_is_sent_at_once_without_forgetting_its_failures(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        (due,) = await claimed(bench, store)
        assert await store.outbox.hasten([due.number, 999_999], bench.clock.ms) == 1, "it is in flight"
        assert await any_claimed(bench, store) == []
        later = bench.clock.ms + 1_000_000
        await store.outbox.settle(Settled(number=due.number, outcome="retry", due_ms=later, reason="HTTP 503"))
        assert await any_claimed(bench, store) == []
        second = (await store.outbox.owed())[1].number
        assert await store.outbox.hasten([second], bench.clock.ms) == 1
        (again,) = await claimed(bench, store, Lane.HEALTHY)
        assert (again.number, again.attempts) == (due.number, 1), "the one before it comes first"


async def test_a_pending_delivery_is_deleted_unless_it_is_in_flight(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3, 4)
        numbers = [one.number for one in await store.outbox.owed()]
        (due,) = await claimed(bench, store)
        assert await store.outbox.drop_pending([due.number, numbers[1], 999_999], bench.clock.ms) == 1
        later = bench.clock.ms + 1_000_000
        await store.outbox.settle(Settled(number=due.number, outcome="retry", due_ms=later, reason="HTTP 503"))
        assert await any_claimed(bench, store) == []
        assert await store.outbox.drop_pending([due.number], bench.clock.ms) == 1
        (following,) = await claimed(bench, store, Lane.HEALTHY)
        assert following.delivery.id == "w-4", "it does not wait for the one that is gone"
        bench.clock.ms += CLAIM_MS
        assert await store.outbox.drop_pending(numbers, bench.clock.ms) == 1, "its claim has run out"
        assert (await store.outbox.owed_count(), await store.outbox.next_due_ms()) == ((0, 0), None)
        await store.outbox.register("t1", webhook("w"), (telling(5),))
        assert await any_claimed(bench, store) == ["w-5"]


async def test_a_dead_letter_is_neither_hastened_nor_discarded(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1)
        (due,) = await claimed(bench, store)
        await store.outbox.settle(Settled(number=due.number, outcome="dead", reason="HTTP 400"))
        assert await store.outbox.hasten([due.number], bench.clock.ms) == 0
        assert await store.outbox.drop_pending([due.number], bench.clock.ms) == 0
        assert await store.outbox.owed_count() == (0, 1)


async def test_a_delivery_is_found_by_its_number_and_by_its_id(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3)
        await pushed_task(store, "t2", 7)
        assert await store.outbox.find(999_999) is None
        assert await store.outbox.find("nothing") is None
        (first,) = [due for due in await claimed(bench, store) if due.task_id == "t1"]
        found = await store.outbox.find(first.number)
        assert found is not None
        assert (found.owed.id, found.before, found.behind, found.lane) == ("w-1", 0, 2, Lane.UNKNOWN)
        assert found.claimed_until_ms == bench.clock.ms + CLAIM_MS
        assert (found.size_bytes, found.kept, found.part, found.dialect) == (len(telling(1).body), False, 0, "")
        second = await store.outbox.find("w-2")
        assert second is not None
        assert (second.owed.seq, second.before, second.behind, second.claimed_until_ms) == (2, 1, 1, None)
        assert [one.seq for one in await store.outbox.owed(task_id="t2")] == [7]
        assert await store.outbox.owed(task_id="t3") == ()
