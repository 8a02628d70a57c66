"""The page at `/`: for browsers only, and nothing in it is anybody else's markup."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.server import serving
from tests.bindings.conftest import Site

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
HOSTILE = """</bdi></li><script>alert(1)</script><img src=x onerror="alert(1)">' " & \u202e evil"""


class Page(HTMLParser):
    """The page as a browser reads it: its elements, its links, its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links += [value for name, value in attrs if name == "href" and value]

    def handle_data(self, data: str) -> None:
        self.text += data


@asynccontextmanager
async def server(*agents: Agent, **said: Any) -> AsyncIterator[aiohttp.ClientSession]:
    for agent in agents:

        @agent.skill
        async def give_back(ctx: Context) -> str:
            """Say it again."""
            return ctx.text

    config = Config(port=0, store="memory:", shutdown_grace_s=0.1, **said)
    async with serving(config, agents) as url, aiohttp.ClientSession(url) as http:
        yield http


async def fetched(http: aiohttp.ClientSession) -> Page:
    async with http.get("/", headers={"Accept": BROWSER}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
        return Page(await answer.text())


async def test_a_browser_is_told_what_this_is(served: Site) -> None:
    async with served.http.get("/", headers={"Accept": BROWSER}) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Vary"] == "Accept"
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        page = Page(await answer.text())
    assert "Agent2Agent" in page.text
    for agent in ("echo", "other", "strict"):
        assert agent.title() in page.text
    for link in page.links:
        if link.startswith(served.url):
            async with served.http.get(link) as answer:
                assert answer.status == 200, link
    assert f"{served.url}/agents/other/.well-known/agent-card.json" in page.links
    async with served.http.head("/", headers={"Accept": BROWSER}) as answer:
        assert (answer.status, await answer.read()) == (200, b"")


@pytest.mark.parametrize("console", [True, False])
async def test_operators_find_the_console_if_there_is_one(console: bool) -> None:
    async with server(Agent("echo", description="Gives back"), console=console) as http:
        links = (await fetched(http)).links
        assert sum(link.endswith("/console") for link in links) == console
        async with http.get("/console") as answer:
            assert (answer.status == 200) is console


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "text/html;q=0, */*", "text/html; q=0.0", "text/*"]
)
async def test_others_are_told_in_json_how_to_use_it(served: Site, accept: str | None) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    request += b"" if accept is None else b"Accept: %s\r\n" % accept.encode()
    head, _, body = (await served.raw(request + b"\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nallow: POST, OPTIONS" in head
    assert b"POST JSON-RPC" in body
    assert b"GET /agents lists the agents" in body


async def test_only_the_root_has_a_page(served: Site) -> None:
    async with served.http.get("/agents/echo", headers={"Accept": BROWSER}) as answer:
        assert (answer.status, answer.content_type) == (405, "application/json")
    async with served.http.get("/agents", headers={"Accept": BROWSER}) as answer:
        assert answer.content_type == "application/json"
    async with served.http.post("/", headers={"Accept": BROWSER}, json={}) as answer:
        assert answer.content_type == "application/json"


async def test_nothing_that_an_agent_says_becomes_markup() -> None:
    harmless, hostile = Agent("a", name="Plain", description="x"), Agent("a", name=HOSTILE, description=HOSTILE)
    async with server(harmless) as http:
        plain = await fetched(http)
    async with server(hostile) as http:
        page = await fetched(http)
    assert (page.tags, page.attributes) == (plain.tags, plain.attributes)
    assert page.text.count(HOSTILE) == 2
    assert "script" not in page.tags


async def test_a_host_that_is_made_up_is_not_in_the_links(served: Site) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x'onclick=alert(1)\r\nConnection: close\r\nAccept: text/html\r\n\r\n"
    answer = await served.raw(request)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"onclick" not in answer


async def test_of_many_agents_the_first_are_shown() -> None:
    async with server(*(Agent(f"a{number:03d}", description="x" * 2000) for number in range(103))) as http:
        page = await fetched(http)
    assert page.tags.count("li") == 100
    assert "3 more" in page.text
    assert len(page.text) < 100 * 800


@pytest.mark.parametrize(
    ("profile", "status", "cards"),
    [
        ("kaos", 405, ["/.well-known/agent-card.json"]),
        ("beeos", 404, ["/one/.well-known/agent-card.json", "/two/.well-known/agent-card.json"]),
        ("evoai", 404, ["/api/v1/a2a/one/.well-known/agent-card.json", "/api/v1/a2a/two/.well-known/agent-card.json"]),
        ("protoagent", 404, ["/a2a/.well-known/agent-card.json"]),
    ],
)
async def test_a_server_that_is_one_of_the_systems_has_a_page_and_keeps_its_contract(
    profile: str, status: int, cards: list[str]
) -> None:
    key = {"api_key": "k"} if profile == "evoai" else {}
    async with server(Agent("one"), Agent("two"), profile=profile, **key) as http:
        page = await fetched(http)
        own = [link for link in page.links if "a2a-protocol.org" not in link]
        for link in own:
            async with http.get(link) as answer:
                assert answer.status == 200, link
        base = str(answer.url.origin())
        shown = [link.removeprefix(base) for link in own if "agent-card" in link]
        assert shown == [*cards, "/.well-known/agent-card.json"]
        async with http.get("/") as answer:
            assert answer.status == status
            assert "json" in answer.content_type
