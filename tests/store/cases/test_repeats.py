"""Writes whose acknowledgement is lost, and that are repeated with their id.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio
from typing import Any

from msgspec.structs import replace

from dragoman.model.task import TaskState
from dragoman.store.api import (
    Append,
    Appended,
    Dedupe,
    Exists,
    Fenced,
    Moved,
    NewTask,
    OutcomeUnknown,
    OverQuota,
    Quota,
    Repeat,
    Store,
)
from tests.store.cases.bench import (
    START_MS,
    Bench,
    W,
    by_run,
    chunk,
    ending,
    loaded,
    new_task,
    record,
    refused,
    seqs,
    status,
)
from tests.store.cases.engines import Unacknowledged


async def _lost_then_repeated(store: Store, write: NewTask | Append) -> Appended | Repeat:
    """Make a write whose acknowledgement is lost, and repeat it."""
    losing = Unacknowledged(store, lost=1)
    make: Any = losing.create if isinstance(write, NewTask) else losing.append
    try:
        await make(write)
    except OutcomeUnknown:
        outcome: Appended | Repeat = await make(write)
        return outcome
    raise AssertionError("it was acknowledged")


async def test_a_repeated_write_is_made_once_and_has_its_first_result(bench: Bench) -> None:
    async with bench.store() as store:
        key = Dedupe(b"k", b"d", START_MS + 1000)
        made = await _lost_then_repeated(store, replace(new_task("t1", dedupe=key), write=1))
        assert isinstance(made, Appended)
        assert (made.last_seq, made.epoch) == (1, 1)
        spoken = await _lost_then_repeated(store, replace(by_run("t1", chunk("a"), chunk("b")), write=2, read_seq=1))
        assert isinstance(spoken, Appended)
        assert (spoken.last_seq, spoken.epoch) == (3, 1)
        key = Dedupe(b"l", b"d", START_MS + 1000)
        answered = Append(
            task_id="t1", events=(status(W),), state=W, status_ms=1, expected_seq=3, holder="h2", dedupe=key, write=3
        )
        leased = await _lost_then_repeated(store, answered)
        assert isinstance(leased, Appended)
        assert (leased.last_seq, leased.epoch) == (4, 2)
        ended = await _lost_then_repeated(store, replace(ending("t1", 4, epoch=2), write=4, read_seq=4))
        assert isinstance(ended, Appended)
        assert ended.last_seq == 5
        assert seqs(await store.read("t1", 0, 1 << 20)) == [1, 2, 3, 4, 5]
        again = [await store.append(one) for one in (replace(by_run("t1", chunk("a"), chunk("b")), write=2), answered)]
        assert again == [spoken, leased], "whatever has been written since"


async def test_a_repeated_write_that_was_never_made_is_made_now_or_refused(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        ten = [replace(by_run("t1", chunk(str(number))), write=number, read_seq=1) for number in range(1, 11)]
        outcomes = await asyncio.gather(*(store.append(each) for each in ten))
        assert [outcome.last_seq for outcome in outcomes if isinstance(outcome, Appended)] == list(range(2, 12))
        repeated = await asyncio.gather(*(store.append(each) for each in ten))
        assert repeated == outcomes, "also many at once"
        anew = Append(task_id="t1", events=(status(W),), state=W, status_ms=1, expected_seq=11, holder="h2", write=11)
        await store.append(anew)
        await refused(store.append(replace(by_run("t1", chunk("late")), write=12)), Fenced)
        assert (await loaded(store, "t1")).seq == 12


async def test_a_repeated_write_without_events_has_its_first_result(bench: Bench) -> None:
    """The last one of its task is recognised. The guard refuses an earlier one."""
    async with bench.store() as store:
        await store.create(new_task("t1"))
        bare = Append(task_id="t1", events=(), state=W, status_ms=1, read_seq=1)
        taken = replace(bare, holder="h2", expected_epoch=1, write=1)
        first = await _lost_then_repeated(store, taken)
        assert isinstance(first, Appended)
        assert (first.last_seq, first.epoch) == (1, 2)
        await store.append(by_run("t1", chunk("a"), epoch=2))
        assert await store.append(taken) == first, "whatever has been written since"
        released = replace(bare, epoch=2, release=True, write=2)
        both = await asyncio.gather(_lost_then_repeated(store, released), store.append(released))
        assert both[0] == both[1] != first
        await refused(store.append(taken), Moved)
        await store.append(replace(bare, holder="h3", expected_epoch=2, write=3))
        await refused(store.append(released), Fenced)
        found = await loaded(store, "t1")
        assert (found.holder, found.epoch, found.seq) == ("h3", 3, 2)


async def test_a_repeated_task_does_not_count_against_its_own_quota(bench: Bench) -> None:
    async with bench.store() as store:
        for number, quota in enumerate((Quota(1, 0, 1), Quota(0, 1, 1)), 1):
            new = replace(new_task(f"t{number}", owner=f"o{number}"), quota=quota, write=number)
            made = await _lost_then_repeated(store, new)
            assert isinstance(made, Appended)
            assert (made.last_seq, made.epoch) == (1, 1)
            await refused(store.create(replace(new, head=replace(new.head, id="other"), write=9)), OverQuota)


async def test_an_id_of_a_task_that_is_taken_is_refused(bench: Bench) -> None:
    async with bench.store() as store:
        first = replace(new_task("t1"), write=1)
        await store.create(first)
        for other in (replace(first, write=2), replace(first, write=None)):
            await refused(store.create(other), Exists)
        taken, free = store.create(replace(first, write=3)), store.create(new_task("t2"))
        await refused(taken, Exists)
        assert isinstance(await free, Appended), "its neighbours are written"
        assert (await loaded(store, "t1")).seq == 1


async def test_a_repeated_snapshot_and_its_repeats_are_kept_over_a_restart(bench: Bench) -> None:
    if not bench.durable:
        return
    write = replace(by_run("t1", chunk("a")), snapshot=record("t1", 2, TaskState.WORKING), write=7, read_seq=1)
    async with bench.store() as store:
        await store.create(new_task("t1"))
        first = await store.append(write)
    async with bench.store("h2") as store:
        assert await store.append(write) == first
        assert (await loaded(store, "t1")).snapshot == write.snapshot
