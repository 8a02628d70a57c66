"""Streams of tasks that wait, or have waited, for their caller: where they end (A2A 0.3 §7.9)."""

from dragoman.engine.api import Run
from dragoman.engine.handler import Snapshot
from dragoman.model.message import Part
from dragoman.model.operations import Subscribe
from dragoman.model.task import TaskState
from tests.engine.house import Scripted, house, read, states, streaming

S = TaskState


async def ask_twice(run: Run) -> None:
    await run.ask((Part(text="From where?"),))
    await run.ask((Part(text="To where?"),))


async def test_a_stream_resumed_from_before_an_answered_question_goes_on_past_it() -> None:
    """Invariant 3: who returns with a seq gets exactly what follows, and a question that was answered ends nothing."""
    async with house(Scripted(ask_twice)) as h:
        task_id = (await h.send("go")).head.id
        await h.send("Lyon", task_id=task_id)
        waiting = await read(await h.open(Subscribe(id=task_id), dialect="0.3", after="0"))
        assert states(waiting) == [S.WORKING, S.INPUT_REQUIRED, S.WORKING, S.INPUT_REQUIRED]
        await h.send("Rome", task_id=task_id)
        log = await h.log(task_id)
        for dialect in ("0.3", "1.0"):
            items = await read(await h.open(Subscribe(id=task_id), dialect=dialect, after="0"))
            assert [item.seq for item in items] == [logged.seq for logged in log]
            assert states(items)[-1] is S.COMPLETED


async def test_a_subscription_to_a_task_that_waits_ends_where_such_a_task_is_told_as_final() -> None:
    async with house(Scripted(ask_twice)) as h:
        task_id = (await h.send("go")).head.id
        told = await read(await h.open(Subscribe(id=task_id), dialect="protoagent"))
        assert [type(item) for item in told] == [Snapshot]
        assert told[0].record.state is S.INPUT_REQUIRED
        follower = await h.open(Subscribe(id=task_id), dialect="0.3")
        await h.send("Lyon", task_id=task_id)
        assert states(await read(follower)) == [S.WORKING, S.INPUT_REQUIRED]


async def test_a_send_stream_ends_at_each_question() -> None:
    async with house(Scripted(ask_twice)) as h:
        first = await read(await h.open(streaming("go")))
        assert states(first)[-1] is S.INPUT_REQUIRED
        second = await read(await h.open(streaming("Lyon", task_id=first[0].record.head.id)))
        assert states(second) == [S.INPUT_REQUIRED]
