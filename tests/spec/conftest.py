"""A server with all agents, over HTTP, and a caller for each lane."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from msgspec import Struct

from dragoman.config import Config
from dragoman.server import serving
from tests.spec.agents import Gates, house
from tests.spec.caller import DEADLINE_S, Caller
from tests.spec.lanes import LANES, Lane

CONFIG = Config(
    port=0,
    store="memory:",
    shutdown_grace_s=0.1,
    cancel_grace_s=0.3,
    keepalive_s=0.2,
    max_body_bytes=12 * 1024 * 1024,
    max_parts=20,
    push_allowed_hosts=("127.0.0.1",),
)


class House(Struct, frozen=True):
    """The server of a module."""

    url: str
    http: aiohttp.ClientSession
    gates: Gates

    def caller(self, lane: Lane, agent: str = "script") -> Caller:
        """Someone who speaks that lane."""
        return Caller(self.http, self.url, lane, agent)

    async def working(self, caller: Caller, name: str, verb: str = "wait", **said: Any) -> str:
        """A new task whose agent stands at the gate `name`, with all that it said before written."""
        task = (await caller.send(f"{verb} {name}", configuration={"returnImmediately": True}, **said)).task
        async with caller.subscribe(task.id) as stream:
            await stream.until("waiting")
        return task.id


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[House]:
    """The default agent is `script`."""
    gates = Gates()
    async with serving(CONFIG, house(gates)) as url:
        timeout = aiohttp.ClientTimeout(total=2 * DEADLINE_S)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http:
            yield House(url, http, gates)


@pytest.fixture(params=LANES, ids=lambda lane: lane.name.replace(" ", "-"))
def lane(request: Any) -> Lane:
    """Both versions over both bindings."""
    found: Lane = request.param
    return found


@pytest.fixture
def caller(served: House, lane: Lane) -> Caller:
    """Someone who speaks the lane, to the agent that does what it is told."""
    return served.caller(lane)
