"""deadline_s in the tables of a file: for each kind of agent, its work elsewhere is stopped and its task fails."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.cli.entries import make_agent
from dragoman.config import load
from dragoman.server import serving
from tests.kit.processes import gone

DEADLINE_S = 60.0
DEADLINES_S = (0.3, 3.0, 30.0)
"""Of agents. One that is over before the work elsewhere has begun stops nothing: then a longer one is tried."""

V1 = {"A2A-Version": "1.0"}
CODE = """
import asyncio
from dragoman import Agent, Context

agent = Agent("code")

@agent.skill
async def wait(ctx: Context) -> str:
    await asyncio.Event().wait()
"""
PROGRAM = """#!/bin/sh
echo $$ > program.pid
exec sleep 1000
"""


class Far:
    """An agent of another server, which knows how its work ended."""

    def __init__(self) -> None:
        self.begun, self.stopped = asyncio.Event(), asyncio.Event()

    def agent(self) -> Agent:
        agent = Agent("far")

        @agent.skill
        async def wait(ctx: Context) -> None:
            """Wait until it is stopped."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()

        return agent


@asynccontextmanager
async def endpoint(came: asyncio.Event, left: asyncio.Event) -> AsyncIterator[str]:
    """The endpoint of a model that never answers, and notes when a caller comes and leaves."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            came.set()
        left.set()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@asynccontextmanager
async def served(
    folder: Path, table: str, *, deadline_s: float = DEADLINES_S[0]
) -> AsyncIterator[aiohttp.ClientSession]:
    file = folder / "dragoman.toml"
    text = (
        f'port = 0\nstore = "memory:"\nshutdown_grace_s = 0.2\ncancel_grace_s = 5\n[[agents]]\nid = "agent"\n{table}\n'
    )
    file.write_text(f"{text}deadline_s = {deadline_s}\n")
    config = load(file, {}, {})
    async with (
        serving(config, [make_agent(entry) for entry in config.agents]) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
    ):
        yield http


async def send(http: aiohttp.ClientSession) -> Any:
    """A message, and its task once that has ended."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with http.post("/agents/agent/message:send", json={"message": message}, headers=V1) as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["task"]


def check(task: Any, deadline_s: float = DEADLINES_S[0]) -> None:
    assert task["status"]["state"] == "TASK_STATE_FAILED", task
    assert task["status"]["message"]["parts"] == [{"text": f"The agent took longer than deadline_s = {deadline_s:g}."}]
    assert task["status"]["message"]["metadata"] == {"reason": "deadline_exceeded"}


async def test_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code.py").write_text(CODE)
    async with served(tmp_path, f'run = "{tmp_path}/code.py:agent"') as http:
        check(await send(http))


async def test_a_program_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "program.sh"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    number, table = tmp_path / "program.pid", f'run = "command:{program}"\ncwd = "{tmp_path}"'
    number.touch()
    for deadline_s in DEADLINES_S:
        async with served(tmp_path, table, deadline_s=deadline_s) as http:
            check(await send(http), deadline_s)
            if number.read_text():
                break
    await gone(int(number.read_text()))


async def test_the_task_of_another_server_is_canceled(tmp_path: Path) -> None:
    far = Far()
    async with AsyncExitStack() as stack:
        config = load(None, {}, {"port": "0", "store": "memory:"})
        url = await stack.enter_async_context(serving(config, [far.agent()]))
        for deadline_s in DEADLINES_S:
            async with served(tmp_path, f'run = "a2a:{url}"', deadline_s=deadline_s) as http:
                check(await send(http), deadline_s)
                if far.begun.is_set():
                    await asyncio.wait_for(far.stopped.wait(), DEADLINE_S)
                    break
        assert far.begun.is_set()


async def test_a_model_is_asked_no_longer(tmp_path: Path) -> None:
    came, left = asyncio.Event(), asyncio.Event()
    async with endpoint(came, left) as url:
        for deadline_s in DEADLINES_S:
            async with served(tmp_path, f'run = "openai:{url}"\nmodel = "m"', deadline_s=deadline_s) as http:
                check(await send(http), deadline_s)
                if came.is_set():
                    await asyncio.wait_for(left.wait(), DEADLINE_S)
                    break
        assert came.is_set()


async def test_a_worker_hears_that_its_task_is_over_and_the_time_in_the_queue_does_not_count(tmp_path: Path) -> None:
    async with served(tmp_path, 'run = "worker"\noffline = "queue"') as http:
        sent = asyncio.create_task(send(http))
        with pytest.raises(TimeoutError):  # twice the deadline passes in the queue, and nothing happens
            async with asyncio.timeout(0.6):
                await asyncio.shield(sent)
        async with http.post("/workers/agent/lease", json={"worker": "w", "wait_s": 25}) as answer:
            leased = json.loads(await answer.text())
        check(await sent)
        async with http.post("/workers/agent/heartbeat", json={"lease": leased["lease"], "wait_s": 10}) as answer:
            assert json.loads(await answer.text())["cancel"] is True
