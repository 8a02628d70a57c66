"""What becomes of a worker when the store loses words that it had confirmed: a standby without them has taken over."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.words import ToldSleep, ToldStep
from dragoman.engine.words import Ask, Delegation, Say, Sleep, Step, StepDone
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import ArtifactChunk
from dragoman.model.message import Part
from dragoman.model.operations import Confirmed
from dragoman.model.task import TaskState, Usage
from dragoman.store.api import StoreError
from dragoman.store.replicas import StoreRewound
from tests.agents.worker.test_worker import artifact, done, taken, token, updated, worker
from tests.engine.house import DEADLINE_S, House, house


def word(text: str) -> Say:
    return Say((Part(text=text),))


async def lose_last(here: House, path: Path, task_id: str) -> None:
    """Let the store go on from before the last event of the task, and tell the engine."""
    with apsw.Connection(str(path)) as database:
        seq = database.execute("SELECT seq FROM tasks WHERE id = ?", (task_id,)).get
        database.execute("DELETE FROM pages WHERE first_seq = ?", (seq,))
        database.execute("UPDATE tasks SET seq = seq - 1 WHERE id = ?", (task_id,))
    await here.store.replicas.say(StoreRewound())


async def test_a_worker_does_not_go_on_behind_words_that_the_store_has_lost(tmp_path: Path) -> None:
    agent, path = worker(), tmp_path / "tasks.db"
    async with asyncio.timeout(DEADLINE_S), house(agent, url=f"sqlite:///{path}") as here:
        task_id = await here.begin()
        item = await taken(agent)
        await agent.leases.say(token(item), word("kept"), number=1)
        await agent.leases.say(token(item), word("lost"), number=2)
        await lose_last(here, path, task_id)
        again = await taken(agent, "w2")
        assert again.head.id == task_id
        with pytest.raises(LeaseLost):
            await agent.leases.say(token(item), word("behind it"), number=3)
        assert (await here.ask(done(task_id, token(again)))).state is TaskState.COMPLETED
        assert "behind it" not in [said.text for said in (await here.get(task_id)).history]


COUNTED = Callable[[WorkerAgent, House, str, str, Confirmed], Awaitable[object]]
"""A word of a worker under a lease, which says what it knows to be confirmed: the agent, its engine, the lease, the
task, and that."""

WORDS: dict[str, COUNTED] = {
    "update": lambda agent, _, lease, __, known: agent.leases.say(lease, word("3"), number=3, confirmed=known),
    "artifact": lambda agent, _, lease, __, known: agent.leases.say(
        lease, ArtifactChunk(artifact("3")), number=3, confirmed=known
    ),
    "tokens": lambda agent, _, lease, __, known: agent.leases.say(lease, Say(), usage=Usage(1), confirmed=known),
    "ask": lambda agent, _, lease, __, known: agent.leases.ask(lease, Ask((Part(text="?"),)), 1, 0, confirmed=known),
    "delegate": lambda agent, _, lease, __, known: agent.leases.delegate(
        lease, Delegation(agent="other", parts=(Part(text="?"),)), 0, confirmed=known
    ),
    "step": lambda agent, _, lease, __, known: agent.leases.step(
        lease, ToldStep(Step("charge"), "1", 1, done=StepDone()), confirmed=known
    ),
    "sleep": lambda agent, _, lease, __, known: agent.leases.sleep(
        lease, ToldSleep(Sleep(for_ms=9), "1", 1), confirmed=known
    ),
    "complete": lambda _, here, lease, task_id, known: here.ask(replace(done(task_id, lease), confirmed=known)),
    "fail": lambda _, here, lease, task_id, known: here.ask(
        replace(updated(task_id, TaskState.FAILED, lease=lease), confirmed=known)
    ),
}


@pytest.mark.parametrize("known", [Confirmed(2), Confirmed(1, "lost")], ids=["report", "outcome"])
@pytest.mark.parametrize("said", WORDS)
async def test_a_word_that_follows_one_that_the_store_has_lost_ends_the_lease(said: str, known: Confirmed) -> None:
    """Nobody told this server of the loss: only the worker knows of its second report, or of what it was given."""
    agent = worker()
    async with asyncio.timeout(DEADLINE_S), house(agent) as here:
        task_id = await here.begin()
        first = token(await taken(agent))
        await agent.leases.say(first, word("kept"), number=1)
        with pytest.raises(LeaseLost):
            await WORDS[said](agent, here, first, task_id, known)
        again = token(await taken(agent, "w2"))
        assert (await here.get(task_id)).status.state is TaskState.WORKING
        with pytest.raises(LeaseLost):
            await agent.leases.beat(first, 0, 0)
        await agent.leases.say(again, word("1"), number=1)
        await agent.leases.say(again, word("2"), number=2, confirmed=Confirmed(1))
        assert (await here.ask(replace(done(task_id, again), confirmed=Confirmed(2)))).state is TaskState.COMPLETED


@pytest.mark.parametrize("said", WORDS)
async def test_a_question_whose_answer_the_store_has_lost_is_open_for_another_worker(said: str) -> None:
    agent = worker()
    async with asyncio.timeout(DEADLINE_S), house(agent) as here:
        task_id = await here.begin()
        first = token(await taken(agent))
        assert await agent.leases.ask(first, Ask((Part(text="Where?"),)), 1, 0) is None
        with pytest.raises(LeaseLost):
            await WORDS[said](agent, here, first, task_id, Confirmed(0, "lost"))
        assert (await here.get(task_id)).status.state is TaskState.INPUT_REQUIRED
        await here.send("here", task_id=task_id, return_immediately=True)
        again = token(await taken(agent, "w2", replays=True))
        answer = await agent.leases.ask(again, Ask((Part(text="Where?"),)), 1, 0)
        assert answer is not None
        assert answer.text == "here"
        kept = Confirmed(0, answer.message_id)
        assert (await here.ask(replace(done(task_id, again), confirmed=kept))).state is TaskState.COMPLETED


async def test_a_worker_that_counts_on_after_a_lost_answer_or_outcome_is_not_told_that_it_counts_wrongly() -> None:
    agent = worker()
    async with asyncio.timeout(DEADLINE_S), house(agent) as here:
        await here.begin()
        first = token(await taken(agent))
        with pytest.raises(InvalidParams):
            await agent.leases.ask(first, Ask((Part(text="When?"),)), 2, 0)
        with pytest.raises(LeaseLost):
            await agent.leases.ask(first, Ask((Part(text="When?"),)), 2, 0, confirmed=Confirmed(0, "lost"))
        again = token(await taken(agent, "w2"))
        order = Delegation(agent="other", parts=(Part(text="?"),), number=2)
        with pytest.raises(LeaseLost):
            await agent.leases.delegate(again, order, 0, confirmed=Confirmed(0, "lost"))


def test_a_failover_before_the_agent_is_served_costs_no_worker_anything() -> None:
    worker().leases.rewound()


async def test_a_word_that_the_store_did_not_take_is_weighed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay went on with a question, which is not taken for the next one when its worker repeats it."""
    agent, asked = worker(), (("Where?", "here"), ("When?", "now"))
    async with asyncio.timeout(DEADLINE_S), house(agent) as here:
        task_id = await here.begin()
        first = token(await taken(agent))
        for number, (text, answer) in enumerate(asked, 1):
            assert await agent.leases.ask(first, Ask((Part(text=text),)), number, 0) is None
            await here.send(answer, task_id=task_id, return_immediately=True)
        await agent.leases.release(first)
        other = token(await taken(agent, "w2", replays=True))
        with monkeypatch.context() as failing:
            failing.setattr(here.store.worker_leases, "note", fail)
            with pytest.raises(Unavailable):
                await agent.leases.ask(other, Ask((Part(text="Where?"),)), 1, 0)
        for number, (text, answer) in enumerate(asked, 1):
            told = await agent.leases.ask(other, Ask((Part(text=text),)), number, 0)
            assert told is not None
            assert told.text == answer
        assert (await here.ask(done(task_id, other))).state is TaskState.COMPLETED


async def fail(*args: Any) -> Any:
    raise StoreError("the store cannot answer")
