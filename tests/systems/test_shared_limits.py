"""Sessions of MCP and limits of callers, on servers that share a store."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import aiohttp

from dragoman.dialects.mcp.tools import name_of
from dragoman.model.principal import KeyLimits
from tests.bindings.mcp_client import Client, next_of
from tests.kit import places
from tests.kit.agents import Endless

DEADLINE_S = 60.0

V1 = {"A2A-Version": "1.0"}


def servers(url: str, stage: Endless, **settings: Any) -> AbstractAsyncContextManager[list[aiohttp.ClientSession]]:
    """Two servers with the agent of the stage."""
    return places.servers(2, lambda: [stage.agent()], store=url, cancel_grace_s=5, **settings)


def elsewhere(client: Client, http: aiohttp.ClientSession) -> Client:
    """The same session on another server."""
    other = Client(http)
    other.headers = client.headers
    return other


TOOL = name_of("stage", None)


async def test_a_call_is_canceled_on_another_server(shared_url: str) -> None:
    stage = Endless()
    async with servers(shared_url, stage) as (one, other), asyncio.timeout(DEADLINE_S):
        client = Client(one)
        await client.begin()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": client.number + 1}}
        async with client.streamed(TOOL, message="wait") as messages:
            await stage.begun.wait()
            await elsewhere(client, other).post(cancel, status=202)
            await stage.stopped.wait()
            left = [message async for message in messages]
        assert not [message for message in left if "id" in message]


async def test_a_form_is_answered_on_another_server(shared_url: str) -> None:
    async with servers(shared_url, Endless()) as (one, other), asyncio.timeout(DEADLINE_S):
        client = Client(one)
        await client.begin(elicitation={})
        async with client.streamed(TOOL, token=None, message="ask") as messages:
            form = await next_of(messages, "elicitation/create")
            answer = {"action": "accept", "content": {"answer": "this"}}
            reply = {"jsonrpc": "2.0", "id": form["id"], "result": answer}
            await elsewhere(client, other).post(reply, status=202)
            *_, last = [message async for message in messages]
        assert last["result"]["structuredContent"]["text"] == "this"


async def test_a_form_is_put_away_on_another_server(shared_url: str) -> None:
    async with servers(shared_url, Endless()) as (one, other), asyncio.timeout(DEADLINE_S):
        client = Client(one)
        await client.begin(elicitation={})
        async with client.streamed(TOOL, token=None, message="ask") as messages:
            form = await next_of(messages, "elicitation/create")
            reply = {"jsonrpc": "2.0", "id": form["id"], "result": {"action": "decline"}}
            await elsewhere(client, other).post(reply, status=202)
            *_, last = [message async for message in messages]
        assert last["result"]["structuredContent"]["state"] == "input-required"


async def test_the_rate_of_a_caller_is_that_of_all_servers_together(shared_url: str) -> None:
    async with servers(shared_url, Endless(), max_requests_per_s=1) as (one, other), asyncio.timeout(DEADLINE_S):

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


async def test_the_streams_of_a_caller_count_on_all_servers_together(shared_url: str) -> None:
    stage = Endless()
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
    async with servers(shared_url, stage, max_streams=2) as (one, other), AsyncExitStack() as held:
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
    keys = await places.add_keys(used_postgres_url, anna={"limits": KeyLimits(max_daily_tasks=7)})
    async with servers(used_postgres_url, Endless()) as both, asyncio.timeout(DEADLINE_S):
        headers = V1 | {"x-api-key": keys["anna"]}

        async def send(number: int) -> int:
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "ask"}]}
            sent = {"message": message, "configuration": {"returnImmediately": True}}
            async with both[number % 2].post("/agents/stage/message:send", json=sent, headers=headers) as answer:
                return answer.status

        statuses = await asyncio.gather(*(send(number) for number in range(30)))
        assert sorted(statuses) == [200] * 7 + [429] * 23
