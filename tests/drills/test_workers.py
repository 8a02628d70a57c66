"""A worker of a cluster whose replicas are killed: every word that it said is in the task, once and in order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.net.egress import Egress
from tests.drills.cluster import ReplicaProcess
from tests.drills.drill import ALLOWED
from tests.soak import times

pytestmark = [pytest.mark.slow, pytest.mark.drill]

DEADLINE_S = 120.0
V1 = {"A2A-Version": "1.0"}
KILLS = times(2, 12)
WORDS = 12 * (KILLS + 2)

DECLARED = """
[[agents]]
id = "far"
run = "worker"
offline = "queue"
"""


async def test_a_worker_loses_and_repeats_no_word_when_replicas_are_killed(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "dragoman.toml").write_text(DECLARED)
    flags = ("--store", postgres_url, "--replica-lease-s", "3", "--replica-beat-s", "1", *ALLOWED)
    replicas = [ReplicaProcess(name, flags, tmp_path) for name in ("one", "two")]
    said = asyncio.Condition()
    words = 0
    agent = Agent("far")

    @agent.skill
    async def count(ctx: Context) -> AsyncIterator[str]:
        """Count, as fast as the server takes it."""
        nonlocal words
        for number in range(WORDS):
            yield f"{number} "
            async with said:
                words += 1
                said.notify_all()
            await asyncio.sleep(0.05)

    async def reach(number: int) -> None:
        async with said:
            await said.wait_for(lambda: words >= number)

    egress, stop = Egress(), asyncio.Event()
    urls = [replica.url for replica in replicas]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    try:
        await asyncio.gather(*(replica.start() for replica in replicas))
        async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession(headers=V1) as http:
            api = WorkerApi(egress, urls[0], "far", others=urls[1:])
            working = asyncio.create_task(Lessee(agent, api, name="w", tasks=1).work(stop, 1))
            async with http.post(f"{urls[1]}/agents/far/message:send", json=body) as answer:
                task_id = (await answer.json())["task"]["id"]
            for turn in range(KILLS):
                await reach((turn + 1) * WORDS // (KILLS + 2))
                replica = replicas[turn % 2]
                await replica.kill()
                await reach((turn + 1) * WORDS // (KILLS + 2) + 3)  # through the other one
                await replica.start()
            await reach(WORDS)
            while True:
                async with http.get(f"{urls[0]}/agents/far/tasks/{task_id}") as answer:
                    task = await answer.json()
                if task["status"]["state"] != "TASK_STATE_WORKING":
                    break
                await asyncio.sleep(0.05)
            stop.set()
            await working
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
        text = "".join(part["text"] for part in task["artifacts"][0]["parts"])
        assert text.split() == [str(number) for number in range(WORDS)]
    finally:
        await asyncio.gather(*(replica.kill() for replica in replicas), return_exceptions=True)
        await egress.close()
