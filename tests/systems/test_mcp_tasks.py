"""Tasks of MCP 2026-07-28 over kills, and on servers that share a store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Context
from tests.bindings.mcp_client import FORMS, WITH_TASKS, Stateless
from tests.kit import places
from tests.kit.places import calling, sqlite_url
from tests.kit.processes import ServerProcess

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
BOTH = {**FORMS, **WITH_TASKS}

AGENTS = '''
import asyncio

from dragoman import Agent, Context, form

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
AGE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}

clerk = Agent("clerk", restartable=True)


@clerk.skill
async def do(ctx: Context) -> str:
    """Asks, after a while if the message says so."""
    await ctx.step("begin", print, "begun", flush=True)
    if ctx.text == "work":
        await ctx.sleep(2.5)
        return "worked"
    if ctx.text == "later":
        await asyncio.sleep(1.2)
    answer = await ctx.ask(["Who?", form(NAME, name="who"), "How old?", form(AGE, name="age")])
    return f"{answer.data['who']['name']} is {answer.data['age']['age']}"


frail = Agent("frail")


@frail.skill
async def wait(ctx: Context) -> None:
    """Waits for ever."""
    await asyncio.Event().wait()
'''


def filled(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[ServerProcess]:
    """A server process, which may be killed."""
    (folder / "agents.py").write_text(AGENTS)
    flags = ("--store", sqlite_url(folder), "--mcp-task-after-s", "0.4", "--port", "0")
    server = ServerProcess(folder, "agents.py", *flags)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


async def killed(server: ServerProcess) -> None:
    """Kill it, and start it again."""
    await server.kill()
    await server.start()


async def test_a_task_survives_kills_with_each_answer_that_was_acknowledged(tmp_path: Path) -> None:
    async with house(tmp_path) as server:
        async with calling(server.url) as http:
            handle = await Stateless(http, BOTH).call("clerk", {"message": "later"})
            task = await Stateless(http, BOTH).task_until(handle["taskId"], "input_required")
            who, age = task["inputRequests"]
            update = {"taskId": handle["taskId"], "inputResponses": {who: filled(name="Ada")}}
            await Stateless(http, BOTH).result("tasks/update", update)
        await killed(server)
        async with calling(server.url) as http:
            task = await Stateless(http, BOTH).task(handle["taskId"])
            assert (task["status"], list(task["inputRequests"])) == ("input_required", [age])
            update = {"taskId": handle["taskId"], "inputResponses": {age: filled(age=36)}}
            await Stateless(http, BOTH).result("tasks/update", update)
        await killed(server)
        async with calling(server.url) as http:
            task = await Stateless(http, BOTH).task_until(handle["taskId"], "completed")
        assert task["result"]["structuredContent"]["text"] == "Ada is 36"


async def test_a_task_at_work_goes_on_after_a_kill(tmp_path: Path) -> None:
    async with house(tmp_path) as server:
        async with calling(server.url) as http:
            handle = await Stateless(http, BOTH).call("clerk", {"message": "work"})
            frail = await Stateless(http, BOTH).call("frail", {"message": "go"})
        await killed(server)
        async with calling(server.url) as http:
            tasked = Stateless(http, BOTH)
            task = await tasked.task_until(handle["taskId"], "completed")
            assert task["result"]["structuredContent"]["text"] == "worked"
            cut = await tasked.task_until(frail["taskId"], "failed")
            assert cut["error"]["code"] == -32603
            assert "interrupted" in cut["error"]["message"]


async def test_a_state_survives_kills_and_answers_once(tmp_path: Path) -> None:
    async with house(tmp_path) as server:
        async with calling(server.url) as http:
            asked = await Stateless(http, FORMS).call("clerk", {"message": "now"})
        await killed(server)
        both = {"who": filled(name="Ada"), "age": filled(age=36)}
        params = {"requestState": asked["requestState"], "inputResponses": both}
        async with calling(server.url) as http:
            first = await Stateless(http, FORMS).call("clerk", {}, **params)
        await killed(server)
        async with calling(server.url) as http:
            again = await Stateless(http, FORMS).call("clerk", {}, **params)
        assert first["structuredContent"] == again["structuredContent"]
        assert first["structuredContent"]["text"] == "Ada is 36"


def asker() -> Agent:
    """An agent that asks."""
    agent = Agent("asker", restartable=True)

    @agent.skill
    async def ask(ctx: Context) -> str:
        """Asks."""
        if ctx.text == "later":
            await asyncio.sleep(1.2)
        return f"Hello, {await ctx.ask('Who?')}"

    return agent


async def test_every_server_of_a_store_knows_every_task_and_every_state(shared_url: str) -> None:
    settings = {"store": shared_url, "mcp_task_after_s": 0.4}
    async with places.servers(2, lambda: [asker()], **settings) as (one, other), asyncio.timeout(DEADLINE_S):
        here, there = Stateless(one, BOTH), Stateless(other, BOTH)
        handle = await here.call("asker", {"message": "later"})
        task = await there.task_until(handle["taskId"], "input_required")
        (key,) = task["inputRequests"]
        assert (await here.task(handle["taskId"]))["inputRequests"] == task["inputRequests"]
        update = {"taskId": handle["taskId"], "inputResponses": {key: filled(answer="Ada")}}
        await there.result("tasks/update", update)
        for client in (here, there):
            task = await client.task_until(handle["taskId"], "completed")
            assert task["result"]["structuredContent"]["text"] == "Hello, Ada"
        asked = await Stateless(one, FORMS).call("asker", {"message": "now"})
        answer = {"requestState": asked["requestState"], "inputResponses": {"answer": filled(answer="Bob")}}
        result = await Stateless(other, FORMS).call("asker", {}, **answer)
        assert result["structuredContent"]["text"] == "Hello, Bob"
        handle = await here.call("asker", {"message": "later"})
        await there.result("tasks/cancel", {"taskId": handle["taskId"]})
        assert (await here.task_until(handle["taskId"], "cancelled"))["status"] == "cancelled"
