"""Quotas: the limits on the tasks of an owner.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import Appended, Dedupe, Repeat
from tests.store.cases.bench import START_MS, TODAY, Bench, D, admitted, ending, limited, new_task


async def test_an_owner_has_so_many_open_tasks_with_all_agents(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("before", agent="poet", state=TaskState.INPUT_REQUIRED, holder=None))
        await store.create(limited("t1", most=3, context_id="c2"))
        await store.create(limited("t2", most=3, agent="poet"))
        over = await asyncio.gather(store.create(limited("t3", most=3)), return_exceptions=True)
        assert admitted(over) == ["max_open_tasks"]
        assert await store.load("t3") is None
        await store.create(limited("t4", most=3, owner="bob"))
        await store.create(limited("t5"))
        await store.append(ending("t1", 1))
        await store.append(ending("t2", 1))
        await store.create(limited("t6", most=3))
        await store.create(replace(limited("ended", most=4), state=D))
        await store.create(limited("t7", most=4))


async def test_a_quota_holds_among_those_who_come_together(bench: Bench) -> None:
    async with bench.store() as store:
        tasks = [limited(f"t{n}", most=5, context_id=f"c{n % 3}", agent=f"a{n % 2}") for n in range(12)]
        others = [limited(f"o{n}", most=5, owner="bob") for n in range(5)]
        free = [new_task(f"f{n}", owner="carol") for n in range(10)]
        outcomes = await asyncio.gather(*map(store.create, [*tasks, *others, *free]), return_exceptions=True)
        assert admitted(outcomes) == ["yes"] * 5 + ["max_open_tasks"] * 7 + ["yes"] * 15
        assert [await store.load(f"t{n}") is not None for n in range(12)] == [True] * 5 + [False] * 7
        again = await asyncio.gather(
            store.append(ending("t0", 1)),
            store.create(limited("t20", most=5)),
            store.create(limited("t21", most=5)),
            return_exceptions=True,
        )
        assert admitted(again) == ["yes", "yes", "max_open_tasks"]


async def test_an_owner_makes_so_many_tasks_a_day(bench: Bench) -> None:
    async with bench.store() as store:
        first = [limited(f"t{n}", daily=3) for n in range(2)]
        for new in first:
            await store.create(new)
            await store.append(ending(new.head.id, 1))
        more = [limited(f"m{n}", daily=3, agent="poet") for n in range(3)]
        outcomes = await asyncio.gather(*map(store.create, more), return_exceptions=True)
        assert admitted(outcomes) == ["yes", "max_daily_tasks", "max_daily_tasks"]
        await store.create(limited("bobs", daily=3, owner="bob"))
        await store.create(limited("tomorrow", daily=3, day=TODAY + 1))
    if not bench.durable:
        return
    async with bench.store("h2") as store:
        again = await asyncio.gather(store.create(limited("again", daily=3)), return_exceptions=True)
        assert admitted(again) == ["max_daily_tasks"]


async def test_a_call_that_is_repeated_counts_once(bench: Bench) -> None:
    async with bench.store() as store:
        key = Dedupe(b"k", b"d", START_MS + 1000)
        new = replace(limited("t1", most=1, daily=1), dedupe=key)
        await store.create(new)
        assert await store.create(new) == Repeat("t1", b"d", 1), "it is not refused either"
        both = await asyncio.gather(store.create(new), store.create(limited("t2", daily=2)))
        assert [type(outcome) for outcome in both] == [Repeat, Appended]


async def test_days_that_are_past_are_swept(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(limited("t1", daily=1))
        await store.create(limited("t2", daily=1, day=TODAY - 1))
        await store.create(limited("t3", daily=1, day=TODAY - 2))
        assert await store.sweep(START_MS, -1, -1, -1) == 1
        assert await store.sweep(START_MS, -1, -1, -1) == 0
        await store.create(limited("t4", daily=1, day=TODAY - 2))
        over = await asyncio.gather(store.create(limited("t5", daily=1)), return_exceptions=True)
        assert admitted(over) == ["max_daily_tasks"]
