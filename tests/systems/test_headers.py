"""Headers of callers' requests that agents list: who is given them, how long they last, and where they never are."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dragoman import Agent, Context, SyncContext
from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.pool import ModelPool, PoolEndpoint
from dragoman.agents.program.agent import ProgramAgent
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.lessee import Lessee, WorkerApi
from dragoman.config import Model, Program, Upstream, UpstreamCredentials
from dragoman.model.card import Profile
from dragoman.net.egress import Egress
from dragoman.server import serving
from dragoman.testing import run
from tests.bindings.mcp_client import Client
from tests.grpc_callers import grpc_served, one_loop
from tests.kit.places import V1, bearer, calling, quick, server, servers, sqlite_url
from tests.kit.waiting import DEADLINE_S
from tests.kit.web import web_site
from tests.kit.workers import WorkerDoor
from tests.postgres import PostgresServer

__all__ = ["one_loop"]

SENTINEL = "sentinel-7f3a91"
TENANT = {"X-Tenant": "acme"}


def given(ctx: Context | SyncContext) -> dict[str, str] | None:
    """The headers as a skill finds them, as plain data."""
    assert ctx.headers_lost is (ctx.headers is None)
    return None if ctx.headers is None else dict(ctx.headers)


def asker(agent_id: str = "asker", **more: Any) -> Agent:
    """Says its headers, asks, and says those of the answer."""
    agent = Agent(agent_id, restartable=True, **{"headers": ["X-Tenant", "x-region"], **more})

    @agent.skill
    async def look(ctx: Context) -> AsyncIterator[Any]:
        """Says what it is given."""
        first = given(ctx)
        if ctx.text.startswith("once"):
            yield {"first": first}
            return
        await ctx.ask("More?")
        yield {"first": first, "then": given(ctx)}

    return agent


def said(task: dict[str, Any]) -> Any:
    """The data that an agent's task gave out."""
    return task["artifacts"][0]["parts"][0]["data"]


async def send(
    http: aiohttp.ClientSession, text: str = "once", headers: Any = (), agent: str = "asker", **message: Any
) -> dict[str, Any]:
    """The task with which a message is answered."""
    body = {"message": {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **message}}
    sent = [*V1.items(), *(headers.items() if isinstance(headers, dict) else headers)]
    async with http.post(f"/agents/{agent}/message:send", json=body, headers=sent) as answer:
        got = await answer.json()
        assert answer.status == 200, got
        return dict(got.get("task") or got["message"])


async def refused(http: aiohttp.ClientSession, headers: dict[str, str], agent: str = "asker") -> tuple[int, str]:
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "once"}]}}
    async with http.post(f"/agents/{agent}/message:send", json=body, headers={**V1, **headers}) as answer:
        return answer.status, await answer.text()


# -- what an agent is given --------------------------------------------------------------------------------------------


async def test_an_agent_is_given_the_headers_it_lists_of_the_present_message_and_no_others() -> None:
    async with server(asker(), Agent("other")) as http:
        sent = [("X-Tenant", "acme"), ("X-Tenant", "umbrella"), ("X-Other", "no"), ("X-Region", "Köln")]
        assert said(await send(http, headers=sent)) == {"first": {"x-tenant": "acme, umbrella", "x-region": "Köln"}}
        task = await send(http, "ask", TENANT)
        then = await send(http, "yes", {"x-region": "north"}, taskId=task["id"])
        assert said(then) == {"first": {"x-tenant": "acme"}, "then": {"x-region": "north"}}
        assert said(await send(http, "once more")) == {"first": {}}


async def test_a_message_to_a_working_task_changes_nothing_before_it_is_read() -> None:
    going, goes_on = asyncio.Event(), asyncio.Event()
    agent = Agent("asker", headers=["x-tenant"])

    @agent.skill
    async def wait(ctx: Context) -> Any:
        """Waits at its work, and asks then."""
        going.set()
        await goes_on.wait()
        first = given(ctx)
        await ctx.ask("More?")
        return {"first": first, "then": given(ctx)}

    async with server(agent) as http, asyncio.timeout(DEADLINE_S):
        first = asyncio.create_task(send(http, "begin", TENANT))
        await going.wait()
        async with http.get("/agents/asker/tasks", headers=V1) as answer:
            task_id = (await answer.json())["tasks"][0]["id"]
        late = asyncio.create_task(send(http, "late", {"x-tenant": "later"}, taskId=task_id))
        while True:
            async with http.get(f"/agents/asker/tasks/{task_id}", headers=V1) as answer:
                if len((await answer.json())["history"]) == 2:
                    break
            await asyncio.sleep(0.01)
        goes_on.set()
        assert said(await first) == {"first": {"x-tenant": "acme"}, "then": {"x-tenant": "later"}}
        await late


