"""The server asks for the caller over HTTP before it reads the body, at every endpoint that reaches an agent."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.bindings.callers import OwnHosts
from dragoman.bindings.request import Request
from dragoman.cli.serve import banner
from dragoman.config import AgentEntry, Config
from dragoman.engine.api import Runner
from dragoman.model.errors import Forbidden
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole, Scope
from dragoman.server import StartError, running, serving
from dragoman.store.open import open_store
from tests.kit.agents import echoing, hired
from tests.kit.places import V1, add_keys, calling, sqlite_url

DEADLINE_S = 60.0


CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1)


def message(text: str = "hi") -> dict[str, Any]:
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}}


def named(host: str) -> Request:
    """A request that calls the server by this name."""
    header = (b"host", host.encode())
    return Request("GET", dict([header]), [header])


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "LocalHost:7870",
            "app.localhost",
            "127.0.0.1",
            "127.0.0.1:7870",
            "[::1]",
            "[::1]:7870",
            "10.1.2.3",
        ),
        *("", "agents.example.org", "agents.example.org:443", "AGENTS.example.org."),
    ],
)
def test_a_server_answers_to_its_own_names_and_to_addresses(host: str) -> None:
    OwnHosts.of("127.0.0.1", "https://agents.example.org/a2a").check(named(host))


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example.org", "agents.example.org.evil.org", "localhost.evil.org", "127.0.0.1.evil.org", "xlocalhost"),
        *("[::1].evil.org", "127.0.0.1:80@evil.org", "localhost:80:evil.org", "evil.org:80"),
    ],
)
def test_any_other_name_is_refused_with_what_to_do(host: str) -> None:
    with pytest.raises(Forbidden, match="public_url"):
        OwnHosts.of("127.0.0.1", "https://agents.example.org").check(named(host))


@asynccontextmanager
async def session(
    config: Config = CONFIG, *agents: str, more: Sequence[Runner] = ()
) -> AsyncIterator[aiohttp.ClientSession]:
    served = [*(echoing(agent) for agent in agents or ("echo",)), *more]
    async with serving(config, served) as url, calling(url) as http:
        yield http


async def test_a_page_of_another_site_cannot_reach_a_server_that_asks_nobody() -> None:
    """DNS rebinding: the page's own name leads to 127.0.0.1, and its requests look like any other."""
    async with session() as http:
        for path in ("/message:send", "/agents/echo/message:send"):
            async with http.post(path, json=message(), headers={**V1, "Host": "evil.example.org"}) as answer:
                assert answer.status == 403
                assert "evil.example.org" in await answer.text()
        async with http.post("/message:send", json=message(), headers=V1) as answer:
            assert answer.status == 200


async def test_behind_a_key_any_name_will_do() -> None:
    async with session(replace(CONFIG, api_key="k")) as http:
        headers = {**V1, "Host": "agents.example.org", "x-api-key": "k"}
        async with http.post("/message:send", json=message(), headers=headers) as answer:
            assert answer.status == 200


