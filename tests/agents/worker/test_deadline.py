"""deadline_s of workers: the task of a late one fails; the time in which its caller is asked does not count."""

import asyncio
from typing import Any

import pytest

from dragoman.engine.words import Ask, Say
from dragoman.model.errors import LeaseLost
from dragoman.model.message import Part
from dragoman.model.task import Record, TaskState
from dragoman.store.worker_leases import DueLeases
from tests.agents.worker.test_worker import answered, done, taken, token, worker
from tests.engine.house import DEADLINE_S, house

SHORT_S = 0.2


def overdue(record: Record, deadline_s: float = SHORT_S) -> bool:
    """Whether the task says that its worker took too long."""
    said = record.status.message
    assert said is not None
    return record.state is TaskState.FAILED and said.text == f"The agent took longer than deadline_s = {deadline_s:g}."


async def test_a_task_fails_whose_worker_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    agent = worker()
    agent.limit(SHORT_S)
    async with house(agent) as here:
        task_id = await here.begin()
        item = await taken(agent)
        await here.reach(task_id, TaskState.FAILED)
        assert overdue(await here.get(task_id))
        assert (await agent.leases.beat(token(item), 0, 0)).cancel
        with pytest.raises(LeaseLost):
            await agent.leases.say(token(item), Say((Part(text="I am late"),)), number=1)
    assert [record.getMessage() for record in caplog.records] == [
        f"task {task_id}: agent agent took longer than deadline_s = {SHORT_S:g}: it is stopped"
    ]


async def test_a_task_fails_whose_worker_takes_too_long_while_the_server_stops() -> None:
    agent = worker()
    agent.limit(SHORT_S)
    async with house(agent) as here:
        task_id = await here.begin()
        await taken(agent)
        async with asyncio.timeout(DEADLINE_S):
            await here.engine.drain(2 * DEADLINE_S)
        assert overdue(await here.get(task_id))


async def test_a_worker_that_has_been_answered_since_it_was_found_late_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = worker()
    agent.limit(DEADLINE_S)
    async with house(agent) as here:
        task_id = await here.begin()
        item = await taken(agent)
        looks = asyncio.Semaphore(0)

        async def find_late(*args: Any) -> DueLeases:
            looks.release()
            return DueLeases(late=(item.lease,))

        asking = asyncio.create_task(agent.leases.ask(token(item), Ask((Part(text="Which?"),)), 1, 0))
        await here.reach(task_id, TaskState.INPUT_REQUIRED)
        assert await asking is None
        await here.send("red", task_id=task_id, return_immediately=True)
        assert (await answered(agent, token(item))).text == "red"
        monkeypatch.setattr(here.store.worker_leases, "due", find_late)
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(2):
                await looks.acquire()
        assert (await here.get(task_id)).state is TaskState.WORKING
        await here.ask(done(task_id, token(item)))
    assert not caplog.records
