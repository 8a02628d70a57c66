"""A blocking send whose task cannot be written on: what each system's client is told, and what a repeat finds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import pytest

from dragoman.config import Config
from dragoman.server import serving
from tests.drills.proxy import before
from tests.full_stores import FullStore
from tests.spec.agents import Gates
from tests.systems.agents import house
from tests.systems.conftest import DEADLINE_S, Json, Site, Told, site
from tests.systems.speakers import ALL, Speaker

CHAT = Speaker("chat", "/v1/chat/completions", ("", "", "", None), None)

SYSTEMS = (*ALL, CHAT)
each_system = pytest.mark.parametrize("speaker", SYSTEMS, ids=lambda speaker: speaker.name)


async def ask(served: Site, speaker: Speaker, params: Json, key: str = "") -> Told:
    """A blocking send, with an idempotency key if there is one."""
    headers = {**speaker.headers, **({"idempotency_key": key} if key else {})}
    if speaker is not CHAT:
        return await served.rpc(speaker.at("desk"), speaker.methods[0], params, **headers)
    messages = [{"role": "user", "content": params["message"]["parts"][0]["text"]}]
    return await served.post(speaker.path, {"model": "desk", "messages": messages}, **headers)


def task_of(told: Told) -> str:
    """The task that an answer is about."""
    if "x-dragoman-task-id" in told.headers:
        return str(told.headers["x-dragoman-task-id"])
    body = told.body
    if "error" in body:
        data = body["error"]["data"]
        if data is None:  # KAOS's errors have a text alone
            return str(body["error"]["message"].split()[1])
        return str(data[0]["metadata"]["taskId"] if isinstance(data, list) else data["taskId"])
    return str(body["result"].get("task", body["result"])["id"])


async def stand_still(
    served: Site, store: FullStore, params: dict[Speaker, Json], key: str = ""
) -> list[tuple[Speaker, Told]]:
    """The answers to sends whose agents say their last words after the store has become full.

    All systems send at once, since they wait for long.
    """
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        sending = [
            (each, group.create_task(ask(served, each, sent, key and key + each.name))) for each, sent in params.items()
        ]
        for each in params:
            await served.gates.reached[each.name].wait()
        store.full = True
        for each in params:
            served.gates.open[each.name].set()
    return [(each, sent.result()) for each, sent in sending]


async def test_it_is_unavailable_with_the_task_and_the_repeat_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = FullStore(monkeypatch), str(uuid4())
    async with site(blocking_timeout_s=4.0) as served:
        params = {each: each.said(f"wait {each.name}") for each in SYSTEMS}
        answers = await stand_still(served, store, params, key)
        store.full = False
        for speaker, told in answers:
            assert (told.status, told.headers["retry-after"]) == (503, "30"), (speaker.name, told)
            again = await ask(served, speaker, params[speaker], key + speaker.name)
            assert (again.status, task_of(again)) == (200, task_of(told)), (speaker.name, again)
            assert b"done" in again.raw


async def test_one_that_cannot_be_recognised_again_waits_to_the_end_and_is_not_told_to_send_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dialect that has an error for a task that is late tells of the task: a repeat would do it twice."""
    store, loop = FullStore(monkeypatch), asyncio.get_running_loop()
    async with site(blocking_timeout_s=4.0) as served:
        began_s = loop.time()
        answers = await stand_still(served, store, {each: each.said(f"wait {each.name}") for each in SYSTEMS})
        assert loop.time() - began_s >= 4.0
        store.full = False
        for speaker, told in answers:
            assert "error" in told.body, (speaker.name, told)
            late = speaker.name in ("beeos", "evoai", "chat")
            assert ("retry-after" in told.headers) is not late, speaker.name
            at = f"/agents/desk/tasks/{task_of(told)}"
            async with asyncio.timeout(DEADLINE_S):
                while b"COMPLETED" not in (await served.ask("GET", at, a2a_version="1.0")).raw:
                    await asyncio.sleep(0.05)


@each_system
async def test_one_that_asked_to_be_answered_at_once_is(monkeypatch: pytest.MonkeyPatch, speaker: Speaker) -> None:
    if speaker is CHAT:
        pytest.skip("chat completions always wait")
    store = FullStore(monkeypatch)
    async with site(blocking_timeout_s=1.5) as served:
        store.full = True
        told = await ask(served, speaker, speaker.said("wait away", wait=False))
        assert told.status == 200
        assert "error" not in told.body
        store.full = False


@pytest.fixture
async def replica(postgres_url: str) -> AsyncIterator[tuple[Site, Any]]:
    """A server with PostgreSQL behind a proxy that can be stalled."""
    parts = urlsplit(postgres_url)
    assert parts.port is not None
    async with before("127.0.0.1", parts.port) as proxy:
        store = postgres_url.replace(f":{parts.port}/", f":{proxy.port}/")
        config = Config(
            port=0,
            store=f"{store}?timeout_s=1&sslmode=disable",  # see tests/server/test_replicas.py
            bus="none",
            replica_lease_s=30.0,
            replica_beat_s=1.0,
            blocking_timeout_s=4.0,
            shutdown_grace_s=0.2,
        )
        gates = Gates()
        async with aiohttp.ClientSession() as http, serving(config, house(gates)) as url:
            yield Site(url, http, gates), proxy


@pytest.mark.slow
async def test_while_postgresql_is_away_it_is_unavailable_and_the_repeat_finds_the_task(
    replica: tuple[Site, Any],
) -> None:
    served, proxy = replica
    speaker = next(each for each in ALL if each.name == "1.0")
    params = speaker.said("wait away")
    params["message"]["messageId"] = str(uuid4())
    sending = asyncio.create_task(ask(served, speaker, params))
    async with asyncio.timeout(DEADLINE_S):
        await served.gates.reached["away"].wait()
        proxy.stall()
        served.gates.open["away"].set()
        told = await sending
        assert (told.status, told.headers["retry-after"]) == (503, "5"), told
        proxy.heal()
        while (again := await ask(served, speaker, params)).status != 200:
            await asyncio.sleep(0.1)
        assert task_of(again) == task_of(told)
        assert again.result["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
