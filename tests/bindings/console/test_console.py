"""The console over HTTP: who gets its pages, who may sign in, and what a session is worth."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.bindings.console import InstalledPages, Pages
from dragoman.bindings.console.endpoint import PROOF
from dragoman.bindings.http import HttpRequest
from dragoman.bindings.routes import CONSOLE, Route
from dragoman.config import Config
from dragoman.engine.admin.folded_places import LOG_BYTES
from dragoman.model.errors import NotFound
from dragoman.model.principal import AccessRole, Scope
from dragoman.server import serving
from tests.kit.agents import asking
from tests.kit.places import add_keys, bearer, beside, calling, quick, sqlite_url
from tests.spoil import spoil_file
from tests.store.cases.spoiling import WAYS, Way

DEADLINE_S = 60.0
SESSION = "/console/session"
TASKS = "/admin/v1/tasks"


@asynccontextmanager
async def server(store: str, **settings: Any) -> AsyncIterator[str]:
    async with serving(quick(store=store, **settings), [asking(question="which one?")]) as url:
        yield url


def browser(url: str) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    """A client that keeps cookies, as a browser does, also those of a server without a name."""
    return calling(url, cookie_jar=aiohttp.CookieJar(unsafe=True))


def token_of(store: str) -> str:
    return bearer(store)["Authorization"].removeprefix("Bearer ")


async def make_key_for(store_url: str, role: AccessRole, scopes: tuple[Scope, ...] | None = None) -> str:
    return (await add_keys(store_url, ops={"role": role, "scopes": scopes}))["ops"]


async def revoke(store_url: str, key: str) -> None:
    async with beside(store_url) as store:
        assert await store.keys.revoke(key.split("_")[1], 1)


async def sign_in(http: aiohttp.ClientSession, secret: str) -> tuple[int, Any]:
    async with http.post(SESSION, json={"secret": secret}) as answer:
        return answer.status, await answer.json()


async def status_of(http: aiohttp.ClientSession, path: str = TASKS, method: str = "GET", **sent: Any) -> int:
    async with http.request(method, path, **sent) as answer:
        return answer.status


async def make_task(http: aiohttp.ClientSession, **headers: str) -> str:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with http.post("/message:send", json={"message": message}, headers={"A2A-Version": "1.0", **headers}) as sent:
        return str((await sent.json())["task"]["id"])


async def test_a_sign_in_in_another_form_is_told_what_is_wrong(tmp_path: Path) -> None:
    async with server(sqlite_url(tmp_path)) as url, browser(url) as http:
        for sent, fault in (
            ({"key": "dgm_x"}, "key: is not known here"),
            ({}, "secret: is required"),
            ({"secret": 7}, "secret: must be a string, not an integer"),
        ):
            async with http.post(SESSION, json=sent) as answer:
                assert (answer.status, (await answer.json())["error"]["message"]) == (400, fault)


async def test_the_token_of_a_server_that_asks_nobody_signs_in(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        assert await status_of(http) == 401
        assert await status_of(http, SESSION) == 401
        status, signed_in = await sign_in(http, token_of(store))
        assert (status, signed_in["principal"]) == (200, "operator:local")
        assert await status_of(http) == 200
        async with http.get(SESSION) as answer:
            assert await answer.json() == signed_in


async def test_a_wrong_key_is_refused_and_sets_no_cookie(tmp_path: Path) -> None:
    async with server(sqlite_url(tmp_path)) as url, browser(url) as http:
        for secret in ("dgo_wrong", "dgm_aaaaaaaaaaaa_" + "x" * 43, "schlüssel", "\u0000"):
            status, refusal = await sign_in(http, secret)
            assert status == 401, refusal
        for body in ({}, {"secret": 7}, {"secret": "x", "more": 1}, []):
            assert await status_of(http, SESSION, "POST", json=body) == 400
        assert await status_of(http, SESSION, "POST", json={"secret": "日本"}) == 400
        assert await status_of(http, SESSION, "POST", data=b"{", headers={"content-type": "application/json"}) == 400
        assert not list(http.cookie_jar)


async def test_a_token_of_an_earlier_start_is_told_apart(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store):
        old = token_of(store)
    async with server(store) as url, browser(url) as http:
        status, refusal = await sign_in(http, old)
        assert (status, "has a new token" in refusal["error"]["message"]) == (401, True), refusal
        await make_key_for(store, AccessRole.OPERATOR)
    async with server(store) as url, browser(url) as http:
        status, refusal = await sign_in(http, old)
        assert (status, "asks callers for keys now" in refusal["error"]["message"]) == (401, True), refusal


async def test_only_an_operators_key_signs_in(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    operator = await make_key_for(store, AccessRole.OPERATOR)
    others = [
        await make_key_for(store, AccessRole.ADMIN),
        await make_key_for(store, AccessRole.CALLER),
        await make_key_for(store, AccessRole.OPERATOR, (Scope.READ,)),
    ]
    async with server(store, api_key="shared") as url, browser(url) as http:
        for key in (*others, "shared"):
            status, refusal = await sign_in(http, key)
            assert status == 403, refusal
        status, signed_in = await sign_in(http, operator)
        assert (status, signed_in["principal"]) == (200, "key:ops")
        assert await status_of(http) == 200


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        async with http.post(SESSION, json={"secret": token_of(store)}) as answer:
            cookie = answer.headers["set-cookie"]
            assert answer.headers["cache-control"] == "no-store"
        name, *fields = cookie.split("; ")
        assert name.startswith(f"dragoman-console-{url.rpartition(':')[2]}=")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(fields)


async def test_the_cookie_is_for_tls_alone_behind_a_proxy_with_tls(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store, public_url="https://ops.example.com") as url, browser(url) as http:
        async with http.post(SESSION, json={"secret": token_of(store)}) as answer:
            cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-dragoman-console="), "no other host of the domain can set it"
        assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} == set(cookie.split("; ")[1:])
        kept = cookie.partition(";")[0]
        assert await status_of(http, headers={"Cookie": kept}) == 200
        assert await status_of(http, headers={"Cookie": kept.removeprefix("__Host-")}) == 401


async def test_a_change_needs_the_proof_and_reads_do_not(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        task = await make_task(http)
        _, signed_in = await sign_in(http, token_of(store))
        cancel = f"{TASKS}/{task}:cancel"
        proof = {PROOF.decode(): signed_in["proof"]}
        assert await status_of(http, cancel, "POST") == 403
        assert await status_of(http, cancel, "POST", headers={PROOF.decode(): "wrong"}) == 403
        assert await status_of(http, SESSION, "DELETE") == 403
        foreign = {**proof, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        assert await status_of(http, cancel, "POST", headers=foreign) == 403
        assert await status_of(http, f"{TASKS}/{task}") == 200
        assert await status_of(http, cancel, "POST", headers=proof) == 200


async def test_no_page_of_another_site_signs_anybody_in(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        sent = {"secret": token_of(store)}
        assert await status_of(http, SESSION, "POST", json=sent, headers=foreign) == 403


async def test_signing_out_ends_the_session_for_good(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        _, signed_in = await sign_in(http, token_of(store))
        (kept,) = [cookie.value for cookie in http.cookie_jar]
        name = next(cookie.key for cookie in http.cookie_jar)
        assert await status_of(http, SESSION, "DELETE", headers={PROOF.decode(): signed_in["proof"]}) == 204
        assert not list(http.cookie_jar)
        assert await status_of(http, headers={"Cookie": f"{name}={kept}"}) == 401


async def test_signing_in_again_ends_the_browsers_earlier_session(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http, browser(url) as other:
        await sign_in(http, token_of(store))
        await sign_in(other, token_of(store))
        (earlier,) = http.cookie_jar
        assert (await sign_in(http, "dgo_wrong"))[0] == 401
        assert await status_of(http) == 200, "only one who may sign in ends it"
        await sign_in(http, token_of(store))
        assert await status_of(http) == await status_of(other) == 200
        async with aiohttp.ClientSession(url, cookie_jar=aiohttp.DummyCookieJar()) as plain:
            assert await status_of(plain, headers={"Cookie": f"{earlier.key}={earlier.value}"}) == 401


async def test_a_session_dies_with_its_key(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    key = await make_key_for(store, AccessRole.OPERATOR)
    async with server(store) as url, browser(url) as http:
        assert (await sign_in(http, key))[0] == 200
        await revoke(store, key)
        async with asyncio.timeout(DEADLINE_S):
            while await status_of(http) == 200:
                pass
        assert await status_of(http) == 401


@pytest.mark.parametrize("other", ['state={"a": 1}', "a=b c", "flag", "a@b=1", "expires=1", 'a="', "ä=ö"])
async def test_a_session_lives_beside_the_cookies_of_other_servers_of_the_host(tmp_path: Path, other: str) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        await sign_in(http, token_of(store))
        (kept,) = http.cookie_jar
        async with aiohttp.ClientSession(url, cookie_jar=aiohttp.DummyCookieJar()) as plain:
            for cookies in (f"{other}; {kept.key}={kept.value}", f"{kept.key}={kept.value}; {other}"):
                assert await status_of(plain, headers={"Cookie": cookies}) == 200, cookies


async def test_a_session_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        await sign_in(http, token_of(store))
        (kept,) = [cookie.value for cookie in http.cookie_jar]
    async with server(store) as url, browser(url) as http:
        name = f"dragoman-console-{url.rpartition(':')[2]}"
        assert await status_of(http, headers={"Cookie": f"{name}={kept}"}) == 200
        assert await status_of(http, headers={"Cookie": f"{name}={kept}x"}) == 401
        assert await status_of(http, headers={"Cookie": "; ;=;,"}) == 401


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_damaged_session_admits_nobody(tmp_path: Path, way: Way) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        await sign_in(http, token_of(store))
        (kept,) = [cookie.value for cookie in http.cookie_jar]
    await spoil_file(Path(store.removeprefix("sqlite:///")))("shared", "value", "true", way)
    async with server(store) as url, browser(url) as http:
        name = f"dragoman-console-{url.rpartition(':')[2]}"
        assert await status_of(http, headers={"Cookie": f"{name}={kept}"}) == 401
        assert (await sign_in(http, token_of(store)))[0] == 200


async def test_a_key_in_a_header_counts_before_the_cookie(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    caller = await make_key_for(store, AccessRole.CALLER)
    operator = await make_key_for(store, AccessRole.OPERATOR)
    async with server(store) as url, browser(url) as http:
        await sign_in(http, operator)
        assert await status_of(http) == 200
        assert await status_of(http, headers={"x-api-key": caller}) == 403


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/tasks/some-id", SESSION])
async def test_another_name_for_the_server_is_refused(tmp_path: Path, path: str) -> None:
    async with server(sqlite_url(tmp_path)) as url, browser(url) as http:
        assert await status_of(http, path, headers={"Host": "evil.example"}) == 403


async def test_the_pages_allow_no_foreign_script_and_no_frame(tmp_path: Path) -> None:
    async with server(sqlite_url(tmp_path)) as url, browser(url) as http, http.get("/console") as answer:
        policy = dict(each.strip().partition(" ")[::2] for each in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


async def test_only_sessions_are_changed(tmp_path: Path) -> None:
    async with server(sqlite_url(tmp_path)) as url, browser(url) as http:
        assert await status_of(http, "/console", "POST") == 405
        assert await status_of(http, SESSION, "PUT") == 405


@pytest.mark.parametrize("settings", [{"console": False}, {"tasks": False}, {"profile": "kaos"}])
async def test_it_can_be_off(tmp_path: Path, settings: dict[str, Any]) -> None:
    async with server(sqlite_url(tmp_path), **settings) as url, browser(url) as http:
        assert await status_of(http, "/console") == 404
        assert await status_of(http, SESSION, "POST", json={"secret": "x"}) in (404, 405)


def request_for(*segments: str, **headers: str) -> HttpRequest:
    async def nothing() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    raw = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    route = Route("console", CONSOLE, segments=segments)
    return HttpRequest(
        method="GET", path="/console", headers=raw, header_list=tuple(raw.items()), route=route, receive=nothing
    )


PAGES = Pages({"index.html": b"<!doctype html>", "assets/main-1.js": b"let x = 1;" * 500, "icon.svg": b"<svg/>"})


@pytest.mark.parametrize("segments", [(), ("tasks",), ("tasks", "some-id"), ("tasks", "..", "assets")])
def test_every_view_is_the_same_page(segments: tuple[str, ...]) -> None:
    answer = PAGES.answer(request_for(*segments))
    assert (answer.status, answer.body) == (200, b"<!doctype html>")
    assert dict(answer.headers)[b"cache-control"] == b"no-cache"


def test_an_asset_is_kept_forever_and_sent_compressed_to_those_who_ask() -> None:
    plain = PAGES.answer(request_for("assets", "main-1.js"))
    packed = PAGES.answer(request_for("assets", "main-1.js", accept_encoding="br, gzip;q=0.5"))
    assert dict(plain.headers)[b"content-type"] in (b"text/javascript; charset=utf-8",)
    assert b"immutable" in dict(plain.headers)[b"cache-control"]
    assert dict(packed.headers)[b"content-encoding"] == b"gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body)
    tag = dict(plain.headers)[b"etag"].decode()
    unchanged = PAGES.answer(request_for("assets", "main-1.js", if_none_match=tag))
    assert (unchanged.status, unchanged.body) == (304, b"")


@pytest.mark.parametrize("segments", [("assets", "none.js"), ("assets", "..", "index.html"), ("assets",)])
def test_an_asset_that_is_not_there_is_no_page(segments: tuple[str, ...]) -> None:
    with pytest.raises(NotFound):
        PAGES.answer(request_for(*segments))


def test_a_checkout_without_built_files_says_how_to_build_them() -> None:
    pages = Pages({})
    assert not pages.built
    assert b"make console" in pages.answer(request_for("tasks")).body


def test_a_server_shows_the_console_once_it_is_built(tmp_path: Path) -> None:
    folder, lock, index = tmp_path / "built", tmp_path / "built.lock", request_for()
    pages = InstalledPages(folder)
    assert b"has not been built" in pages.answer(index).body
    with lock.open("wb") as held:
        flock(held, LOCK_EX)
        assert b"is being built" in pages.answer(index).body
        build_pages(folder, b"first")
        assert pages.answer(index).body == b"first"
        folder.rename(tmp_path / "old")
        assert pages.answer(index).body == b"first"  # until there is another one
        build_pages(folder, b"second")
    assert pages.answer(index).body == b"second"


def test_a_build_that_ended_without_pages_is_no_longer_under_way(tmp_path: Path) -> None:
    (tmp_path / "built.lock").touch()
    assert b"make console" in InstalledPages(tmp_path / "built").answer(request_for()).body


def build_pages(folder: Path, index: bytes) -> None:
    folder.mkdir()
    (folder / "index.html").write_bytes(index)


async def read_wire(http: aiohttp.ClientSession, task: str, dialect: str) -> list[Any]:
    async with http.get(f"{TASKS}/{task}/wire", params={"dialects": dialect}) as answer:
        wire = (await answer.json())["dialects"][dialect]
    return [json.loads(frame) for event in wire for frame in event["frames"]]


async def read_stream(http: aiohttp.ClientSession, path: str, body: Any, **headers: str) -> list[Any]:
    async with http.post(path, json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        text = (await answer.read()).decode()
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


def envelope(method: str, message: Any) -> Any:
    return {"jsonrpc": "2.0", "id": "1", "method": method, "params": {"message": message}}


STREAMS = {
    "1.0": ("/", "SendStreamingMessage", {"role": "ROLE_USER", "parts": [{"text": "a b"}]}, {"A2A-Version": "1.0"}),
    "0.3": ("/", "message/stream", {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": "a b"}]}, {}),
    "protoagent": ("/a2a", "message/stream", {"role": "user", "parts": [{"kind": "text", "text": "a b"}]}, {}),
}


@pytest.mark.parametrize("dialect", STREAMS)
async def test_the_wire_is_what_the_stream_of_a_caller_was(tmp_path: Path, dialect: str) -> None:
    agent = Agent("words")

    @agent.skill
    async def words(ctx: Context) -> AsyncIterator[str]:
        """Give the words one by one."""
        await ctx.progress(1, 2, "begun")
        for word in ctx.text.split():
            yield word

    store = sqlite_url(tmp_path)
    path, method, message, headers = STREAMS[dialect]
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with serving(config, [agent]) as url, browser(url) as http:
        body = envelope(method, {"messageId": "m", **message})
        streamed = await read_stream(http, path, body, **headers)
        await sign_in(http, token_of(store))
        async with http.get(TASKS) as answer:
            (task,) = (await answer.json())["tasks"]
        wire = await read_wire(http, task["id"], dialect)
        assert streamed[1:] == wire[1:]
        assert wire[0].keys() == streamed[0].keys()
        assert len(wire) >= 4


async def test_a_page_of_the_wire_has_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    agent, chunk = Agent("pages"), "x" * 200_000

    @agent.skill
    async def pages(ctx: Context) -> AsyncIterator[str]:
        """Give some long pages."""
        for _ in range(12):
            yield chunk

    store = sqlite_url(tmp_path)
    config = Config(port=0, store=store, shutdown_grace_s=0.2, cancel_grace_s=0.2)
    async with serving(config, [agent]) as url, browser(url) as http:
        task = await make_task(http)
        await sign_in(http, token_of(store))
        sizes: dict[int, int] = {}
        after: int | None = 0
        while after is not None:
            query = {"dialects": "1.0,0.3", "after": after}
            async with http.get(f"{TASKS}/{task}/wire", params=query) as answer:
                page = await answer.json()
            events: dict[int, int] = {}
            for event in itertools.chain(*page["dialects"].values()):
                events[event["seq"]] = events.get(event["seq"], 0) + sum(map(len, event["frames"]))
            assert sum(list(events.values())[:-1]) < LOG_BYTES, "the last one may go beyond"
            sizes |= events
            after = page.get("next_after")
        assert list(sizes) == list(range(1, page["seq"] + 1))
        assert sum(sizes.values()) > 4 * LOG_BYTES


async def test_the_content_of_a_log_is_whole_and_comes_in_pages(tmp_path: Path) -> None:
    store = sqlite_url(tmp_path)
    async with server(store) as url, browser(url) as http:
        task = await make_task(http)
        await sign_in(http, token_of(store))
        seen: list[Any] = []
        after = 0
        while True:
            async with http.get(f"{TASKS}/{task}/content", params={"after": after, "limit": 1}) as answer:
                page = await answer.json()
            seen += page["events"]
            if page.get("next_after") is None:
                break
            after = page["next_after"]
        assert [event["seq"] for event in seen] == list(range(1, page["seq"] + 1))
        assert seen[0]["kind"] == "submitted"
        assert seen[0]["message"]["parts"] == [{"text": "hi"}]
        assert seen[-1]["state"] == "input-required"
        assert seen[-1]["message"]["parts"] == [{"text": "which one?"}]
        assert not page["ended"]
        assert await status_of(http, f"{TASKS}/none/content") == 404
        assert await status_of(http, f"{TASKS}/{task}/wire?dialects=klingon") == 400
