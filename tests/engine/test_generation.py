"""Other agents on an engine that works: each task goes on with the agent that it began with."""

import asyncio

import pytest

from dragoman.engine.api import Run
from dragoman.model.errors import AgentNotFound
from dragoman.model.message import Part
from dragoman.model.task import Record, TaskState
from tests.engine.house import DEADLINE_S, Scripted, house, say, sending, text_of


def saying(text: str) -> Scripted:
    async def speak(run: Run) -> None:
        await say(run, text)

    return Scripted(speak)


async def test_what_comes_after_a_change_is_for_the_new_agent() -> None:
    async with house(saying("old")) as here:
        assert text_of(await here.send()) == "old"
        here.engine.serve({"agent": saying("new")})
        assert text_of(await here.send()) == "new"


@pytest.mark.parametrize("waits", [True, False], ids=["its caller waits", "its caller has left"])
async def test_a_send_in_the_middle_is_for_the_agent_that_took_it_and_that_is_waited_for(waits: bool) -> None:
    old, begun = saying("old"), asyncio.Event()
    async with house(old) as here:
        here.store.held = held = asyncio.Event()
        sent = asyncio.create_task(here.ask(sending(message_id="m1")))
        while not here.in_memory:
            await asyncio.sleep(0)
        before = here.engine.serve({"agent": saying("new")})
        if not waits:
            sent.cancel()
            await asyncio.wait([sent])

        async def finish() -> None:
            begun.set()
            await here.engine.finished(before, [old])

        finished = asyncio.create_task(finish())
        await begun.wait()
        await asyncio.sleep(0)
        assert not finished.done()
        here.store.held = None
        held.set()
        async with asyncio.timeout(DEADLINE_S):
            await finished
        if waits:
            record = await sent
            assert isinstance(record, Record)
        else:
            (record,) = (await here.listed()).records
            assert record.state is TaskState.COMPLETED
            record = await here.get(record.head.id)
        assert text_of(record) == "old"


async def test_a_task_that_runs_goes_on_with_its_agent_though_that_was_removed() -> None:
    go = asyncio.Event()

    async def slow(run: Run) -> None:
        await go.wait()
        await say(run, "old")

    old = Scripted(slow)
    async with house(old) as here:
        task_id = await here.begin()
        await here.reach(task_id, TaskState.WORKING)
        before = here.engine.serve({"other": Scripted(slow, "other")})
        with pytest.raises(AgentNotFound):
            await here.get(task_id)
        finished = asyncio.create_task(here.engine.finished(before, [old]))
        await asyncio.sleep(0)
        assert not finished.done()
        go.set()
        async with asyncio.timeout(DEADLINE_S):
            await finished
        here.engine.serve({"agent": saying("new")})
        assert text_of(await here.get(task_id)) == "old"


async def test_a_run_that_would_begin_anew_fails_if_its_agent_is_gone() -> None:
    """The agent goes while the log is read for the run that is to take up the answer."""

    async def script(run: Run) -> None:
        await run.ask((Part(text="Where to?"),))

    old = Scripted(script)
    async with house(old, suspend_max_s=0.0) as here:
        task_id = (await here.send()).head.id
        while here.in_memory:
            await asyncio.sleep(0)
        here.store.held_reads = held = asyncio.Event()
        await here.send("Lyon", task_id=task_id, return_immediately=True)
        here.engine.serve({"other": Scripted(script, "other")})
        held.set()
        async with asyncio.timeout(DEADLINE_S):
            while here.in_memory:
                await asyncio.sleep(0.01)
        here.engine.serve({"agent": old})
        record = await here.get(task_id)
        assert record.state is TaskState.FAILED
        assert record.status.message is not None
        assert "not served any more" in record.status.message.text
