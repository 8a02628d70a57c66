"""Appends: their guards and their order, and that a refused one does not harm others in its batch.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

from msgspec.structs import replace

from dragoman.model.events import MessageReceived, Noted, Submitted
from dragoman.model.ids import timestamp
from dragoman.model.lifecycle import fold
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.store.api import (
    Append,
    Appended,
    Fenced,
    ListQuery,
    Moved,
    TaskEnded,
    Unknown,
)
from tests.store.cases.bench import (
    START_MS,
    Bench,
    D,
    W,
    by_run,
    chunk,
    ending,
    loaded,
    message,
    new_task,
    record,
    refused,
    seqs,
    status,
)


async def test_a_created_task_is_read_back_as_it_was_written(bench: Bench) -> None:
    async with bench.store() as store:
        new = new_task("t1")
        appended = await store.create(new)
        assert isinstance(appended, Appended)
        assert (appended.last_seq, appended.epoch) == (1, 1)
        assert appended.log_bytes > 0
        found = await loaded(store, "t1")
        assert found.head == new.head
        assert (found.seq, found.epoch, found.state, found.holder) == (1, 1, W, "h1")
        assert (found.status_ms, found.cancel_requested, found.snapshot) == (START_MS, False, None)
        assert [logged.event for logged in found.events] == list(new.events)
        assert found.log_bytes_since == appended.log_bytes
        assert await store.head("t1") == (new.head, 1, W)
        assert await store.load("t2") is None
        assert await store.head("t2") is None
        assert await store.read("t2", 0, 1000) == ()


async def test_ids_may_hold_any_character(bench: Bench) -> None:
    async with bench.store() as store:
        ids = ["a/b", "nul\0nul", "quote'\"", "ünï\U0001f600", "%s?", " "]
        await asyncio.gather(*(store.create(new_task(task_id, context_id=task_id)) for task_id in ids))
        await asyncio.gather(*(store.append(ending(task_id, 1)) for task_id in ids))
        for task_id in ids:
            assert (await loaded(store, task_id)).head.context_id == task_id
            listed = await store.list(ListQuery(owner="ann", agent="echo", context_id=task_id, state=D))
            assert [stored.head.id for stored in listed.tasks] == [task_id]
            assert listed.total == 1
        await refused(store.append(ending("nul", 1)), Unknown)


async def test_an_append_that_expects_an_epoch_depends_on_state_and_lease_alone(bench: Bench) -> None:
    """It comes after whatever was written meanwhile, and accepts no offer."""
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.append(Append(task_id="t1", events=(), state=W, status_ms=1, holder="h2", offered_ms=1000))
        offered = await loaded(store, "t1")
        said = MessageReceived(message("more"), timestamp(START_MS))
        more = Append(task_id="t1", events=(said,), state=W, status_ms=START_MS, expected_epoch=2)
        await store.append(more)
        found = await loaded(store, "t1")
        assert (found.seq, found.offered_until_ms) == (2, offered.offered_until_ms)
        assert found.offered_until_ms is not None
        later = replace(by_run("t1", status(W, START_MS + 1), epoch=2), status_ms=START_MS + 1)
        both = await asyncio.gather(store.append(later), store.append(more))
        assert [one.last_seq for one in both if isinstance(one, Appended)] == [3, 4]
        assert (await loaded(store, "t1")).status_ms == START_MS + 1, "the later time stays"
        await refused(store.append(replace(more, expected_epoch=1)), Moved)
        await refused(store.append(replace(more, state=TaskState.SUBMITTED)), Moved)
        assert (await loaded(store, "t1")).seq == 4
        await store.append(ending("t1", 4, epoch=2))
        await refused(store.append(more), TaskEnded)


async def test_a_task_without_holder_waits_in_the_queue_with_epoch_0(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1", holder=None, state=TaskState.SUBMITTED))
        assert (await loaded(store, "t1")).epoch == 0
        await refused(store.append(by_run("t1", chunk("x"), epoch=0)), Fenced)
        leased = await store.append(
            Append(task_id="t1", events=(status(W),), state=W, status_ms=1, expected_seq=1, holder="h1")
        )
        assert isinstance(leased, Appended)
        assert leased.epoch == 1
        assert isinstance(await store.append(by_run("t1", chunk("x"))), Appended)


async def test_appends_under_way_together_finish_in_the_order_of_their_calls(bench: Bench) -> None:
    async with bench.store() as store:
        finished: list[int] = []
        waiting = [store.create(new_task("t1"))]
        waiting += [store.append(by_run("t1", chunk(str(number)))) for number in range(20)]
        for number, future in enumerate(waiting):
            future.add_done_callback(lambda _, number=number: finished.append(number))  # type: ignore[misc]
        outcomes = await asyncio.gather(*waiting)
        assert [outcome.last_seq for outcome in outcomes if isinstance(outcome, Appended)] == list(range(1, 22))
        assert finished == list(range(21))
        texts = [logged.event.artifact.parts[0].text for logged in (await loaded(store, "t1")).events[1:]]  # type: ignore[union-attr]
        assert texts == [str(number) for number in range(20)]


async def test_nothing_follows_a_terminal_state(bench: Bench) -> None:
    async with bench.store() as store:
        for number, state in enumerate((D, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED)):
            task_id = f"t{number}"
            await store.create(new_task(task_id))
            await store.append(ending(task_id, 1, state=state))
            before = await loaded(store, task_id)
            assert before.holder is None
            await refused(store.append(by_run(task_id, chunk("late"))), TaskEnded)
            await refused(store.append(ending(task_id, 2, epoch=None, state=TaskState.CANCELED)), TaskEnded)
            await store.request_cancel(task_id)
            after = await loaded(store, task_id)
            assert (after.state, after.seq, after.cancel_requested) == (state, 2, False)


async def test_a_snapshot_stands_for_what_it_holds(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        kept = record("t1", 3, W, parts=[Part(data={"x": [1, None]}), Part(raw=b"\0\1", media_type="a/b")])
        await store.append(
            Append(task_id="t1", events=(chunk("1"), chunk("2")), state=W, status_ms=1, epoch=1, snapshot=kept)
        )
        found = await loaded(store, "t1")
        assert (found.snapshot, found.events, found.log_bytes_since) == (kept, (), 0)
        assert found.snapshot_bytes > 0
        grown = await store.append(by_run("t1", chunk("3")))
        assert isinstance(grown, Appended)
        found = await loaded(store, "t1")
        assert (found.snapshot, seqs(found.events), found.log_bytes_since) == (kept, [4], grown.log_bytes)
        assert seqs(await store.read("t1", 0, 1 << 20)) == [1, 2, 3, 4]


async def test_a_snapshot_that_does_not_fit_the_log_is_refused(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        await store.append(by_run("t1", chunk("1")))
        await refused(store.append(ending("t1", 1)), Moved)
        assert (await loaded(store, "t1")).seq == 2


async def test_an_older_epoch_writes_nothing(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        again = await store.append(
            Append(task_id="t1", events=(status(W),), state=W, status_ms=1, expected_seq=1, holder="h2")
        )
        assert isinstance(again, Appended)
        assert again.epoch == 2
        await refused(store.append(by_run("t1", chunk("old"))), Fenced)
        await refused(store.append(by_run("t1", chunk("never given out"), epoch=3)), Fenced)
        assert isinstance(await store.append(by_run("t1", chunk("new"), epoch=2)), Appended)
        assert (await loaded(store, "t1")).seq == 3


async def test_nobody_may_write_as_a_run_after_the_lease_was_released(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        asking = Append(
            task_id="t1",
            events=(status(TaskState.INPUT_REQUIRED),),
            state=TaskState.INPUT_REQUIRED,
            status_ms=1,
            epoch=1,
            release=True,
        )
        await store.append(asking)
        assert (await loaded(store, "t1")).holder is None
        await refused(store.append(by_run("t1", chunk("x"))), Fenced)
        answer = (MessageReceived(message("Lyon"), timestamp(2)), status(W))
        answered = await store.append(
            Append(task_id="t1", events=answer, state=W, status_ms=2, expected_seq=2, holder="h1")
        )
        assert isinstance(answered, Appended)
        assert (answered.last_seq, answered.epoch) == (4, 2)


async def test_a_caller_who_decided_on_an_older_seq_is_refused(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t1"))
        said = (MessageReceived(message("and"), timestamp(1)),)
        call = Append(task_id="t1", events=said, state=W, status_ms=1, expected_seq=1)
        first, second = store.append(call), store.append(call)
        assert isinstance(await first, Appended)
        await refused(second, Moved)
        await refused(store.append(Append(task_id="t2", events=said, state=W, status_ms=1, expected_seq=1)), Unknown)
        assert seqs(await store.read("t1", 0, 1 << 20)) == [1, 2]


async def test_one_that_is_refused_undoes_nothing_of_its_neighbours(bench: Bench) -> None:
    async with bench.store() as store:
        tasks = [f"t{number:02}" for number in range(40)]
        await asyncio.gather(*(store.create(new_task(task_id)) for task_id in tasks))
        waiting = [
            store.append(by_run(task_id, chunk("x"), epoch=1 + (place % 3 == 0))) for place, task_id in enumerate(tasks)
        ]
        waiting.append(store.create(new_task("t99")))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        for place, (task_id, outcome) in enumerate(zip(tasks, outcomes, strict=False)):
            if place % 3 == 0:
                assert isinstance(outcome, Fenced)
                assert (await loaded(store, task_id)).seq == 1
            else:
                assert isinstance(outcome, Appended)
                assert (await loaded(store, task_id)).seq == 2
        assert (await loaded(store, "t99")).seq == 1


async def test_one_that_fails_undoes_nothing_of_its_neighbours(bench: Bench) -> None:
    async with bench.store() as store:
        await store.create(new_task("t00"))
        waiting = [store.create(new_task(f"t{number:02}")) for number in range(1, 10)]
        waiting.insert(5, store.create(new_task("t00", said=message("an id that is taken"))))
        waiting.insert(7, store.create(new_task("t\udc80")))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(outcome, Appended) for outcome in outcomes) == 9
        assert isinstance(outcomes[5], Exception)
        assert isinstance(outcomes[7], Exception)
        found = (await loaded(store, "t00")).events[0].event
        assert isinstance(found, Submitted)
        assert found.message.text == "hello"
        listed = await store.list(ListQuery(owner="ann", agent="echo"))
        assert (listed.total, len(listed.tasks)) == (10, 10)


async def test_a_task_is_made_with_all_events_of_its_first_write(bench: Bench) -> None:
    async with bench.store() as store:
        made = new_task("t1")
        await store.create(replace(made, events=(*made.events, Noted({"member": "a"}))))
        assert [logged.seq for logged in await store.read("t1", 0, 1 << 20)] == [1, 2]
        appended = await store.append(by_run("t1", Noted({"task": "x"})))
        assert isinstance(appended, Appended)
        assert appended.last_seq == 3
        found = await loaded(store, "t1")
        assert fold(found.head, found.snapshot, found.events).note == {"member": "a", "task": "x"}
