"""Streams of other servers that are cut and resumed: in the end the client has the task that the server has.

The official Python SDK repeats chunks to a subscriber that joins late, and FastA2A leaves out what came in between.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.client import Retries, connect
from dragoman.client.connection import Connection
from dragoman.client.task_fold import TaskFold, join_text
from dragoman.config import Config, Upstream
from dragoman.model.card import Profile
from dragoman.model.task import Task, TaskState
from dragoman.server import serving
from tests.client.cutting import cutting as cutting_connections
from tests.client.proxy import Fault, Proxy, before
from tests.peers.test_servers import SERVERS, started

STREAMS = 30
CHUNKS = 40
CUTS = 4
"""Connections that are cut; over gRPC each one has many streams."""

DEADLINE_S = 60.0
PATHS = {"python-1": "/rpc", "fasta2a": "/"}
GRPC_PATHS = {"1.0": "/grpc", "0.3": "/grpc-old"}
"""Where the card of python-1 is that names its gRPC endpoint, by version."""

FIRST_FRAME_BYTES = 1200
"""The answer's head and the frame that names the task: a send of which less arrives is not made again."""

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def cutting(chance: Random) -> Callable[[bytes], Fault | None]:
    """Cuts most streams at random points, some so that they seem to have ended."""

    def choose(asked: bytes) -> Fault | None:
        first = b'"SendStreamingMessage"' in asked
        if not first and (b'"SubscribeToTask"' not in asked or chance.random() < 0.3):
            return None
        least = FIRST_FRAME_BYTES if first else 1
        return Fault(cut=least + chance.randrange(6000), politely=chance.random() < 0.5)

    return choose


def held(task: Task) -> tuple[TaskState, dict[str, Any]]:
    """The parts of a task that are compared."""
    return task.status.state, {each.artifact_id: join_text(each.parts) for each in task.artifacts}


def upstream_id(task: Task) -> str:
    """The id that the server gave the task, with which its agent begins."""
    (first,) = [each for each in task.artifacts if each.artifact_id == "pace"]
    return (join_text(first.parts)[0].text or "").partition(" ")[0]


async def by_client(agent: Connection) -> Task:
    """The task as the updates of a stream fold to it."""
    fold = TaskFold()
    async for update in agent.stream(f"pace {CHUNKS}"):
        fold.add(update)
    task = fold.task()
    assert task is not None
    return task


async def by_gateway(agent: Connection) -> Task:
    """The task as the gateway has stored it."""
    answer = await agent.send(f"pace {CHUNKS}")
    assert isinstance(answer, Task)
    return await agent.get(answer.id)


Take = Callable[[Connection], Awaitable[Task]]


async def differing(url: str, path: str, take: Take, *, seed: int) -> list[tuple[Any, Any]]:
    """The tasks of many streams at once that are not what the server says they are."""
    async with AsyncExitStack() as opened:
        proxy: Proxy = await opened.enter_async_context(before(url))
        proxy.choose = cutting(Random(seed))
        direct = await opened.enter_async_context(connect(url + path, dialect="1.0"))
        if take is by_gateway:
            profile = Profile(id="far", name="Far", description="Elsewhere", version="1", skills=())
            far = UpstreamAgent(profile, Upstream(url=proxy.url + path, dialect="1.0"), adjust=lambda _: profile)
            at = await opened.enter_async_context(serving(Config(port=0, store="memory:"), [far]))
            agent = await opened.enter_async_context(connect(at, dialect="1.0"))
        else:
            retries = Retries(first_s=0.02)
            agent = await opened.enter_async_context(connect(proxy.url + path, dialect="1.0", retries=retries))
        tasks = await asyncio.wait_for(asyncio.gather(*(take(agent) for _ in range(STREAMS))), DEADLINE_S)
        truth = [await direct.get(upstream_id(task)) for task in tasks]
    assert sum(b'"GetTask"' in asked for asked in proxy.asked) >= STREAMS, "a stream was not cut"
    return [(held(ours), held(theirs)) for ours, theirs in zip(tasks, truth, strict=True) if held(ours) != held(theirs)]


def some_bytes(chance: Random, cuts: int) -> Callable[[], int | None]:
    """Cuts so many connections after a random number of bytes, and no further ones."""
    left = [100 + chance.randrange(8_000) for _ in range(cuts)]
    return lambda: left.pop() if left else None


async def differing_over_grpc(url: str, dialect: str, take: Take, *, seed: int) -> tuple[int, list[tuple[Any, Any]]]:
    """How many connections were cut, and the tasks that are not what the server says they are."""
    async with AsyncExitStack() as opened:
        direct = await opened.enter_async_context(connect(url))
        assert (direct.interface.binding, direct.interface.dialect) == ("GRPC", dialect)
        proxy = await opened.enter_async_context(
            cutting_connections(direct.interface.to.port, some_bytes(Random(seed), CUTS))
        )
        place = f"grpc://127.0.0.1:{proxy.port}"
        if take is by_gateway:
            profile = Profile(id="far", name="Far", description="Elsewhere", version="1", skills=())
            address = Upstream(url=place, dialect=dialect, dedupes=True)
            far = UpstreamAgent(profile, address, adjust=lambda _: profile)
            at = await opened.enter_async_context(serving(Config(port=0, store="memory:"), [far]))
            agent = await opened.enter_async_context(connect(at, dialect="1.0"))
        else:
            retries = Retries(first_s=0.02, attempts=20, dedupes=True)
            agent = await opened.enter_async_context(connect(place, dialect=dialect, retries=retries))
        tasks = await asyncio.wait_for(asyncio.gather(*(take(agent) for _ in range(STREAMS))), DEADLINE_S)
        truth = [await direct.get(upstream_id(task)) for task in tasks]
        differ = [
            (held(ours), held(theirs)) for ours, theirs in zip(tasks, truth, strict=True) if held(ours) != held(theirs)
        ]
        return proxy.cuts, differ


@pytest.fixture(scope="module")
async def urls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    with started(tuple(PATHS), tmp_path_factory.mktemp("servers")) as urls:
        yield urls


@pytest.mark.parametrize("take", [by_client, by_gateway])
@pytest.mark.parametrize("server", PATHS)
async def test_a_stream_that_was_cut_ends_with_the_task_that_the_server_has(
    urls: dict[str, str], server: str, take: Take
) -> None:
    assert server in urls, f"{SERVERS[server].needs} is missing: run `make peers`"
    assert await differing(urls[server], PATHS[server], take, seed=1) == []


@pytest.mark.parametrize("take", [by_client, by_gateway])
@pytest.mark.parametrize("dialect", GRPC_PATHS)
async def test_a_stream_over_grpc_that_was_cut_ends_with_the_task_that_the_server_has(
    urls: dict[str, str], dialect: str, take: Take
) -> None:
    assert "python-1" in urls, f"{SERVERS['python-1'].needs} is missing: run `make peers`"
    cuts, differ = await differing_over_grpc(urls["python-1"] + GRPC_PATHS[dialect], dialect, take, seed=1)
    assert differ == []
    assert cuts > 0
