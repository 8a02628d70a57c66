"""Where there is no push, the card says so and everything about webhooks is refused (A2A 1.0 §3.3.4)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.agents.table import apply_entry
from dragoman.config import AgentEntry, load
from dragoman.server import serving
from tests.push.receiver import Receiver, receiving
from tests.spec.agents import Gates
from tests.systems.agents import house
from tests.systems.conftest import CONFIG, DEADLINE_S, HOOK, Json, Site, Told, site
from tests.systems.hooks import (
    ALL,
    BEEOS,
    EVOAI,
    NEW_REST,
    NEW_RPC,
    OLD_REST,
    PROTO_REST,
    Hooked,
    V,
    rpc,
    task_id_of,
)

MOUNTS = ("/", "/agents/desk", "/a2a", "/api/v1/a2a/desk", "/desk")
LOOPBACK: Json = {"push_allowed_hosts": (), "push_allowed_cidrs": ("127.0.0.0/8",)}

each_dialect = pytest.mark.parametrize("hooked", ALL, ids=lambda hooked: hooked.name)


@pytest.fixture(scope="module", params=["server", "agent"])
async def without(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A server without push, and one whose agent `desk` has none."""
    gates, agents, config = Gates(), house(Gates()), CONFIG
    if request.param == "server":
        config = replace(CONFIG, push=False)
    else:
        agents = [apply_entry(agents[0], AgentEntry(id="desk", run="x:desk", push=False)), *agents[1:]]
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with serving(config, agents) as url, aiohttp.ClientSession(timeout=timeout) as http:
        yield Site(url, http, gates)


def refused(told: Told, hooked: Hooked) -> None:
    """It is the error of that dialect, in its own code."""
    if told.status == 200:
        assert told.error["code"] == (-32004 if hooked is BEEOS else -32003), told
    else:
        assert told.status == {NEW_REST.name: 400, OLD_REST.name: 501, PROTO_REST.name: 501}[hooked.name], told
        assert b"Push Notification is not supported" in told.raw


@pytest.mark.parametrize("mount", MOUNTS)
async def test_the_card_says_so(without: Site, mount: str) -> None:
    for version in ("", "1.0", "0.3"):
        headers = {"a2a_version": version} if version else {}
        told = await without.ask("GET", f"{mount.rstrip('/')}/.well-known/agent-card.json", **headers)
        assert told.body["capabilities"]["pushNotifications"] is False


@each_dialect
async def test_everything_about_webhooks_is_refused(without: Site, hooked: Hooked) -> None:
    before = await total(without)
    sent = await hooked.made(without, "hello", {"url": HOOK})
    refused(sent, hooked)
    assert await total(without) == before, "a send that was refused made a task"
    task_id = await hooked.task(without, "hello")
    refused(await hooked.registered(without, task_id, {"url": HOOK}), hooked)
    asks = [hooked.get(task_id, "x")]
    asks += [] if hooked.list is None else [hooked.list(task_id)]
    asks += [] if hooked.delete is None else [hooked.delete(task_id, "x")]
    for method, path, body in asks:
        told = await without.ask(method, path, body, **hooked.headers)
        refused(told, hooked)


@pytest.mark.parametrize("method", ["SendStreamingMessage", "SendMessage"])
async def test_a_message_to_a_task_is_refused_too(without: Site, method: str) -> None:
    task_id = await NEW_RPC.task(without, "ask me")
    params: Json = {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "this"}], "taskId": task_id},
        "configuration": {"taskPushNotificationConfig": {"url": HOOK}},
    }
    refused(await without.post("/agents/desk", rpc(method, params), **V), NEW_RPC)
    task = (await without.post("/agents/desk", rpc("GetTask", {"id": task_id}), **V)).result
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


async def test_the_other_agents_keep_theirs() -> None:
    desk, other, *_ = house(Gates())
    agents = [apply_entry(desk, AgentEntry(id="desk", run="x:desk", push=False)), other]
    async with serving(CONFIG, agents) as url, aiohttp.ClientSession() as http:
        served = Site(url, http, Gates())
        card = (await served.ask("GET", "/agents/my-agent/.well-known/agent-card.json")).body
        assert card["capabilities"]["pushNotifications"] is True
        params: Json = {
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
            "configuration": {"taskPushNotificationConfig": {"url": HOOK}},
        }
        assert (await served.post("/agents/my-agent", rpc("SendMessage", params), **V)).result["task"]


