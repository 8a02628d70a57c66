"""Calls that are repeated, requests to cancel, probes, callers who leave.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from dragoman.model.events import MessageReceived
from dragoman.model.ids import timestamp
from dragoman.model.message import Role
from dragoman.store.api import (
    Append,
    Appended,
    Dedupe,
    ListQuery,
    Moved,
    Repeat,
)
from tests.store.cases.bench import (
    START_MS,
    Bench,
    W,
    ending,
    loaded,
    message,
    new_task,
    refused,
)


async def test_a_repeated_call_is_answered_by_the_earlier_one(bench: Bench) -> None:
    async with bench.store() as store:
        key = Dedupe(b"k" * 32, b"digest", START_MS + 1000)
        await store.create(new_task("t1", dedupe=key))
        assert await store.create(new_task("t2", dedupe=key)) == Repeat("t1", b"digest", 1)
        assert await store.load("t2") is None
        assert await store.recall(key.key) == Repeat("t1", b"digest", 1)
        assert await store.recall(b"other") is None
        said = Dedupe(b"s", b"d", START_MS + 1000)
        more = Append(
            task_id="t1",
            events=(MessageReceived(message("more"), timestamp(1)),),
            state=W,
            status_ms=1,
            expected_seq=1,
            dedupe=said,
        )
        both = await asyncio.gather(store.append(more), store.append(more))
        assert isinstance(both[0], Appended)
        assert both[1] == Repeat("t1", b"d", 2)
        await store.append(ending("t1", 2))
        assert await store.append(more) == Repeat("t1", b"d", 2), "the earlier call answers, though the task has ended"


async def test_a_repeat_leaves_those_who_come_with_it_alone(bench: Bench) -> None:
    async with bench.store() as store:
        key = Dedupe(b"known", b"d", START_MS + 1000)
        await store.create(new_task("first", dedupe=key))
        outcomes = await asyncio.gather(
            *(
                store.create(
                    new_task(f"t{n}", dedupe=key if n == 5 else Dedupe(bytes([n % 8]) * 32, b"d", START_MS + 1000))
                )
                for n in range(10)
            )
        )
        repeats = {n: outcome for n, outcome in enumerate(outcomes) if isinstance(outcome, Repeat)}
        assert repeats == {5: Repeat("first", b"d", 1), 8: Repeat("t0", b"d", 1), 9: Repeat("t1", b"d", 1)}
        assert (await store.list(ListQuery(owner="ann", agent="echo"))).total == 8


async def test_a_refused_append_is_not_remembered(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        call = Append(
            task_id="t1", events=(), state=W, status_ms=1, expected_seq=7, dedupe=Dedupe(b"k", b"d", START_MS + 1000)
        )
        await refused(store.append(call), Moved)
        assert await store.recall(b"k") is None


async def test_a_dedupe_key_counts_until_it_expires(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1", dedupe=Dedupe(b"k", b"d1", START_MS + 1000)))
        bench.clock.ms = START_MS + 1000
        assert await store.recall(b"k") is None
        assert isinstance(await store.create(new_task("t2", dedupe=Dedupe(b"k", b"d2", START_MS + 2000))), Appended)
        assert await store.recall(b"k") == Repeat("t2", b"d2", 1)


async def test_a_call_takes_the_place_of_one_that_came_to_nothing(bench: Bench) -> None:
    async with bench.store() as store:
        key = Dedupe(b"k", b"d", START_MS + 1000)
        await store.create(new_task("t1", dedupe=key))
        other = Dedupe(b"k", b"d", START_MS + 1000, "t0")
        assert await store.create(new_task("t2", dedupe=other)) == Repeat("t1", b"d", 1), "another task has the place"
        again = Dedupe(b"k", b"d", START_MS + 1000, "t1")
        both = await asyncio.gather(
            store.create(new_task("t3", dedupe=again)), store.create(new_task("t4", dedupe=again))
        )
        assert isinstance(both[0], Appended)
        assert both[1] == Repeat("t3", b"d", 1)
        assert await store.recall(b"k") == Repeat("t3", b"d", 1)
        assert await store.load("t4") is None


async def test_a_direct_answer_is_remembered_once(bench: Bench) -> None:
    async with bench.store() as store:
        key = Dedupe(b"k", b"d", START_MS + 1000)
        first, second = message("first", role=Role.AGENT), message("second", role=Role.AGENT)
        assert await store.remember(key, first) is None
        assert await store.remember(key, second) == Repeat(None, b"d", 0, first)
        assert await store.recall(b"k") == Repeat(None, b"d", 0, first)
        assert await store.create(new_task("t1", dedupe=key)) == Repeat(None, b"d", 0, first)
        other = Dedupe(b"o", b"d", START_MS + 1000)
        await store.create(new_task("t2", dedupe=other))
        assert await store.remember(other, first) == Repeat("t2", b"d", 1), "the call has a task"


async def test_a_request_to_cancel_is_kept(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.request_cancel("t1")
        await store.request_cancel("nobody's")
        assert (await loaded(store, "t1")).cancel_requested


async def test_a_probe_says_that_the_store_can_write(bench: Bench) -> None:
    async with bench.store() as store:
        assert store.writing.written_ms == 0
        bench.clock.ms = START_MS + 5
        await store.probe()
        assert store.writing.written_ms == START_MS + 5


async def test_a_caller_who_leaves_does_not_undo_the_write(bench: Bench) -> None:
    async with bench.store() as store:
        gone, stays = store.create(new_task("t1")), store.create(new_task("t2"))
        gone.cancel()
        await stays
        assert (await loaded(store, "t1")).seq == 1


async def test_closing_finishes_what_is_under_way(bench: Bench) -> None:
    async with bench.store() as store:
        waiting = [store.create(new_task(f"t{number}")) for number in range(50)]
        await store.close()
        assert all(future.done() and isinstance(future.result(), Appended) for future in waiting)