ASKED = [
    ("POST", "/"),
    ("POST", "/message:send"),
    ("GET", "/tasks"),
    ("GET", "/tasks/t"),
    ("POST", "/agents/echo"),
    ("POST", "/agents/echo/v1/message:send"),
    ("POST", "/a2a"),
    ("GET", "/a2a/tasks/t"),
    ("POST", "/api/v1/a2a/echo"),
    ("POST", "/echo"),
    ("GET", "/echo/stream?task_id=t"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/workers/echo/lease"),
    ("GET", "/metrics"),
    ("GET", "/extendedAgentCard"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/echo"),
]
PUBLIC = ["/health", "/ready", "/agents", "/.well-known/agent-card.json", "/.well-known/jwks.json"]


@pytest.mark.parametrize(("verb", "path"), ASKED)
async def test_without_a_key_nothing_is_told_that_a_card_does_not_say(verb: str, path: str) -> None:
    async with session(replace(CONFIG, api_key="k")) as http:
        async with http.request(verb, path, data=b"{" if verb == "POST" else None, headers=V1) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="dragoman"'
        async with http.request(verb, path, headers={**V1, "x-api-key": "no"}) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="dragoman", error="invalid_token"'


@pytest.mark.parametrize("path", PUBLIC)
async def test_what_is_public_asks_nobody(path: str) -> None:
    async with session(replace(CONFIG, api_key="k")) as http, http.get(path) as answer:
        assert answer.status == 200


async def test_the_models_are_the_agents_that_the_caller_may_use(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (http, keys):
        for name, listed in (("caller", ["echo", "other"]), ("agent", ["echo"]), ("other-only", ["other"])):
            headers = {"authorization": f"Bearer {keys[name]}"}
            async with http.get("/v1/models", headers=headers) as answer:
                assert [model["id"] for model in (await answer.json())["data"]] == listed
            for agent in ("echo", "other"):
                async with http.get(f"/v1/models/{agent}", headers=headers) as answer:
                    assert answer.status == (200 if agent in listed else 403)
        for sent, code in (({}, "invalid_api_key"), ({"authorization": "Bearer no"}, "invalid_api_key")):
            for path in ("/v1/models", "/v1/models/echo", "/v1/models/nobody"):
                async with http.get(path, headers=sent) as answer:
                    assert (answer.status, (await answer.json())["error"]["code"]) == (401, code)


async def test_the_models_of_a_server_where_agents_have_keys_of_their_own() -> None:
    own = tuple(AgentEntry(id=name, run="m:o", api_key=f"key-{name}") for name in ("echo", "other"))
    for agents, key, expected in (
        (own[1:], None, ["echo"]),
        (own[1:], "key-other", ["other"]),
        (own[1:], "no", 401),
        (own, None, 401),
        (own, "key-echo", ["echo"]),
    ):
        async with session(replace(CONFIG, agents=agents), "echo", "other") as http:
            headers = {} if key is None else {"x-api-key": key}
            async with http.get("/v1/models", headers=headers) as answer:
                told = await answer.json()
                listed = [model["id"] for model in told["data"]] if answer.status == 200 else answer.status
                assert listed == expected
    async with session(replace(CONFIG, agents=own[1:]), "echo", "other") as http:
        for agent, status in (("echo", 200), ("other", 401)):
            async with http.get(f"/v1/models/{agent}") as answer:
                assert answer.status == status


@pytest.mark.parametrize(
    ("said", "warns"),
    [
        ({"cors_origins": ("*",)}, True),
        ({"cors_origins": ("https://a.example",)}, False),
        ({"cors_origins": ("*",), "api_key": "k"}, False),
        ({"cors_origins": ("*",), "agents": (AgentEntry(id="echo", run="m:o", api_key="k"),)}, False),
    ],
)
async def test_a_server_that_any_page_may_use_warns_at_the_start(
    said: dict[str, Any], *, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(CONFIG, **said)
    agents = [echoing("echo")]
    async with running(config, agents) as listening:
        assert ("any web page" in caplog.text) == warns
        assert ("any web page" in banner(listening.config, agents, asks_callers=listening.asks_callers)) == warns


async def test_the_body_of_a_stranger_is_not_read() -> None:
    async with session(replace(CONFIG, api_key="k")) as http:
        async with http.get("/health") as answer:
            url = answer.url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999999\r\n\r\n"
        )
        async with asyncio.timeout(DEADLINE_S):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_the_metrics_are_the_operators(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (http, keys):
        for name, status in (("caller", 403), ("agent", 403), ("admin", 200)):
            async with http.get("/metrics", headers={"x-api-key": keys[name]}) as answer:
                assert answer.status == status, name


async def test_the_metrics_are_not_for_strangers_where_every_agent_has_a_key() -> None:
    """Such a server may listen to the world."""
    own = tuple(AgentEntry(id=name, run="m:o", api_key="k") for name in ("echo", "other"))
    for agents, status in ((own, 401), (own[:1], 200)):
        async with (
            session(replace(CONFIG, agents=agents), "echo", "other") as http,
            http.get("/metrics") as answer,
        ):
            assert answer.status == status
    async with (
        session(replace(CONFIG, agents=own), "echo", "other") as http,
        http.get("/metrics", headers={"x-api-key": "k"}) as answer,
    ):
        assert answer.status == 403


async def test_who_is_turned_away_at_the_door_is_noted_with_the_agent_that_was_wanted(tmp_path: Path) -> None:
    away = hired("away", queues=False)
    async with keyed(tmp_path, away) as (http, keys):
        caller, other = {**V1, "x-api-key": keys["caller"]}, {**V1, "x-api-key": keys["other-only"]}
        chat = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
        for path, body, headers, status in (
            ("/workers/away/lease", {}, caller, 403),
            ("/v1/chat/completions", chat, other, 403),
            ("/message:send", {**message(), "tenant": "echo"}, other, 403),
            ("/agents/echo", {}, V1, 401),
            ("/" + "x" * 5000, {}, V1, 401),
        ):
            async with http.post(path, json=body, headers=headers) as answer:
                assert answer.status == status, path
    store = open_store(sqlite_url(tmp_path), SystemClock())
    await store.open(None)
    noted = [(each.principal, each.action, each.agent, each.reason) for each in await store.audit.read()]
    await store.close()
    assert noted == [
        ("key:caller", "workers", "away", "Forbidden"),
        ("key:other-only", "chat", "echo", "Forbidden"),
        ("key:other-only", "SendMessage", "echo", "Forbidden"),
        ("anonymous", "rpc", "echo", "Unauthorized"),
        ("anonymous", "rpc", "", "Unauthorized"),
    ]


@asynccontextmanager
async def keyed(tmp_path: Path, *more: Runner) -> AsyncIterator[tuple[aiohttp.ClientSession, dict[str, str]]]:
    """A server on a store that has a key of each role, and one for each limit."""
    limits: dict[str, dict[str, Any]] = {
        "caller": {},
        "agent": {"role": AccessRole.AGENT, "agents": ("echo",)},
        "admin": {"role": AccessRole.ADMIN},
        "other-only": {"agents": ("other",)},
        "reader": {"scopes": (Scope.READ,)},
    }
    keys = await add_keys(sqlite_url(tmp_path), **limits)
    async with session(replace(CONFIG, store=sqlite_url(tmp_path)), "echo", "other", more=more) as http:
        yield http, keys


async def test_a_key_of_one_agent_is_refused_on_another(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (http, keys):
        headers = {**V1, "x-agent-api-key": keys["other-only"]}
        for path, status in (
            ("/agents/other/message:send", 200),
            ("/agents/echo/message:send", 403),
            ("/message:send", 403),
        ):
            async with http.post(path, json=message(), headers=headers) as answer:
                assert answer.status == status, path
        async with http.post("/message:send", json={**message(), "tenant": "other"}, headers=headers) as answer:
            assert answer.status == 200


async def test_a_key_does_what_its_scopes_say(tmp_path: Path) -> None:
    async with keyed(tmp_path) as (http, keys):
        headers = {**V1, "authorization": f"Bearer {keys['reader']}"}
        async with http.get("/tasks", headers=headers) as answer:
            assert answer.status == 200
        async with http.post("/message:send", json=message(), headers=headers) as answer:
            assert answer.status == 403
            assert "read" in await answer.text()
        async with http.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}, headers=headers
        ) as answer:
            assert answer.status == 403


async def test_an_agent_with_a_key_of_its_own_asks_for_it_and_the_others_do_not() -> None:
    config = replace(CONFIG, agents=(AgentEntry(id="other", run="m:o", api_key="k"),))
    async with session(config, "echo", "other") as http:
        for path, key, status in (
            ("/agents/echo/message:send", None, 200),
            ("/agents/other/message:send", None, 401),
            ("/agents/other/message:send", "k", 200),
            ("/agents/echo/message:send", "k", 403),
        ):
            headers = V1 if key is None else {**V1, "x-api-key": key}
            async with http.post(path, json=message(), headers=headers) as answer:
                assert answer.status == status, (path, key)
        async with http.post("/message:send", json={**message(), "tenant": "other"}, headers=V1) as answer:
            assert answer.status == 401
        async with http.get("/agents/other/.well-known/agent-card.json") as answer:
            said = await answer.json()
            assert "securitySchemes" in said
            assert said["supportsAuthenticatedExtendedCard"]
        async with http.get("/agents/other/extendedAgentCard", headers={**V1, "x-api-key": "k"}) as answer:
            assert answer.status == 200
        async with http.get("/agents/echo/.well-known/agent-card.json") as answer:
            assert "securitySchemes" not in await answer.json()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_nobody_listens_to_the_world_without_asking(host: str, tmp_path: Path) -> None:
    kept = replace(CONFIG, host=host, store=sqlite_url(tmp_path))
    for config, said in (
        (kept, rf"callers of echo, other are not.*dragoman keys create NAME --store sqlite:///{tmp_path}/dragoman.db"),
        (replace(kept, agents=(AgentEntry(id="echo", run="m:o", api_key="k"),)), "callers of other are not"),
        (replace(kept, store="memory:"), "are not authenticated: set api_key"),
    ):
        with pytest.raises(StartError, match=said):
            async with running(config, [echoing("echo"), echoing("other")]):
                pass


@pytest.mark.parametrize("said", [{"api_key": "k"}, {"allow_unauthenticated": True}])
async def test_with_a_key_or_on_purpose_it_does(said: dict[str, Any]) -> None:
    async with running(replace(CONFIG, host="0.0.0.0", **said), [echoing("echo")]) as listening:
        assert listening.asks_callers == ("api_key" in said)


@pytest.mark.parametrize(
    ("said", "setting"),
    [
        ({"jwt_issuer": "https://issuer.example.org"}, "jwt_audience"),
        ({"jwt_audience": "dragoman"}, "jwt_issuer is not"),
        ({"jwt_jwks_url": "https://issuer.example.org/keys"}, "jwt_issuer is not"),
        ({"client_cert_header": "x-client-cert"}, "trusted_proxies"),
        ({"authentication": "required"}, "api_key"),
    ],
)
async def test_settings_that_do_not_go_together_are_refused(said: dict[str, Any], setting: str) -> None:
    with pytest.raises(StartError, match=setting):
        async with running(replace(CONFIG, **said), [echoing("echo")]):
            pass


async def test_all_who_ask_for_a_card_first_are_given_the_same() -> None:
    async with session() as http:

        async def card(path: str) -> bytes:
            async with http.get(path) as answer:
                return await answer.read()

        paths = ["/.well-known/agent-card.json", "/.well-known/agent.json"] * 10
        assert len(set(await asyncio.gather(*map(card, paths)))) == 1
