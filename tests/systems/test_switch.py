"""An agent that an operator disables, at every door: what a new message, an answer and a running task come to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from a2a.types.a2a_pb2_grpc import A2AServiceStub

from dragoman.config import Config
from dragoman.model.ids import new_id
from dragoman.server import serving
from tests.bindings.mcp_client import Client
from tests.grpc_callers import V1, message, one_loop  # noqa: F401  # a fixture
from tests.kit.agents import hired
from tests.kit.places import bearer, servers, sqlite_url
from tests.kit.waiting import until
from tests.kit.workers import WorkerDoor
from tests.systems.conftest import DEADLINE_S, Site, Told, site
from tests.systems.speakers import ALL, NEW, Speaker
from tests.systems.test_upstream_pools import pooled, upstreams

OFFLINE = "agent 'desk' is offline: it is out of service at present"

each_system = pytest.mark.parametrize("speaker", ALL, ids=lambda speaker: speaker.name)


class Desk:
    """A site with its operator."""

    def __init__(self, served: Site, store: str) -> None:
        self.site = served
        self._headers = bearer(store)

    async def operate(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A call of the admin API."""
        told = await self.site.ask(verb, f"/admin/v1{path}", body, **self._headers)
        return told.status, told.body

    async def switch(self, verb: str, agent: str = "desk", **given: Any) -> Any:
        """Switch an agent."""
        status, line = await self.operate("POST", f"/agents/{agent}:{verb}", given)
        assert status == 200, line
        return line

    @asynccontextmanager
    async def disabled(self, **given: Any) -> AsyncIterator[None]:
        """Its agent is disabled in the block."""
        await self.switch("disable", **given)
        try:
            yield
        finally:
            await self.switch("enable")


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    store = sqlite_url(tmp_path_factory.mktemp("switch"))
    async with site(store=store) as served:
        yield Desk(served, store)


async def over_rest(served: Site) -> str:
    body = {"message": NEW.said("hi")["message"]}
    told = await served.ask("POST", "/agents/desk/message:send", body, a2a_version="1.0")
    assert (told.status, told.body["error"]["details"][0]["reason"]) == (503, "AGENT_OFFLINE")
    return str(told.body["error"]["message"])


async def over_stream(served: Site) -> str:
    body = {"message": NEW.said("hi")["message"]}
    told = await served.ask("POST", "/agents/desk/message:stream", body, a2a_version="1.0")
    assert (told.status, told.headers["content-type"].partition(";")[0]) == (503, "application/a2a+json")
    return str(told.body["error"]["message"])


async def over_old_rest(served: Site) -> str:
    parts = [{"kind": "text", "text": "hi"}]
    body = {"message": {"kind": "message", "messageId": new_id(), "role": "user", "parts": parts}}
    told = await served.ask("POST", "/agents/desk/v1/message:send", body)
    assert told.status == 503, told
    return str(told.body["message"] if "message" in told.body else told.body["error"]["message"])


async def over_chat(served: Site) -> str:
    body = {"model": "desk", "messages": [{"role": "user", "content": "hi"}]}
    told = await served.post("/v1/chat/completions", body)
    assert (told.status, told.body["error"]["code"]) == (503, "agent_offline")
    return str(told.body["error"]["message"])


async def over_responses(served: Site) -> str:
    told = await served.post("/v1/responses", {"model": "desk", "input": "hi"})
    assert (told.status, told.body["error"]["code"]) == (503, "agent_offline")
    return str(told.body["error"]["message"])


async def over_mcp(served: Site) -> str:
    async with aiohttp.ClientSession(served.url) as http:
        client = Client(http)
        await client.begin()
        result = await client.call("desk__do", message="hi")
    assert result["isError"]
    return str(result["content"][0]["text"])