async def test_nothing_is_told_while_push_is_off_and_the_rest_once_it_is_on_again(tmp_path: Path) -> None:
    store: Json = {"store": f"sqlite:///{tmp_path}/d.db", **LOOPBACK}
    async with receiving() as receiver:
        receiver.answers = lambda number: 503
        async with site(**store) as served:
            task_id = await NEW_RPC.task(served, "ask me", {"url": f"{receiver.url}/hook", "events": ["completed"]})
            owed_id = await NEW_RPC.task(served, "hello", {"url": f"{receiver.url}/owed", "events": ["completed"]})
            await receiver.came(1)
        receiver.asked.clear()
        receiver.answers = lambda number: 204
        async with site(**store, push=False) as served:
            await answer(served, task_id)
        assert not receiver.asked
        async with site(**store) as served:
            await NEW_RPC.task(served, "later", {"url": f"{receiver.url}/later", "events": ["completed"]})
            await came(receiver, {"/owed", "/later"})
        assert owed_id in next(asked for asked in receiver.asked if asked.path == "/owed").body.decode()


async def test_an_agent_that_lost_its_push_tells_nothing_new(tmp_path: Path) -> None:
    store: Json = {"store": f"sqlite:///{tmp_path}/d.db", **LOOPBACK}
    async with receiving() as receiver:
        async with site(**store) as served:
            task_id = await NEW_RPC.task(served, "ask me", {"url": f"{receiver.url}/hook", "events": ["completed"]})
        desk, other, *_ = house(Gates())
        agents = [apply_entry(desk, AgentEntry(id="desk", run="x:desk", push=False)), other]
        async with serving(replace(CONFIG, **store), agents) as url, aiohttp.ClientSession() as http:
            served = Site(url, http, Gates())
            await answer(served, task_id)
            params: Json = {
                "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
                "configuration": {"taskPushNotificationConfig": {"url": f"{receiver.url}/later"}},
            }
            task_id_of(await served.post("/agents/my-agent", rpc("SendMessage", params), **V))
            await receiver.came(1)
            assert {asked.path for asked in receiver.asked} == {"/later"}


async def test_a_server_that_keeps_no_tasks_makes_none_for_a_message_with_a_webhook() -> None:
    async with site(tasks=False) as served:
        for hooked in (NEW_RPC, EVOAI):
            refused(await hooked.made(served, "hello", {"url": HOOK}), hooked)


async def test_kaos_has_none_unless_the_operator_wants_it() -> None:
    config = load(None, {}, {"profile": "kaos", "port": "0", "push_allowed_hosts": "127.0.0.1"})
    assert load(None, {}, {"profile": "kaos", "push": "true"}).push is True
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    send: Json = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": HOOK}}}
    async with serving(config, house(Gates())) as url, aiohttp.ClientSession() as http:
        served = Site(url, http, Gates())
        card = (await served.ask("GET", "/.well-known/agent.json")).body
        assert card["capabilities"]["pushNotifications"] is False
        refused(await served.post("/", rpc("SendMessage", send), **V), NEW_RPC)
        refused(await served.post("/message:send", send, **V), NEW_REST)
        task_id = task_id_of(await served.post("/", rpc("SendMessage", {"message": message}), **V))
        create = rpc("CreateTaskPushNotificationConfig", {"taskId": task_id, "url": HOOK})
        refused(await served.post("/", create, **V), NEW_RPC)
        old = rpc("tasks/pushNotificationConfig/set", {"taskId": task_id, "pushNotificationConfig": {"url": HOOK}})
        refused(await served.post("/", old), NEW_RPC)


async def test_the_card_of_a_server_that_makes_no_tasks_promises_nothing_it_refuses() -> None:
    async with site(tasks=False, api_key="k") as served:
        card = (await served.ask("GET", "/agents/desk/.well-known/agent-card.json")).body
        promised = {name for name, value in card["capabilities"].items() if value}
        assert promised == set()
        params: Json = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
        for method in ("SendStreamingMessage", "GetExtendedAgentCard"):
            told = await served.by("k").post("/agents/desk", rpc(method, params), **V)
            assert told.error["code"] == -32004


async def total(served: Site) -> Any:
    return (await served.post("/agents/desk", rpc("ListTasks", {}), **V)).result["totalSize"]


async def answer(served: Site, task_id: str) -> None:
    params: Json = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "this"}], "taskId": task_id}}
    task = (await served.post("/agents/desk", rpc("SendMessage", params), **V)).result["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def came(receiver: Receiver, paths: set[str]) -> None:
    """Until exactly these were called."""
    count = 0
    while {asked.path for asked in receiver.asked} != paths:
        count = len(receiver.asked)
        await receiver.came(count + 1)
