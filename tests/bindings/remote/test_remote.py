"""Agents elsewhere as operators try them: whom the server calls for them, what it shows there, and what it keeps."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.bindings.console.endpoint import PROOF
from dragoman.bindings.remote.agents import AT_ONCE_MAX, EXAMINATIONS_MAX
from dragoman.config import Config
from dragoman.dialects.registry import DIALECTS
from dragoman.model.principal import AccessRole
from dragoman.server import serving
from tests.bindings.admin.test_admin import DEADLINE_S, audit_of, make_keys, read, server
from tests.kit.places import bearer, sqlite_url
from tests.net.peer import Asked, Peer, hangs, listening, says, status
from tests.ports import kept_port

SECRET = "s3cret-of-the-operator"
KEY = {"kind": "key", "value": SECRET}


def make_agents() -> list[Agent]:
    echo, asks = Agent("echo"), Agent("asks")

    @echo.skill
    async def give_back(ctx: Context) -> AsyncIterator[str]:
        """Give the text back in two pieces."""
        yield "so "
        yield ctx.text

    @asks.skill
    async def ask(ctx: Context) -> str:
        """Ask."""
        return await ctx.ask("Which way?")

    return [echo, asks]


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **more}}


async def post(
    http: aiohttp.ClientSession, path: str, ops: dict[str, str], body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    status_code, answer = await read(http, path, ops, "POST", json=body)
    return status_code, answer


async def stream(
    http: aiohttp.ClientSession, ops: dict[str, str], body: dict[str, Any], path: str = "/remote/stream"
) -> list[tuple[str, dict[str, Any]]]:
    async with http.post(f"/admin/v1{path}", json=body, headers=ops) as answer:
        assert answer.status == 200, await answer.text()
        text = await answer.text()
    frames = [frame.split("\n") for frame in text.split("\n\n") if frame.startswith("event:")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]


@asynccontextmanager
async def elsewhere(**settings: Any) -> AsyncIterator[str]:
    async with serving(Config(port=0, store="memory:", shutdown_grace_s=0.2, **settings), make_agents()) as url:
        yield url


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[aiohttp.ClientSession, dict[str, str]]]:
    """A keyless server on loopback, and what its operator sends."""
    store = sqlite_url(tmp_path_factory.mktemp("store"))
    async with server(store) as http:
        yield http, bearer(store)


@pytest.fixture(scope="module")
async def other() -> AsyncIterator[tuple[str, int]]:
    """The server of the agents that are tried, with gRPC."""
    port = kept_port()
    async with elsewhere(grpc_port=port) as url:
        yield url, port


Site = tuple[aiohttp.ClientSession, dict[str, str]]


async def test_every_endpoint_of_a_card_is_spoken(site: Site, other: tuple[str, int]) -> None:
    http, ops = site
    url = f"{other[0]}/agents/echo/.well-known/agent-card.json"
    _, facts = await post(http, "/remote/card", ops, {"url": url})
    assert facts["card"]["name"] == "echo"
    names = {(each["binding"], each["dialect"]) for each in facts["endpoints"]}
    over_http = {(binding, version) for binding in ("JSONRPC", "HTTP+JSON") for version in ("1.0", "0.3")}
    assert names == over_http | {("GRPC", "1.0")}
    for number, each in enumerate(facts["endpoints"]):
        assert each.pop("takes_credential") is True
        sent = {"url": url, "endpoint": each, "request": message(f"hi {number}")}
        events = await stream(http, ops, sent)
        assert events[-1] == ("end", {"failure": None}), each
        assert f"hi {number}" in json.dumps(events), each
        _, answer = await post(http, "/remote/send", ops, {**sent, "request": message(f"again {number}")})
        task = answer["answer"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        _, again = await post(http, "/remote/task", ops, {"url": url, "endpoint": each, "task_id": task["id"]})
        assert again["answer"]["task"]["artifacts"] == task["artifacts"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_dialect_is_spoken_without_a_card(site: Site, other: tuple[str, int], dialect: str) -> None:
    http, ops = site
    path = {"beeos": "/echo", "evoai": "/api/v1/a2a/echo", "protoagent": "/a2a"}.get(dialect, "/agents/echo")
    async with AsyncExitStack() as open_:
        url = other[0] + path
        if dialect == "kaos":
            url = await open_.enter_async_context(elsewhere(profile="kaos"))
        sent = {"url": url, "dialect": dialect, "request": message(f"in {dialect}")}
        _, answer = await post(http, "/remote/send", ops, sent)
    assert f"in {dialect}" in json.dumps(answer["answer"]), answer


async def test_a_task_is_answered_and_canceled(site: Site, other: tuple[str, int]) -> None:
    http, ops = site
    agent = {"url": f"{other[0]}/agents/asks"}
    _, asked = await post(http, "/remote/send", ops, {**agent, "request": message("cancel me")})
    task = asked["answer"]["task"]["id"]
    _, canceled = await post(http, "/remote/task:cancel", ops, {**agent, "task_id": task})
    assert canceled["answer"]["task"]["status"]["state"] == "TASK_STATE_CANCELED"
    _, unknown = await post(http, "/remote/task:cancel", ops, {**agent, "task_id": "none"})
    assert (unknown["answer"], unknown["failure"]["name"]) == (None, "TaskNotFound")


async def test_a_refusal_of_the_agent_is_no_refusal_of_the_server(site: Site) -> None:
    http, ops = site
    async with elsewhere(api_key="of-the-agent") as url:
        agent = {"url": f"{url}/agents/echo", "request": message()}
        code, answer = await post(http, "/remote/send", ops, agent)
        assert (code, answer["failure"]["name"]) == (200, "Unauthorized")
        held = {"kind": "bearer", "value": "of-the-agent"}
        _, answer = await post(http, "/remote/send", ops, {**agent, "credential": held})
        assert answer["answer"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@asynccontextmanager
async def keyed(tmp_path: Path, **settings: Any) -> AsyncIterator[Site]:
    """A server that asks everybody for a key."""
    store = sqlite_url(tmp_path)
    keys = await make_keys(store, ops=(AccessRole.OPERATOR, None))
    async with server(store, **settings) as http:
        yield http, keys["ops"]


async def test_private_addresses_are_refused_unless_their_host_is_named(tmp_path: Path) -> None:
    async with listening() as peer:
        async with keyed(tmp_path) as (http, ops):
            port = peer.url.rpartition(":")[2]
            for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"):
                for path in ("/remote/card", "/remote/send"):
                    body: dict[str, Any] = {"url": f"http://{host}:{port}/"}
                    if path.endswith("send"):
                        body |= {"request": message(), "dialect": "1.0"}
                    _, answer = await post(http, path, ops, body)
                    assert answer["failure"]["name"] == "AddressRefused", (host, answer)
                    assert "console_allowed_hosts" in answer["failure"]["message"]
            _, answer = await post(
                http, "/remote/send", ops, {"url": f"grpc://127.0.0.1:{port}", "dialect": "1.0", "request": message()}
            )
            assert answer["failure"]["name"] == "AddressRefused"
        assert peer.asked == []
        entries = await audit_of(sqlite_url(tmp_path), "key:ops")
        refused = [(entry.action, entry.subject) for entry in entries if entry.reason == "AddressRefused"]
        assert ("remote.card", f"http://127.0.0.1:{port}/") in refused
        peer.scripts["GET /card.json"] = says(card(f"{peer.url}/rpc"))
        async with keyed(tmp_path, console_allowed_hosts=("127.0.0.1",)) as (http, ops):
            _, facts = await post(http, "/remote/card", ops, {"url": f"{peer.url}/card.json"})
            assert [each["url"] for each in facts["endpoints"]] == [f"{peer.url}/rpc"]
            _, answer = await post(http, "/remote/card", ops, {"url": f"http://localhost:{port}/card.json"})
            assert answer["failure"]["name"] == "AddressRefused"


async def test_no_redirect_leads_elsewhere(site: Site) -> None:
    http, ops = site

    async def redirect(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")

    async with listening() as peer:
        peer.scripts["GET /card.json"] = redirect
        _, answer = await post(http, "/remote/card", ops, {"url": f"{peer.url}/card.json"})
        assert answer["failure"]["name"] == "NoCard"
        assert "not followed" in answer["failure"]["message"]


def card(*urls: str) -> dict[str, Any]:
    listed = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for url in urls]
    return {"name": "stranger", "supportedInterfaces": listed, "capabilities": {"streaming": False}, "skills": []}


async def asked_for(peer: Peer, path: str, times: int) -> None:
    """Wait until the peer has been asked for that path so often."""
    async with asyncio.timeout(DEADLINE_S):
        while peer.paths.count(path) < times:
            peer.came.clear()
            await peer.came.wait()


async def refuse(peer: Peer, code: int) -> None:
    async def repeat(asked: Asked, writer: asyncio.StreamWriter) -> None:
        body = f"no such key: {asked.headers.get('x-api-key')}".encode()
        writer.write(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (code, len(body), body))

    peer.scripts["POST /rpc"] = repeat


async def test_a_credential_goes_to_the_origin_of_the_card_alone_and_stays_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    store = sqlite_url(tmp_path)
    async with server(store) as http, listening() as home, listening() as strange:
        ops = bearer(store)
        home.scripts["GET /card.json"] = says(card(f"{home.url}/rpc", f"{strange.url}/rpc"))
        await refuse(home, 418)
        await refuse(strange, 418)
        agent = {"url": f"{home.url}/card.json", "request": message(), "credential": KEY}
        _, facts = await post(http, "/remote/card", ops, {"url": agent["url"], "credential": KEY})
        ours, theirs = facts["endpoints"]
        assert (ours.pop("takes_credential"), theirs.pop("takes_credential")) == (True, False)
        _, answer = await post(http, "/remote/send", ops, {**agent, "endpoint": ours})
        assert answer["failure"]["name"] == "HttpRefusal"
        assert SECRET not in json.dumps(answer)
        assert "$KEY" in answer["failure"]["message"]
        _, answer = await post(http, "/remote/send", ops, {**agent, "endpoint": theirs})
        assert answer["failure"]["name"] == "CredentialWithheld"
        assert home.url in answer["failure"]["message"]
        events = await stream(http, ops, {**agent, "endpoint": theirs})
        assert events[0][1]["failure"]["name"] == "CredentialWithheld"
        assert strange.asked == []
        assert {asked.headers.get("x-api-key") for asked in home.asked} == {SECRET}
        _, answer = await post(http, "/remote/send", ops, {**agent, "endpoint": theirs, "credential": None})
        assert answer["failure"]["name"] == "HttpRefusal"
        assert [asked.headers.get("x-api-key") for asked in strange.asked] == [None]
    assert SECRET not in caplog.text
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.iterdir())
    subjects = {entry.subject for entry in await audit_of(store, "operator:local") if entry.action.startswith("remote")}
    assert subjects == {f"{home.url}/card.json"}


async def test_the_query_of_a_url_is_not_in_the_audit_trail(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as http:
        await post(http, "/remote/card", bearer(store), {"url": "http://ann:pw@127.0.0.1:9/card.json?key=abc#x"})
        await post(http, "/remote/card", bearer(store), {"url": "ann:pw@127.0.0.1:9/forgot-the-scheme"})
        await post(http, "/remote/card", bearer(store), {"url": "http://ann:p/w@127.0.0.1:9/slash"})
        await post(http, "/remote/card", bearer(store), {"url": "http://ann:p?w@127.0.0.1:9/query?key=abc"})
        await post(http, "/remote/card", bearer(store), {"url": "http://ann:p#w@127.0.0.1:9/fragment"})
        await post(http, "/remote/card", bearer(store), {"url": "http://127.0.0.1:9/at/@ann?key=a@b"})
    assert {entry.subject for entry in await audit_of(store, "operator:local")} == {
        "http://127.0.0.1:9/card.json",
        "127.0.0.1:9/forgot-the-scheme",
        "http://127.0.0.1:9/slash",
        "http://127.0.0.1:9/query",
        "http://127.0.0.1:9/fragment",
        "http://127.0.0.1:9/at/@ann",
    }


async def test_the_number_at_once_is_bounded_and_a_reader_who_leaves_ends_the_exchange(site: Site) -> None:
    http, ops = site
    gone = asyncio.Event()

    async def wait(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: still here\n\n")
        await writer.drain()
        try:
            while True:
                await asyncio.sleep(0.05)  # only writing tells that the other side has gone
                writer.write(b": still here\n\n")
                await writer.drain()
        except ConnectionError:
            gone.set()

    async with listening() as peer:
        streaming = card(f"{peer.url}/rpc") | {"capabilities": {"streaming": True}}
        peer.scripts["GET /card.json"] = says(streaming)
        peer.scripts["POST /rpc"] = wait
        body = {"url": f"{peer.url}/card.json", "request": message()}
        opened = [await http.post("/admin/v1/remote/stream", json=body, headers=ops) for _ in range(AT_ONCE_MAX)]
        assert {answer.status for answer in opened} == {200}
        await asked_for(peer, "POST /rpc", AT_ONCE_MAX)
        code, answer = await post(http, "/remote/card", ops, {"url": body["url"]})
        assert code == 429, answer
        for each in opened:
            each.close()
        async with asyncio.timeout(DEADLINE_S):
            await gone.wait()
            while (await post(http, "/remote/card", ops, {"url": body["url"]}))[0] == 429:
                await asyncio.sleep(0)  # the server learns one by one that the readers have gone


async def test_wrong_requests_name_the_field(site: Site, other: tuple[str, int]) -> None:
    http, ops = site
    agent = {"url": f"{other[0]}/agents/echo"}
    for path, body, words in (
        ("/remote/card", {}, "url"),
        ("/remote/card", {**agent, "credential": {"kind": "key", "value": "a\nb"}}, "credential.value"),
        ("/remote/card", {**agent, "credential": {**KEY, "header": "Host"}}, "credential.header"),
        ("/remote/stream", {**agent, "request": {"message": {"role": "ROLE_USER"}}}, "request.message.messageId"),
        ("/remote/send", {**agent, "request": message(parts=[{"text": 1}])}, "request.message.parts[0].text"),
        ("/remote/task", agent, "task_id"),
    ):
        code, answer = await post(http, path, ops, body)
        assert (code, words in json.dumps(answer)) == (400, True), (path, answer)
        assert SECRET not in json.dumps(answer)
    for url in ("", "agents.example.org", "file:///etc/passwd", "http://"):
        _, answer = await post(http, "/remote/card", ops, {"url": url})
        assert answer["failure"]["name"] == "BadUrl", answer
    _, answer = await post(http, "/remote/send", ops, {**agent, "dialect": "latin", "request": message()})
    assert "dialect: must be one of" in answer["failure"]["message"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", ""),
        ("[]", ""),
        ('{"message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}}', "message.messageId"),
        ('{"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": 7}]}}', "message.parts[0].text"),
        (
            '{"message": {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "x", "mediatype": "a"}]}}',
            "message.parts[0].mediatype",
        ),
    ],
)
async def test_the_faults_of_a_message_name_the_field(site: Site, text: str, field: str) -> None:
    http, ops = site
    _, answer = await post(http, "/messages:check", ops, {"text": text})
    assert [fault["field"] for fault in answer["faults"]] == [field], answer
    _, answer = await post(http, "/messages:check", ops, {"text": json.dumps(message())})
    assert answer["faults"] == []


async def test_a_session_must_prove_that_its_page_asks(site: Site) -> None:
    http, ops = site
    token = ops["Authorization"].removeprefix("Bearer ")
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(http._base_url, cookie_jar=jar) as browser:  # noqa: SLF001  aiohttp has no door
        async with browser.post("/console/session", json={"secret": token}) as signed_in:
            proof = (await signed_in.json())["proof"]
        body = {"url": "http://127.0.0.1:9/"}
        assert (await read(browser, "/remote/card", {}, "POST", json=body))[0] == 403
        assert (await read(browser, "/remote/card", {PROOF.decode(): proof}, "POST", json=body))[0] == 200


async def test_without_the_console_nobody_elsewhere_is_called(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store, console=False) as http:
        code, answer = await post(http, "/remote/card", bearer(store), {"url": "http://127.0.0.1:9/"})
        assert code == 404
        assert "console" in json.dumps(answer)


async def test_an_agent_that_does_not_answer_is_left_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    http, ops = site
    monkeypatch.setattr("dragoman.bindings.remote.agents.EXCHANGE_S", 0.2)
    async with listening() as peer:
        peer.scripts["GET /card.json"] = says(card(f"{peer.url}/rpc"))
        peer.scripts["POST /rpc"] = hangs()
        peer.scripts["GET /none.json"] = status(500)
        body = {"url": f"{peer.url}/card.json", "request": message()}
        _, answer = await post(http, "/remote/send", ops, body)
        assert answer["failure"]["name"] == "CallTimedOut"
        assert (await stream(http, ops, body))[-1][1]["failure"]["name"] == "CallTimedOut"
        _, answer = await post(http, "/remote/card", ops, {"url": f"{peer.url}/none.json"})
        assert answer["failure"]["name"] == "NoCard"


async def examine(site: Site, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    return await stream(*site, body, "/remote/examine")


async def test_the_doctor_sends_no_message_unless_it_is_told_to(site: Site) -> None:
    came = []
    agent = Agent("counts")

    @agent.skill
    async def count(ctx: Context) -> str:
        """Count the messages."""
        came.append(ctx.text)
        return "one more"

    async with serving(Config(port=0, store="memory:", shutdown_grace_s=0.2), [agent]) as url:
        seen = await examine(site, url=url)
        assert {name for name, _ in seen[:-1]} <= {"findings"}
        last, report = seen[-1]
        assert (last, report["failure"], report["server"]) == ("end", None, "Dragoman")
        assert report["card_url"].startswith(url)
        colors = {finding["color"] for finding in report["findings"]}
        assert colors == {"green", "grey"}
        assert came == []
        measured = await examine(site, url=url, active=True, text="how are you")
        assert set(came) == {"how are you"}
        greens = [sum(finding["color"] == "green" for finding in each[-1][1]["findings"]) for each in (seen, measured)]
        assert greens[0] < greens[1]


async def test_findings_come_before_the_last_endpoint_has_answered(site: Site) -> None:
    async with listening() as peer:
        peer.scripts["GET /card.json"] = says(card(f"{peer.url}/rpc"))
        peer.scripts["POST /rpc"] = hangs()
        body = {"url": f"{peer.url}/card.json"}
        http, ops = site
        async with http.post("/admin/v1/remote/examine", json=body, headers=ops) as answer:
            while not (line := (await answer.content.readline()).decode()).startswith("data:"):
                pass
            first = json.loads(line.removeprefix("data: "))
            await asked_for(peer, "POST /rpc", 1)
        assert first["findings"]
        assert {finding["color"] for finding in first["findings"]} == {"green", "yellow", "red"}
        assert all(finding["fix"] for finding in first["findings"] if finding["color"] != "green")


async def test_the_doctor_goes_nowhere_where_the_console_may_not(tmp_path: Path) -> None:
    async with listening() as peer:
        async with keyed(tmp_path) as where:
            ((name, report),) = await examine(where, url=f"{peer.url}/card.json", active=True)
        assert (name, report["failure"]["name"], report["findings"]) == ("end", "AddressRefused", [])
        assert peer.asked == []
    entries = await audit_of(sqlite_url(tmp_path), "key:ops")
    assert [(entry.action, entry.reason) for entry in entries] == [
        ("remote.examine-active", ""),
        ("remote.examine-active", "AddressRefused"),
    ]


async def test_few_examinations_are_under_way_at_once(site: Site) -> None:
    http, ops = site
    async with listening() as peer:
        peer.scripts["GET /card.json"] = hangs()
        body = {"url": f"{peer.url}/card.json"}
        opened = [await http.post("/admin/v1/remote/examine", json=body, headers=ops) for _ in range(EXAMINATIONS_MAX)]
        assert {answer.status for answer in opened} == {200}
        await asked_for(peer, "GET /card.json", EXAMINATIONS_MAX)
        assert (await post(http, "/remote/examine", ops, body))[0] == 429
        for each in opened:
            each.close()
        peer.scripts["GET /card.json"] = status(404)
        async with asyncio.timeout(DEADLINE_S):
            while True:  # the server learns one by one that the readers have gone
                async with http.post("/admin/v1/remote/examine", json=body, headers=ops) as answer:
                    await answer.read()
                if answer.status == 200:
                    break
