"""Agents that operators add while servers run: from the request to the live agent, and what they can never reach."""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from msgspec import Struct

from dragoman import Agent, Context
from dragoman.admin.agents import AgentRemoval, AgentRequest
from dragoman.auth.sealing import SecretKeys
from dragoman.cli.entries import make_added_agent
from dragoman.config.agent_definition import read_definition
from dragoman.engine.admin import access
from dragoman.engine.admin.answers import Asked
from dragoman.engine.api import CheckResult
from dragoman.engine.record_reader import RecordFeed, RecordReader
from dragoman.model.principal import AccessRole
from dragoman.net.address import Guard, Resolver
from dragoman.server import Loaded, agent_book, running, serving
from dragoman.server.added_runners import AddedHosts, AddedRunners, MakeAdded
from dragoman.server.agent_book import AgentBook
from dragoman.store.api import StoreError
from dragoman.store.sql.operator_records import RecordTable
from tests.kit.agents import asking
from tests.kit.commands import run_command
from tests.kit.places import V1, add_keys, bearer, beside, quick, server, servers, sqlite_url
from tests.kit.waiting import until
from tests.kit.web import web_site
from tests.net.hostile import INWARD, ODD
from tests.net.nameserver import answering

SECRET = "s3cr3t-of-the-partner"
KEY, OTHER_KEY = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
HERE = ("127.0.0.1",)

Json = dict[str, Any]


def says(name: str, word: str) -> Agent:
    agent = Agent(name)

    @agent.skill
    async def say(ctx: Context) -> str:
        """Says a word."""
        return f"{word} {ctx.text}"

    return agent


class Operator(Struct):
    """An operator of a server."""

    http: aiohttp.ClientSession
    headers: dict[str, str]

    async def ask(self, method: str, path: str, body: Json | None = None, **headers: str) -> tuple[int, Json]:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self.http.request(method, f"/admin/v1{path}", json=body, headers=sent) as answer:
            found: Json = await answer.json()
            if answer.status == 200 and "version" in found:
                assert answer.headers["ETag"] == f'"{found["version"]}"'
            return answer.status, found

    async def done(self, method: str, path: str, body: Json | None = None, **headers: str) -> Json:
        status, found = await self.ask(method, path, body, **headers)
        assert status == 200, found
        return found

    async def refused(self, method: str, path: str, body: Json | None = None, **headers: str) -> tuple[int, str]:
        status, found = await self.ask(method, path, body, **headers)
        assert status >= 400, (body, found)
        return status, str(found["error"]["message"])

    async def add(self, agent_id: str, run: str, **keys: Any) -> Json:
        return await self.done("POST", "/agents", {"id": agent_id, "agent": {"run": run, **keys}})

    async def send(self, agent_id: str, text: str = "you", **more: Any) -> tuple[int, Json]:
        message = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **more}
        path = f"/agents/{agent_id}/message:send"
        async with self.http.post(path, json={"message": message}, headers={**V1, **self.headers}) as answer:
            return answer.status, await answer.json()

    async def said(self, agent_id: str, text: str = "you") -> str:
        status, found = await self.send(agent_id, text)
        assert status == 200, found
        return str(found["task"]["artifacts"][0]["parts"][0]["text"])

    async def listed(self) -> list[str]:
        async with self.http.get("/agents") as answer:
            return [agent["id"] for agent in (await answer.json())["agents"]]

    async def degraded(self) -> Json:
        async with self.http.get("/ready") as answer:
            return dict((await answer.json()).get("degraded", {}))


class Upstreams(Struct):
    """Two servers elsewhere that ask for the secret, and say what they were shown."""

    one: str
    two: str
    shown: list[str]


@pytest.fixture(scope="module")
async def upstreams() -> AsyncIterator[Upstreams]:
    shown: list[str] = []

    def watched(app_says: str) -> list[web.RouteDef]:
        async def card(request: web.Request) -> web.Response:
            shown.append(request.headers.get("x-api-key", ""))
            url = f"http://{request.headers['Host']}/rpc"
            interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            return web.json_response(
                {
                    "name": app_says,
                    "description": app_says,
                    "version": "1",
                    "skills": [],
                    "supportedInterfaces": [interface],
                    "capabilities": {},
                    "defaultInputModes": ["text/plain"],
                    "defaultOutputModes": ["text/plain"],
                }
            )

        async def call(request: web.Request) -> web.Response:
            key = request.headers.get("x-api-key", "")
            shown.append(key)
            body = await request.json()
            if body["method"] == "GetTask":
                error = {"code": -32001, "message": "Task not found"}
                return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": error})
            parts = [{"text": f"{app_says} {'with' if key == SECRET else 'without'} {key}"}]
            message = {"messageId": "a", "role": "ROLE_AGENT", "parts": parts}
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": {"message": message}})

        return [web.get("/.well-known/agent-card.json", card), web.post("/rpc", call)]

    async with web_site(*watched("one")) as one, web_site(*watched("two")) as two:
        yield Upstreams(one, two, shown)


