"""Store cases: two store objects on one place at the same time, as in two processes.

Invariant: a case uses nothing but the Store protocol. They run on the stores that several processes may have open.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dragoman.model.events import MessageReceived
from dragoman.model.ids import timestamp
from dragoman.model.task import TaskState
from dragoman.store.api import Append, Appended, Dedupe, Exists, ListQuery, Moved, NewTask, Repeat, Store
from tests.store.cases.bench import (
    AGENTS,
    DAY_MS,
    START_MS,
    Bench,
    D,
    W,
    admitted,
    by_run,
    chunk,
    ending,
    limited,
    loaded,
    message,
    new_task,
    refused,
    seqs,
)

WHOLE = 1 << 30

Handles = tuple[Store, Store]


@pytest.fixture
def bench(shared_bench: Bench) -> Bench:
    return shared_bench


@asynccontextmanager
async def _both(bench: Bench) -> AsyncIterator[Handles]:
    """Two open stores, whose replicas are `h1` and `h2`."""
    async with bench.store("h1") as one, bench.store("h2") as other:
        yield one, other


def _said(task_id: str, text: str, seq: int, write: int | None = None) -> Append:
    """A message of a caller who has seen `seq`."""
    events = (MessageReceived(message(text), timestamp(START_MS)),)
    return Append(
        task_id=task_id, events=events, state=W, status_ms=START_MS, expected_seq=seq, read_seq=seq, write=write
    )


async def _total(store: Store) -> int:
    return (await store.list(ListQuery(owner="ann", agent="echo"))).total


def _kinds(outcomes: Sequence[object]) -> list[str]:
    return sorted(type(outcome).__name__ for outcome in outcomes)


async def test_each_sees_what_the_other_has_committed(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        await one.create(new_task("t1"))
        assert (await loaded(other, "t1")).seq == 1
        await other.append(by_run("t1", chunk("a")))
        assert (await loaded(one, "t1")).seq == 2
        assert seqs(await one.read("t1", 0, WHOLE)) == [1, 2]
        await one.append(ending("t1", 2))
        assert (await loaded(other, "t1")).state is D
        assert (await other.list(ListQuery(owner="ann", agent="echo", state=D))).total == 1
        assert {task_id: seqs(log) for task_id, log in (await other.read_since([("t1", 1)], WHOLE)).items()} == {
            "t1": [2, 3]
        }


async def test_of_two_who_decided_on_the_same_seq_one_writes(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        await one.create(new_task("t1"))
        for seq in range(1, 21):
            calls = (one.append(_said("t1", "one", seq)), other.append(_said("t1", "other", seq)))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert _kinds(outcomes) == ["Appended", "Moved"], outcomes
        assert seqs(await one.read("t1", 0, WHOLE)) == list(range(1, 22))


async def test_nothing_is_lost_of_those_who_append_at_once(bench: Bench) -> None:
    async def speak(store: Store, name: str, write: int) -> None:
        for number in range(25):
            said = replace(by_run("t1", chunk(f"{name}{number}")), write=write + number)
            appended = await store.append(said)
            assert isinstance(appended, Appended)

    async with _both(bench) as (one, other):
        await one.create(new_task("t1"))
        await asyncio.gather(speak(one, "a", 100), speak(other, "b", 200))
        log = await other.read("t1", 0, WHOLE)
        assert seqs(log) == list(range(1, 52))
        texts = [logged.event.artifact.parts[0].text for logged in log[1:]]  # type: ignore[union-attr]
        assert [text for text in texts if text and text[0] == "a"] == [f"a{number}" for number in range(25)]
        assert [text for text in texts if text and text[0] == "b"] == [f"b{number}" for number in range(25)]


async def test_batches_that_meet_do_not_wait_for_each_other(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        ids = [f"t{number:02}" for number in range(30)]
        await asyncio.gather(*(one.create(new_task(task_id)) for task_id in ids))
        for turn in range(5):
            writes = [one.append(by_run(task_id, chunk(f"a{turn}"))) for task_id in ids]
            writes += [other.append(by_run(task_id, chunk(f"b{turn}"))) for task_id in reversed(ids)]
            outcomes = await asyncio.gather(*writes)
            assert _kinds(outcomes) == ["Appended"] * 60
        assert {(await loaded(one, task_id)).seq for task_id in ids} == {11}


async def test_a_call_that_comes_to_both_is_made_once(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        keys = [Dedupe(bytes([number]) * 32, b"d", START_MS + 1000) for number in range(20)]
        calls = [one.create(new_task(f"a{number}", dedupe=key)) for number, key in enumerate(keys)]
        calls += [other.create(new_task(f"b{number}", dedupe=key)) for number, key in enumerate(keys)]
        outcomes = await asyncio.gather(*calls)
        assert _kinds(outcomes) == ["Appended"] * 20 + ["Repeat"] * 20
        for number in range(20):
            first, second = outcomes[number], outcomes[20 + number]
            made = f"a{number}" if isinstance(first, Appended) else f"b{number}"
            repeat = second if isinstance(first, Appended) else first
            assert repeat == Repeat(made, b"d", 1)
            assert (await loaded(one, made)).seq == 1
        assert await _total(one) == await _total(other) == 20


async def test_an_answer_that_comes_to_both_is_made_once(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        await one.create(new_task("t1"))
        seq = 1
        for number in range(10):
            key = Dedupe(bytes([number]), b"d", START_MS + 1000)
            call = replace(_said("t1", "answer", seq), dedupe=key)
            outcomes = await asyncio.gather(one.append(call), other.append(call), return_exceptions=True)
            seq += 1
            assert _kinds(outcomes) in (["Appended", "Repeat"], ["Appended", "Moved"]), outcomes
            assert await other.append(call) == Repeat("t1", b"d", seq)


async def test_of_two_who_make_the_same_task_one_does(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        for number in range(10):
            new = new_task(f"t{number}")
            outcomes = await asyncio.gather(
                one.create(replace(new, write=1)), other.create(replace(new, write=2)), return_exceptions=True
            )
            assert sorted(map(type, outcomes), key=str) == [Appended, Exists]
        assert await _total(one) == 10


async def test_a_write_that_is_repeated_through_the_other_is_made_once(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        new = replace(new_task("t1"), write=1)
        first, second = await asyncio.gather(one.create(new), other.create(new))
        assert first == second
        for number in range(10):
            said = replace(by_run("t1", chunk(str(number))), write=2 + number, read_seq=1 + number)
            first, second = await asyncio.gather(one.append(said), other.append(said))
            assert first == second
        assert seqs(await one.read("t1", 0, WHOLE)) == list(range(1, 12))


async def test_those_who_claim_through_both_get_different_tasks(bench: Bench) -> None:
    async def claim(store: Store, holder: str) -> list[str]:
        mine: list[str] = []
        while claimed := await store.claim(holder, 3, AGENTS):
            assert {stored.holder for stored in claimed} == {holder}
            mine += [stored.head.id for stored in claimed]
        return mine

    async with _both(bench) as (one, other):
        for number in range(40):
            waits = new_task(f"t{number:02}", holder=None, state=TaskState.SUBMITTED)
            await one.create(waits if number % 2 else new_task(f"t{number:02}", holder="dead"))
        both = await asyncio.gather(claim(one, "h1"), claim(other, "h2"), claim(one, "h1"), claim(other, "h2"))
        found = sorted(task_id for mine in both for task_id in mine)
        left = [f"t{number:02}" for number in range(40)]
        found += sorted(await claim(one, "h1") + await claim(other, "h2"))
        assert sorted(found) == left, "each once"
        assert {(await loaded(one, task_id)).epoch for task_id in left[1::2]} == {1}


async def test_totals_and_quotas_count_the_tasks_of_both(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        tasks = [limited(f"t{number}", most=5, daily=7) for number in range(16)]
        calls = [(one, other)[number % 2].create(new) for number, new in enumerate(tasks)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(admitted(outcomes)) == ["max_open_tasks"] * 11 + ["yes"] * 5
        assert await _total(one) == await _total(other) == 5
        made = [new.head.id for new, outcome in zip(tasks, outcomes, strict=True) if isinstance(outcome, Appended)]
        for task_id in made:
            await other.append(ending(task_id, 1))
        for store in (one, other):
            assert (await store.list(ListQuery(owner="ann", agent="echo", state=D))).total == 5
            assert (await store.list(ListQuery(owner="ann", agent="echo", state=W))).total == 0
        more: list[NewTask] = [limited(f"m{number}", most=5, daily=7) for number in range(6)]
        calls = [(one, other)[number % 2].create(new) for number, new in enumerate(more)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(admitted(outcomes)) == ["max_daily_tasks"] * 4 + ["yes"] * 2
    async with bench.store("h3") as store:
        while await store.sweep(START_MS, -1, -1, -1):
            pass
        assert await _total(store) == 7, "the counters of those who are gone count on"


async def test_who_holds_a_task_keeps_the_other_out(bench: Bench) -> None:
    async with _both(bench) as (one, other):
        await one.create(new_task("t1"))
        async with one.hold("t1") as held:
            waiting = other.append(by_run("t1", chunk("late")))
            assert isinstance(await held.append(_said("t1", "first", held.stored.seq)), Appended)
        assert isinstance(await waiting, Appended)
        log = await one.read("t1", 0, WHOLE)
        assert [type(logged.event).__name__ for logged in log] == ["Submitted", "MessageReceived", "ArtifactChunk"]
        await refused(other.append(_said("t1", "on what it saw before", 1)), Moved)


async def test_those_who_hold_the_same_task_take_turns(bench: Bench) -> None:
    async def add(store: Store, times: int) -> None:
        for _ in range(times):
            async with store.hold("t1") as held:
                await held.append(_said("t1", "more", held.stored.seq))

    async with _both(bench) as (one, other):
        await one.create(new_task("t1"))
        await asyncio.gather(add(one, 10), add(other, 10), add(one, 5))
        assert seqs(await one.read("t1", 0, WHOLE)) == list(range(1, 27))


async def test_what_both_sweep_is_deleted_once(bench: Bench) -> None:
    async def sweep(store: Store) -> int:
        rows = 0
        while went := await store.sweep(START_MS, DAY_MS, -1, -1):
            rows += went
        return rows

    async with _both(bench) as (one, other):
        at = START_MS - 2 * DAY_MS
        for number in range(60):
            await one.create(new_task(f"t{number}", at=at))
            await other.append(ending(f"t{number}", 1, at=at))
        await one.create(new_task("stays"))
        both = await asyncio.gather(sweep(one), sweep(other))
        left = await sweep(one)
        assert sum(both) + left >= 60 * 3, "row, log and snapshot of each"
        assert await _total(one) == await _total(other) == 1
        assert await sweep(other) == 0
