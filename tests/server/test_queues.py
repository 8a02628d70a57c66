"""The watch over queues: what the log says, and how often."""

import asyncio
import logging

import aiohttp
import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.config import Config
from dragoman.model.card import Profile
from dragoman.server import serving
from dragoman.server.queues import QueueWatch
from dragoman.store.api import StoreError
from dragoman.store.figures import OpenTasks, StoreFigures

DEADLINE_S = 60.0


class Clock:
    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


class ScriptedStore:
    """A store whose figures are what the test says."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.open_tasks: tuple[OpenTasks, ...] = ()

    async def figures(self) -> StoreFigures:
        if self.fault is not None:
            raise self.fault
        return StoreFigures(size_bytes=1, open_tasks=self.open_tasks)


async def test_an_old_queue_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.queues")
    clock, store = Clock(), ScriptedStore()
    watch = QueueWatch(store.figures, clock, lambda: {"echo"}, 60.0)
    store.open_tasks = (
        OpenTasks(agent="echo", queued=7, queued_since_ms=clock.ms, running=1, running_since_ms=0),
        OpenTasks(agent="gone", queued=1, queued_since_ms=0),
    )
    clock.ms += 59_999
    await watch.check()
    assert caplog.messages == []
    clock.ms += 1001
    for _ in range(3):
        await watch.check()
    store.fault = StoreError("away")
    await watch.check()
    assert caplog.messages == ["agent echo: 7 tasks wait to be run, the oldest for 61 s"]
    store.fault, store.open_tasks = None, ()
    for _ in range(2):
        await watch.check()
    assert caplog.messages[1:] == ["agent echo: no task waits for long any more"]


async def test_a_server_whose_workers_are_away_says_that_its_queue_is_old(caplog: pytest.LogCaptureFixture) -> None:
    profile = Profile(id="slow", name="slow", description="Elsewhere", version="1", skills=())
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, queue_warn_s=1.0)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(config, [WorkerAgent(profile, queues=True)]) as url,
        aiohttp.ClientSession(url, headers={"A2A-Version": "1.0"}) as http,
    ):
        body = {"message": message, "configuration": {"returnImmediately": True}}
        async with http.post("/message:send", json=body) as answer:
            assert answer.status == 200
        while "agent slow: 1 task waits to be run" not in caplog.text:
            await asyncio.sleep(0.05)
