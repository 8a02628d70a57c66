"""A URL reaches the agent that it names or none, through every door: client, command, doctor, gateway and console.

The servers have an agent at their root and one at `/agents/billing`. The root's card is also there for any query, as
servers of the official SDKs serve it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dragoman.client import NoCard, connect
from dragoman.model.task import TaskState
from tests.bindings.admin.test_admin import server
from tests.bindings.remote.test_remote import post
from tests.cli.a2a.command import Shell
from tests.cli.a2a.peer import TASK, Asked, serve_http
from tests.kit.places import asked, bearer, sqlite_url
from tests.peers.test_servers import SERVERS, started
from tests.systems.test_upstream import fronted, partner

WELL_KNOWN = "/.well-known/agent-card.json"


class Host(Struct, frozen=True):
    """A server with two agents. `received` counts the messages that each has received, by its path."""

    url: str
    received: Callable[[], Awaitable[Counter[str]]]


class TwoAgents:
    """Agents that complete every task at once, at the root and at `/agents/billing`."""

    def __init__(self) -> None:
        self.url = ""
        self.messages: Counter[str] = Counter()

    def answer(self, request: Asked) -> tuple[int, Any]:
        method, path = request.line.split(" ")
        path = path.partition("?")[0]
        agent = "/agents/billing" if path.startswith("/agents/billing") else ""
        if method == "GET" and path == agent + WELL_KNOWN:
            listed = {"url": f"{self.url}{agent}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            return 200, {"name": agent or "root", "supportedInterfaces": [listed], "capabilities": {}, "skills": []}
        if method == "POST" and path == f"{agent}/":
            call = request.json
            self.messages[agent] += call["method"] in ("SendMessage", "SendStreamingMessage")
            return 200, {"jsonrpc": "2.0", "id": call["id"], "result": {"task": TASK}}
        return 404, "no"


@contextmanager
def scripted_host() -> Iterator[Host]:
    agents = TwoAgents()

    async def received() -> Counter[str]:
        return +agents.messages

    with serve_http(agents.answer) as url:
        agents.url = url
        yield Host(url, received)


@contextmanager
def official_host(folder: Path) -> Iterator[Host]:
    with started(["python-1-mounted"], folder) as urls:
        assert urls, f"{SERVERS['python-1-mounted'].needs} is missing: run `make peers`"
        url = urls["python-1-mounted"]

        async def received() -> Counter[str]:
            found: Counter[str] = Counter()
            for agent in ("", "/agents/billing"):
                async with connect(url + agent) as connection:
                    found[agent] = (await connection.list()).total_size
            return +found

        yield Host(url, received)


@pytest.fixture(
    scope="module", params=["scripted", pytest.param("official", marks=[pytest.mark.peer, pytest.mark.slow])]
)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    with scripted_host() if request.param == "scripted" else official_host(folder) as host:
        yield host


Send = Callable[[str], Awaitable[str]]


async def by_client(url: str) -> str:
    try:
        async with connect(url) as agent:
            await agent.send("pay 100")
    except NoCard as error:
        return str(error)
    return ""


async def by_gateway(url: str) -> str:
    async with fronted(partner(url)) as caller:
        task = await asked(caller, "pay 100")
    return "" if task.status.state is TaskState.COMPLETED else str(task.status)


@pytest.fixture
def two_agents() -> Iterator[str]:
    with scripted_host() as host:
        yield host.url


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    folder = tmp_path / "shell"
    folder.mkdir()
    return Shell(folder)


@pytest.fixture(params=["client", "command", "doctor", "gateway", "console"])
async def send(request: pytest.FixtureRequest, shell: Shell, tmp_path: Path) -> AsyncIterator[Send]:
    """Send a message to the agent that a URL names, through a door. Returns an error's text, empty for none."""

    async def by_command(url: str) -> str:
        ran = await asyncio.to_thread(shell.run, "send", "-a", url, "pay 100")
        return "" if ran.status == 0 else ran.err

    async def by_doctor(url: str) -> str:
        ran = await asyncio.to_thread(shell.run, "doctor", url, "--active", "--fail-on", "never", "-o", "json")
        (found,) = (each for each in ran.json["findings"] if each["check"] == "card-found")
        return "" if found["color"] == "green" else str(found)

    match request.param:
        case "client":
            yield by_client
        case "command":
            yield by_command
        case "doctor":
            yield by_doctor
        case "gateway":
            yield by_gateway
        case _:
            store = sqlite_url(tmp_path)
            async with server(store) as http:

                async def by_console(url: str) -> str:
                    sent = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "pay 100"}]}}
                    _, answer = await post(http, "/remote/send", bearer(store), {"url": url, "request": sent})
                    return "" if answer["failure"] is None else str(answer["failure"])

                yield by_console


@pytest.mark.parametrize("path", ["/agents/nobody", "/nobody", "/agents/billing/v2", "/agents/"])
async def test_a_url_that_names_no_agent_reaches_none(host: Host, send: Send, path: str) -> None:
    before = await host.received()
    assert await send(host.url + path)
    assert await host.received() == before


@pytest.mark.parametrize("path", ["/agents/billing", "/agents/billing/", "/agents/billing" + WELL_KNOWN])
async def test_an_agents_url_and_its_cards_reach_that_agent(host: Host, send: Send, path: str) -> None:
    before = await host.received()
    assert await send(host.url + path) == ""
    assert set(await host.received() - before) == {"/agents/billing"}


@pytest.mark.parametrize("path", ["", "/", WELL_KNOWN])
async def test_a_host_reaches_the_agent_at_its_root(host: Host, send: Send, path: str) -> None:
    before = await host.received()
    assert await send(host.url + path) == ""
    assert set(await host.received() - before) == {""}


@pytest.mark.parametrize("words", [("send", "pay 100"), ("card", "get"), ("conformance",)], ids=" ".join)
def test_a_command_says_which_agent_a_host_has(shell: Shell, two_agents: str, words: tuple[str, ...]) -> None:
    assert "names a host: its agent is the one at the root, root\n" in shell.run(*words, "-a", two_agents).err
    assert "names a host" not in shell.run(*words, "-a", f"{two_agents}/agents/billing").err
    wrong = shell.run(*words, "-a", f"{two_agents}/agents/nobody", "-o", "json")
    if words != ("conformance",):  # whose report says it
        assert wrong.json["error"]["code"] == "A2ACLI_ERR_CARD_NOT_FOUND"
        assert f"--agent-card {two_agents} would name it" in wrong.json["error"]["hint"]


async def test_the_gateway_and_the_console_say_it_too(
    tmp_path: Path, two_agents: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dragoman.upstreams")
    store = sqlite_url(tmp_path)
    for path, said in (("", True), ("/agents/billing", False)):
        caplog.clear()
        assert await by_gateway(two_agents + path) == ""
        assert ("its URL names a host: its agent is the one at the root, root" in caplog.text) == said
        async with server(store) as http:
            _, facts = await post(http, "/remote/card", bearer(store), {"url": two_agents + path})
        assert facts["at_root"] == said
