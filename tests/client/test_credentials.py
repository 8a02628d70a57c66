"""Credentials: what goes into the headers, when a token is fetched, and that a secret is nowhere else."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from dragoman.agents.worker import wire as worker_wire
from dragoman.agents.worker.lessee import CallRefused, WorkerApi
from dragoman.client.credentials import ApiKey, Authorized, BearerToken, ClientCredentials, Credentials
from dragoman.client.errors import NoToken
from dragoman.kaos import AgentUnavailable, RemoteAgent
from dragoman.net.egress import Egress
from dragoman.net.errors import BadUrl
from tests.kit.waiting import no_hang
from tests.net.peer import Asked, Peer, Script, hangs, listening, nobody, raw, result, says, status
from tests.store.cases.bench import SetClock

TOKEN, API = "POST /token", "POST /api"
SECRET = "s3cret/+ %ü"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with no_hang(), listening() as peer:
        peer.scripts = {TOKEN: gives("t1"), API: says({})}
        yield peer


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def gives(token: Any, **more: Any) -> Script:
    return says({"access_token": token, "token_type": "Bearer", "expires_in": 3600, **more})


def accepts(*tokens: str) -> Script:
    """An API that takes these tokens only."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        good = asked.headers.get("authorization") in [f"Bearer {token}" for token in tokens]
        await (says({"ok": True}) if good else status(401))(asked, writer)

    return script


def credentials(peer: Peer, egress: Egress, clock: SetClock, **more: Any) -> ClientCredentials:
    return ClientCredentials(f"{peer.url}/token", "me:1", SECRET, egress=egress, clock=clock, **more)


async def asked_once(peer: Peer, egress: Egress, with_: Credentials) -> int:
    reply = await Authorized(egress, with_).request("POST", f"{peer.url}/api", timeout_s=60, headers={"X-Mine": "1"})
    return reply.status


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (ApiKey("k"), "x-api-key", "k"),
        (ApiKey("k", "X-Agent-Key"), "x-agent-key", "k"),
        (BearerToken("t"), "authorization", "Bearer t"),
    ],
)
async def test_a_key_or_token_goes_with_each_request_once(
    peer: Peer, egress: Egress, given: Credentials, name: str, value: str
) -> None:
    peer.scripts[API] = status(401)
    assert await asked_once(peer, egress, given) == 401
    (asked,) = peer.asked
    assert (asked.headers[name], asked.headers["x-mine"]) == (value, "1")


