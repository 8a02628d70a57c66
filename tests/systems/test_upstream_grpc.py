"""Agents that are called over gRPC, behind a card of ours: their tasks, broken connections, and what a check finds."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from dragoman import Agent, Context
from dragoman.client import Retries, Task, connect
from dragoman.client.connection import Connection
from dragoman.client.task_fold import join_text
from dragoman.config import Config
from dragoman.model.errors import Unavailable
from dragoman.model.task import TaskState
from dragoman.server import serving
from tests.client.cutting import cutting
from tests.kit.values import text_of
from tests.net.grpc_peer import loop_of_module, serving_grpc
from tests.net.peer import DEADLINE_S, listening, says
from tests.ports import kept_port
from tests.systems.test_upstream import CONFIG, fronted, partner

one_loop = loop_of_module

STREAMS, CHUNKS, CUTS = 30, 40, 6
CARD_PATH = "GET /.well-known/agent-card.json"


def pacer() -> Agent:
    """Says its task's id, and then numbers."""
    agent = Agent("pacer")

    @agent.skill
    async def pace(ctx: Context) -> AsyncIterator[str]:
        """Says numbers."""
        yield f"{ctx.task_id} "
        for n in range(int(ctx.text)):
            yield f"<{n}>"
            await asyncio.sleep(0.002)

    return agent


def held(task: Task) -> tuple[TaskState, list[Any]]:
    return task.status.state, [join_text(each.parts) for each in task.artifacts]


@pytest.mark.parametrize("dialect", ["1.0", "0.3"])
async def test_a_task_whose_stream_was_cut_is_the_upstreams_own(dialect: str) -> None:
    port, chance = kept_port(), Random(7)
    left = [100 + chance.randrange(8000) for _ in range(CUTS)]
    config = Config(port=0, grpc_port=port, store="memory:", shutdown_grace_s=0.1)
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(config, [pacer()]) as url,
        cutting(port, lambda: left.pop() if left else None) as proxy,
        fronted(partner(f"grpc://127.0.0.1:{proxy.port}", dialect=dialect, dedupes=True)) as ours,
        connect(url, dialect="1.0") as direct,
    ):

        async def one() -> tuple[Task, Task]:
            sent = await ours.send(str(CHUNKS))
            assert isinstance(sent, Task)
            task = await ours.get(sent.id)
            return task, await direct.get(text_of(task).partition(" ")[0])

        pairs = await asyncio.gather(*(one() for _ in range(STREAMS)))
    assert [(held(task), held(theirs)) for task, theirs in pairs if held(task) != held(theirs)] == []
    assert all(task.status.state is TaskState.COMPLETED for task, _ in pairs)
    assert proxy.cuts > 0


async def test_an_agent_whose_card_lists_grpc_alone_is_called_there() -> None:
    port = kept_port()
    entry = {"url": f"127.0.0.1:{port}", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "pacer"}
    config = Config(port=0, grpc_port=port, store="memory:", shutdown_grace_s=0.1)
    async with asyncio.timeout(DEADLINE_S), serving(config, [pacer()]), listening() as web:
        web.scripts[CARD_PATH] = says({"name": "Pacer", "version": "1", "supportedInterfaces": [entry]})
        found = [finding async for finding in partner(web.url).check()]
        assert all(finding.ok for finding in found)
        assert found[1].what == f"it is spoken to in dialect 1.0 over GRPC at grpc://127.0.0.1:{port}"
        async with fronted(partner(web.url)) as ours:
            assert await answer(ours) == "<0><1><2>"


async def answer(ours: Connection) -> str:
    """The agent's text after its task's id."""
    task = await ours.send("3")
    assert isinstance(task, Task)
    return text_of(task).partition(" ")[2]


async def test_a_check_says_what_is_wrong_with_an_endpoint() -> None:
    nobody = partner(f"grpc://127.0.0.1:{kept_port()}", dialect="1.0")
    (finding,) = [finding async for finding in nobody.check()]
    assert (finding.ok, "its endpoint does not answer" in finding.what) == (False, True)
    async with serving_grpc() as other:
        elsewhere = partner(f"grpc://127.0.0.1:{other.port}", dialect="1.0")
        (finding,) = [finding async for finding in elsewhere.check()]
    assert (finding.ok, "there is no agent where it is called" in finding.what) == (False, True)


async def test_a_server_without_the_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.client.endpoint.grpc_installed", lambda: False)
    async with listening() as web:
        entry = {"url": "127.0.0.1:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
        web.scripts[CARD_PATH] = says({"name": "far", "supportedInterfaces": [entry]})
        (finding,) = [finding async for finding in partner(web.url).check()]
        assert (finding.ok, "called over gRPC, which is not installed here" in finding.what) == (False, True)
        async with (
            serving(CONFIG, [partner(web.url)]) as url,
            connect(f"{url}/agents/partner", retries=Retries(attempts=1)) as ours,
        ):
            with pytest.raises(Unavailable):
                await ours.send("hi")
        assert web.paths.count("POST /v1/chat/completions") == 0  # it does speak A2A
