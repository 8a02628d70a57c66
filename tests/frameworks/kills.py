"""A server that is killed again and again while its agent works, and the tasks that come of it.

Invariant: a kill comes at a place in the agent's ledger, not at a time: a slow machine is hit at the same places.
"""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from dragoman.client import Connection, connect
from dragoman.model.task import TERMINAL, Task, TaskState
from tests.frameworks.conversations import send
from tests.kit.processes import ServerProcess
from tests.kit.waiting import until

AFTER_S = 0.05
"""How long after a line of the ledger a kill comes at most."""

ENDS_S = 120.0
"""How long the tasks that are open after the last kill may take."""


class Survivor(Struct, frozen=True):
    """The server after its last kill: the URL of its agent, and the tasks that it got, all of which have ended.

    The message of a task is its name, `task-ROUND-NUMBER`.
    """

    url: str
    tasks: dict[str, Task]


class Ledger:
    """The lines that the agent writes, each before what it tells of, with the name of its task."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def lines(self) -> list[str]:
        """All lines so far."""
        return self._file.read_text().splitlines() if self._file.exists() else []

    def count(self, begins: str) -> int:
        """How many lines tell of tasks whose names begin so."""
        return sum(begins in line for line in self.lines)

    def of(self, task: str) -> list[str]:
        """What the lines that begin with the name of a task say, in order."""
        return [line.partition(" ")[2] for line in self.lines if line.partition(" ")[0] == task]


@asynccontextmanager
async def killed_often(
    server: ServerProcess,
    agent: str,
    ledger: Path,
    chance: random.Random,
    *,
    rounds: int,
    tasks: int,
    lines: int,
    talks: bool = False,
) -> AsyncIterator[Survivor]:
    """Kill the server once in each round, in which it gets so many tasks, with `lines` in the ledger for each.

    The first round is killed once a task has ended. Questions are answered with "yes". If it `talks`, the tasks of one
    NUMBER are in one conversation, `cNUMBER`.
    """
    environ = {"LEDGER": str(ledger), "PYTHONPATH": os.pathsep.join(sys.path)}
    sent: dict[str, Task] = {}
    try:
        for number in range(rounds):
            await server.start(**environ)
            url, begins = f"{server.url}/agents/{agent}", f"task-{number}-"
            async with connect(url) as connection:
                for each in range(tasks):
                    name, context = f"{begins}{each}", f"c{each}" if talks else None
                    sent[name] = await send(connection, name, context_id=context, return_immediately=True)
            following = [asyncio.create_task(settled(url, task)) for task in [*sent.values()][-3 * tasks :]]
            if number == 0:
                await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED)
            place = chance.randint(0, lines * tasks)
            await until(lambda: Ledger(ledger).count(begins) >= place, 0.01)  # noqa: B023  # it is over with the round
            await asyncio.sleep(chance.uniform(0, AFTER_S))
            await server.kill()
            for each_task in following:
                each_task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
        await server.start(**environ)
        url = f"{server.url}/agents/{agent}"
        async with asyncio.timeout(ENDS_S):
            ended = await asyncio.gather(*(settled(url, task) for task in sent.values()))
        yield Survivor(url, dict(zip(sent, ended, strict=True)))
    finally:
        await server.kill()


async def settled(url: str, sent: Task) -> Task:
    """The task once it has ended; its question is answered."""
    async with connect(url) as connection:
        return await _settled(connection, sent.id)


async def _settled(connection: Connection, task_id: str) -> Task:
    while True:
        task = await connection.get(task_id)
        if task.status.state is TaskState.INPUT_REQUIRED:
            await connection.send("yes", task_id=task.id, context_id=task.context_id, return_immediately=True)
        elif task.status.state in TERMINAL:
            return task
        await asyncio.sleep(0.02)