async def test_a_token_is_asked_for_as_the_standard_says(peer: Peer, egress: Egress, clock: SetClock) -> None:
    assert await asked_once(peer, egress, credentials(peer, egress, clock, scope="a b", audience="https://x")) == 200
    token, api = peer.asked
    assert parse_qs(token.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["a b"],
        "audience": ["https://x"],
    }
    assert token.headers["content-type"] == "application/x-www-form-urlencoded"
    scheme, _, pair = token.headers["authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(pair) == b"me%3A1:s3cret%2F%2B+%25%C3%BC"
    assert (api.headers["authorization"], api.headers["x-mine"]) == ("Bearer t1", "1")


async def test_the_secret_can_go_in_the_body(peer: Peer, egress: Egress, clock: SetClock) -> None:
    await credentials(peer, egress, clock, method="client_secret_post").headers()
    (token,) = peer.asked
    form = parse_qs(token.body.decode())
    assert (form["client_id"], form["client_secret"]) == (["me:1"], [SECRET])
    assert "authorization" not in token.headers


async def test_many_at_once_fetch_one_token(peer: Peer, egress: Egress, clock: SetClock) -> None:
    shown = credentials(peer, egress, clock)
    assert await asyncio.gather(*(shown.headers() for _ in range(50))) == [{"Authorization": "Bearer t1"}] * 50
    assert peer.paths == [TOKEN]


@pytest.mark.parametrize(("expires_in", "step_ms"), [(3600, -1), (0.5, 600)], ids=["a clock set back", "a slow issuer"])
async def test_calls_that_waited_for_a_token_take_it(
    peer: Peer, egress: Egress, clock: SetClock, expires_in: float, step_ms: int
) -> None:
    issued = iter(range(1, 100))

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        clock.ms += step_ms
        await gives(f"t{next(issued)}", expires_in=expires_in)(asked, writer)

    peer.scripts[TOKEN] = script
    shown = credentials(peer, egress, clock)
    assert await asyncio.gather(*(shown.headers() for _ in range(12))) == [{"Authorization": "Bearer t1"}] * 12
    assert peer.paths == [TOKEN]


@pytest.mark.parametrize(("expires_in", "used_s"), [(3600, 3570), (100, 90), ("3600", 3570), (0.5, 0.45), (None, 270)])
async def test_a_token_is_used_until_shortly_before_it_expires(
    peer: Peer, egress: Egress, clock: SetClock, expires_in: Any, used_s: float
) -> None:
    peer.scripts[TOKEN] = gives("t1", expires_in=expires_in)
    shown = credentials(peer, egress, clock)
    await shown.headers()
    peer.scripts[TOKEN] = gives("t2")
    clock.ms += int(used_s * 1000) - 1
    assert await shown.headers() == {"Authorization": "Bearer t1"}
    clock.ms += 1
    assert await shown.headers() == {"Authorization": "Bearer t2"}


async def test_a_token_that_is_refused_is_replaced_once(peer: Peer, egress: Egress, clock: SetClock) -> None:
    shown = credentials(peer, egress, clock)
    await shown.headers()
    peer.scripts |= {TOKEN: gives("t2"), API: accepts("t2")}
    statuses = await asyncio.gather(*(asked_once(peer, egress, shown) for _ in range(10)))
    assert statuses == [200] * 10
    assert peer.paths.count(TOKEN) == 2


async def test_an_upstream_that_refuses_every_token_does_not_cost_one_each_time(
    peer: Peer, egress: Egress, clock: SetClock
) -> None:
    peer.scripts[API] = status(401)
    shown = credentials(peer, egress, clock)
    for number in range(5):
        peer.scripts[TOKEN] = gives(f"t{number}")
        assert await asked_once(peer, egress, shown) == 401
    assert peer.paths.count(TOKEN) == 2
    clock.ms += 30_000
    peer.scripts |= {TOKEN: gives("t9"), API: accepts("t9")}
    assert await asked_once(peer, egress, shown) == 200


async def test_a_caller_who_leaves_leaves_the_next_to_fetch(peer: Peer, egress: Egress, clock: SetClock) -> None:
    peer.scripts[TOKEN] = hangs()
    shown = credentials(peer, egress, clock)
    first = asyncio.create_task(shown.headers())
    await peer.came.wait()
    peer.scripts[TOKEN] = gives("t1")
    second = asyncio.create_task(shown.headers())
    first.cancel()
    assert await second == {"Authorization": "Bearer t1"}


async def test_a_connection_that_ended_is_tried_once_more(peer: Peer, egress: Egress, clock: SetClock) -> None:
    async def hangs_up_once(asked: Asked, writer: asyncio.StreamWriter) -> None:
        peer.scripts[TOKEN] = gives("t1")

    peer.scripts[TOKEN] = hangs_up_once
    assert await credentials(peer, egress, clock).headers() == {"Authorization": "Bearer t1"}
    assert peer.paths == [TOKEN] * 2


@pytest.mark.parametrize(
    ("script", "told", "permanent"),
    [
        (says({"error": "invalid_client", "error_description": SECRET}, 401), "401, invalid_client", True),
        (says({"error": "invalid_scope"}, 400), "400, invalid_scope", True),
        (says({"error": f"x {SECRET}"}, 400), "400", True),
        (says(SECRET.encode(), 500), "500", False),
        (says({"error": 1}, 503), "503", False),
        (says(b"", 302, {"Location": "/elsewhere"}), "302", False),
        (says(b"<html>"), "expected access_token", False),
        (says({"access_token": "x"}), "expected access_token", False),
        (gives(5), "expected access_token", False),
        (gives(""), "bearer", False),
        (gives("a\r\nX-Evil: 1"), "bearer", False),
        (gives("t", token_type="mac"), "bearer", False),
        (gives("t", expires_in=0), "bearer", False),
        (gives("t", expires_in="soon"), "expected access_token", False),
        (gives("t", expires_in="nan"), "bearer", False),
        (raw(b"x"), "broke", False),
        (hangs(), "no answer within", False),
    ],
)
async def test_no_token_is_an_error_without_the_secret(
    peer: Peer,
    egress: Egress,
    clock: SetClock,
    script: Script,
    told: str,
    permanent: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    peer.scripts[TOKEN] = script
    shown = credentials(peer, egress, clock, timeout_s=0.3 if told == "no answer within" else 60.0)
    with pytest.raises(NoToken, match=told) as caught:
        await asked_once(peer, egress, shown)
    assert caught.value.permanent is permanent
    assert API not in peer.paths
    everything = f"{caught.value} {caught.value!r} {shown!r} {vars(caught.value)} {caplog.text}"
    assert not [part for part in (SECRET, "s3cret", base64.b64encode(b"me%3A1:").decode()[:8]) if part in everything]


def test_no_secret_is_in_a_repr() -> None:
    for given in (ApiKey("s3cret"), BearerToken("s3cret")):
        assert "s3cret" not in f"{given!r} {given}"


def test_a_token_url_that_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(BadUrl):
        ClientCredentials("id.example.org/token", "me", "s", egress=Egress())


# -- who uses them -----------------------------------------------------------------------------------------------


async def test_a_remote_agent_is_asked_with_credentials_for_its_card_too(
    peer: Peer, egress: Egress, clock: SetClock
) -> None:
    answer = {"id": "t", "status": {"state": "completed"}, "output": "Hello"}
    peer.scripts |= {
        "GET /.well-known/agent.json": says({"name": "x", "supportedProtocols": ["jsonrpc"]}),
        "POST /": result(answer),
    }
    async with RemoteAgent("x", peer.url, credentials=credentials(peer, egress, clock)) as agent:
        assert await agent.process_message("Hi") == "Hello"
    assert [asked.headers["authorization"] for asked in peer.asked[1:]] == ["Bearer t1"] * 2


async def test_a_remote_agent_for_which_there_is_no_token_is_unavailable(egress: Egress, clock: SetClock) -> None:
    shown = ClientCredentials(f"{await nobody()}/token", "me", SECRET, egress=egress, clock=clock)
    async with listening() as peer, RemoteAgent("x", peer.url, credentials=shown) as agent:
        with pytest.raises(AgentUnavailable, match="no token"):
            await agent.process_message("Hi")
        assert peer.asked == []


async def test_a_worker_takes_tasks_with_credentials(peer: Peer, egress: Egress, clock: SetClock) -> None:
    server = WorkerApi(egress, peer.url, "echo", credentials=credentials(peer, egress, clock))
    peer.scripts["POST /workers/echo/lease"] = status(204)
    assert await server.call("lease", worker_wire.TakeRequest("w"), worker_wire.LeasedTask) is None
    assert peer.asked[-1].headers["authorization"] == "Bearer t1"


@pytest.mark.parametrize(("code", "temporary"), [(503, True), (401, False)])
async def test_a_worker_without_token_tries_again_unless_it_is_refused_for_good(
    peer: Peer, egress: Egress, clock: SetClock, code: int, temporary: bool
) -> None:
    peer.scripts[TOKEN] = status(code)
    server = WorkerApi(egress, peer.url, "echo", credentials=credentials(peer, egress, clock))
    with pytest.raises(CallRefused, match="no token") as caught:
        await server.call("lease", worker_wire.TakeRequest("w"), worker_wire.LeasedTask)
    assert (caught.value.temporary, caught.value.lost) == (temporary, False)


async def test_without_an_egress_a_token_is_fetched_over_a_connection_of_its_own(peer: Peer, clock: SetClock) -> None:
    own = ClientCredentials(f"{peer.url}/token", "me:1", SECRET, clock=clock)
    assert await own.headers() == {"Authorization": "Bearer t1"}
