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
from dragoman.model.errors import LeaseLost, Unavailable
from dragoman.model.events import ArtifactChunk
from dragoman.model.message import Part
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


COUNTED = Callable[[WorkerAgent, House, str, str], Awaitable[object]]
"""A word of a worker under a lease, which says that the server has confirmed two reports: the agent, its engine, the
lease and the task."""

WORDS: dict[str, COUNTED] = {
    "update": lambda agent, _, lease, __: agent.leases.say(lease, word("3"), number=3, confirmed=2),
    "artifact": lambda agent, _, lease, __: agent.leases.say(
        lease, ArtifactChunk(artifact("3")), number=3, confirmed=2
    ),
    "tokens": lambda agent, _, lease, __: agent.leases.say(lease, Say(), usage=Usage(1), confirmed=2),
    "ask": lambda agent, _, lease, __: agent.leases.ask(lease, Ask((Part(text="?"),)), 1, 0, confirmed=2),
    "delegate": lambda agent, _, lease, __: agent.leases.delegate(
        lease, Delegation(agent="other", parts=(Part(text="?"),)), 0, confirmed=2
    ),
    "step": lambda agent, _, lease, __: agent.leases.step(
        lease, ToldStep(Step("charge"), "1", 1, done=StepDone()), confirmed=2
    ),
    "sleep": lambda agent, _, lease, __: agent.leases.sleep(lease, ToldSleep(Sleep(for_ms=9), "1", 1), confirmed=2),
    "complete": lambda _, here, lease, task_id: here.ask(replace(done(task_id, lease), confirmed=2)),
    "fail": lambda _, here, lease, task_id: here.ask(
        replace(updated(task_id, TaskState.FAILED, lease=lease), confirmed=2)
    ),
}


@pytest.mark.parametrize("said", WORDS)
async def test_a_word_that_follows_one_that_the_store_has_lost_ends_the_lease(said: str) -> None:
    """Nobody told this server of the loss: only the worker knows of its second report."""
    agent = worker()
    async with asyncio.timeout(DEADLINE_S), house(agent) as here:
        task_id = await here.begin()
        first = token(await taken(agent))
        await agent.leases.say(first, word("kept"), number=1)
        with pytest.raises(LeaseLost):
            await WORDS[said](agent, here, first, task_id)
        again = token(await taken(agent, "w2"))
        assert (await here.get(task_id)).status.state is TaskState.WORKING
        with pytest.raises(LeaseLost):
            await agent.leases.beat(first, 0, 0)
        await agent.leases.say(again, word("1"), number=1)
        await agent.leases.say(again, word("2"), number=2, confirmed=1)
        assert (await here.ask(replace(done(task_id, again), confirmed=2))).state is TaskState.COMPLETED


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
