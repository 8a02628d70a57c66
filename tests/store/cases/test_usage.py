"""Usage: what runs used is added up with their ends, each once, and outlives their tasks.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio
from contextlib import AsyncExitStack

from msgspec.structs import replace

from dragoman.model.events import StatusChanged
from dragoman.model.message import Role
from dragoman.model.task import TOKENS_MAX, ModelUsage, TaskState, Usage
from dragoman.store.api import Append, Dedupe, TaskEnded
from dragoman.store.usage import AnswerUsage, UsageDay, Used, read_sum, used_by_answer
from tests.store.cases.bench import DAY_MS, START_MS, Bench, ending, message, new_task, refused

TODAY = START_MS // DAY_MS


def ended(
    task_id: str,
    seq: int = 1,
    *,
    usage: Usage | None = None,
    at: int = START_MS,
    messages: int = 1,
    duration_ms: int = 5,
    epoch: int | None = 1,
) -> Append:
    """The end of a task, with what it used."""
    end = ending(task_id, seq, at=at, epoch=epoch)
    assert end.snapshot is not None
    (status,) = end.events
    assert isinstance(status, StatusChanged)
    history = tuple(message(f"{place}", role=Role.USER) for place in range(messages))
    return replace(
        end,
        events=(replace(status, usage=usage, duration_ms=duration_ms),),
        snapshot=replace(end.snapshot, usage=usage, duration_ms=duration_ms, history=history),
    )


def day(*numbers: int, model: str = "", on: int = TODAY, owner: str = "ann", agent: str = "echo") -> UsageDay:
    """The sums of a day: runs, tasks, messages, those that reported, tokens in, out and in all, milliseconds."""
    return read_sum(model, (*numbers, 0, 0, 0), on, owner, agent)


def by_model(days: tuple[UsageDay, ...]) -> list[UsageDay]:
    """The sums in an order that every store comes to."""
    return sorted(days, key=lambda each: (each.day, each.owner, each.agent, each.model))


async def test_the_end_of_a_task_counts_what_it_used_on_that_day(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id, owner, agent in (("t1", "ann", "echo"), ("t2", "ann", "echo"), ("t3", "bob", "echo")):
            await store.create(new_task(task_id, owner=owner, agent=agent))
        assert await store.usage.days(0, TODAY + 1) == ()
        named = Usage.of(100, 20, model="m1") + Usage.of(10, 2, model="m2") + Usage.of(1, 1)
        await store.append(ended("t1", usage=named, duration_ms=40, messages=3))
        await store.append(ended("t2"))
        await store.append(ended("t3", usage=Usage.of(7, 0, 9), at=START_MS + DAY_MS))
        assert by_model(await store.usage.days(TODAY, TODAY)) == [
            day(1, 1, 1, 0, 1, 1, 2, 5),
            day(1, 1, 3, 1, 100, 20, 120, 40, model="m1"),
            day(0, 0, 0, 0, 10, 2, 12, 0, model="m2"),
        ]
        assert await store.usage.days(TODAY + 1, TODAY + 9) == (day(1, 1, 1, 1, 7, 0, 9, 5, on=TODAY + 1, owner="bob"),)
        assert await store.usage.tokens("ann", TODAY) == 134
        assert await store.usage.tokens("bob", TODAY) == 0
        assert await store.usage.tokens("bob", TODAY + 1) == 9


async def test_upstreams_are_told_apart_with_what_their_prices_need(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id in ("t1", "t2"):
            await store.create(new_task(task_id))
            lost = Usage.unknown("m", "us")
            end = ended(task_id, usage=lost + Usage.of(9, 1, model="m", upstream="eu", cached_tokens=4), duration_ms=7)
            assert end.snapshot is not None
            await store.append(replace(end, snapshot=replace(end.snapshot, waited_ms=3)))
        direct = used_by_answer(Usage.of(5, 0, model="m\x1feu", cached_tokens=2, upstream="eu"), 1)
        for key, owner in ((b"k1", "ann"), (b"k2", "bob")):
            spent = AnswerUsage(owner, "echo", START_MS, direct)
            await store.remember(Dedupe(key, b"d", START_MS + 1000), message("yes"), spent)
        kept = await store.load_snapshot("t1")
        assert kept is not None
        assert kept.snapshot is not None
        assert kept.snapshot.waited_ms == 3
        counted = sorted(await store.usage.days(TODAY, TODAY), key=lambda each: (each.owner, each.model, each.upstream))
        assert counted == [
            UsageDay("m", 2, 2, 2, 2, 18, 2, 20, 14, 8, 0, 6, "eu", day=TODAY, owner="ann", agent="echo"),
            UsageDay("m", uncertain=2, upstream="us", day=TODAY, owner="ann", agent="echo"),
            UsageDay("m eu", 1, 0, 1, 1, 5, 0, 5, 1, 2, 0, 0, "eu", day=TODAY, owner="ann", agent="echo"),
            UsageDay("m eu", 1, 0, 1, 1, 5, 0, 5, 1, 2, 0, 0, "eu", day=TODAY, owner="bob", agent="echo"),
        ]


async def test_ends_of_one_moment_are_added_up(bench: Bench) -> None:
    async with bench.store() as store:
        ids = [f"t{number}" for number in range(40)]
        await asyncio.gather(*(store.create(new_task(task_id)) for task_id in ids))
        await asyncio.gather(*(store.append(ended(task_id, usage=Usage.of(2, 1, model="m"))) for task_id in ids))
        assert await store.usage.days(TODAY, TODAY) == (day(40, 40, 40, 40, 80, 40, 120, 200, model="m"),)


async def test_sums_of_a_day_stop_at_the_highest_number_of_tokens(bench: Bench) -> None:
    async with bench.store() as store:
        ids = ("t1", "t2", "t3")
        await asyncio.gather(*(store.create(new_task(task_id)) for task_id in ids))
        model = ModelUsage("m", TOKENS_MAX, 0, TOKENS_MAX, uncertain=TOKENS_MAX)
        most = Usage(TOKENS_MAX, TOKENS_MAX, TOKENS_MAX, (model,))
        await asyncio.gather(*(store.append(ended(task_id, usage=most)) for task_id in ids[:2]))
        await store.append(ended(ids[2], usage=most))
        spent = AnswerUsage("ann", "echo", START_MS + DAY_MS, used_by_answer(most, 1))
        await store.remember(Dedupe(b"k", b"d", START_MS + 1000), message("yes"), spent)
        counted = by_model(await store.usage.days(TODAY, TODAY))
        assert [(each.model, each.input_tokens, each.total_tokens, each.uncertain) for each in counted] == [
            ("", 0, 0, 0),
            ("m", TOKENS_MAX, TOKENS_MAX, TOKENS_MAX),
        ]
        assert sum(each.runs for each in counted) == len(ids)
        assert {each.uncertain for each in await store.usage.days(TODAY + 1, TODAY + 1)} == {0, TOKENS_MAX}
        assert await store.usage.tokens("ann", TODAY) == TOKENS_MAX


async def test_an_end_counts_once_whoever_repeats_it(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        end = replace(ended("t1", usage=Usage.of(2, 1)), write=7, read_seq=1)
        await store.append(end)
        await store.append(end)
        await refused(store.append(replace(end, write=8)), TaskEnded)
        both = [replace(ended("t1", usage=Usage.of(2, 1)), write=number) for number in (9, 10)]
        for outcome in await asyncio.gather(*(store.append(each) for each in both), return_exceptions=True):
            assert isinstance(outcome, TaskEnded)
        assert await store.usage.days(TODAY, TODAY) == (day(1, 1, 1, 1, 2, 1, 3, 5),)


async def test_usage_outlives_the_tasks_and_the_process(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.append(ended("t1", usage=Usage.of(2, 1)))
        while await store.sweep(START_MS + 2 * DAY_MS, DAY_MS, DAY_MS, DAY_MS):
            pass
        assert await store.load("t1") is None
        assert await store.usage.days(TODAY, TODAY) == (day(1, 1, 1, 1, 2, 1, 3, 5),)
    if bench.durable:
        async with bench.store("h2") as store:
            while await store.sweep(START_MS + 2 * DAY_MS, DAY_MS, DAY_MS, DAY_MS):
                pass
            assert await store.usage.days(TODAY, TODAY) == (day(1, 1, 1, 1, 2, 1, 3, 5),)


async def test_a_direct_answer_counts_with_the_call_that_it_answers(bench: Bench) -> None:
    async with bench.store() as store:
        used = AnswerUsage("ann", "echo", START_MS, used_by_answer(Usage.of(2, 1, model="m"), 30))
        for key in (b"k1", b"k1", b"k2"):
            await store.remember(Dedupe(key, b"d", START_MS + 1000), message("yes"), used)
        assert await store.usage.days(TODAY, TODAY) == (day(2, 0, 2, 2, 4, 2, 6, 60, model="m"),)
        assert await store.usage.tokens("ann", TODAY) == 6


async def test_answers_that_are_not_stored_are_counted_when_the_store_closes_at_the_latest(bench: Bench) -> None:
    if not bench.durable:
        return
    async with bench.store() as store:
        for owner in ("ann", "bob", "ann"):
            store.usage.gather(AnswerUsage(owner, "echo", START_MS, (Used("", 1, 0, 1, duration_ms=3),)))
    async with bench.store("h2") as store:
        assert by_model(await store.usage.days(TODAY, TODAY)) == [
            day(2, 0, 2, 0, 0, 0, 0, 6),
            day(1, 0, 1, 0, 0, 0, 0, 3, owner="bob"),
        ]


async def test_replicas_add_to_the_same_day(bench: Bench) -> None:
    if not bench.shared:
        return
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(bench.store(f"h{number}")) for number in range(3)]
        ids = [f"t{number}" for number in range(30)]
        await asyncio.gather(
            *(stores[place % 3].create(new_task(task_id, holder=f"h{place % 3}")) for place, task_id in enumerate(ids))
        )
        end = Usage(3, 1, 4, (ModelUsage("m", 3, 1, 4),))
        ends = (stores[place % 3].append(ended(task_id, usage=end)) for place, task_id in enumerate(ids))
        await asyncio.gather(*ends)
        for store in stores:
            assert await store.usage.days(TODAY, TODAY) == (day(30, 30, 30, 30, 90, 30, 120, 150, model="m"),)
            assert await store.usage.tokens("ann", TODAY) == 120
        for number in (1, 2):
            await stores[number].replicas.leave(f"h{number}")
        while await stores[0].sweep(START_MS, -1, -1, -1):
            pass
        assert await stores[0].usage.days(TODAY, TODAY) == (day(30, 30, 30, 30, 90, 30, 120, 150, model="m"),)


async def test_a_task_that_was_canceled_while_it_waited_counts_too(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(replace(new_task("t1", holder=None), state=TaskState.INPUT_REQUIRED))
        end = replace(ended("t1", epoch=None), state=TaskState.CANCELED, expected_seq=1)
        await store.append(end)
        assert await store.usage.days(TODAY, TODAY) == (day(1, 1, 1, 0, 0, 0, 0, 5),)


async def test_sums_of_days_before_one_are_swept(bench: Bench) -> None:
    async with bench.store() as store:
        for number in range(1, 4):
            await store.create(new_task(f"t{number}"))
            await store.append(
                ended(f"t{number}", usage=Usage.of(1, 1, model=f"m{number}"), at=START_MS + number * DAY_MS)
            )
        assert await store.usage.sweep(TODAY + 1) == 0
        assert await store.usage.sweep(TODAY + 3) == 2
        assert await store.usage.sweep(TODAY + 3) == 0
        assert [each.model for each in await store.usage.days(0, TODAY + 9)] == ["m3"]


async def test_the_usage_of_all_owners_of_an_agent_is_one_sum(bench: Bench) -> None:
    async with bench.store() as store:
        for task_id, owner in (("t1", "ann"), ("t2", "bob")):
            await store.create(new_task(task_id, owner=owner))
            await store.append(ended(task_id, usage=Usage.of(100, 20, model="m1")))
        await store.create(new_task("t3", owner="bob", agent="other"))
        await store.append(ended("t3", usage=Usage.of(TOKENS_MAX, 1)))
        found = by_model(await store.usage.by_agent(TODAY, TODAY))
        assert [(each.owner, each.agent, each.model, each.runs, each.input_tokens) for each in found] == [
            ("", "echo", "m1", 2, 200),
            ("", "other", "", 1, TOKENS_MAX),
        ]
        assert await store.usage.by_agent(TODAY + 1, TODAY + 1) == ()
