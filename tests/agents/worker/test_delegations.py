"""Delegations of workers: what a worker that repeats its words does after one, and what ends with its task."""

import asyncio
from typing import Any

import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.leases import Taken
from dragoman.engine.api import Run
from dragoman.engine.words import Delegation, Say
from dragoman.model.errors import LeaseLost
from dragoman.model.events import ArtifactChunk, Delegated
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from tests.agents.worker.test_worker import artifact, done, taken, token, worker
from tests.engine.house import DEADLINE_S, House, Scripted, house, say, text_of

ORDER = Delegation(agent="curious", parts=(Part(text="find out"),), number=1)


class Curious:
    """An agent that asks, and goes on after the answer when it may."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.agent = Scripted(self._ask, "curious")

    async def _ask(self, run: Run) -> None:
        answer = await run.ask((Part(text="Which?"),))
        await self.may_go_on.wait()
        await say(run, answer.text, append=False, last=True)


async def pass_a_question_on(here: House, agent: WorkerAgent, item: Taken) -> None:
    """Delegate, and have the question of the other agent answered."""
    assert await agent.leases.delegate(token(item), ORDER, 0) is None
    await here.reach(item.head.id, TaskState.INPUT_REQUIRED)
    await here.send("red", task_id=item.head.id, return_immediately=True)
    await here.reach(item.head.id, TaskState.WORKING)


async def outcome(agent: WorkerAgent, item: Taken) -> Delegated:
    """The outcome of the delegation, in the call that gives the order."""
    async with asyncio.timeout(DEADLINE_S):
        came = await agent.leases.delegate(token(item), ORDER, DEADLINE_S)
    assert came is not None
    return came


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_words_after_a_delegation_count_whose_question_an_earlier_worker_passed_on(elsewhere: bool) -> None:
    agent, curious = worker(), Curious()
    async with house(agent, curious.agent) as here:
        task_id = await here.begin()
        first = await taken(agent, replays=True)
        await pass_a_question_on(here, agent, first)
        await agent.leases.release(token(first))
        second = await taken(agent, "w2", replays=True)
        waiting = asyncio.create_task(outcome(agent, second))
        await asyncio.sleep(0)
        curious.may_go_on.set()
        assert (await waiting).artifacts[0].parts == (Part(text="red"),)
        if elsewhere:
            agent.leases.forget_idle(0.0)  # as a replica that has not met the task yet
        await agent.leases.say(token(second), ArtifactChunk(artifact("after that")), number=1)
        ended = await here.ask(done(task_id, token(second), "done"))
        assert (ended.state, text_of(ended)) == (TaskState.COMPLETED, "done")
        said = [logged.event.artifact for logged in await here.log(task_id) if isinstance(logged.event, ArtifactChunk)]
        assert said[0] == artifact("after that")


async def test_words_before_a_delegation_whose_question_was_passed_on_do_not_count_again() -> None:
    agent, curious = worker(), Curious()
    async with house(agent, curious.agent) as here:
        task_id = await here.begin()
        first = await taken(agent, replays=True)
        await agent.leases.say(token(first), Say((Part(text="before"),)), number=1)
        await pass_a_question_on(here, agent, first)
        await agent.leases.release(token(first))
        second = await taken(agent, "w2", replays=True)
        seq = (await here.get(task_id)).seq
        await agent.leases.say(token(second), Say((Part(text="before"),)), number=1)
        assert (await here.get(task_id)).seq == seq
        curious.may_go_on.set()
        await outcome(agent, second)
        await here.ask(done(task_id, token(second)))


async def test_the_end_of_a_task_ends_the_wait_for_its_delegation_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, curious = worker(), Curious()
    async with house(agent, curious.agent) as here:
        task_id = await here.begin()
        item = await taken(agent, replays=True)
        assert await agent.leases.delegate(token(item), ORDER, 0) is None
        await here.reach(task_id, TaskState.INPUT_REQUIRED)
        assert (await here.cancel(task_id)).state is TaskState.CANCELED
        with pytest.raises(LeaseLost):
            await agent.leases.delegate(token(item), ORDER, 0)
    assert not [record for record in caplog.records if record.name == "dragoman.jobs"]


async def test_a_task_that_is_deleted_while_a_worker_takes_it_goes_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = worker()
    async with house(agent) as here:
        task_id = await here.begin()

        async def find_nothing(*args: Any) -> tuple[()]:
            monkeypatch.undo()
            await here.cancel(task_id)
            return ()

        monkeypatch.setattr(here.store, "read", find_nothing)
        assert await agent.leases.take("w1", 0) is None