async def over_grpc(served: Site) -> str:
    async with grpc.aio.insecure_channel(served.grpc) as channel:
        stub: Any = A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendMessage(message("hi", tenant="desk"), metadata=V1, timeout=DEADLINE_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(refused.value.details())


DOORS: dict[str, Callable[[Site], Awaitable[str]]] = {
    "HTTP+JSON 1.0": over_rest,
    "a stream": over_stream,
    "HTTP+JSON 0.3": over_old_rest,
    "chat completions": over_chat,
    "Responses": over_responses,
    "MCP": over_mcp,
    "gRPC": over_grpc,
}

CODES = {"beeos": -32002, "kaos": -32603, "evoai": -32000, "protoagent": -32000, "0.3": -32000, "1.0": -32000}
"""The code of an agent that is offline, in each dialect."""


def refused(speaker: Speaker, told: Told) -> None:
    """A client is told in its dialect that the agent is offline."""
    assert told.error["code"] == CODES[speaker.name], told


@pytest.mark.parametrize("door", DOORS)
async def test_a_message_is_refused_at_once_and_taken_again_when_the_agent_is_enabled(desk: Desk, door: str) -> None:
    async with desk.disabled():
        assert OFFLINE in await DOORS[door](desk.site)


@each_system
async def test_a_message_and_an_answer_are_refused_in_each_dialect(desk: Desk, speaker: Speaker) -> None:
    served = desk.site
    asked = await speaker.send(served, "ask")
    async with desk.disabled():
        refused(speaker, await speaker.call(served, speaker.methods[0], speaker.said("hi")))
        refused(speaker, await speaker.call(served, speaker.methods[0], speaker.said("Lyon", task_id=asked)))
        assert b"Which?" in (await speaker.get(served, asked)).raw
        assert (await served.ask("GET", "/agents/desk/.well-known/agent-card.json")).status == 200
    assert b"Lyon" in (await speaker.call(served, speaker.methods[0], speaker.said("Lyon", task_id=asked))).raw


@each_system
async def test_a_running_task_is_canceled_in_each_dialect(desk: Desk, speaker: Speaker) -> None:
    task_id = await speaker.start(desk.site, f"switch {speaker.name}")
    async with desk.disabled():
        async with asyncio.timeout(DEADLINE_S):
            while speaker.spelled("canceled").encode() not in (await speaker.get(desk.site, task_id)).raw:
                await asyncio.sleep(0.01)


async def test_a_draining_agent_takes_answers_and_no_task(desk: Desk) -> None:
    asked = await NEW.send(desk.site, "ask")
    await desk.switch("drain")
    told = await NEW.call(desk.site, "SendMessage", NEW.said("hi"))
    assert told.error["message"] == "agent 'desk' is offline: it takes no new task at present"
    assert b"COMPLETED" in (await NEW.call(desk.site, "SendMessage", NEW.said("Lyon", task_id=asked))).raw
    await desk.switch("enable")


async def test_the_operator_sees_who_switched_when_and_why(desk: Desk) -> None:
    async with desk.disabled(reason="adds wrong", running="finish"):
        _, listed = await desk.operate("GET", "/agents")
        switches = {line["id"]: line["switch"] for line in listed["agents"]}
        assert switches["other"] is None
        at = switches["desk"].pop("at")
        assert switches["desk"] == {
            "state": "disabled",
            "running": "finish",
            "reason": "adds wrong",
            "by": "operator:local",
        }
        ready = await desk.site.ask("GET", "/ready")
        assert (ready.status, ready.body["degraded"]) == (200, {"desk": f"an operator has disabled it at {at}"})
    async with asyncio.timeout(DEADLINE_S):  # entries are gathered for a second
        while not (found := (await desk.operate("GET", "/audit?action=agents.disable&limit=1"))[1]["entries"]):
            await asyncio.sleep(0.05)
    assert [(entry["principal"], entry["subject"]) for entry in found] == [("operator:local", "desk")]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/agents/nobody:disable", {}, 404, "no agent 'nobody' is served on this store"),
        ("/agents/desk:disable", {"running": "stop"}, 400, "running"),
        ("/agents/desk:disable", {"reason": "x" * 1001}, 400, "reason"),
        ("/agents/desk:drain", {"running": "cancel"}, 400, "running"),
        ("/agents/desk:stop", {}, 405, "use GET"),
        ("/agents/desk/members/one:disable", {}, 404, "agent 'desk' has no member 'one' here"),
    ],
)
async def test_a_wrong_switch_changes_nothing_and_names_the_field(
    desk: Desk, path: str, body: Any, status: int, words: str
) -> None:
    told = await desk.operate("POST", path, body)
    assert (told[0], words in str(told[1])) == (status, True), told
    assert await NEW.send(desk.site, "hi")


