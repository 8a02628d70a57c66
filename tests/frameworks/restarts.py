"""Servers and workers that stop while a task waits for its caller, and others that go on with it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.client import connect
from dragoman.engine.api import Runner
from dragoman.model.task import Task, TaskState
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.testing import client
from dragoman.testing.loopback import CONFIG
from tests.frameworks.conversations import send


async def restarted(folder: Path, agent: Callable[[], Runner], message: str, *answers: str) -> Task:
    """The task in the end; every question is answered on a new server, by an agent made anew."""
    config = replace(CONFIG, store=f"sqlite:///{folder / 'store.db'}")
    async with client(agent(), config=config) as connection:
        task = await connection.send(message)
    for answer in answers:
        assert isinstance(task, Task)
        assert task.status.state is TaskState.INPUT_REQUIRED, task.status
        async with client(agent(), config=config) as connection:
            task = await connection.send(answer, task_id=task.id, context_id=task.context_id)
    assert isinstance(task, Task)
    return task


async def handed_over(agent: Callable[[], Runner], message: str, *answers: str) -> Task:
    """The task in the end, of an agent that workers serve; every answer is met by a new worker, with a new agent."""
    profile = agent().profile
    worked = WorkerAgent(profile, queues=True, lease_s=5)
    async with serving(CONFIG, [worked]) as url, connect(f"{url}/agents/{profile.id}") as connection:
        async with at_work(url, agent()):
            task = await connection.send(message)
        for answer in answers:
            assert isinstance(task, Task)
            assert task.status.state is TaskState.INPUT_REQUIRED, task.status
            async with at_work(url, agent()):
                task = await connection.send(answer, task_id=task.id, context_id=task.context_id)
        assert isinstance(task, Task)
        return task


async def worked(agent: Callable[[], Runner], *messages: str) -> Task:
    """The last task of a conversation, each of which is done by a new worker, with a new agent."""
    profile = agent().profile
    worker_agent = WorkerAgent(profile, queues=True, lease_s=5)
    task: Task | None = None
    async with serving(CONFIG, [worker_agent]) as url, connect(f"{url}/agents/{profile.id}") as connection:
        for message in messages:
            async with at_work(url, agent()):
                task = await send(connection, message, task)
    assert task is not None, "there is no message"
    return task


@asynccontextmanager
async def at_work(url: str, agent: Runner) -> AsyncIterator[None]:
    """A worker for the block; then it gives back what it has."""
    egress, stop = Egress(connections_max=0), asyncio.Event()
    lessee = Lessee(agent, WorkerApi(egress, url, agent.profile.id), name="test", tasks=1)
    working = asyncio.create_task(lessee.work(stop, 0))
    try:
        yield
    finally:
        stop.set()
        await working
        await egress.close()
