"""A server with all agents, over HTTP, and a caller for each lane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from grpc import aio
from msgspec import Struct
from msgspec.structs import replace

from dragoman.config import Config
from dragoman.server import serving
from tests.ports import kept_port
from tests.spec.agents import Gates, house
from tests.spec.caller import DEADLINE_S, Caller
from tests.spec.lanes import LANES, Lane, lane_id

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

CHANNEL = (("grpc.max_receive_message_length", -1), ("grpc.primary_user_agent", "spec"))
"""Answers of any size; and no client of 0.3 that puts files into base64."""


class House(Struct, frozen=True):
    """The server of a module."""

    url: str
    http: aiohttp.ClientSession
    gates: Gates
    channel: aio.Channel | None = None

    def caller(self, lane: Lane, agent: str = "script") -> Caller:
        """Someone who speaks that lane."""
        return Caller(self.http, self.url, lane, agent, self.channel)

    async def working(self, caller: Caller, name: str, verb: str = "wait", **said: Any) -> str:
        """A new task whose agent stands at the gate `name`, with all that it said before written."""
        task = (await caller.send(f"{verb} {name}", configuration={"returnImmediately": True}, **said)).task
        async with caller.subscribe(task.id) as stream:
            await stream.until("waiting")
        return task.id


@asynccontextmanager
async def serving_lanes(config: Config) -> AsyncIterator[House]:
    """A server that speaks all lanes; the default agent is `script`."""
    gates, grpc_port = Gates(), kept_port()
    async with serving(replace(config, grpc_port=grpc_port), house(gates)) as url:
        timeout = aiohttp.ClientTimeout(total=2 * DEADLINE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http,
            aio.insecure_channel(f"127.0.0.1:{grpc_port}", CHANNEL) as channel,
        ):
            yield House(url, http, gates, channel)


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[House]:
    """The default agent is `script`."""
    async with serving_lanes(CONFIG) as running:
        yield running


@pytest.fixture(params=LANES, ids=lane_id)
def lane(request: Any) -> Lane:
    """Both versions over JSON-RPC and HTTP+JSON, unless `over_grpc` or `over_grpc_1` adds gRPC."""
    found: Lane = request.param
    return found


@pytest.fixture
def caller(served: House, lane: Lane) -> Caller:
    """Someone who speaks the lane, to the agent that does what it is told."""
    return served.caller(lane)
