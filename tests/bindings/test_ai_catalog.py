"""`/.well-known/ai-catalog.json`: each entry leads to the very card, and callers see what they may use."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.config import AgentEntry
from dragoman.dialects.ai_catalog import AGENT_CARD, MCP_SERVER_CARD, domain_of
from dragoman.model.card import AgentProvider
from tests.bindings.mcp_client import Stateless
from tests.kit.places import server

KEYS = (AgentEntry(id="desk", run="", api_key="desk-key"), AgentEntry(id="vault", run="", api_key="vault-key"))

Json = dict[str, Any]


def agents() -> list[Agent]:
    provider = AgentProvider(organization="Example Bank", url="https://bank.example/about")
    desk = Agent("desk", description="Answers everybody")
    vault = Agent("vault", description="Keeps everything", provider=provider)
    for agent in (desk, vault):

        @agent.skill("talk", tags=["small", "talk"])
        async def talk(ctx: Context) -> str:
            """Small talk."""
            return ctx.text

        @agent.skill("hidden", tags=["secret"], extended=True)
        async def hidden(ctx: Context) -> None:
            """Nobody sees this."""

    return [desk, vault]


@pytest.fixture(scope="module")
async def open_site() -> AsyncIterator[aiohttp.ClientSession]:
    async with server(*agents()) as http:
        yield http


@pytest.fixture(scope="module")
async def keyed_site() -> AsyncIterator[aiohttp.ClientSession]:
    async with server(*agents(), agents=KEYS) as http:
        yield http


async def read(
    http: aiohttp.ClientSession, path: str = "/.well-known/ai-catalog.json", **headers: str
) -> tuple[int, Json, Any]:
    async with http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()}) as answer:
        body = await answer.json(content_type=None) if answer.status != 304 else {}
        return answer.status, body, answer.headers


async def test_each_entry_leads_to_the_very_card(open_site: aiohttp.ClientSession) -> None:
    status, catalog, headers = await read(open_site)
    assert (status, headers["Content-Type"]) == (200, "application/ai-catalog+json")
    *listed, tools = catalog["entries"]
    assert [entry["type"] for entry in listed] == [AGENT_CARD] * 2
    for entry, name in zip(listed, ("desk", "vault"), strict=True):
        status, card, _ = await read(open_site, entry["url"])
        assert (status, card["name"]) == (200, name)
        assert card["supportedInterfaces"][0]["url"] == entry["url"].partition("/.well-known")[0]
        assert entry["tags"] == ["small", "talk"]
    assert tools["type"] == MCP_SERVER_CARD
    status, card, headers = await read(open_site, tools["url"])
    assert (status, headers["Content-Type"]) == (200, MCP_SERVER_CARD)
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
    said = {"Accept": "application/json, text/event-stream"}
    async with open_site.post(card["remotes"][0]["url"], json=call, headers=said) as answer:
        info = (await answer.json())["result"]
    assert card["name"] == f"localhost/{info['serverInfo']['name']}"
    assert (card["title"], card["version"]) == (info["serverInfo"]["title"], info["serverInfo"]["version"])
    discovered = await Stateless(open_site).result("server/discover")
    assert card["remotes"][0]["supportedProtocolVersions"] == discovered["supportedVersions"]
    assert "headers" not in card["remotes"][0]


async def test_an_entry_names_the_publisher_that_the_card_names(open_site: aiohttp.ClientSession) -> None:
    _, catalog, _ = await read(open_site)
    publisher = {"identifier": "bank.example", "displayName": "Example Bank", "identityType": "dns"}
    assert [entry.get("publisher") for entry in catalog["entries"]] == [None, publisher, None]


async def test_identifiers_are_urls_until_the_server_has_a_domain(open_site: aiohttp.ClientSession) -> None:
    _, catalog, _ = await read(open_site)
    assert catalog["specVersion"] == "0.9"
    assert "identifier" not in catalog["host"]
    for entry in catalog["entries"]:
        assert entry["identifier"] == entry["url"]


async def test_behind_a_public_url_the_catalog_names_its_domain() -> None:
    async with server(*agents(), public_url="https://agents.example.org/team") as http:
        _, catalog, _ = await read(http)
        _, card, _ = await read(http, "/mcp/server-card")
        async with http.get("/", headers={"Accept": "text/html"}) as page:
            link = page.headers["Link"]
    at = "https://agents.example.org/team"
    assert link == f'<{at}/.well-known/ai-catalog.json>; rel="ai-catalog"'
    assert catalog["host"] == {"displayName": "agents.example.org", "identifier": "agents.example.org"}
    assert [(entry["identifier"], entry["url"]) for entry in catalog["entries"]] == [
        ("urn:air:agents.example.org:desk:a2a", f"{at}/agents/desk/.well-known/agent-card.json"),
        ("urn:air:agents.example.org:vault:a2a", f"{at}/agents/vault/.well-known/agent-card.json"),
        ("urn:air:agents.example.org:dragoman:mcp", f"{at}/mcp/server-card"),
    ]
    assert (card["name"], card["remotes"][0]["url"]) == ("org.example.agents/dragoman", f"{at}/mcp")


async def test_credentials_choose_the_entries_and_no_cache_shares_them(keyed_site: aiohttp.ClientSession) -> None:
    def names(catalog: Json) -> list[str]:
        return [entry["url"].split("/")[4] for entry in catalog["entries"] if entry["type"] == AGENT_CARD]

    _, everybody, shared = await read(keyed_site)
    assert names(everybody) == ["desk", "vault"]
    assert shared["Cache-Control"].startswith("public, max-age=")
    status, own, private = await read(keyed_site, x_api_key="vault-key")
    assert (status, names(own)) == (200, ["vault"])
    assert private["Cache-Control"].startswith("private, max-age=")
    assert shared["Vary"] == private["Vary"] == "authorization, x-api-key, x-agent-api-key"
    assert shared["ETag"] != private["ETag"]
    _, bearer, _ = await read(keyed_site, authorization="Bearer vault-key")
    assert bearer == own
    status, _, headers = await read(keyed_site, x_api_key="vault-key", if_none_match=private["ETag"])
    assert (status, headers["Cache-Control"]) == (304, private["Cache-Control"])
    assert (await read(keyed_site, if_none_match=private["ETag"]))[0] == 200
    assert (await read(keyed_site, x_api_key="nobody"))[0] == 401


async def test_a_server_that_asks_everybody_has_a_public_catalog_all_the_same() -> None:
    async with server(*agents(), api_key="k" * 32) as http:
        assert (await read(http, "/v1/models"))[0] == 401
        status, catalog, _ = await read(http)
        assert (status, len(catalog["entries"])) == (200, 3)
        _, card, _ = await read(http, "/mcp/server-card")
    [header] = card["remotes"][0]["headers"]
    assert (header["name"], header["value"], header["isSecret"]) == ("Authorization", "Bearer {key}", True)
    assert header["variables"]["key"]["isRequired"]


@pytest.mark.parametrize(
    ("profile", "mounts"),
    [
        ("beeos", ["/desk", "/vault"]),
        ("evoai", ["/api/v1/a2a/desk", "/api/v1/a2a/vault"]),
        ("kaos", [""]),
        ("protoagent", ["/a2a"]),
    ],
)
async def test_a_server_that_poses_as_another_lists_its_cards_there(profile: str, mounts: list[str]) -> None:
    async with server(*agents(), profile=profile, api_key="k" * 32) as http:
        status, catalog, _ = await read(http)
        assert status == 200
        async with http.get("/health") as answer:
            base = str(answer.url.origin())
        at = [f"{base}{mount}/.well-known/agent-card.json" for mount in mounts]
        assert [entry["url"] for entry in catalog["entries"]] == at
        for url, name in zip(at, ("desk", "vault"), strict=False):
            status, card, _ = await read(http, url)
            assert (status, card["name"]) == (200, name)
        assert (await read(http, "/mcp/server-card"))[0] == 404


async def test_the_catalog_is_read_alone(open_site: aiohttp.ClientSession) -> None:
    path = "/.well-known/ai-catalog.json"
    async with open_site.head(path) as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    async with open_site.post(path, json={}) as answer:
        assert answer.status == 405


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        (None, None),
        ("https://agents.example.org/x", "agents.example.org"),
        ("https://Agents.Example.org.:8443", "agents.example.org"),
        ("http://localhost:8000", None),
        ("http://10.0.0.1", None),
        ("http://[::1]:80", None),
        ("https://a_b.example.org", None),
        ("https://-a.example.org", None),
        ("https://xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
    ],
)
def test_a_domain_is_a_name_that_others_can_resolve(url: str | None, domain: str | None) -> None:
    assert domain_of(url) == domain
