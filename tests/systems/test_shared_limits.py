"""Sessions of MCP and limits of callers, on servers that share a store."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.auth.keys import digest_of, make_key
from dragoman.config import Config
from dragoman.dialects.mcp.tools import name_of
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole, KeyLimits
from dragoman.server import serving
from dragoman.store.keyring import StoredKey
from dragoman.store.open import open_store
from tests.bindings.mcp_client import Client, next_of
from tests.shared_store import shared_store

DEADLINE_S = 60.0

V1 = {"A2A-Version": "1.0"}


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The URL of a store that all servers share."""
    if request.param == "postgres":
        yield request.getfixturevalue("used_postgres_url")
    else:
        async with shared_store(monkeypatch):
            yield "memory:"


class Stage:
    """An agent that asks when it is told to, and else waits until it is stopped."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()

    def agent(self) -> Agent:
        agent = Agent("stage")

        @agent.skill
        async def play(ctx: Context) -> AsyncIterator[str]:
            """Do as told."""
            if ctx.text == "ask":
                yield await ctx.ask("Which one?")
                return
            yield "so far"
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()

        return agent


@asynccontextmanager
async def servers(url: str, stage: Stage, **said: Any) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """Two servers with the agent of the stage."""
    config = Config(port=0, store=url, shutdown_grace_s=0.2, cancel_grace_s=5, **said)
    async with AsyncExitStack() as stack:
        sessions = []
        for _ in range(2):
            base = await stack.enter_async_context(serving(config, [stage.agent()]))
            timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
            sessions.append(await stack.enter_async_context(aiohttp.ClientSession(base, timeout=timeout)))
        yield sessions


def elsewhere(client: Client, http: aiohttp.ClientSession) -> Client:
    """The same session on another server."""
    other = Client(http)
    other.headers = client.headers
    return other


TOOL = name_of("stage", None)


async def test_a_call_is_canceled_on_another_server(store: str) -> None:
    stage = Stage()
    async with servers(store, stage) as (one, other), asyncio.timeout(DEADLINE_S):
        client = Client(one)
        await client.begin()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": client.number + 1}}
        async with client.streamed(TOOL, message="wait") as messages:
            await stage.begun.wait()
            await elsewhere(client, other).post(cancel, status=202)
            await stage.stopped.wait()
            left = [message async for message in messages]
        assert not [message for message in left if "id" in message]


async def test_a_form_is_answered_on_another_server(store: str) -> None:
    async with servers(store, Stage()) as (one, other), asyncio.timeout(DEADLINE_S):
        client = Client(one)
        await client.begin(elicitation={})
        async with client.streamed(TOOL, token=None, message="ask") as messages:
            form = await next_of(messages, "elicitation/create")
            answer = {"action": "accept", "content": {"answer": "this"}}
            reply = {"jsonrpc": "2.0", "id": form["id"], "result": answer}
            await elsewhere(client, other).post(reply, status=202)
            *_, last = [message async for message in messages]
        assert last["result"]["structuredContent"]["text"] == "this"


async def test_a_form_is_put_away_on_another_server(store: str) -> None:
    async with servers(store, Stage()) as (one, other), asyncio.timeout(DEADLINE_S):
        client = Client(one)
        await client.begin(elicitation={})
        async with client.streamed(TOOL, token=None, message="ask") as messages:
            form = await next_of(messages, "elicitation/create")
            reply = {"jsonrpc": "2.0", "id": form["id"], "result": {"action": "decline"}}
            await elsewhere(client, other).post(reply, status=202)
            *_, last = [message async for message in messages]
        assert last["result"]["structuredContent"]["state"] == "input-required"


async def test_the_rate_of_a_caller_is_that_of_all_servers_together(store: str) -> None:
    async with servers(store, Stage(), max_requests_per_s=1) as (one, other), asyncio.timeout(DEADLINE_S):

        async def get(http: aiohttp.ClientSession) -> int:
            async with http.get("/agents/stage/tasks/none", headers=V1) as answer:
                return answer.status

        both = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + 3
        while loop.time() < until:
            both += [await get(one), await get(other)].count(404)
        took_s = loop.time() - until + 3
        assert both <= 1 + took_s + 2, "a full bucket, the rate, and one call of each"


async def test_the_streams_of_a_caller_count_on_all_servers_together(store: str) -> None:
    stage = Stage()
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
    async with servers(store, stage, max_streams=2) as (one, other), AsyncExitStack() as held:
        refused: list[aiohttp.ClientSession] = []
        for number, http in enumerate((one, other) * 3):
            body = {"message": {**message, "messageId": f"m{number}"}}
            answer = await held.enter_async_context(http.post("/agents/stage/message:stream", json=body, headers=V1))
            if answer.status == 429:
                refused.append(http)
            else:
                assert answer.status == 200
        assert len(refused) >= 2, "two streams, and one more of each server"
        assert set(refused) == {one, other}


async def test_the_daily_tasks_of_a_key_are_exact_on_all_servers_together(used_postgres_url: str) -> None:
    made = make_key(secrets.token_bytes)
    key = StoredKey(
        id=made.id,
        name="anna",
        role=AccessRole.CALLER,
        agents=None,
        scopes=None,
        digest=digest_of(made.text),
        made_ms=0,
        limits=KeyLimits(max_daily_tasks=7),
    )
    opened = open_store(used_postgres_url, SystemClock())
    await opened.open(None)
    try:
        await opened.keys.add(key)
    finally:
        await opened.close()
    async with servers(used_postgres_url, Stage()) as both, asyncio.timeout(DEADLINE_S):
        headers = V1 | {"x-api-key": made.text}

        async def send(number: int) -> int:
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "ask"}]}
            sent = {"message": message, "configuration": {"returnImmediately": True}}
            async with both[number % 2].post("/agents/stage/message:send", json=sent, headers=headers) as answer:
                return answer.status

        statuses = await asyncio.gather(*(send(number) for number in range(30)))
        assert sorted(statuses) == [200] * 7 + [429] * 23