@pytest.fixture(scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    store = sqlite_url(tmp_path_factory.mktemp("added"))
    settings = {"store": store, "secret_key": KEY, "agents_api_allow_hosts": HERE}
    async with server(says("own", "own"), **settings) as http:
        yield Operator(http, bearer(store))


KEYED = {"credentials": {"header": "x-api-key", "value": SECRET}}


async def test_an_agent_is_live_when_its_request_is_answered_and_knows_its_secret(
    operator: Operator, upstreams: Upstreams
) -> None:
    added = await operator.add("live", f"a2a:{upstreams.one}", **KEYED)
    assert (added["version"], added["live"], added["act"]) == (1, True, "added")
    assert "live" in await operator.listed()
    assert await operator.said("live") == "one with ***"  # what an upstream repeats of a secret is told to nobody
    assert SECRET in upstreams.shown
    assert added["agent"]["credentials"] == {"header": "x-api-key"}
    assert (await operator.done("GET", "/agents/live")) == added
    looked = await operator.done("POST", "/agents", {"id": "not-yet", "agent": added["agent"] | KEYED, "dry_run": True})
    assert [each["ok"] for each in looked["findings"]] == [True, True, True]
    assert "not-yet" not in await operator.listed()


async def test_a_change_is_made_to_the_version_that_was_read(operator: Operator, upstreams: Upstreams) -> None:
    await operator.add("changed", f"a2a:{upstreams.one}", **KEYED)
    two = await operator.done("PATCH", "/agents/changed", {"agent": {"description": "new"}}, If_Match='"1"')
    assert (two["version"], two["agent"]["description"]) == (2, "new")
    assert await operator.said("changed") == "one with ***"  # its secret stays
    for sent in ({"If_Match": '"1"'}, {"If_Match": 'W/"1"'}):
        status, why = await operator.refused("PATCH", "/agents/changed", {"agent": {"name": "x"}}, **sent)
        assert (status, "is 2 by now" in why) == (412, True)
    assert (await operator.refused("DELETE", "/agents/changed", None, If_Match='"1"'))[0] == 412
    assert (await operator.refused("DELETE", "/agents/changed?version=1"))[0] == 412
    assert (await operator.refused("PATCH", "/agents/changed", {"agent": {}}, If_Match="seven"))[0] == 400
    three = await operator.done("PATCH", "/agents/changed", {"agent": {"description": None}}, If_Match="*")
    assert "description" not in three["agent"]
    found = (await operator.done("GET", "/agents/changed/versions"))["versions"]
    assert [(each["version"], each["act"]) for each in found] == [(3, "changed"), (2, "changed"), (1, "added")]
    back = await operator.done("POST", "/agents/changed:restore", {"to": 2})
    assert (back["version"], back["act"], back["agent"]) == (4, "restored", two["agent"])
    assert await operator.said("changed", "again") == "one with ***"
    status, why = await operator.refused("POST", "/agents/changed:restore", {"to": 9})
    assert (status, why) == (400, "to: is no version that is kept: there are 4, 3, 2, 1")


async def test_acts_of_two_operators_at_once_are_made_one_after_the_other(
    operator: Operator, upstreams: Upstreams
) -> None:
    wanted = {"id": "hurried", "agent": {"run": f"a2a:{upstreams.one}"}}
    added = await asyncio.gather(*(operator.ask("POST", "/agents", wanted) for _ in range(4)))
    assert sorted(status for status, _ in added) == [200, 409, 409, 409]
    names = [f"name {number}" for number in range(4)]
    changed = await asyncio.gather(
        *(operator.ask("PATCH", "/agents/hurried", {"agent": {"name": name}}) for name in names)
    )
    assert {(status, found["version"]) for status, found in changed} == {(200, version) for version in range(2, 6)}
    told = [{"agent": {"name": name}, "version": 5} for name in names]
    raced = await asyncio.gather(*(operator.ask("PATCH", "/agents/hurried", body) for body in told))
    assert sorted(status for status, _ in raced) == [200, 412, 412, 412]


async def test_a_secret_goes_nowhere_else_than_where_it_was_given_for(operator: Operator, upstreams: Upstreams) -> None:
    await operator.add("moved", f"a2a:{upstreams.one}", **KEYED)
    before = len(upstreams.shown)
    status, why = await operator.refused("PATCH", "/agents/moved", {"agent": {"run": f"a2a:{upstreams.two}"}})
    assert (status, why.split(":")[0]) == (400, "agent.credentials.value")
    assert f"there is no secret for {upstreams.two}" in why
    for change in (
        {"origins": [upstreams.two]},
        {"card": f"{upstreams.two}/.well-known/agent-card.json"},
        {"credentials": {"token_url": f"{upstreams.two}/token", "client_id": "us"}},
    ):
        assert (await operator.refused("PATCH", "/agents/moved", {"agent": change}))[0] == 400
    assert len(upstreams.shown) == before or set(upstreams.shown[before:]) == {SECRET}
    bare = await operator.done(
        "PATCH", "/agents/moved", {"agent": {"run": f"a2a:{upstreams.two}", "credentials": None}}
    )
    assert await operator.said("moved") == "two without "
    again = {"agent": {"run": f"a2a:{upstreams.one}", "credentials": {"header": "x-api-key"}}}
    assert (await operator.refused("PATCH", "/agents/moved", again))[0] == 400  # it was taken away
    assert (await operator.done("POST", "/agents/moved:restore", {"to": 1}))["version"] == bare["version"] + 1
    assert await operator.said("moved", "back") == "one with ***"


async def test_a_secret_that_is_given_alone_takes_the_place_of_the_old_one(
    operator: Operator, upstreams: Upstreams
) -> None:
    await operator.add("turned", f"a2a:{upstreams.one}", credentials={"header": "x-api-key", "value": "old"})
    turned = await operator.done("PATCH", "/agents/turned", {"agent": {"credentials": {"value": SECRET}}})
    assert turned["agent"]["credentials"] == {"header": "x-api-key"}
    assert await operator.said("turned") == "one with ***"
    bearer_token = {"credentials": {"header": None, "value": SECRET}}
    turned = await operator.done("PATCH", "/agents/turned", {"agent": bearer_token})
    assert turned["agent"]["credentials"] == {}
    await operator.done("PATCH", "/agents/turned", {"agent": {"credentials": {"forward": True}}})
    turned = await operator.done("PATCH", "/agents/turned", {"agent": {"credentials": {"value": SECRET}}})
    assert turned["agent"]["credentials"] == {}  # its callers' own are not passed on any more


async def test_an_id_of_the_file_or_of_the_server_is_refused(operator: Operator, upstreams: Upstreams) -> None:
    agent = {"run": f"a2a:{upstreams.one}"}
    for method, path, body in (
        ("POST", "/agents", {"id": "own", "agent": agent}),
        ("PATCH", "/agents/own", {"agent": agent}),
        ("DELETE", "/agents/own", None),
        ("POST", "/agents/own:restore", {"to": 1}),
    ):
        status, why = await operator.refused(method, path, body)
        assert (status, why) == (409, "id: own is an agent of the file: change it there, or choose another id")
    assert (await operator.refused("POST", "/agents", {"id": "tasks", "agent": agent}))[0] == 400
    assert (await operator.refused("PATCH", "/agents/nobody", {"agent": {}}))[0] == 404
    await operator.add("twice", agent["run"])
    assert (await operator.refused("POST", "/agents", {"id": "twice", "agent": agent}))[0] == 409
    assert await operator.said("own") == "own you"


async def test_a_removed_agent_takes_no_new_task_and_its_tasks_stay_readable(
    operator: Operator, upstreams: Upstreams
) -> None:
    async with serving(quick(), [asking("ask", "which one?")]) as url:
        await operator.add("gone", f"a2a:{url}/agents/ask")
        _, made = await operator.send("gone", "first")
        task = made["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        gone = await operator.done("DELETE", "/agents/gone")
        assert (gone["removed"], gone["live"]) == (True, False)
        assert "gone" not in await operator.listed()
        assert (await operator.send("gone", "second"))[0] == 404
        async with operator.http.get("/agents/gone/.well-known/agent-card.json") as answer:
            assert answer.status == 404
        async with operator.http.get(f"/agents/gone/tasks/{task['id']}", headers=V1) as answer:
            assert (answer.status, (await answer.json())["id"]) == (200, task["id"])
        async with operator.http.get("/agents/gone/tasks", headers=V1) as answer:
            assert (await answer.json())["totalSize"] == 1
        status, answered = await operator.send("gone", "blue", taskId=task["id"], contextId=task["contextId"])
        assert (status, answered["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
    assert (await operator.refused("PATCH", "/agents/gone", {"agent": {}}))[0] == 409
    assert (await operator.add("gone", f"a2a:{upstreams.two}"))["version"] == 3
    assert await operator.said("gone", "new") == "two without "


@asynccontextmanager
async def book_of(store: str, make: MakeAdded = make_added_agent) -> AsyncIterator[AgentBook]:
    """The book of a store that no server has open."""
    async with beside(store) as opened:
        records = RecordReader(opened, shared=False)
        hosts = AddedHosts(Guard(HERE), Resolver())
        keys = SecretKeys.parse(KEY, secrets.token_bytes)
        runners = AddedRunners(records.open_feed("agent"), keys, make, hosts)
        await records.refresh()
        yield AgentBook(opened, records, runners)


async def test_an_agent_that_was_looked_at_is_closed_whatever_was_found(tmp_path: Path) -> None:
    closed = 0

    class Faulty(Agent):
        async def check(self) -> AsyncIterator[CheckResult]:
            yield CheckResult(True, "its card is there")
            raise ValueError("and nothing else")

        async def close(self) -> None:
            nonlocal closed
            closed += 1

    async with book_of(sqlite_url(tmp_path), lambda entry, named, rules: Faulty("faulty")) as book:
        wanted = AgentRequest(id="faulty", agent={"run": "a2a:http://127.0.0.1:9"}, dry_run=True)
        look = book.answers["addAgent"]
        line = await look(Asked(access.Operator("operator:local"), wanted))
        assert [(each.ok, each.what) for each in line.findings] == [
            (True, "its card is there"),
            (False, "and nothing else"),
        ]
    assert closed == 1


async def bodies_of(store: str) -> list[bytes]:
    async with beside(store) as opened:
        return [each.body or b"" for each in await opened.operator_records.list_versions("agent", "partner")]


async def test_a_removed_agent_goes_step_by_step_as_its_tasks_end_and_are_deleted(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    settings = {"store": store, "secret_key": KEY, "agents_api_allow_hosts": HERE}
    async with serving(quick(), [asking("ask", "which one?")]) as url:
        async with server(says("own", "own"), **settings) as http:
            ops = Operator(http, bearer(store))
            await ops.add("partner", f"a2a:{url}/agents/ask", **KEYED)
            task = (await ops.send("partner", "first"))[1]["task"]
            await ops.done("DELETE", "/agents/partner")
        async with book_of(store) as book:
            await book.sweep(0)
        assert all(b"sealed" in body for body in await bodies_of(store))  # its task is open, and may need them
        async with server(says("own", "own"), **settings) as http:
            ops = Operator(http, bearer(store))
            assert await ops.listed() == ["own"]
            assert (await ops.send("partner", "second"))[0] == 404
            _, answered = await ops.send("partner", "blue", taskId=task["id"], contextId=task["contextId"])
            assert answered["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    async with book_of(store) as book:
        await book.sweep()
        assert all(b"sealed" in body for body in await bodies_of(store))  # another replica may know nothing of it yet
        await book.sweep(0)
        await book.sweep(0)
    kept = await bodies_of(store)
    assert len(kept) == 3
    assert not any(b"sealed" in body for body in kept)
    async with server(says("own", "own"), **settings) as http:
        ops = Operator(http, bearer(store))
        async with http.get(f"/agents/partner/tasks/{task['id']}", headers=V1) as answer:
            assert (await answer.json())["artifacts"][0]["parts"] == [{"text": "blue"}]
        assert (await ops.send("partner", "third"))[0] == 404
        assert await ops.degraded() == {}
        status, why = await ops.refused("POST", "/agents/partner:restore", {"to": 1})
        assert (status, why) == (400, "to: cannot be restored, because its secret is not there: give it anew")
        await ops.done("DELETE", f"/tasks/{task['id']}")
        async with http.get(f"/agents/partner/tasks/{task['id']}", headers=V1) as answer:
            assert answer.status == 404
    async with book_of(store) as book:
        await book.sweep(0)
    assert (await bodies_of(store))[0] == b""


async def test_a_sweep_that_was_cut_short_leaves_no_secret_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> bool:
        raise StoreError("gone")

    monkeypatch.setattr(agent_book, "LIVE_S", 0.0)  # no server serves it
    store, operator = sqlite_url(tmp_path), access.Operator("operator:local")
    async with book_of(store) as book:
        wanted = AgentRequest(id="partner", agent={"run": "a2a:http://127.0.0.1:9", **KEYED})
        await book.answers["addAgent"](Asked(operator, wanted))
        await book.answers["removeAgent"](Asked(operator, AgentRemoval(), "partner"))
        with monkeypatch.context() as cut:
            cut.setattr(RecordTable, "rewrite_record", fail)
            with pytest.raises(StoreError):
                await book.sweep(0)
        assert any(b"sealed" in body for body in await bodies_of(store))
        await book.sweep(0)
    assert not any(b"sealed" in body for body in await bodies_of(store))


async def test_a_card_that_does_not_come_holds_up_nobody(operator: Operator, upstreams: Upstreams) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        asked.set()
        await answer.wait()
        return web.Response(status=404)

    async with web_site(web.route("*", "/{path:.*}", hang)) as away:
        line = await operator.add("away", f"a2a:{away}")
        assert asked.is_set()
        assert (line["live"], line["fault"]) == (True, "its card has not been read yet")
        await operator.add("beside", f"a2a:{upstreams.two}")
        assert await operator.said("beside") == "two without "
        assert "away" in await operator.degraded()
        await operator.done("DELETE", "/agents/away")
        answer.set()


async def test_a_pool_is_added_with_a_secret_for_each_of_its_members(operator: Operator) -> None:
    shown: list[tuple[str, str]] = []

    async def refuse(request: web.Request) -> web.Response:
        shown.append((request.url.host or "", request.headers.get("authorization", "")))
        return web.json_response({"error": {"message": "not here"}}, status=500)

    async def complete(request: web.Request) -> web.Response:
        shown.append((request.url.host or "", request.headers.get("authorization", "")))
        said = {"role": "assistant", "content": "from the second"}
        return web.json_response({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]})

    async with (
        web_site(web.post("/v1/chat/completions", refuse)) as first,
        web_site(web.post("/v1/chat/completions", complete)) as second,
    ):
        pool: list[Json] = [
            {"url": f"openai:{first}/v1", "credentials": {"value": "key-of-one"}},
            {"url": f"openai:{second}/v1", "credentials": {"value": "key-of-two"}},
        ]
        agent: Json = {"pool": pool, "model": "small", "retries": 0}
        added = await operator.done("POST", "/agents", {"id": "models", "agent": agent})
        assert [each["credentials"] for each in added["agent"]["pool"]] == [{}, {}]
        assert await operator.said("models") == "from the second"
        assert [key for _, key in shown] == ["Bearer key-of-one", "Bearer key-of-two"]
        bare = [{"url": each["url"], "credentials": {}} for each in pool]
        turned = await operator.done("PATCH", "/agents/models", {"agent": {"pool": bare[::-1]}})
        assert turned["agent"]["pool"][0]["url"] == f"openai:{second}/v1"
        assert await operator.said("models", "again") == "from the second"
        assert shown[-1][1] == "Bearer key-of-two"
        swapped = [{**bare[0], "url": f"openai:{first}/other"}, bare[1], {"url": "openai:http://127.0.0.2:9/v1"}]
        assert (await operator.refused("PATCH", "/agents/models", {"agent": {"pool": swapped}}))[0] == 400


async def test_no_secret_is_in_an_answer_a_log_the_audit_trail_or_the_store(
    tmp_path: Path, upstreams: Upstreams, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "dragoman")
    store, told = sqlite_url(tmp_path), list[Any]()
    async with server(says("own", "own"), store=store, secret_key=KEY, agents_api_allow_hosts=HERE) as http:
        ops = Operator(http, bearer(store))
        told.append(await ops.add("partner", f"a2a:{upstreams.one}", **KEYED))
        told.append(await ops.refused("POST", "/agents", {"id": "partner", "agent": {"run": "a2a:x", **KEYED}}))
        told.append(await ops.refused("PATCH", "/agents/partner", {"agent": {"credentials": SECRET}}))
        told.append(await ops.refused("PATCH", "/agents/partner", {"agent": {"credential": SECRET}}))
        for path in ("/agents:added", "/agents/partner", "/agents/partner/versions", "/agents", "/audit", "/upstreams"):
            told.append(await ops.done("GET", path))
        for path in ("/ready", "/agents", "/agents/partner/.well-known/agent-card.json", "/metrics"):
            async with http.get(path) as answer:
                told.append(await answer.text())
    async with beside(store) as opened:
        actions = {each.action for each in await opened.audit.read(principal="operator:local", limit=1000)}
    assert {"agents.add", "agents.change"} <= actions
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode("latin-1")
    assert "partner" in kept
    encoded = base64.b64encode(SECRET.encode()).decode()
    for secret in (SECRET, encoded, KEY):
        assert secret not in json.dumps(told) + caplog.text + kept


async def test_without_a_key_an_agent_with_a_secret_is_refused_with_the_fix(
    tmp_path: Path, upstreams: Upstreams
) -> None:
    store = sqlite_url(tmp_path)
    async with server(says("own", "own"), store=store, agents_api_allow_hosts=HERE) as http:
        ops = Operator(http, bearer(store))
        body = {"id": "partner", "agent": {"run": f"a2a:{upstreams.one}", **KEYED}}
        status, why = await ops.refused("POST", "/agents", body)
        assert status == 400
        assert "set secret_key_file, or DRAGOMAN_SECRET_KEY, to 32 bytes in base64 (`openssl rand -base64 32`" in why
        assert (await ops.add("partner", f"a2a:{upstreams.one}"))["live"]  # one without a secret needs no key


async def test_a_server_with_another_key_says_so_and_serves_the_others(tmp_path: Path, upstreams: Upstreams) -> None:
    store = sqlite_url(tmp_path)
    settings = {"store": store, "agents_api_allow_hosts": HERE}
    async with server(says("own", "own"), secret_key=KEY, **settings) as http:
        ops = Operator(http, bearer(store))
        await ops.add("keyed", f"a2a:{upstreams.one}", **KEYED)
        await ops.add("plain", f"a2a:{upstreams.two}")
    for key, why in ((OTHER_KEY, "sealed with another key"), (None, "has no key: set secret_key_file")):
        async with server(says("own", "own"), secret_key=key, **settings) as http:
            ops = Operator(http, bearer(store))
            assert await ops.listed() == ["own", "plain"]
            assert why in (await ops.degraded())["keyed"]
            assert (await ops.send("keyed"))[0] == 404
            assert await ops.said("plain") == "two without "
            line = await ops.done("GET", "/agents/keyed")
            assert (line["live"], why in line["fault"]) == (False, True)
    async with server(says("own", "own"), secret_key=f"{OTHER_KEY},{KEY}", **settings) as http:
        assert await Operator(http, bearer(store)).said("keyed") == "one with ***"


async def test_rekey_seals_every_version_with_the_first_key_and_the_old_one_can_go(
    tmp_path: Path, upstreams: Upstreams
) -> None:
    store = sqlite_url(tmp_path)
    settings = {"store": store, "agents_api_allow_hosts": HERE}
    both = {"DRAGOMAN_SECRET_KEY": f"{OTHER_KEY},{KEY}"}
    async with server(says("own", "own"), secret_key=KEY, **settings) as http:
        ops = Operator(http, bearer(store))
        await ops.add("partner", f"a2a:{upstreams.one}", **KEYED)
        await ops.done("PATCH", "/agents/partner", {"agent": {"name": "Partner"}})
        await ops.add("plain", f"a2a:{upstreams.one}")
        for sealed in (2, 0):
            done = await asyncio.to_thread(run_command, tmp_path, "store", "rekey", "--store", store, **both)
            assert (done.status, done.out.split(" of ")[0]) == (0, f"{sealed} versions"), done
        assert await ops.said("partner", "meanwhile") == "one with ***"
    async with server(says("own", "own"), secret_key=OTHER_KEY, **settings) as http:
        ops = Operator(http, bearer(store))
        assert await ops.said("partner") == "one with ***"
        versions = (await ops.done("GET", "/agents/partner/versions"))["versions"]
        assert [each["restorable"] for each in versions] == [True, True]
    left = await asyncio.to_thread(run_command, tmp_path, "store", "rekey", "--store", store, DRAGOMAN_SECRET_KEY=KEY)
    assert left.status == 1
    assert "partner, version 2, stays as it is: its secret is sealed with another key" in left.err
    assert (await asyncio.to_thread(run_command, tmp_path, "store", "rekey", "--store", store)).status == 2


async def test_a_record_that_somebody_has_changed_in_the_store_sends_the_secret_nowhere(
    tmp_path: Path, upstreams: Upstreams
) -> None:
    store = sqlite_url(tmp_path)
    settings = {"store": store, "secret_key": KEY, "agents_api_allow_hosts": HERE}
    async with server(says("own", "own"), **settings) as http:
        await Operator(http, bearer(store)).add("partner", f"a2a:{upstreams.one}", **KEYED)
    before = len(upstreams.shown)
    async with beside(store) as opened:
        found = await opened.operator_records.find_record("agent", "partner")
        assert found is not None
        assert found.body is not None
        body = found.body.replace(upstreams.one.encode(), upstreams.two.encode())
        await opened.operator_records.put_record("agent", "partner", body)
        await opened.operator_records.put_record("agent", "other", found.body)
        await opened.operator_records.put_record("agent", "damaged", b"{")
        await opened.operator_records.put_record("agent", "own", found.body)
    async with server(says("own", "own"), **settings) as http:
        ops = Operator(http, bearer(store))
        assert await ops.listed() == ["own"]
        degraded = await ops.degraded()
        assert {name: "for another agent or host" in why for name, why in degraded.items()} == {
            "partner": True,
            "other": True,
            "damaged": False,
            "own": True,
        }
        assert await ops.said("own") == "own you"
    assert len(upstreams.shown) == before


async def test_a_reload_of_the_file_and_added_agents_are_one_change(tmp_path: Path, upstreams: Upstreams) -> None:
    """See `tests/systems/test_reload.py` for what a reload keeps. Here the file loses an agent, and gets one of an id
    that was added."""
    store = sqlite_url(tmp_path)
    config = quick(store=store, agents_api_allow_hosts=HERE)
    file: list[Agent] = [says("own", "own"), says("other", "other")]
    async with (
        running(config, list(file), again=lambda: Loaded(config, list(file)), make_added=make_added_agent) as listening,
        aiohttp.ClientSession(listening.url) as http,
    ):
        ops = Operator(http, bearer(store))
        await ops.add("partner", f"a2a:{upstreams.one}")
        assert await ops.listed() == ["own", "other", "partner"]
        file[:] = [file[0], says("partner", "of the file")]
        listening.reload()
        await until(lambda: _listed_as(ops, ["own", "partner"]))
        assert await ops.said("partner") == "of the file you"
        assert "the file has an agent of this id" in (await ops.degraded())["partner"]
        file[:] = file[:1]
        listening.reload()
        await until(lambda: _said_as(ops, "partner", "one without "))


async def test_an_agent_that_was_removed_may_come_back_in_the_file(tmp_path: Path, upstreams: Upstreams) -> None:
    store = sqlite_url(tmp_path)
    config = quick(store=store, agents_api_allow_hosts=HERE)
    file: list[Agent] = [says("own", "own")]
    async with (
        running(config, list(file), again=lambda: Loaded(config, list(file)), make_added=make_added_agent) as listening,
        aiohttp.ClientSession(listening.url) as http,
    ):
        ops = Operator(http, bearer(store))
        await ops.add("partner", f"a2a:{upstreams.one}")
        await ops.done("DELETE", "/agents/partner")
        file.append(says("partner", "of the file"))
        listening.reload()
        await until(lambda: _said_as(ops, "partner", "of the file again"))
        assert await ops.listed() == ["own", "partner"]
    async with server(*file, store=store, agents_api_allow_hosts=HERE) as http:
        ops = Operator(http, bearer(store))
        assert await ops.listed() == ["own", "partner"]
        assert await ops.said("partner") == "of the file you"


async def _listed_as(ops: Operator, ids: list[str]) -> bool:
    return await ops.listed() == ids


async def _said_as(ops: Operator, agent_id: str, text: str) -> bool:
    status, found = await ops.send(agent_id, "again")
    return status == 200 and found["task"]["artifacts"][0]["parts"][0]["text"] == text


async def test_a_server_whose_agents_all_come_by_the_api_begins_without_any(
    tmp_path: Path, upstreams: Upstreams
) -> None:
    """No agent answers at the root unless the configuration says which: else it would be whichever came first."""
    store = sqlite_url(tmp_path)
    settings = {"store": store, "secret_key": KEY, "agents_api_allow_hosts": HERE}
    body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    for default in (None, "one"):
        async with server(default=default, **settings) as http:
            ops = Operator(http, bearer(store))
            assert await ops.listed() == ([] if default is None else ["one", "two"])
            for path in ("/ready", "/openapi.json", "/v1/models", "/docs", "/.well-known/ai-catalog.json", "/"):
                async with http.get(path, headers={"Accept": "text/html" if path == "/" else "*/*"}) as answer:
                    assert answer.status == 200, path
            if default is None:
                await ops.add("one", f"a2a:{upstreams.one}")
                await ops.add("two", f"a2a:{upstreams.two}")
                assert await ops.said("two") == "two without "
            found = 200 if default == "one" else 404
            async with http.get("/.well-known/agent-card.json") as answer:
                assert answer.status == found
            skilled = {"message": {**body["message"], "messageId": "n", "metadata": {"skill": "none"}}}
            for path, sent, why in (
                ("/message:send", body, "no agent answers"),
                ("/v1/chat/completions", chat, "GET /v1/models lists"),
            ):
                async with http.post(path, json=sent, headers=V1) as answer:
                    told = await answer.text()
                    assert (answer.status, why in told) == (found, default is None), told
            async with http.post("/message:send", json=skilled, headers=V1) as answer:
                assert answer.status in (400, 404)
            if default == "one":
                await ops.done("DELETE", "/agents/one")
                async with http.get("/", headers={"Accept": "text/html"}) as answer:
                    assert answer.status == 200
                async with http.post(
                    "/message:send", json={"message": {**body["message"], "messageId": "o"}}
                ) as answer:
                    assert answer.status == 404


# -- what a stolen session can never reach -----------------------------------------------------------------------------


async def test_no_address_on_this_machine_or_behind_it_is_stored_or_dialled(tmp_path: Path) -> None:
    came = 0

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        writer.close()

    store = sqlite_url(tmp_path)
    trap = await asyncio.start_server(connected, "0.0.0.0", 0)
    async with trap, server(says("own", "own"), store=store, secret_key=KEY) as http:
        port = str(trap.sockets[0].getsockname()[1])
        ops = Operator(http, bearer(store))
        inward = [url.replace("PORT", port) for url in INWARD if ".test" not in url.lower()]  # no DNS here knows those
        odd = [url.replace("PORT", port) for url in (*ODD, "http://LOCALHOST.:PORT/", "grpc://127.0.0.1:PORT")]
        tried: list[Json] = [{"run": f"a2a:{url}"} for url in (*odd, *inward)]
        open_to_all: Json = {"run": "a2a:https://198.41.0.4/"}
        for url in inward:
            tried += [
                {**open_to_all, "card": url},
                {**open_to_all, "origins": [url]},
                {**open_to_all, "card_keys": url},
                {**open_to_all, "credentials": {"token_url": url, "client_id": "us", "value": SECRET}},
                {"run": f"openai:{url}", "model": "x"},
                {"run": "openai:https://198.41.0.4/v1", "model": "x", "tools": [{"run": f"mcp:{url}"}]},
                {"run": ["a2a:https://198.41.0.4/", f"a2a:{url}"]},
                {"pool": [{"url": "a2a:https://198.41.0.4/"}, {"url": f"a2a:{url}"}]},
                {"pool": [{"url": "a2a:https://198.41.0.4/", "card": url}]},
                {"pool": [{"url": f"openai:{url}"}], "model": "x"},
            ]
        for number, agent in enumerate(tried):
            wanted = {"id": "evil", "agent": agent, "dry_run": number % 2 == 0}
            status, why = await ops.refused("POST", "/agents", wanted)
            assert status == 400, (agent, why)
        assert await ops.listed() == ["own"]
        assert (await ops.done("GET", "/agents:added"))["added"] == []
    assert came == 0


async def test_what_callers_send_goes_to_hosts_of_the_file_alone(tmp_path: Path, upstreams: Upstreams) -> None:
    """A stolen operator's session is not to collect the credentials of those who call the agents."""
    store, public = sqlite_url(tmp_path), "https://198.41.0.4"
    exchanged = {"exchange": True, "client_id": "us", "value": SECRET, "audience": "partner"}
    forwards = {"run": f"a2a:{upstreams.one}", "credentials": {"forward": True}}
    async with server(says("own", "own"), store=store, secret_key=KEY, agents_api_allow_hosts=HERE) as http:
        ops = Operator(http, bearer(store))
        await ops.done("POST", "/agents", {"id": "forwards", "agent": forwards})
        await ops.add("open", f"a2a:{public}")
        for change, place, key in (
            ({"credentials": {"forward": True}}, "run", "forward"),
            ({"headers": ["x-forwarded-access-token"]}, "run", "headers"),
            ({"run": f"a2a:{upstreams.one}", "headers": ["x-t"], "origins": [public]}, "origins[0]", "headers"),
            ({"credentials": {**exchanged, "token_url": upstreams.one}}, "run", "exchange"),
            (
                {"run": f"a2a:{upstreams.one}", "credentials": {**exchanged, "token_url": public}},
                "credentials.token_url",
                "exchange",
            ),
        ):
            status, why = await ops.refused("PATCH", "/agents/open", {"agent": change})
            assert (status, why) == (
                400,
                f"agent.{place}: names the host 198.41.0.4, which would get what callers send ({key}): set "
                "allow_hosts of [agents_api] in the file to name it, or choose another host",
            )
        assert (await ops.done("GET", "/agents/open"))["version"] == 1
    async with server(says("own", "own"), store=store, secret_key=KEY) as http:  # the file names that host no longer
        ops = Operator(http, bearer(store))
        assert await ops.listed() == ["own", "open"]
        assert "names a host that would get what callers send" in (await ops.degraded())["forwards"]


async def test_a_name_that_changes_its_address_and_a_card_that_names_a_host_inside_are_not_dialled() -> None:
    """The hosts are looked at when they are dialled, whatever they stood for when they were given."""
    came: list[str] = []

    async def inside(request: web.Request) -> web.Response:
        came.append(request.path)
        return web.json_response({})

    async def card(request: web.Request) -> web.Response:
        interface = {"url": f"{trap}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response({"name": "x", "version": "1", "skills": [], "supportedInterfaces": [interface]})

    async def leads_inside(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"{trap}/redirected")

    async with AsyncExitStack() as stack:
        trap = await stack.enter_async_context(web_site(web.route("*", "/{path:.*}", inside)))
        outside = await stack.enter_async_context(
            web_site(
                web.get("/named/.well-known/agent-card.json", card),
                web.route("*", "/moved/{path:.*}", leads_inside),
            )
        )
        names = await stack.enter_async_context(answering())
        for name in ("rebound.test", "outside.test"):
            names.has(name, "127.0.0.1")
        resolver = Resolver(servers=[names.address], kept_s=0)
        stack.push_async_callback(resolver.close)
        runners = AddedRunners(RecordFeed(), None, make_added_agent, AddedHosts(Guard(["outside.test"]), resolver))
        there = outside.replace("127.0.0.1", "outside.test")
        rebound = trap.replace("127.0.0.1", "rebound.test")
        model = {"run": f"openai:{there}/v1", "model": "x"}
        for table in (
            {"run": f"a2a:{rebound}"},
            {"run": f"a2a:{there}/named"},
            {"run": f"a2a:{there}/moved"},
            {"run": f"a2a:{there}/named", "card_keys": f"{rebound}/keys"},
            {"run": f"a2a:{there}/named", "card": f"{rebound}/card"},
            {"run": f"a2a:{there}", "dialect": "1.0", "credentials": {"token_url": rebound, "client_id": "us"}},
            {"run": f"a2a:grpc{rebound.removeprefix('http')}", "dialect": "1.0"},
            {**model, "run": f"openai:{rebound}/v1"},
            {**model, "tools": [{"run": f"mcp:{rebound}/mcp"}]},
            {"pool": [{"url": f"openai:{there}/v1"}, {"url": f"openai:{rebound}/v1"}], "model": "x"},
            {"run": [f"a2a:{there}/named", f"a2a:{rebound}"]},
        ):
            definition = read_definition("evil", table)
            runner = runners.make(definition, dict.fromkeys(definition.secrets, SECRET))
            findings = [each async for each in runner.check()]
            await runner.close()
            assert not all(each.ok for each in findings), (table, findings)
            assert came == [], table


# -- several servers on one store --------------------------------------------------------------------------------------


async def test_every_server_of_a_store_serves_what_was_added_on_one(postgres_url: str, upstreams: Upstreams) -> None:
    keys = await add_keys(postgres_url, ops={"role": AccessRole.OPERATOR})
    settings = {"store": postgres_url, "secret_key": KEY, "agents_api_allow_hosts": HERE}
    async with servers(2, lambda: [says("own", "own")], **settings) as https:
        one, two = (Operator(http, {"x-api-key": keys["ops"]}) for http in https)
        began_s = asyncio.get_running_loop().time()
        await one.add("partner", f"a2a:{upstreams.one}", **KEYED)
        await until(lambda: _listed_as(two, ["own", "partner"]))
        assert await two.said("partner") == "one with ***"
        await two.done("PATCH", "/agents/partner", {"agent": {"run": f"a2a:{upstreams.two}", "credentials": None}})
        await until(lambda: _said_as(one, "partner", "two without "))
        await one.done("DELETE", "/agents/partner")
        await until(lambda: _listed_as(two, ["own"]))
        for each in (one, two):  # the other one knows the agent, too, and does not take it on either
            assert (await each.send("partner", "too late"))[0] == 404
            async with each.http.get("/agents/partner/.well-known/agent-card.json") as answer:
                assert answer.status == 404
        assert asyncio.get_running_loop().time() - began_s < 30.0
