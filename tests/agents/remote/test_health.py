"""When calls to an agent of another server that was away are let through again."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dragoman.agents.configured_credentials import make_no_credentials
from dragoman.agents.remote.health import RETRY_S_MAX
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.config import Upstream
from dragoman.net.egress import HttpReply
from dragoman.net.errors import Unreachable
from dragoman.net.target import Target
from tests.virtual_time import in_virtual_time

CARD = {
    "name": "Partner",
    "description": "d",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://partner.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {},
    "skills": [],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
}

JSON = {"content-type": "application/json"}

HOUR_S = 3600.0


class Host:
    """Another server, as whoever asks it for the card of its agent sees it."""

    def __init__(self, *, has_card: bool) -> None:
        self.has_card = has_card
        self.away = False

    def make_egress(self, **_: Any) -> "Host":
        """As `EgressRules`."""
        return self

    async def request(
        self, method: str, url: str | Target, *, timeout_s: float, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply:
        if self.away:
            raise Unreachable("https://partner.example", "nobody listens there")
        if method == "POST":
            error = {"code": -32001, "message": "Task not found"}
            answer = {"jsonrpc": "2.0", "id": msgspec.json.decode(body or b"")["id"], "error": error}
            return HttpReply(200, JSON, msgspec.json.encode(answer))
        return HttpReply(200, JSON, msgspec.json.encode(CARD)) if self.has_card else HttpReply(404, {}, b"")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("has_card", [True, False])
@pytest.mark.parametrize("away_s", [40.0, 600.0, 10 * HOUR_S])
def test_calls_are_let_through_seconds_after_the_agent_is_back_however_long_it_was_away(
    away_s: float, has_card: bool
) -> None:
    @in_virtual_time
    async def come_back() -> None:
        loop, host = asyncio.get_running_loop(), Host(has_card=has_card)
        rules: Any = host
        upstream = Upstream(url="https://partner.example", dialect=None if has_card else "1.0")
        route = UpstreamRoute("partner", upstream, make_no_credentials, loop.time, rules)
        await route.endpoint.open()
        watching = asyncio.create_task(route.endpoint.watch())
        try:
            breaker, host.away = route.health.breaker, True
            while loop.time() < away_s:  # callers try as soon as they may
                await asyncio.sleep(max(0.1, breaker.wait_s))
                if breaker.admit():
                    route.health.record_failure()
                    route.endpoint.request_reading()
                assert route.health.refusal("partner").retry_after_s <= RETRY_S_MAX + 1
            await asyncio.sleep(7.0)  # the last call that failed had the card read
            host.away, back_s = False, loop.time()
            while not breaker.admit():
                await asyncio.sleep(0.1)
            assert loop.time() - back_s <= RETRY_S_MAX
            route.health.record_answer()
            assert route.state is None
        finally:
            watching.cancel()

    come_back()
