"""Agents of other servers: card, tasks, streams and webhooks are those of the server in front, the caller its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman import Agent, Context
from dragoman.client import ApiKey, connect
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate
from dragoman.server import serving
from tests.client.proxy import before
from tests.kit.places import asked
from tests.kit.values import text_of
from tests.push.receiver import Receiver, receiving
from tests.spec.agents import Gates, house
from tests.systems.test_upstream import AT, CONFIG, DEADLINE_S, DIALECTS, partner

FRONT = replace(CONFIG, push_allowed_hosts=("127.0.0.1",))


@pytest.fixture
async def upstream(gates: Gates) -> AsyncIterator[str]:
    """The server behind, which calls nobody's webhooks."""
    async with serving(CONFIG, house(gates)) as url:
        yield url


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as waiting:
        yield waiting


async def test_its_card_is_signed_by_us_and_by_nobody_else(upstream: str) -> None:
    async with serving(FRONT, [partner(upstream + AT["1.0"])]) as url, aiohttp.ClientSession() as http:
        async with http.get(f"{url}/.well-known/jwks.json") as answer:
            ours = await answer.json()
        async with http.get(f"{upstream}/.well-known/jwks.json") as answer:
            theirs = await answer.json()
        async with connect(f"{url}/agents/partner", keys=ours) as agent:
            assert agent.card is not None
            assert agent.card.name == "script"
            signed_by = {key["kid"] for key in theirs["keys"]}
            assert not any(kid in str(agent.card.whole) for kid in signed_by)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_webhooks_of_its_tasks_are_called_from_here(upstream: str, receiver: Receiver, dialect: str) -> None:
    agent = partner(upstream + AT[dialect], dialect=dialect)
    async with serving(FRONT, [agent]) as url, connect(f"{url}/agents/partner") as connection:
        task = await asked(connection, "chunks 3")
        await connection.webhooks.set(task.id, f"{receiver.url}/hook")
        async with asyncio.timeout(DEADLINE_S):
            await receiver.came(1)
    told = receiver.asked[-1].json["task"]
    assert (told["id"], told["status"]["state"]) == (task.id, "TASK_STATE_COMPLETED")
    assert text_of(task) == "0 1 2 "


async def test_a_webhook_is_told_of_it_as_it_goes_on(upstream: str, gates: Gates, receiver: Receiver) -> None:
    async with (
        serving(FRONT, [partner(upstream + AT["1.0"])]) as url,
        connect(f"{url}/agents/partner") as connection,
    ):
        task = await asked(connection, "wait told", return_immediately=True)
        await asyncio.wait_for(gates.reached["told"].wait(), DEADLINE_S)
        await connection.webhooks.set(task.id, f"{receiver.url}/hook")
        gates.open["told"].set()
        async with asyncio.timeout(DEADLINE_S):
            while b"TASK_STATE_COMPLETED" not in b"".join(receiver.bodies):
                await receiver.came(len(receiver.bodies) + 1)
    whole = b"".join(receiver.bodies)
    assert b'"done"' in whole
    assert task.id.encode() in whole


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_its_tasks_are_replayed_when_it_is_gone(gates: Gates, dialect: str) -> None:
    async with serving(CONFIG, house(gates)) as behind:
        front = serving(FRONT, [partner(behind + AT[dialect], dialect=dialect)])
        url = await front.__aenter__()
        opened = connect(f"{url}/agents/partner")
        connection = await opened.__aenter__()
        task = await asked(connection, "chunks 5")
    try:
        async with asyncio.timeout(DEADLINE_S):
            updates = [update async for update in connection.subscribe(task.id, after="1")]
            chunks = [each for each in updates if isinstance(each, ArtifactUpdate)]
            assert "".join(part.text or "" for each in chunks for part in each.artifact.parts) == "0 1 2 3 4 "
            kept = await connection.get(task.id)
            assert (kept.status.state, text_of(kept)) == (TaskState.COMPLETED, "0 1 2 3 4 ")
    finally:
        await opened.__aexit__(None, None, None)
        await front.__aexit__(None, None, None)


TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def boss() -> Agent:
    agent = Agent("boss")

    @agent.skill
    async def hand_on(ctx: Context) -> str:
        """Lets the partner do it."""
        return (await ctx.delegate("partner", ctx.text)).text

    return agent


@pytest.mark.parametrize("through", ["partner", "boss"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_trace_and_credentials_of_the_caller_reach_the_upstream(
    upstream: str, dialect: str, through: str
) -> None:
    """Also when it is another agent that asks it for the caller."""
    async with before(upstream) as between:
        agents = [boss(), partner(between.url + AT[dialect], dialect=dialect, forwards=True)]
        async with (
            serving(FRONT, agents) as url,
            connect(f"{url}/agents/{through}", credentials=ApiKey("callers-own-key-1")) as connection,
        ):
            task = await connection.send("hello", traceparent=TRACE)
        assert isinstance(task, Task)
        assert text_of(task) == "hello", task.status
        sent = [request.lower() for request in between.asked if request.startswith(b"POST")]
    assert sent
    for request in sent:
        assert f"\r\ntraceparent: {TRACE}\r\n".encode() in request
        assert b"\r\nx-api-key: callers-own-key-1\r\n" in request


async def test_whoever_delegates_asks_its_caller_for_the_credentials_that_the_upstream_wants(upstream: str) -> None:
    async with before(upstream) as between:
        agents = [boss(), partner(between.url + AT["1.0"], forwards=True)]
        async with (
            serving(FRONT, agents) as url,
            connect(f"{url}/agents/boss") as nobody,
            connect(f"{url}/agents/boss", credentials=ApiKey("callers-own-key-1")) as mine,
        ):
            task = await asked(nobody, "hello")
            assert task.status.state is TaskState.AUTH_REQUIRED
            assert text_of(await asked(mine, "it is me", task_id=task.id)) == "hello"
        (sent,) = [request.lower() for request in between.asked if request.startswith(b"POST")]
    assert b"\r\nx-api-key: callers-own-key-1\r\n" in sent


async def test_a_task_that_it_has_and_tells_no_more_of_is_uncertain(upstream: str) -> None:
    """A reader who is told that it has not seen the message would send it again."""
    async with AsyncExitStack() as front:
        async with before(upstream) as between:
            agent = partner(between.url + AT["1.0"], wait_s=0.5, pause_s=0.1)
            url = await front.enter_async_context(serving(FRONT, [agent]))
            connection = await front.enter_async_context(connect(f"{url}/agents/partner"))
            task = await asked(connection, "wait for-ever", return_immediately=True)
            async with asyncio.timeout(DEADLINE_S):
                while (await connection.get(task.id)).status.message is None:  # "waiting", by which it is known there
                    await asyncio.sleep(0.02)
        async with asyncio.timeout(DEADLINE_S):
            async for _ in connection.subscribe(task.id):
                pass
        ended = await connection.get(task.id)
    assert ended.status.state is TaskState.FAILED
    assert ended.status.message is not None
    assert ended.status.message.metadata == {"reason": "upstream_uncertain"}
