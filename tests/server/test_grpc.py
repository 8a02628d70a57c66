"""The gRPC side of a whole server: when it is there, what its cards say, and what a reload changes."""

import socket
import subprocess
import sys
from contextlib import suppress
from itertools import count
from typing import Any

import aiohttp
import grpc.aio
import pytest
from msgspec.structs import replace

from dragoman import Agent
from dragoman.config import Config
from dragoman.server import Loaded, StartError, running, serving
from tests.grpc_callers import CONFIG, DEADLINE_S, GrpcCaller, connected, echo, grpc_served, one_loop, refusal
from tests.ports import kept_port

pytestmark = pytest.mark.anyio

__all__ = ["one_loop"]

CARD = "/.well-known/agent-card.json"


async def card_of(url: str, path: str = "", version: str = "1.0") -> dict[str, Any]:
    """The card in a version."""
    headers = {"A2A-Version": version}
    async with aiohttp.ClientSession() as http, http.get(f"{url}{path}{CARD}", headers=headers) as reply:
        card: dict[str, Any] = await reply.json()
        return card


async def interfaces(url: str, path: str = "") -> list[dict[str, Any]]:
    """The interfaces on the card of 1.0."""
    listed: list[dict[str, Any]] = (await card_of(url, path))["supportedInterfaces"]
    return listed


def test_a_server_without_grpc_imports_nothing_of_it() -> None:
    script = """
import asyncio, sys
from dragoman import Agent
from dragoman.config import Config
from dragoman.server import serving

async def main():
    async with serving(Config(port=0, store="memory:"), [Agent("echo")]):
        print(*sorted({name.partition(".")[0] for name in sys.modules} & {"grpc", "google", "a2a", "grpc_health"}))

asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert ran.stdout.split() == []


def test_a_server_without_the_extra_says_what_to_install() -> None:
    script = """
import asyncio, sys
sys.modules["grpc"] = None
from dragoman import Agent
from dragoman.config import Config
from dragoman.server import StartError, serving

async def main():
    async with serving(Config(port=0, store="memory:", grpc_port=1), [Agent("echo")]):
        pass

try:
    asyncio.run(main())
except StartError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert "pip install 'dragoman[grpc]', or pip install '.[grpc]' in a clone" in ran.stdout


async def test_a_port_that_is_taken_is_said_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match="grpc_port"):
            async with serving(replace(CONFIG, grpc_port=port), [echo()]):
                pass


async def test_a_server_that_poses_as_another_has_no_grpc() -> None:
    with pytest.raises(StartError, match="grpc_port"):
        async with serving(replace(CONFIG, grpc_port=kept_port(), profile="kaos"), [echo()]):
            pass


async def test_cards_list_grpc_last_and_only_where_it_is_served() -> None:
    async with grpc_served(echo("one"), echo("two")) as caller:
        at = f"127.0.0.1:{caller.port}"
        *others, one = [each for each in await interfaces(caller.url) if each["protocolVersion"] == "1.0"]
        assert one == {"url": at, "protocolBinding": "GRPC", "protocolVersion": "1.0"}
        assert "GRPC" not in {each["protocolBinding"] for each in others}
        two = (await interfaces(caller.url, "/agents/two"))[-1]
        assert two == {"url": at, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "two"}
    async with serving(CONFIG, [echo()]) as url:
        assert "GRPC" not in {each["protocolBinding"] for each in await interfaces(url)}


async def test_a_card_names_the_public_address() -> None:
    public = replace(CONFIG, grpc_public_url="agents.example.org:443", public_url="https://other.example.org")
    async with grpc_served(echo(), config=public) as caller:
        assert (await interfaces(caller.url))[-1]["url"] == "agents.example.org:443"
    behind = replace(CONFIG, public_url="https://other.example.org")
    async with grpc_served(echo(), config=behind) as caller:
        assert (await interfaces(caller.url))[-1]["url"] == f"other.example.org:{caller.port}"


async def test_a_scheme_of_the_public_address_is_shown_in_0_3_only() -> None:
    public = replace(CONFIG, grpc_public_url="grpc://agents.example.org:50051")
    async with grpc_served(echo(), config=public) as caller:
        listed = [each for each in await interfaces(caller.url) if each["protocolBinding"] == "GRPC"]
        assert {each["protocolVersion"]: each["url"] for each in listed} == {
            "1.0": "agents.example.org:50051",
            "0.3": "grpc://agents.example.org:50051",
        }
        old = await card_of(caller.url, version="0.3")
        assert [each["url"] for each in old["additionalInterfaces"] if each["transport"] == "GRPC"] == [
            "grpc://agents.example.org:50051"
        ]


async def test_an_agent_of_one_version_is_listed_and_served_in_that() -> None:
    async with grpc_served(echo(versions=("0.3",))) as caller:
        grpc = [each for each in await interfaces(caller.url) if each["protocolBinding"] == "GRPC"]
        assert {each["protocolVersion"] for each in grpc} == {"0.3"}
        code, _ = await refusal(caller.send())
        assert code.name == "FAILED_PRECONDITION"


async def test_a_reload_serves_other_agents_over_grpc_too() -> None:
    port = kept_port()
    config = replace(CONFIG, grpc_port=port)
    agents: list[Agent] = [echo("one")]
    async with (
        connected(port) as channel,
        running(config, agents, again=lambda: Loaded(config, [echo("two")])) as server,
    ):
        caller = GrpcCaller(server.url, port, channel)
        assert (await caller.send("a")).artifacts[0].parts[0].text == "one: a"
        server.reload()
        answered = ""
        for number in count():
            with suppress(grpc.aio.AioRpcError):  # a call that meets the change is told that its agent has gone
                answered = (await caller.send("b", message_id=f"b{number}")).artifacts[0].parts[0].text
            if answered == "two: b":
                break
        code, _ = await refusal(caller.send("a", tenant="one", message_id="gone"))
        assert code.name == "NOT_FOUND"


def test_the_settings_are_checked() -> None:
    from dragoman.config import ConfigError, load

    def given(**flags: str) -> Config:
        return load(None, {}, flags)

    for right in ("[::1]:443", "a.example:443", "grpc://a.example:50051", "grpcs://[::1]:443"):
        assert given(grpc_public_url=right).grpc_public_url == right
    for wrong in ("https://a.example:443", "a.example", "a.example:0", "a.example:70000", "grpc://a.example"):
        with pytest.raises(ConfigError):
            given(grpc_public_url=wrong)
