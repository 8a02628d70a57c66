"""The same call is the same call."""

import asyncio

import pytest

from dragoman.engine.api import Run
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import new_id
from dragoman.model.message import Part
from dragoman.model.operations import StreamMessage
from dragoman.model.task import TaskState
from tests.engine.house import Scripted, echo, house, read, say, sending, seqs, streaming, text_of

S = TaskState


async def test_a_repeated_uuid_message_id_is_the_same_task() -> None:
    runs = []

    async def script(run: Run) -> None:
        runs.append(run.head.id)
        await echo(run)

    async with house(Scripted(script)) as h:
        once = sending("hi")
        first, second = await asyncio.gather(h.ask(once), h.ask(once))
        third = await h.ask(once)
        assert first == second == third
        assert runs == [first.head.id]
        assert (await h.listed()).total_size == 1


async def test_the_same_message_id_with_other_params_is_a_new_message() -> None:
    async with house() as h:
        name = new_id()
        first = await h.send("one", message_id=name)
        second = await h.send("two", message_id=name)
        third = await h.send("one", message_id=name, metadata={"a": 1})
        assert len({first.head.id, second.head.id, third.head.id}) == 3
        assert text_of(second) == "two"


async def test_an_id_that_promises_nothing_is_not_taken_as_one() -> None:
    async with house() as h:
        once = sending("hi", message_id="1")
        assert (await h.ask(once)).head.id != (await h.ask(once)).head.id


async def test_owners_and_agents_do_not_share_ids() -> None:
    async with house(Scripted(echo), Scripted(echo, "other")) as h:
        once = sending("hi")
        tasks = [await h.ask(once), await h.ask(once, owner="bob"), await h.ask(once, agent="other")]
        assert len({task.head.id for task in tasks}) == 3


async def test_an_idempotency_key_names_the_call() -> None:
    async with house() as h:
        once = sending("hi", message_id="1")
        first = await h.ask(once, idempotency_key="k")
        assert (await h.ask(once, idempotency_key="k")).head.id == first.head.id
        with pytest.raises(InvalidParams, match="Idempotency-Key"):
            await h.ask(sending("other", message_id="1"), idempotency_key="k")
        with pytest.raises(InvalidParams, match="Idempotency-Key"):
            await h.ask(sending("other", message_id="1", task_id=first.head.id), idempotency_key="k")
        assert (await h.listed()).total_size == 1
        h.clock.ms += 601_000
        assert (await h.ask(sending("other", message_id="1"), idempotency_key="k")).head.id != first.head.id


async def test_a_repeated_follow_up_is_applied_once() -> None:
    async def script(run: Run) -> None:
        one = await run.ask((Part(text="one?"),))
        two = await run.ask((Part(text="two?"),))
        await say(run, f"{one.text},{two.text}")

    async with house(Scripted(script)) as h:
        task_id = (await h.send()).head.id
        answer = sending("a", task_id=task_id)
        first, second = await asyncio.gather(h.ask(answer), h.ask(answer))
        assert first == second
        assert first.state is S.INPUT_REQUIRED
        assert await h.ask(answer) == first
        done = await h.send("b", task_id=task_id)
        assert text_of(done) == "a,b"
        assert await h.ask(answer) == done  # also when the task has ended


async def test_a_follow_up_with_a_known_id_and_other_params_is_another_message() -> None:
    async def script(run: Run) -> None:
        one = await run.ask((Part(text="one?"),))
        two = await run.ask((Part(text="two?"),))
        await say(run, f"{one.text},{two.text}")

    async with house(Scripted(script)) as h:
        task_id = (await h.send()).head.id
        name = new_id()
        await asyncio.gather(
            h.send("a", task_id=task_id, message_id=name, return_immediately=True),
            h.send("b", task_id=task_id, message_id=name, return_immediately=True),
        )
        assert sorted(text_of(await h.reach(task_id, S.COMPLETED)).split(",")) == ["a", "b"]


async def test_a_stream_of_a_repeated_send_replays_from_the_start() -> None:
    async with house() as h:
        once = streaming("hi")
        whole = await read(await h.open(once))
        again = await read(await h.open(once))
        assert seqs(again) == seqs(whole) == list(range(1, whole[-1].seq + 1))
        assert again[0].record == whole[0].record


async def test_a_repeated_stream_with_the_last_id_gives_what_follows() -> None:
    """`Last-Event-ID` counts on a send only if the call is a repeat."""
    async with house() as h:
        once = streaming("hi")
        whole = await read(await h.open(once, after="77"))
        assert seqs(whole) == [1, 2, 3, 4]
        assert seqs(await read(await h.open(once, after="2"))) == [3, 4]
        assert seqs(await read(await h.open(once, after="4"))) == []
        with pytest.raises(InvalidParams, match="beyond the end"):
            await h.open(once, after="5")


async def test_a_stale_last_id_does_not_hurt_a_new_message_to_a_task() -> None:
    async def script(run: Run) -> None:
        await run.ask((Part(text="?"),))
        await say(run, "done")

    async with house(Scripted(script)) as h:
        task_id = (await h.send()).head.id
        items = await read(await h.open(sending("x", StreamMessage, task_id=task_id), after="999"))
        assert seqs(items) == [5, 6, 7]
