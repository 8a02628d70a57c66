"""Delegations of workers: what a worker that repeats its words does after one, and what ends with its task."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.worker import teller
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.parent import ParentTask
from dragoman.agents.worker.queue import TakenTask
from dragoman.engine.api import Run
from dragoman.engine.lineage import child_of
from dragoman.engine.runs.endings import MISMATCH
from dragoman.engine.words import Delegation, Say
from dragoman.model.errors import LeaseLost, Unavailable
from dragoman.model.events import ArtifactChunk, Delegated, StatusChanged
from dragoman.model.message import Part
from dragoman.model.task import Record, TaskHead, TaskState
from tests.agents.worker.test_worker import artifact, done, taken, token, worker
from tests.engine.house import DEADLINE_S, House, Scripted, echo, house, say, text_of

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


class Stale(Struct):
    """A delegated task as a replica knows it that has not heard of the last answer."""

    head: TaskHead
    state: TaskState = TaskState.INPUT_REQUIRED


def said_last(record: Record) -> str:
    """The text of the last report."""
    return "" if record.status.message is None else record.status.message.text


async def pass_a_question_on(here: House, agent: WorkerAgent, item: TakenTask) -> None:
    """Delegate, and have the question of the other agent answered."""
    assert await agent.leases.delegate(token(item), ORDER, 0) is None
    await here.reach(item.head.id, TaskState.INPUT_REQUIRED)
    await here.send("red", task_id=item.head.id, return_immediately=True)
    await here.reach(item.head.id, TaskState.WORKING)


async def outcome(agent: WorkerAgent, item: TakenTask) -> Delegated:
    """The outcome of the delegation, in the call that gives the order."""
    async with asyncio.timeout(DEADLINE_S):
        came = await agent.leases.delegate(token(item), ORDER, DEADLINE_S)
    assert came is not None
    return came


@asynccontextmanager
async def beside_curious() -> AsyncIterator[tuple[House, WorkerAgent, Curious, str]]:
    """An engine with an agent of workers and one that asks, and a task that waits for a worker."""
    agent, curious = worker(), Curious()
    async with house(agent, curious.agent) as here:
        yield here, agent, curious, await here.begin()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_words_after_a_delegation_count_whose_question_an_earlier_worker_passed_on(elsewhere: bool) -> None:
    async with beside_curious() as (here, agent, curious, task_id):
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
    async with beside_curious() as (here, agent, curious, task_id):
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
    async with beside_curious() as (here, agent, _, task_id):
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


async def test_a_worker_speaks_beside_a_word_that_waits_for_the_answer_to_another_agent() -> None:
    async with beside_curious() as (here, agent, curious, task_id):
        item = await taken(agent)
        first, second = Say((Part(text="first"),)), Say((Part(text="second"),))
        await agent.leases.say(token(item), first, number=1)
        assert await agent.leases.delegate(token(item), ORDER, 0) is None
        await here.reach(task_id, TaskState.INPUT_REQUIRED)
        waits = asyncio.create_task(agent.leases.say(token(item), second, number=2))
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.sleep(0.05)
            await agent.leases.say(token(item), first, number=1)
            assert await agent.leases.delegate(token(item), ORDER, 0) is None
            assert not waits.done()
            await here.send("red", task_id=task_id, return_immediately=True)
            await waits
        assert said_last(await here.get(task_id)) == "second"
        curious.may_go_on.set()
        await outcome(agent, item)
        await here.ask(done(task_id, token(item)))


async def test_a_word_that_waits_for_the_answer_to_another_agent_is_refused_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(teller, "PATIENCE_S", 0.1)
    async with beside_curious() as (here, agent, curious, task_id):
        item, word = await taken(agent), Say((Part(text="late"),))
        assert await agent.leases.delegate(token(item), ORDER, 0) is None
        await here.reach(task_id, TaskState.INPUT_REQUIRED)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(Unavailable, match="call again in a moment"):
                await agent.leases.say(token(item), word, number=1)
            await here.send("red", task_id=task_id, return_immediately=True)
            await agent.leases.say(token(item), word, number=1)
        assert said_last(await here.get(task_id)) == "late"
        curious.may_go_on.set()
        await outcome(agent, item)
        await here.ask(done(task_id, token(item)))


async def test_a_question_that_another_replica_passed_on_and_had_answered_is_not_put_again() -> None:
    """This one has not heard yet that the delegated task goes on."""
    async with beside_curious() as (here, agent, curious, task_id):
        item = await taken(agent)
        assert await agent.leases.delegate(token(item), ORDER, 0) is None
        await here.reach(task_id, TaskState.INPUT_REQUIRED)
        stale = Stale(replace(item.head, id=child_of(task_id, 1)))
        async with asyncio.timeout(DEADLINE_S):
            with await agent.leases.cache.get(task_id, token(item)) as known:
                parent = ParentTask(agent.leases.tasks, known, ORDER)
                assert parent.next_passed(stale.head.id) is None
                await here.send("red", task_id=task_id, return_immediately=True)
                answer = await parent.pass_on(stale, (Part(text="Which?"),), auth=False)  # type: ignore[arg-type]
        assert answer is not None
        assert answer.text == "red"
        asked = [
            logged
            for logged in await here.log(task_id)
            if isinstance(logged.event, StatusChanged) and logged.event.state is TaskState.INPUT_REQUIRED
        ]
        assert len(asked) == 1
        curious.may_go_on.set()
        await outcome(agent, item)
        await here.ask(done(task_id, token(item)))


async def test_another_agent_than_the_one_that_works_on_it_is_a_mismatch() -> None:
    agent, curious = worker(), Curious()
    async with house(agent, curious.agent, Scripted(echo, "other")) as here:
        task_id = await here.begin()
        first = await taken(agent, replays=True)
        await pass_a_question_on(here, agent, first)
        await agent.leases.release(token(first))
        second = await taken(agent, "w2", replays=True)
        async with asyncio.timeout(DEADLINE_S):
            with suppress(LeaseLost):
                await agent.leases.delegate(token(second), replace(ORDER, agent="other"), 0)
        ended = await here.get(task_id)
        assert ended.state is TaskState.FAILED
        assert ended.status.message is not None
        assert ended.status.message.metadata == {"reason": MISMATCH}
        assert "a delegation to curious is recorded, but a delegation to other came" in ended.status.message.text
