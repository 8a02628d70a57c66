"""Pending deliveries: their order, their attempts and their outcomes.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import Fenced, Unknown
from dragoman.store.outbox import Due, Lane, Settled
from tests.store.cases.bench import (
    DAY_MS,
    START_MS,
    Bench,
    by_run,
    chunk,
    ending,
    loaded,
    new_task,
    refused,
    status,
)
from tests.store.cases.deliveries import CLAIM_MS, HOST, any_claimed, claimed, pushed_task, telling, webhook


async def test_a_delivery_is_written_with_its_event(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1),)))
        assert (await loaded(store, "t1")).pushed
        assert await store.outbox.configs("t1") == (webhook().config,)
        assert await store.outbox.configs("t2") == ()
        bench.clock.ms += 5
        (due,) = await claimed(bench, store)
        assert due == Due(
            number=due.number,
            task_id="t1",
            agent="echo",
            config=webhook().config,
            host=HOST,
            delivery=telling(1),
            attempts=0,
            made_ms=START_MS,
        )
        await store.outbox.settle(Settled(number=due.number, outcome="delivered"))
        assert await store.outbox.owed_count() == (0, 0)
        await store.append(replace(ending("t1", 1), deliveries=(telling(2, kept=True),)))
        (due,) = await claimed(bench, store, Lane.HEALTHY)
        assert due.delivery == telling(2, kept=True)
        assert due.made_ms == START_MS + 5


async def test_an_append_that_is_refused_owes_nothing(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store)
        late = replace(
            by_run("t1", chunk("late"), epoch=7), deliveries=(telling(2),), push=webhook("other", host="https://o:1")
        )
        good = replace(by_run("t1", status(TaskState.WORKING)), deliveries=(telling(3),))
        outcomes = await asyncio.gather(store.append(late), store.append(good), return_exceptions=True)
        assert isinstance(outcomes[0], Fenced)
        await refused(store.append(replace(late, task_id="nobody")), Unknown)
        await refused(store.append(late), Fenced)
        assert await any_claimed(bench, store) == ["w-3"]
        assert [config.id for config in await store.outbox.configs("t1")] == ["w"]
        await store.create(new_task("plain"))
        assert not (await loaded(store, "plain")).pushed


async def test_what_is_owed_to_nobody_is_not_written(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(replace(new_task("t1"), push=webhook(), deliveries=(telling(1, "gone"), telling(1))))
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(2, "gone"),)))
        await store.create(replace(new_task("t2"), deliveries=(telling(1),)))
        assert await store.outbox.owed_count() == (1, 0)


async def test_one_of_a_webhook_is_in_flight_in_the_order_of_writing(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        await asyncio.gather(
            *(store.append(replace(by_run("t1", chunk(str(n))), deliveries=(telling(n),))) for n in (3, 4))
        )
        await pushed_task(store, "t2", 5)
        seen: list[str] = []
        for _ in range(4):
            dues = [*await claimed(bench, store), *await claimed(bench, store, Lane.HEALTHY)]
            (mine,) = [due for due in dues if due.task_id == "t1"]
            assert await any_claimed(bench, store) == [], "the next waits for this one"
            seen.append(mine.delivery.id)
            await asyncio.gather(
                *(store.outbox.settle(Settled(number=due.number, outcome="delivered")) for due in dues)
            )
        assert seen == ["w-1", "w-2", "w-3", "w-4"]
        assert await store.outbox.owed_count() == (0, 0)
        bench.clock.ms += CLAIM_MS
        assert await any_claimed(bench, store) == []
        assert await store.outbox.next_due_ms() is None


async def test_webhooks_of_a_task_do_not_wait_for_each_other(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store)
        await store.outbox.register("t1", webhook("x"), (telling(1, "x"),))
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(2), telling(2, "x"))))
        assert sorted(await any_claimed(bench, store)) == ["w-2", "x-1"]


async def test_what_waits_behind_a_retry_is_merged_but_for_the_end(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3)
        (due,) = await claimed(bench, store)
        assert (await store.outbox.owed_count())[0] == 3, "before a failure nothing is merged"
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(4),)))
        again = bench.clock.ms + 1000
        await store.outbox.settle(Settled(number=due.number, outcome="retry", due_ms=again, reason="HTTP 503"))
        await store.append(replace(by_run("t1", chunk("b")), deliveries=(telling(5), telling(6))))
        assert [owed.id for owed in await store.outbox.owed()] == ["w-1", "w-6"]
        await store.append(replace(ending("t1", 3), deliveries=(telling(7), telling(8, kept=True))))
        assert [owed.id for owed in await store.outbox.owed()] == ["w-1", "w-7", "w-8"]
        await store.outbox.register("t1", webhook("w"), (telling(9),))
        owed = await store.outbox.owed()
        assert [one.id for one in owed] == ["w-1", "w-8", "w-9"]
        assert [one.due_ms for one in owed] == [again, None, None]
        assert [(one.attempts, one.reason) for one in owed] == [(1, "HTTP 503"), (0, ""), (0, "")]
        assert await any_claimed(bench, store) == [], "it waits"
        bench.clock.ms = again
        for name, attempts in (("w-1", 1), ("w-8", 0), ("w-9", 0)):
            (due,) = await claimed(bench, store, Lane.HEALTHY)
            assert (due.delivery.id, due.attempts) == (name, attempts)
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))


async def test_what_came_during_an_attempt_is_merged_once_it_has_failed(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3)
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(4), telling(4, "x"))))
        await store.append(replace(ending("t1", 2), deliveries=(telling(5), telling(6, kept=True))))
        (due,) = await claimed(bench, store)
        assert await store.outbox.owed_count() == (6, 0)
        retry = Settled(number=due.number, outcome="retry", due_ms=bench.clock.ms + 10, reason="HTTP 503")
        await store.outbox.settle(retry)
        assert [owed.id for owed in await store.outbox.owed()] == ["w-1", "w-5", "w-6"]
        bench.clock.ms += 10
        for name in ("w-1", "w-5", "w-6"):
            (due,) = await claimed(bench, store, Lane.HEALTHY)
            assert due.delivery.id == name
            await store.outbox.settle(Settled(number=due.number, outcome="delivered"))


async def test_a_claim_that_runs_out_is_claimed_again_and_settled_once(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        (first,) = await claimed(bench, store)
        bench.clock.ms += CLAIM_MS - 1
        assert await any_claimed(bench, store) == []
        bench.clock.ms += 1
        (second,) = await claimed(bench, store)
        assert second == first
        retry = Settled(number=first.number, outcome="retry", due_ms=bench.clock.ms + 10, reason="timeout")
        await asyncio.gather(store.outbox.settle(retry), store.outbox.settle(retry))
        assert [(one.id, one.attempts) for one in await store.outbox.owed()] == [("w-1", 1), ("w-2", 0)]
        await store.outbox.settle(replace(retry, outcome="dead"))
        assert await store.outbox.owed_count() == (2, 0)
        bench.clock.ms += 10
        (third,) = await claimed(bench, store, Lane.HEALTHY)
        await store.outbox.settle(Settled(number=first.number, outcome="delivered"))
        await store.outbox.settle(replace(retry, number=third.number))
        (following,) = await claimed(bench, store, Lane.HEALTHY)
        await store.outbox.settle(retry)
        await store.outbox.settle(Settled(number=third.number, outcome="delivered"))
        assert following.delivery.id == "w-2"
        assert await any_claimed(bench, store) == [], "it is in flight, whatever is told of the one before"
        assert (await store.outbox.owed())[0].attempts == 0
        bench.clock.ms += CLAIM_MS
        assert await claimed(bench, store, Lane.HEALTHY) == [following]
        await store.append(replace(by_run("t1", chunk("a")), deliveries=(telling(3),)))
        arrived = Settled(number=following.number, outcome="delivered")
        await asyncio.gather(*(store.outbox.settle(arrived) for _ in range(3)))
        assert await any_claimed(bench, store) == ["w-3"]


async def test_a_dead_letter_lets_the_next_out_and_can_be_sent_again(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3)
        for name in ("w-1", "w-2"):
            (due,) = await claimed(bench, store, Lane.UNKNOWN if name == "w-1" else Lane.FAILING)
            assert due.delivery.id == name
            dead = Settled(number=due.number, outcome="dead", reason=f"no answer {name}", reached=False)
            await store.outbox.settle(dead)
        assert await store.outbox.owed_count() == (1, 2)
        await pushed_task(store, "t2", 1, 2, host="https://other:1")
        groups = [
            (each.host, each.dead, each.cause, each.calls, each.webhooks) for each in await store.outbox.owed_groups(9)
        ]
        assert groups == [
            ("https://other:1", False, "", 2, 1),
            (HOST, False, "", 1, 1),
            (HOST, True, "no answer w-1", 1, 1),
            (HOST, True, "no answer w-2", 1, 1),
        ]
        assert len(await store.outbox.owed_groups(1)) == 1
        assert [one.task_id for one in await store.outbox.owed(host="https://other:1")] == ["t2", "t2"]
        assert [one.id for one in await store.outbox.owed(host=HOST, dead=False)] == ["w-3"]
        assert [one.id for one in await store.outbox.owed(host=HOST, dead=True)] == ["w-1", "w-2"]
        assert await store.outbox.remove("t2", "w")
        letters = await store.outbox.owed(dead=True)
        assert [(one.id, one.attempts, one.dead, one.due_ms, one.reason) for one in letters] == [
            (name, 1, True, None, f"no answer {name}") for name in ("w-1", "w-2")
        ]
        assert [one.id for one in await store.outbox.owed(dead=False)] == ["w-3"]
        assert [one.id for one in await store.outbox.owed(after=letters[0].number, limit=1)] == ["w-2"]
        (third,) = await claimed(bench, store, Lane.FAILING)
        assert await store.outbox.drop([letters[0].number, third.number, 999_999]) == 1
        assert await store.outbox.revive([third.number], bench.clock.ms) == 0, "it is not dead"
        assert await store.outbox.revive(None, bench.clock.ms) == 1
        assert await any_claimed(bench, store) == [], "one is in flight"
        await store.outbox.settle(Settled(number=third.number, outcome="retry", due_ms=bench.clock.ms + DAY_MS))
        (second,) = await claimed(bench, store, Lane.FAILING)
        assert (second.delivery.id, second.attempts) == ("w-2", 0)
        await store.outbox.settle(Settled(number=second.number, outcome="dead"))
        assert await store.outbox.drop(None) == 1
        assert [(one.id, one.dead) for one in await store.outbox.owed()] == [("w-3", False)]


async def test_a_dead_letter_that_had_arrived_leaves_nothing_due(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2)
        (first,) = await claimed(bench, store)
        await store.outbox.settle(Settled(number=first.number, outcome="dead"))
        (second,) = await claimed(bench, store, Lane.HEALTHY)
        await store.outbox.revive(None, bench.clock.ms)
        await asyncio.gather(
            *(store.outbox.settle(Settled(number=due.number, outcome="delivered")) for due in (first, second))
        )
        assert await store.outbox.owed_count() == (0, 0)
        bench.clock.ms += CLAIM_MS
        assert await any_claimed(bench, store) == []
        assert await store.outbox.next_due_ms() is None


async def test_many_dead_letters_are_sent_again_at_once(bench: Bench) -> None:
    async with bench.store() as store:
        count = 1203
        await asyncio.gather(*(pushed_task(store, f"t{n}", n) for n in range(count)))
        dues = await claimed(bench, store, limit=2000, per_host=2000)
        await asyncio.gather(*(store.outbox.settle(Settled(number=due.number, outcome="dead")) for due in dues))
        assert await store.outbox.owed_count() == (0, count)
        assert await store.outbox.revive(None, bench.clock.ms) == count
        dues = await claimed(bench, store, Lane.HEALTHY, limit=2000, per_host=2000)
        assert len({due.number for due in dues}) == count
        assert await store.outbox.owed_count() == (count, 0)


async def test_a_webhook_that_is_gone_is_owed_nothing_more(bench: Bench) -> None:
    async with bench.store() as store:
        await pushed_task(store, "t1", 1, 2, 3)
        (due,) = await claimed(bench, store)
        await store.outbox.settle(Settled(number=due.number, outcome="dead"))
        (due,) = await claimed(bench, store, Lane.HEALTHY)
        await store.outbox.settle(Settled(number=due.number, outcome="gone", reason="HTTP 410"))
        await store.append(replace(ending("t1", 1), deliveries=(telling(4, kept=True),)))
        assert await store.outbox.owed_count() == (0, 0)
        assert await store.outbox.configs("t1") == (webhook().config,), "it is still the caller's"
        await store.outbox.register("t1", webhook(), (telling(5, kept=True),))
        assert await any_claimed(bench, store) == ["w-5"], "until it is registered anew"
