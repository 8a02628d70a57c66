"""Workers over the admin API: the leases and the last word of each, whichever server it calls."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman.agents.worker.agent import WorkerAgent
from dragoman.config import Config
from dragoman.model.principal import AccessRole
from dragoman.server import serving
from tests.bindings.admin.test_admin import DEADLINE_S, make_keys, read
from tests.cli.admin.site import dragoman
from tests.kit.agents import hired
from tests.kit.places import V1, sqlite_url
from tests.kit.values import skill


def worker_agent() -> WorkerAgent:
    return hired("sum", skill("add"))


async def call(http: aiohttp.ClientSession, action: str, headers: dict[str, str], **sent: Any) -> Any:
    async with http.post(f"/workers/sum/{action}", json=sent, headers=headers) as answer:
        assert answer.status in (200, 204), await answer.text()
        return None if answer.status == 204 else await answer.json()


async def known(
    http: aiohttp.ClientSession, headers: dict[str, str], words: dict[str, tuple[str | None, int]]
) -> list[dict[str, Any]]:
    """The workers that a server knows, once their last words and the numbers of their leases are these."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = (await read(http, "/workers", headers))[1]["known"]
            if {each["name"]: (each["last_word"], len(each["leases"])) for each in found} == words:
                return list(found)
            await asyncio.sleep(0.05)  # servers tell each other every two seconds


@pytest.mark.parametrize("replicas", [1, 2])
async def test_each_worker_is_known_to_every_server(
    tmp_path: Path, request: pytest.FixtureRequest, replicas: int
) -> None:
    store = sqlite_url(tmp_path) if replicas == 1 else request.getfixturevalue("postgres_url")
    keys = await make_keys(store, ops=(AccessRole.OPERATOR, None), boss=(AccessRole.AGENT, None))
    ops, boss = keys["ops"], keys["boss"]
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(config, [worker_agent()])) for _ in range(replicas)]
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        https = [await stack.enter_async_context(aiohttp.ClientSession(url, timeout=timeout)) for url in urls]
        one, other = https[0], https[-1]
        sent = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "1 + 1"}]}}
        waits = sent | {"configuration": {"returnImmediately": True}}
        async with one.post("/agents/sum/message:send", json=waits, headers=V1 | boss) as answer:
            task_id = (await answer.json())["task"]["id"]
        leased = await call(one, "lease", boss, worker="w1\x1b[2J", wait_s=20)
        await call(other, "lease", boss, worker="w2")
        for http in https:
            found = await known(http, ops, {"w1\x1b[2J": ("poll", 1), "w2": ("poll", 0)})
            assert {each["agent"] for each in found} == {"sum"}
            (lease,) = found[0]["leases"]
            assert lease["task"] == task_id
            assert 0 < lease["expires_s"] <= 30
            assert all(0 <= each["last_word_s"] < DEADLINE_S for each in found)
        await call(one, "heartbeat", boss, lease=leased["lease"])
        for http in https:
            await known(http, ops, {"w1\x1b[2J": ("heartbeat", 1), "w2": ("poll", 0)})
        shown = await dragoman(
            tmp_path, "admin", "workers", "--server", urls[-1], DRAGOMAN_OPERATOR_KEY=ops["x-api-key"]
        )
        head, first, second = shown.out.splitlines()[-3:]
        assert head.split() == ["AGENT", "WORKER", "LAST", "WAITS", "LEASES", "TASKS"]
        assert first.split() == ["sum", "w1?[2J", first.split()[2], "heartbeat", "no", "1", task_id]
        assert second.split()[-3:] == ["no", "0", "-"]
        await call(one, "complete", boss, lease=leased["lease"])
        for http in https:
            await known(http, ops, {"w1\x1b[2J": ("report", 0), "w2": ("poll", 0)})


async def test_a_first_report_is_known_by_its_worker(tmp_path: Path) -> None:
    keys = await make_keys(sqlite_url(tmp_path), ops=(AccessRole.OPERATOR, None), boss=(AccessRole.AGENT, None))
    config = Config(port=0, store=sqlite_url(tmp_path), shutdown_grace_s=0.2, cancel_grace_s=0.2)
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with serving(config, [worker_agent()]) as url, aiohttp.ClientSession(url, timeout=timeout) as http:
        sent = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "1 + 1"}]}}
        waits = sent | {"configuration": {"returnImmediately": True}}
        async with http.post("/agents/sum/message:send", json=waits, headers=V1 | keys["boss"]):
            pass
        leased = await call(http, "lease", keys["boss"], worker="w1", wait_s=20)
        await call(http, "update", keys["boss"], lease=leased["lease"], message="2")
        await known(http, keys["ops"], {"w1": ("report", 1)})
