"""The reminder comes when it is time, again if it is told so, and after a restart as well."""

import asyncio
import time
from pathlib import Path

import pytest

from dragoman import TaskState
from dragoman.client import StatusUpdate, connect
from dragoman.model.task import Task
from dragoman.testing import run
from examples.reminder import reminder
from tests.kit.processes import ServerProcess


async def test_it_sleeps_and_asks_until_it_is_done() -> None:
    ran = await run(reminder.agent, "in 2h: call Ann", answers=["later 10m", "done"])
    assert ran.questions == ["Call Ann! Answer done, or for example: later 10m"] * 2
    assert ran.text == "Done after 2 reminders."


@pytest.mark.parametrize("text", ["call Ann", "", "in two hours"])
async def test_it_needs_a_time(text: str) -> None:
    assert (await run(reminder.agent, text)).state is TaskState.REJECTED


async def test_a_restart_while_it_sleeps_makes_it_neither_earlier_nor_lost(tmp_path: Path) -> None:
    server = ServerProcess(
        tmp_path, reminder.__file__, "--store", "sqlite:///reminder.db", "--port", "0", "--suspend-after-s", "0.5"
    )
    try:
        await server.start()
        async with connect(server.url) as agent:
            began = time.time()
            task = await agent.send("in 3s: the tea is ready", return_immediately=True)
        assert isinstance(task, Task)
        await server.kill()
        await server.start()
        async with connect(server.url) as agent, asyncio.timeout(30):
            async for update in agent.subscribe(task.id):
                if isinstance(update, StatusUpdate) and update.status.state is TaskState.INPUT_REQUIRED:
                    break
            asked = await agent.get(task.id)
            assert time.time() >= began + 3
            assert asked.status.message is not None
            assert asked.status.message.text.startswith("The tea is ready!")
            done = await agent.send("done", task_id=task.id)
            assert isinstance(done, Task)
            assert done.artifacts[0].parts[0].text == "Done after 1 reminder."
    finally:
        await server.kill()