async def test_a_delegated_task_is_given_those_of_the_message_that_its_parent_reads() -> None:
    going, goes_on = asyncio.Event(), asyncio.Event()
    chief = Agent("chief")

    @chief.skill
    async def order(ctx: Context) -> Any:
        """Hands its task on when a second message is there, which it has not read, and once more when it has."""
        going.set()
        await goes_on.wait()
        first = await ctx.delegate("asker", "once")
        await ctx.ask("More?")
        return [each.artifacts[0].parts[0].data for each in (first, await ctx.delegate("asker", "ask"))]

    async with server(chief, asker()) as http, asyncio.timeout(DEADLINE_S):
        begun = asyncio.create_task(send(http, "begin", TENANT, "chief"))
        await going.wait()
        async with http.get("/agents/chief/tasks", headers=V1) as answer:
            task_id = (await answer.json())["tasks"][0]["id"]
        late = asyncio.create_task(send(http, "late", {"x-tenant": "later"}, "chief", taskId=task_id))
        while True:
            async with http.get(f"/agents/chief/tasks/{task_id}", headers=V1) as answer:
                if len((await answer.json())["history"]) == 2:
                    break
            await asyncio.sleep(0.01)
        goes_on.set()
        assert (await begun)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        await late
        then = await send(http, "yes", {"x-tenant": "last"}, "chief", taskId=task_id)
        assert said(then) == [
            {"first": {"x-tenant": "acme"}},
            {"first": {"x-tenant": "later"}, "then": {"x-tenant": "last"}},
        ]


@pytest.mark.parametrize("direct", [True, "auto"])
async def test_an_agent_that_answers_with_a_message_is_given_them_too(direct: Any) -> None:
    agent = Agent("asker", direct=direct, headers=["x-tenant"])

    @agent.skill
    def look(ctx: SyncContext) -> Any:
        """Says what it is given."""
        return {"first": given(ctx)}

    async with server(agent) as http:
        assert (await send(http, headers=TENANT))["parts"][0]["data"] == {"first": {"x-tenant": "acme"}}


async def test_other_doors_give_them_too() -> None:
    async with grpc_served(asker()) as caller:
        task = await caller.send("once", ("x-tenant", "acme"))
        assert dict(task.artifacts[0].parts[0].data.struct_value["first"]) == {"x-tenant": "acme"}
        async with calling(caller.url) as http:
            body = {"model": "asker", "messages": [{"role": "user", "content": "once"}]}
            async with http.post("/v1/chat/completions", json=body, headers=TENANT) as answer:
                assert "acme" in (await answer.json())["choices"][0]["message"]["content"]
            response = {"model": "asker", "input": "once"}
            async with http.post("/v1/responses", json=response, headers=TENANT) as answer:
                assert "acme" in json.dumps((await answer.json())["output"])
            mcp = Client(http)
            await mcp.begin()
            mcp.headers |= TENANT
            assert "acme" in json.dumps(await mcp.call("asker", message="once"))


async def test_pages_of_allowed_origins_may_send_them() -> None:
    page = "https://app.example"
    wanted = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-tenant"}
    async with (
        server(asker(), Agent("other", headers=["X-Desk"]), cors_origins=(page,)) as http,
        http.options("/agents/asker/message:send", headers=wanted) as answer,
    ):
        allowed = answer.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"x-tenant", "x-region", "x-desk", "a2a-version"} <= {*allowed}
    assert len(allowed) == len({*allowed})


async def test_a_test_gives_an_agent_its_headers_or_takes_them_away() -> None:
    ran = await run(asker(), "ask", answers=["yes"], headers={"X-Tenant": "acme", "X-Other": "no"})
    assert ran.data == [{"first": {"x-tenant": "acme"}, "then": {"x-tenant": "acme"}}]
    assert (await run(asker(), "once")).data == [{"first": {}}]
    assert (await run(asker(), "once", headers=None)).data == [{"first": None}]
    assert (await run(asker(headers=()), "once", headers={"X-Any": "1"})).data == [{"first": {"x-any": "1"}}]


