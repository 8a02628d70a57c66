"""Agents of other servers that are gone, come back, are slow to say a word, or were never there."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from dragoman.agents.remote.health import RETRY_S_MAX
from dragoman.model.errors import Unavailable
from dragoman.model.task import TaskState
from dragoman.model.updates import StatusUpdate
from dragoman.server import serving
from tests.kit.places import asked
from tests.kit.values import text_of, told_by
from tests.kit.waiting import until
from tests.kit.web import web_site
from tests.ports import kept_port
from tests.spec.agents import Gates, house
from tests.systems.test_upstream import CONFIG, DEADLINE_S, fronted, partner

# -- it comes back -----------------------------------------------------------------------------------------------------


async def test_tasks_that_wait_go_on_once_the_card_can_be_read_again_long_before_the_pause_is_over(
    gates: Gates,
) -> None:
    port = kept_port()
    now = [0.0]
    agent = partner(
        f"http://127.0.0.1:{port}/agents/script", failures=1, pause_s=300.0, queues=True, clock=lambda: now[0]
    )
    async with serving(replace(CONFIG, port=port), house(gates)), asyncio.timeout(DEADLINE_S):
        front = fronted(agent)
        connection = await front.__aenter__()
    try:
        tasks = [await asked(connection, f"hello {n}", return_immediately=True) for n in range(3)]
        await until(lambda: agent.route.health.calls.outcomes["failed"] == len(tasks))
        assert "calls are held back" in (agent.degraded or "")
        async with serving(replace(CONFIG, port=port), house(gates)), asyncio.timeout(DEADLINE_S):
            for n, task in enumerate(tasks):
                while (await connection.get(task.id)).status.state is not TaskState.COMPLETED:
                    await asyncio.sleep(0.02)
                assert text_of(await connection.get(task.id)) == f"hello {n}"
        assert agent.degraded is None
    finally:
        await front.__aexit__(None, None, None)


async def test_a_task_that_waits_is_submitted_until_it_is_taken_also_after_our_restart(
    gates: Gates, tmp_path: Path
) -> None:
    port = kept_port()
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")
    url = f"http://127.0.0.1:{port}/agents/script"
    async with fronted(partner(url, queues=True, pause_s=0.2), kept) as connection:
        task = await asked(connection, "wait taken", return_immediately=True)
        async with asyncio.timeout(DEADLINE_S):
            while not told_by(await connection.get(task.id)):
                await asyncio.sleep(0.01)
    async with fronted(partner(url, queues=True, pause_s=0.2), kept) as connection:
        found = await connection.get(task.id)
        assert found.status.state is TaskState.SUBMITTED
        async with serving(replace(CONFIG, port=port), house(gates)), asyncio.timeout(DEADLINE_S):
            states = []
            async for update in connection.subscribe(task.id, after="1"):
                if isinstance(update, StatusUpdate):
                    states.append(update.status.state)
                    if states[-1] is TaskState.WORKING:
                        gates.open["taken"].set()
            assert list(dict.fromkeys(states)) == [TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED]
            assert text_of(await connection.get(task.id)) == "done"


async def test_sends_are_taken_again_once_the_card_can_be_read_again(gates: Gates) -> None:
    port = kept_port()
    now = [0.0]
    url = f"http://127.0.0.1:{port}/agents/script"
    agent = partner(url, failures=1, pause_s=300.0, clock=lambda: now[0])
    async with serving(replace(CONFIG, port=port), house(gates)):
        front = fronted(agent)
        connection = await front.__aenter__()
    try:
        with pytest.raises(Unavailable) as refused:
            await asked(connection, "hello")
        assert refused.value.retry_after_s == RETRY_S_MAX + 1
        assert agent.offline
        async with serving(replace(CONFIG, port=port), house(gates)):
            await until(lambda: not agent.offline)
            assert text_of(await asked(connection, "hello")) == "hello"
    finally:
        await front.__aexit__(None, None, None)


# -- it is slow to name its task ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("streams", "kept"), [(True, False), (True, True), (False, False)])
async def test_a_cancel_that_comes_before_the_upstream_names_its_task_reaches_it(streams: bool, kept: bool) -> None:
    named, sent, canceled = asyncio.Event(), asyncio.Event(), list[Any]()

    async def call(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        task = {"id": "theirs", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        if body["method"] == "CancelTask":
            canceled.append(body["params"]["id"])
            task["status"] = {"state": "TASK_STATE_CANCELED"}
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": task})
        if "first" in str(body):  # over now, and its connection is kept
            artifacts = [{"artifactId": "a", "parts": [{"text": "one"}]}]
            task |= {"status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": artifacts}
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": {"task": task}})
        sent.set()
        if not streams:
            await named.wait()
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": {"task": task}})
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        await named.wait()
        frame = web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": {"task": task}}).text
        await answer.write(f"data: {frame}\n\n".encode())
        return answer

    async with web_site(web.post("/{path:.*}", call)) as url, fronted(partner(url, dialect="1.0")) as connection:
        if kept:
            await asked(connection, "first")
        task = await asked(connection, "hello", return_immediately=True)
        await asyncio.wait_for(sent.wait(), DEADLINE_S)
        assert (await connection.cancel(task.id)).status.state is TaskState.CANCELED
        assert canceled == []
        named.set()
        await until(lambda: canceled == ["theirs"])


# -- it is not there ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{}, {"dialect": "1.0"}, {"dialect": "0.3"}, {"dialect": "1.0", "binding": "HTTP+JSON"}]
)
async def test_a_mistyped_url_ends_in_words_that_say_so(
    gates: Gates, caplog: pytest.LogCaptureFixture, more: dict[str, str]
) -> None:
    async with serving(CONFIG, house(gates)) as url, fronted(partner(f"{url}/agents/scrpt", **more)) as connection:
        task = await asked(connection, "hello")
        assert task.status.state is TaskState.FAILED
        assert told_by(task) == "There is no agent at the address of partner: its operator here has to check `run`."
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "upstream_not_found"}
        assert f"there is no agent at {url}/agents/scrpt: check `run`" in caplog.text


async def test_messages_to_the_operator_name_the_keys_of_the_configuration(caplog: pytest.LogCaptureFixture) -> None:
    async def card(request: web.Request) -> web.Response:
        return web.json_response({"name": "x", "supportedInterfaces": [{"url": "http://x", "protocolBinding": "SOAP"}]})

    async with web_site(web.get("/there/.well-known/agent-card.json", card)) as url:
        told = []
        for at in ("/there", "/nowhere"):
            told += [finding async for finding in partner(url + at).check()]
            async with fronted(partner(url + at)) as connection:
                await asked(connection, "hello")
    everything = " ".join(f"{finding.what} {finding.fix}" for finding in told) + caplog.text
    assert "give `card`, or `dialect` to connect without one" in everything
    assert "path=" not in everything
    assert "dialect=" not in everything
