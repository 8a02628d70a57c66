"""Web pages: CORS is off, or for the configured origins; pages of other origins change nothing."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.server import serving
from tests.bindings.conftest import EXTENSION, V1, Site, message, site
from tests.kit.agents import hired

APP = "https://app.example.org"
PREFLIGHT = {"Origin": APP, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "a2a-version"}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Site]:
    async with site(origins=[APP]) as running:
        yield running


async def test_without_configuration_no_page_may_call(served: Site) -> None:
    async with served.http.options("/", headers=PREFLIGHT) as answer:
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    async with served.http.get("/agents", headers={"Origin": APP}) as answer:
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_configured_origin_may_call_and_read(shared: Site) -> None:
    async with shared.http.options("/", headers=PREFLIGHT) as answer:
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == APP
        allowed = answer.headers["Access-Control-Allow-Headers"]
        for name in (
            "content-type",
            "a2a-version",
            "a2a-extensions",
            "last-event-id",
            "idempotency-key",
            "x-agent-api-key",
            "mcp-method",
            "mcp-name",
        ):
            assert name in allowed
        assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]
        assert "Access-Control-Allow-Credentials" not in answer.headers
    headers = {**V1, "Origin": APP, "A2A-Extensions": EXTENSION}
    async with shared.http.get("/tasks/t1", headers=headers) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == APP
        assert answer.headers["Vary"] == "Origin"
        assert "a2a-extensions" in answer.headers["Access-Control-Expose-Headers"]
    async with shared.http.get("/tasks/t1:subscribe", headers=headers) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == APP


async def test_a_preflight_names_the_origin_once(shared: Site) -> None:
    """Browsers refuse an answer that names an origin twice, even the same one."""
    async with shared.http.options("/", headers=PREFLIGHT) as answer:
        assert answer.headers.getall("Access-Control-Allow-Origin") == [APP]
        assert answer.headers.getall("Vary") == ["Origin"]


async def test_errors_can_be_read_too(shared: Site) -> None:
    async with shared.http.get("/nope", headers={"Origin": APP}) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (404, APP)


async def test_another_origin_is_told_nothing(shared: Site) -> None:
    for origin in ("https://evil.example", "null", APP + ".evil.example"):
        async with shared.http.options("/", headers={**PREFLIGHT, "Origin": origin}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert "Access-Control-Allow-Methods" not in answer.headers
        async with shared.http.get("/agents", headers={"Origin": origin}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert answer.headers["Vary"] == "Origin"


async def test_a_star_lets_every_page_call() -> None:
    headers = {"Origin": "https://x.example"}
    async with site(origins=["*"]) as running, running.http.get("/agents", headers=headers) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "*"


# -- pages of other origins change nothing -----------------------------------------------------------------------------

EVIL = "https://evil.example"
FOREIGN: list[dict[str, str]] = [
    {"Origin": EVIL},
    {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "made-up"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:1"},
    {"Origin": "http://["},
]


def pages(path: str) -> list[tuple[str, str, Any]]:
    """All that changes something below the path of an agent's HTTP+JSON interface."""
    return [
        ("POST", f"{path}/tasks/t1:cancel", None),
        ("POST", f"{path}/tasks/t1:subscribe", None),
        ("POST", f"{path}/message:send", {"message": message()}),
        ("POST", f"{path}/message:stream", {"message": message()}),
        ("POST", f"{path}/tasks/t1/pushNotificationConfigs", {"url": "https://a.example"}),
        ("DELETE", f"{path}/tasks/t1/pushNotificationConfigs/c1", None),
        ("POST", f"{path}/v1/tasks/t1:cancel", None),
    ]


