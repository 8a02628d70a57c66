"""The workers in examples/ do what they say, in their own languages."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import pytest
from msgspec import structs

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.config import Config
from dragoman.model.card import Profile
from dragoman.server import serving
from tests.kit.agents import hired

EXAMPLES = Path(__file__).parent.parent / "examples"
DEADLINE_S = 60.0
CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.2)


@asynccontextmanager
async def at_work(*command: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A server whose only agent is served by the worker that `command` starts."""
    agent = hired("far")
    async with serving(CONFIG, [agent]) as url:
        process = await asyncio.create_subprocess_exec(*command, url, "far", stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(DEADLINE_S):
                assert b"Working for far" in await process.stdout.readline()
            timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
            async with aiohttp.ClientSession(url, timeout=timeout, headers={"A2A-Version": "1.0"}) as http:
                yield http
        finally:
            process.kill()
            await process.communicate()


async def send(http: aiohttp.ClientSession, text: str, **more: Any) -> dict[str, Any]:
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **more}
    async with http.post("/message:send", json={"message": message}) as answer:
        return dict((await answer.json())["task"])


@pytest.mark.slow
async def test_the_worker_in_plain_python_counts_words() -> None:
    async with at_work(sys.executable, str(EXAMPLES / "worker.py")) as http:
        for text, count in (("one two three", "3 words"), ("", "0 words")):
            task = await send(http, text)
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert task["artifacts"][0]["parts"] == [{"text": count}]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
async def test_the_worker_in_node_greets_and_asks() -> None:
    async with at_work("node", str(EXAMPLES / "worker.mjs")) as http:
        task = await send(http, "Anna")
        assert (task["status"]["state"], task["artifacts"][0]["parts"]) == (
            "TASK_STATE_COMPLETED",
            [{"text": "Hello, Anna!"}],
        )
        task = await send(http, " ")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = await send(http, "Otto", taskId=task["id"])
        assert task["artifacts"][0]["parts"] == [{"text": "Hello, Otto!"}]
        task = await send(http, " ", contextId=task["contextId"])
        assert task["artifacts"][0]["parts"] == [{"text": "Hello, Otto!"}]


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["worker.py", "worker.mjs"])
async def test_a_worker_outlives_its_server(worker: str, tmp_path: Path) -> None:
    """It goes on with the server that starts at the same address, also with a task that it had."""
    runs = sys.executable if worker.endswith(".py") else shutil.which("node")
    if runs is None:
        pytest.skip("Node is not installed")
    config = structs.replace(CONFIG, store=f"sqlite:///{tmp_path / 'tasks.db'}")
    profile = Profile(id="far", name="far", description="Elsewhere", version="1", skills=())
    timeout, headers = aiohttp.ClientTimeout(total=DEADLINE_S), {"A2A-Version": "1.0"}
    async with serving(config, [WorkerAgent(profile, queues=True)]) as url:
        process = await asyncio.create_subprocess_exec(runs, str(EXAMPLES / worker), url, "far")
        async with aiohttp.ClientSession(url, timeout=timeout, headers=headers) as http:
            first = await send(http, " ")
    try:
        assert process.returncode is None
        await asyncio.sleep(1.5)  # the worker calls, and nobody answers
        config = structs.replace(config, port=urlsplit(url).port)
        async with (
            serving(config, [WorkerAgent(profile, queues=True)]),
            aiohttp.ClientSession(url, timeout=timeout, headers=headers) as http,
        ):
            if first["status"]["state"] == "TASK_STATE_INPUT_REQUIRED":
                task = await send(http, "Otto", taskId=first["id"])
                assert task["artifacts"][0]["parts"] == [{"text": "Hello, Otto!"}]
            task = await send(http, "Anna")
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