async def test_an_agent_that_lists_none_is_told_how_to(caplog: pytest.LogCaptureFixture) -> None:
    async with server(asker(headers=())) as http:
        assert (await send(http, headers=TENANT))["status"]["state"] == "TASK_STATE_FAILED"
    assert "ctx.headers: agent 'asker' lists no headers of its callers' requests" in caplog.text


async def test_a_delegated_task_is_given_what_its_own_agent_lists() -> None:
    chief = Agent("chief")

    @chief.skill
    async def order(ctx: Context) -> Any:
        """Hands its task on."""
        return (await ctx.delegate("asker", "once")).artifacts[0].parts[0].data

    async with server(chief, asker()) as http:
        assert said(await send(http, headers=TENANT, agent="chief")) == {"first": {"x-tenant": "acme"}}


async def test_credentials_are_given_only_where_they_are_forwarded() -> None:
    key = {"Authorization": "Bearer t", "X-API-Key": "k", "Cookie": "a=1"}
    trusted = asker("trusted", headers=["cookie"], credentials={"forward": True})
    async with server(asker(), trusted) as http:
        sent = [*key.items(), ("Cookie", "b=2")]
        assert said(await send(http, headers=sent)) == {"first": {}}
        found = {"authorization": "Bearer t", "x-api-key": "k", "cookie": "a=1; b=2"}
        assert said(await send(http, headers=sent, agent="trusted")) == {"first": found}


async def test_too_much_is_refused_with_the_fix() -> None:
    async with server(asker()) as http:
        assert (await send(http, headers={"x-tenant": "t" * 8000}))["status"]["state"] == "TASK_STATE_COMPLETED"
        status, text = await refused(http, {"x-tenant": "t" * 4200, "x-region": "r" * 4200})
        assert (status, "x-tenant, x-region have 8416 bytes: agents are given 8192 at most" in text) == (400, True)


# -- how long they last ------------------------------------------------------------------------------------------------


async def test_they_are_lost_by_a_restart_and_never_stored(tmp_path: Path) -> None:
    config = quick(store=sqlite_url(tmp_path), audit="all")
    async with serving(config, [asker()]) as url, calling(url) as http:
        task = await send(http, "ask", {"x-tenant": SENTINEL})
    async with serving(config, [asker()]) as url, calling(url) as http:
        then = await send(http, "yes", {"x-tenant": f"{SENTINEL}-2"}, taskId=task["id"])
        assert said(then) == {"first": None, "then": {"x-tenant": f"{SENTINEL}-2"}}