CHANGES = [
    *pages(""),
    *pages("/agents/echo"),
    ("POST", "/", {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": "t1"}}),
    ("POST", "/a2a", {"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": "t1"}}),
    ("POST", "/echo", {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": "t1"}}),
    ("POST", "/api/v1/a2a/echo", {"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"id": "t1"}}),
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_another_origin_changes_nothing(served: Site, headers: dict[str, str]) -> None:
    for method, path, body in CHANGES:
        async with served.http.request(method, path, json=body, headers={**V1, **headers}) as answer:
            assert answer.status == 403, path
            assert "cors_origins" in await answer.text()
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert served.handler.calls == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:5173"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://127.0.0.1:{port}"},
        {"Origin": "HTTPS://127.0.0.1:{port}"},
    ],
)
async def test_programs_and_pages_of_its_own_may_call(served: Site, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=served.port) for name, value in headers.items()}
    async with served.http.post("/tasks/t1:cancel", headers={**V1, **sent}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_another_origin_may_ask_for_what_changes_nothing(served: Site, headers: dict[str, str]) -> None:
    """It cannot read the answer."""
    for path in ("/agents", "/.well-known/agent-card.json", "/health", "/tasks/t1"):
        async with served.http.get(path, headers={**V1, **headers}) as answer:
            assert answer.status == 200, path
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_pages_of_configured_origins_may_call(shared: Site) -> None:
    for headers, status in (
        ({"Origin": APP}, 200),
        ({"Origin": APP, "Sec-Fetch-Site": "cross-site"}, 200),
        ({"Origin": EVIL, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
    ):
        async with shared.http.post("/tasks/t1:cancel", headers={**V1, **headers}) as answer:
            assert answer.status == status, headers
            assert ("Access-Control-Allow-Origin" in answer.headers) == (status == 200)
    async with site(origins=["*"]) as open_to_all:
        for headers in FOREIGN:
            async with open_to_all.http.post("/tasks/t1:cancel", headers={**V1, **headers}) as answer:
                assert answer.status == 200, headers


async def test_behind_a_proxy_the_own_origin_is_that_of_the_public_url() -> None:
    async with site(public_url="https://agents.example.org/a2a") as running:
        for origin, host, status in (
            ("https://agents.example.org", "127.0.0.1:7870", 200),
            ("https://agents.example.org", "agents.example.org", 200),
            ("http://agents.example.org", "agents.example.org", 403),
            ("https://agents.example.org:8443", "agents.example.org", 403),
            ("http://localhost:7870", "localhost:7870", 200),
            ("ftp://localhost:7870", "localhost:7870", 403),
        ):
            headers = {**V1, "Origin": origin, "Host": host}
            async with running.http.post("/tasks/t1:cancel", headers=headers) as answer:
                assert answer.status == status, (origin, host)


async def test_every_door_of_a_server_refuses_them_in_its_own_words_and_notes_it() -> None:
    agent = Agent("echo")

    @agent.skill
    async def give_back(ctx: Context) -> str:
        """Say it again."""
        return ctx.text

    away = hired("away", queues=False)
    config = Config(port=0, store="memory:", shutdown_grace_s=0.1)
    chat = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for each in (config, replace(config, api_key="k")):
        async with serving(each, [agent, away]) as url, aiohttp.ClientSession(url) as http:
            for method, path, body, code in (
                ("POST", "/v1/chat/completions", chat, "permission_denied"),
                ("POST", "/mcp", ping, "jsonrpc"),
                ("GET", "/mcp", None, "jsonrpc"),
                ("DELETE", "/mcp", None, "jsonrpc"),
                ("POST", "/workers/away/lease", {}, "cors_origins"),
                ("POST", "/agents/echo", ping, "jsonrpc"),
                ("POST", "/agents/echo/tasks/t1:cancel", None, "PERMISSION_DENIED"),
            ):
                headers = {**V1, "Origin": EVIL, "x-api-key": "k"}
                async with http.request(method, path, json=body, headers=headers) as answer:
                    told = await answer.text()
                    assert answer.status == 403, path
                    assert "cors_origins" in told
                    assert code in told
                    json.loads(told)
            async with http.get("/metrics", headers={"x-api-key": "k"}) as answer:
                (refused,) = [line for line in (await answer.text()).splitlines() if 'reason="Forbidden"' in line]
                assert refused.endswith(" 7.0")
