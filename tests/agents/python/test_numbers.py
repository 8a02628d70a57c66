"""Numbers that an agent reports are whole, so that its task can be stored, and read again."""

import asyncio
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.model.task import Task, TaskState
from dragoman.testing import client


@pytest.mark.parametrize("number", [0.5, float("nan"), "1"])
@pytest.mark.parametrize("what", ["progress", "usage"])
async def test_a_number_that_is_not_whole_fails_the_task_alone(what: str, number: Any) -> None:
    agent = Agent("counts")

    @agent.skill
    async def count(ctx: Context) -> str:
        """Report a number."""
        if ctx.text == "wrong":
            await (ctx.progress(number, 2) if what == "progress" else asyncio.sleep(0, ctx.usage(input=number)))
        return "done"

    async with client(agent) as connection, asyncio.timeout(60):
        tasks = [await connection.send("wrong"), await connection.send("right")]
        read = [await connection.get(task.id) for task in tasks if isinstance(task, Task)]
    assert [task.status.state for task in read] == [TaskState.FAILED, TaskState.COMPLETED]