@pytest.mark.slow
async def test_a_run_that_goes_on_with_an_answer_to_another_replica_has_none(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as store:
        async with servers(2, lambda: [asker()], store=store) as (here, there):
            task = await send(here, "ask", TENANT)
            then = await send(there, "yes", {"x-tenant": "umbrella"}, taskId=task["id"])
            assert said(then) == {"first": {"x-tenant": "acme"}, "then": None}  # it waited here, the request is there


@asynccontextmanager
async def worker_served(store: str, *listed: str) -> AsyncIterator[tuple[WorkerDoor, str]]:
    """A server whose agent `far` is done by workers."""
    far = WorkerAgent(Profile(id="far", name="far", description="far", version="1", skills=()), queues=True)
    far.name_headers(listed)
    async with serving(quick(store=store), [far]) as url, calling(url) as http:
        yield WorkerDoor([http]), url


async def put(door: WorkerDoor, text: str, tenant: str, **message: Any) -> dict[str, Any]:
    """Send a message for a worker, and return its task."""
    body = {
        "message": {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **message},
        "configuration": {"returnImmediately": True},
    }
    headers = {**V1, "x-tenant": tenant, "x-other": "no"}
    async with door.server().post("/agents/far/message:send", json=body, headers=headers) as answer:
        return dict((await answer.json())["task"])


async def test_a_worker_is_given_them_with_its_task_and_with_each_answer(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with worker_served(store, "x-tenant") as (door, _):
        task = await put(door, "hi", SENTINEL)
        for _ in range(2):
            await door.task(task["id"])  # whoever looks at it takes nothing away
        leased = await door.take()
        assert leased["headers"] == {"m-hi": {"x-tenant": SENTINEL}}
        asking = asyncio.create_task(door.report("ask", leased["lease"], message="More?", question=1, wait_s=20))
        await door.reach(task["id"], "INPUT_REQUIRED")
        await put(door, "yes", f"{SENTINEL}-2", taskId=task["id"])
        assert (await asking)["headers"]["m-yes"] == {"x-tenant": f"{SENTINEL}-2"}
        await put(door, "again", f"{SENTINEL}-3")
    assert SENTINEL.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    async with worker_served(store, "x-tenant") as (door, _):
        assert [(await door.take())["headers"] for _ in range(2)] == [{}, {}]  # the server has forgotten them


async def test_a_worker_whose_agent_lists_none_sees_no_word_of_them(tmp_path: Path) -> None:
    async with worker_served(sqlite_url(tmp_path)) as (door, _):
        await put(door, "hi", SENTINEL)
        assert "headers" not in await door.take()


async def test_the_packages_own_worker_hands_them_to_its_agent(tmp_path: Path, egress: Egress) -> None:
    async with worker_served(sqlite_url(tmp_path), "x-tenant", "x-region") as (door, url):
        code = asker("far", headers=())  # the server's table lists them
        api = WorkerApi(egress, url, "far")
        working = asyncio.create_task(Lessee(code, api, name="w", tasks=1).work(asyncio.Event(), 0))
        task = await put(door, "ask", "acme")
        await door.reach(task["id"], "INPUT_REQUIRED")
        await put(door, "yes", "umbrella", taskId=task["id"])
        done = await door.reach(task["id"], "COMPLETED")
        assert said(done) == {"first": {"x-tenant": "acme"}, "then": {"x-tenant": "umbrella"}}
        working.cancel()
        await asyncio.wait((working,))


# -- other servers -----------------------------------------------------------------------------------------------------


def partner(url: str, *listed: str, **keys: Any) -> UpstreamAgent:
    """The agent `partner` of another server, which is sent these headers."""
    profile = Profile(id="partner", name="Partner", description="Ours", version="1", skills=())
    agent = UpstreamAgent(profile, Upstream(url=url, **keys))
    agent.name_headers(listed)
    return agent


async def test_an_agent_of_another_server_is_sent_what_is_listed_and_no_more() -> None:
    async with grpc_served(asker()) as far:
        http, grpc = f"{far.url}/agents/asker", f"grpc://127.0.0.1:{far.port}"
        for keys in ({"url": http}, {"url": http, "dialect": "0.3"}, {"url": grpc, "dialect": "1.0"}):
            async with server(partner(keys.pop("url"), "x-tenant", **keys)) as front:
                sent = {"x-tenant": "acme", "x-region": "north", "authorization": "Bearer t"}
                task = await send(front, "ask", sent, "partner")
                then = await send(front, "yes", {"x-tenant": "umbrella"}, "partner", taskId=task["id"])
                assert said(then) == {"first": {"x-tenant": "acme"}, "then": {"x-tenant": "umbrella"}}


@pytest.mark.parametrize("grpc", [False, True])
@pytest.mark.parametrize("header", ["x-tenant", "authorization"])
@pytest.mark.parametrize("value", ["Köln", "a\tb"])
async def test_a_value_that_cannot_be_passed_on_ends_its_own_task_alone(grpc: bool, header: str, value: str) -> None:
    async with grpc_served(asker()) as far:
        place = f"grpc://127.0.0.1:{far.port}" if grpc else f"{far.url}/agents/asker"
        keys: dict[str, Any] = {"dialect": "1.0", "credentials": UpstreamCredentials(forward=True)}
        async with server(partner(place, "x-tenant", **keys)) as front:
            for number in range(6):  # more than `failures`: the upstream counts as well
                task = await send(front, f"once {number}", {"authorization": "Bearer t", header: value}, "partner")
                assert task["status"]["state"] == "TASK_STATE_REJECTED"
                told = f"partner takes printable ASCII only in the header {header}: send the value encoded"
                assert told in json.dumps(task)
            sent = {**TENANT, "authorization": "Bearer t"}
            assert said(await send(front, headers=sent, agent="partner")) == {"first": {"x-tenant": "acme"}}


@pytest.mark.parametrize("status", [301, 307, 308])
async def test_nothing_goes_to_the_host_of_a_redirect(status: int) -> None:
    there: list[dict[str, str]] = []
    here: list[dict[str, str]] = []

    async def catch(request: web.Request) -> web.Response:
        there.append(dict(request.headers))
        return web.json_response({})

    async with web_site(web.route("*", "/{path:.*}", catch)) as other:

        async def redirect(request: web.Request) -> web.Response:
            here.append({name.lower(): value for name, value in request.headers.items()})
            return web.Response(status=status, headers={"Location": f"{other}/stolen"})

        async with web_site(web.route("*", "/{path:.*}", redirect)) as url:
            a2a = partner(url, "x-tenant", dialect="1.0", credentials=UpstreamCredentials(forward=True), retry_wait_s=0)
            llm = model(url, "x-tenant")
            async with server(a2a, llm) as front:
                for agent in ("partner", "llm"):
                    sent = {"x-tenant": SENTINEL, "authorization": f"Bearer {SENTINEL}"}
                    assert (await send(front, headers=sent, agent=agent))["status"]["state"] == "TASK_STATE_FAILED"
    assert {each.get("x-tenant") for each in here if "authorization" in each or "x-tenant" in each} == {SENTINEL}
    assert there == []


def model(url: str, *listed: str) -> ChatAgent:
    described = Model(url=url, model="m")
    pool = ModelPool([PoolEndpoint(described, "")])
    agent = ChatAgent(Profile(id="llm", name="llm", description="llm", version="1", skills=()), described, pool)
    agent.name_headers(listed)
    return agent


async def test_the_endpoint_of_a_model_is_sent_what_is_listed() -> None:
    seen: list[tuple[str | None, ...]] = []

    async def complete(request: web.Request) -> web.Response:
        seen.append(tuple(request.headers.get(name) for name in ("x-tenant", "x-other", "content-type")))
        choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
        return web.json_response({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]})

    async with (
        web_site(web.post("/v1/chat/completions", complete)) as url,
        server(model(f"{url}/v1", "x-tenant")) as http,
    ):
        await send(http, headers={"x-tenant": "acme", "x-other": "no"}, agent="llm")
    assert seen == [("acme", None, "application/json")]


async def test_a_program_reads_them_with_its_task(tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("#!/usr/bin/env bash\ncat\n")
    script.chmod(0o755)
    profile = Profile(id="program", name="p", description="p", version="1", skills=())
    program = ProgramAgent(profile, Program(command=(str(script),), input="json", output="text"), os.environ)
    program.name_headers(("x-tenant",))
    async with server(program) as http:
        task = await send(http, headers={"x-tenant": "acme", "x-other": "no"}, agent="program")
    text = "".join(part["text"] for part in task["artifacts"][0]["parts"])
    assert json.loads(text)["headers"] == {"x-tenant": "acme"}


# -- where they never are ----------------------------------------------------------------------------------------------


async def test_they_are_in_no_store_log_span_audit_entry_or_view(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider(shutdown_on_exit=False)
    monkeypatch.setattr("dragoman.telemetry.opentelemetry.installed", lambda version: (tracers, meters))
    caplog.set_level("DEBUG")
    broken = Agent("broken", headers=["x-tenant"], credentials={"forward": True})

    @broken.skill
    async def fail(ctx: Context) -> None:
        """Raises with its headers at hand."""
        held = ctx.headers
        assert held is not None
        assert set(held.values()) == {SENTINEL, f"Bearer {SENTINEL}"}
        await ctx.step("look", lambda: len(held))
        await ctx.ask("More?")
        if ctx.text == "break":
            raise RuntimeError("no")

    store, trail = sqlite_url(tmp_path), "/admin/v1/audit?limit=100"
    kept = {"store": store, "audit": "all", "access_log": "json", "access_log_file": f"{tmp_path}/access.log"}
    secret = {"x-tenant": SENTINEL, "authorization": f"Bearer {SENTINEL}", "x-api-key": SENTINEL}
    async with server(broken, telemetry=True, **kept) as http:
        for text in ("break", "go on"):
            task = await send(http, text, secret, "broken")
            task = await send(http, f"{text}: yes", secret, "broken", taskId=task["id"])
        assert (await refused(http, {"x-tenant": SENTINEL * 1000}, "broken"))[0] == 400
        await refused(http, {**secret, "A2A-Version": "9.9"}, "broken")
        views: list[str] = []
        of_task = (f"/admin/v1/tasks/{task['id']}{view}" for view in ("", "/log", "/content", "/moment", "/wire"))
        for path in (*of_task, trail, "/metrics"):
            async with http.get(path, headers=bearer(store)) as answer:
                assert answer.status == 200, path
                views.append(await answer.text())
        async with http.post(
            "/admin/v1/principals:export", json={"principal": "anonymous"}, headers=bearer(store)
        ) as got:
            views.append(str(await got.read()))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    spans = [span.to_json() for span in exporter.get_finished_spans()]
    assert b"More?" in written
    assert (b"message:send" in written, len(spans) > 3, "broken raised" in caplog.text) == (True, True, True)
    for told in (written.decode("latin-1"), caplog.text, *spans, *views):
        assert SENTINEL not in told
