"""Official clients read from every card of a server that asks for a key that it does, and for which."""

import asyncio
import json
from pathlib import Path

import pytest

from dragoman import Agent, Context
from dragoman.config import Config
from dragoman.server import serving
from tests.peers.test_peers import HERE, MODULES, NODE, SDK03, SDK1

KEY = "a-key-of-20-characters"
DEADLINE_S = 60.0

pytestmark = [pytest.mark.peer, pytest.mark.slow]

LANES = ("JSONRPC 1.0", "HTTP+JSON 1.0", "JSONRPC 0.3", "HTTP+JSON 0.3")
PEERS: dict[str, tuple[Path, Path, Path, set[str]]] = {
    "python-1": (
        SDK1,
        HERE / "keyed" / "sdk1.py",
        SDK1,
        {"well-known", "well-known 1.0", *(f"extended {lane}" for lane in LANES)},
    ),
    "python-0.3": (
        SDK03,
        HERE / "keyed" / "sdk03.py",
        SDK03,
        {"well-known", "well-known 0.3", "extended JSONRPC", "extended HTTP+JSON"},
    ),
    "js-1": (
        NODE,
        HERE / "js" / "keyed1.mjs",
        MODULES / "a2a-js-1",
        {"well-known", *(f"extended {lane}" for lane in LANES)},
    ),
    "js-0.3": (
        NODE,
        HERE / "js" / "keyed03.mjs",
        MODULES / "a2a-js-0.3",
        {"well-known", "extended JSONRPC", "extended HTTP+JSON"},
    ),
}
"""Each client's runtime, its script, what it needs, and the cards that it must have read."""


def who() -> Agent:
    agent = Agent("who")

    @agent.skill("who", tags=("test",))
    async def answer(ctx: Context) -> str:
        """Says it again."""
        return ctx.text

    return agent


@pytest.mark.parametrize("name", PEERS)
async def test_official_clients_know_that_a_key_is_needed(name: str, subtests: pytest.Subtests) -> None:
    runtime, script, needs, wanted = PEERS[name]
    assert needs.exists(), f"{needs} is missing: run `make peers`"
    async with serving(Config(port=0, store="memory:", api_key=KEY), [who()]) as url:
        peer = await asyncio.create_subprocess_exec(
            runtime, script, url, KEY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            lines, errors = await asyncio.wait_for(peer.communicate(), DEADLINE_S)
        finally:
            if peer.returncode is None:
                peer.kill()
                await peer.wait()
    cards = [json.loads(line) for line in lines.splitlines()]
    for card in cards:
        with subtests.test(card["card"]):
            assert card["schemes"] == {"apiKey": "x-api-key", "bearer": ""}
            assert card["required"] == [["apiKey"], ["bearer"]]
    assert {card["card"] for card in cards} == wanted, errors.decode()
    assert peer.returncode == 0, errors.decode()
