"""What a process takes its workers to have: nothing that a worker has lost, wherever that became known."""

import asyncio
from typing import Any, cast

import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.engine import worker_watch
from tests.agents.worker.test_worker import done, taken, token, worker
from tests.buses import Hub
from tests.engine.house import DEADLINE_S, house
from tests.engine.replicas import Stage, replicas
from tests.kit.waiting import until


class Crew:
    """The same agent of workers on each replica."""

    def __init__(self) -> None:
        self.agents: list[WorkerAgent] = []

    def agent(self) -> Any:
        self.agents.append(worker())
        return self.agents[-1]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often."""
    monkeypatch.setattr(worker_watch, "LOST_S", 0.1)


async def test_a_task_that_was_taken_here_and_ended_elsewhere_is_held_here_no_more() -> None:
    crew = Crew()
    async with asyncio.timeout(DEADLINE_S), replicas(2, cast(Stage, crew), Hub().bus) as (one, _):
        here, there = crew.agents
        ended, given_back, kept = [await one.begin() for _ in range(3)]
        items = {item.head.id: item for item in [await taken(here) for _ in range(3)]}
        assert here.leases.held == 3
        await there.leases.report(done(ended, token(items[ended])))
        await there.leases.release(token(items[given_back]))
        await until(lambda: here.leases.held == 1)
        again = await taken(here, "w2")
        assert again.head.id == given_back
        await there.leases.report(done(kept, token(items[kept])))
        await until(lambda: here.leases.held == 1)


async def test_a_canceled_task_is_held_no_more_though_its_worker_never_calls_again() -> None:
    agent = worker()
    async with asyncio.timeout(DEADLINE_S), house(agent) as here:
        task_id = await here.begin()
        await taken(agent)
        await here.cancel(task_id)
        await until(lambda: not agent.leases.held)