async def test_a_switch_outlives_a_restart_and_counts_more_than_the_configuration(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with site(store=store) as served:
        await Desk(served, store).switch("disable")
    async with site(store=store) as served:
        assert OFFLINE in await over_rest(served)
        await Desk(served, store).switch("enable")
        assert await NEW.send(served, "hi")


async def test_a_worker_gets_no_task_of_a_disabled_agent_and_its_words_on_one_that_was_canceled_are_refused(
    tmp_path: Path,
) -> None:
    store = sqlite_url(tmp_path)
    async with servers(1, lambda: [hired("far")], store=store) as (http,):
        door = WorkerDoor([http])
        first, second = await door.send("one"), await door.send("two")
        taken = await door.take()
        async with http.post("/admin/v1/agents/far:disable", headers=bearer(store)) as answer:
            assert answer.status == 200
        await door.reach(first["id"], "CANCELED")
        chunk = {"artifact": {"artifactId": "a", "parts": [{"text": "late"}]}}
        assert (await door.act("artifact", {"lease": taken["lease"], **chunk}))[0] == 409
        assert await door.act("lease", {"worker": "w1", "wait_s": 0.2}) == (204, None)
        assert (await door.task(second["id"]))["status"]["state"] == "TASK_STATE_SUBMITTED"
        waiting = asyncio.create_task(door.act("lease", {"worker": "w1", "wait_s": 30}))
        async with http.post("/admin/v1/agents/far:enable", headers=bearer(store)) as answer:
            assert answer.status == 200
        status, taken = await waiting
        assert status == 200, taken
        assert taken["task"]["id"] == second["id"]


# -- a member of a pool ------------------------------------------------------------------------------------------------


class Counter:
    """A caller of an agent with the upstreams `a` and `b`, and its operator."""

    def __init__(self, url: str, store: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http
        self._operator = bearer(store)

    async def send(self, text: str, *, wait: bool = True, **fields: str) -> tuple[int, Any]:
        """A message, and its task or error."""
        said = {"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}], **fields}
        body = {"message": said, "configuration": {"returnImmediately": not wait}}
        async with self._http.post(f"{self._url}/agents/partner/message:send", json=body, headers=V) as answer:
            told = await answer.json()
            return answer.status, told["task"] if answer.status == 200 else told["error"]["message"]

    async def switch(self, member: str, verb: str, **given: str) -> Any:
        """Switch a member."""
        url = f"{self._url}/admin/v1/agents/partner/members/{member}:{verb}"
        async with self._http.post(url, json=given, headers=self._operator) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def reach_there(self, upstream: str, state: str) -> None:
        """Until a task at an upstream is in that state."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                async with self._http.get(f"{upstream}/tasks?status=TASK_STATE_{state}", headers=V) as answer:
                    if (await answer.json())["tasks"]:
                        return
                await asyncio.sleep(0.02)

    async def reach(self, task_id: str, state: str) -> None:
        """Until a task is in that state."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                async with self._http.get(f"{self._url}/agents/partner/tasks/{task_id}", headers=V) as answer:
                    if (await answer.json())["status"]["state"] == f"TASK_STATE_{state}":
                        return
                await asyncio.sleep(0.02)


V = {"A2A-Version": "1.0"}
PARTNER = "agent 'partner' is offline"


@asynccontextmanager
async def counter(tmp_path: Path, **keys: Any) -> AsyncIterator[tuple[Counter, Any, Any]]:
    store = sqlite_url(tmp_path)
    config = Config(port=0, store=store, shutdown_grace_s=0.1, cancel_grace_s=5.0)
    async with (
        upstreams("a", "b") as (a, b),
        aiohttp.ClientSession() as http,
        serving(config, [pooled([a, b], **keys)]) as url,
    ):
        yield Counter(url, store, http), a, b


def text_of(told: tuple[int, Any]) -> str:
    """The text of a task's artifact."""
    status, task = told
    assert status == 200, task
    return str(task["artifacts"][0]["parts"][0]["text"])


async def test_a_disabled_member_gets_nothing_and_what_it_works_on_is_canceled(tmp_path: Path) -> None:
    async with counter(tmp_path) as (at, a, b):
        _, asks = await at.send("ask")
        _, works = await at.send("wait a", wait=False)
        await until(lambda: "wait a" in a.texts)
        line = await at.switch("a", "disable", reason="lies")
        assert (line["agent"], line["member"], line["state"]) == ("partner", "a", "disabled")
        await at.reach(works["id"], "CANCELED")
        await at.reach_there(a.url, "CANCELED")
        assert text_of(await at.send("new")) == "b new"
        status, why = await at.send("Lyon", taskId=asks["id"], contextId=asks["contextId"])
        assert (status, why) == (503, f"{PARTNER}: the server that has the task is out of service at present")
        status, why = await at.send("more", contextId=asks["contextId"])
        assert (status, why) == (503, f"{PARTNER}: the server that has the conversation cannot be reached")
        _, goes_on = await at.send("wait b", wait=False)
        await until(lambda: "wait b" in b.texts)
        b.gate.set()
        await at.reach(goes_on["id"], "COMPLETED")
        await at.switch("a", "enable")
        assert text_of(await at.send("Lyon", taskId=asks["id"], contextId=asks["contextId"])) == "a Lyon"


async def test_a_draining_member_keeps_its_tasks_and_gets_no_new_one(tmp_path: Path) -> None:
    async with counter(tmp_path, affinity="prefer") as (at, a, _):
        _, asks = await at.send("ask")
        _, works = await at.send("wait a", wait=False)
        await until(lambda: "wait a" in a.texts)
        await at.switch("a", "drain")
        assert text_of(await at.send("more", contextId=asks["contextId"])) == "b more", "it may leave"
        assert text_of(await at.send("Lyon", taskId=asks["id"], contextId=asks["contextId"])) == "a Lyon"
        a.gate.set()
        await at.reach(works["id"], "COMPLETED")
        await at.switch("b", "disable", running="finish")
        status, why = await at.send("new")
        assert (status, why) == (503, f"{PARTNER}: all of its servers are out of service at present")
        assert a.texts == ["ask", "wait a"]
