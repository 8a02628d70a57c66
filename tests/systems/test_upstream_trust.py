"""Agents of other servers: whose card is believed, and what is told of what they were shown as a secret."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from dragoman import Agent, Context
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.client import ApiKey, BearerToken, ClientCredentials, connect
from dragoman.client.credentials import Credentials
from dragoman.config import Upstream, UpstreamCredentials
from dragoman.engine.api import CheckResult
from dragoman.model.card import Profile
from dragoman.model.message import Part
from dragoman.model.task import TaskState
from dragoman.net.egress import Egress
from dragoman.server import serving
from tests.kit.places import asked
from tests.kit.values import text_of, told_by
from tests.kit.waiting import until
from tests.kit.web import web_site
from tests.spec.agents import Gates, house
from tests.systems.test_upstream import AT, CONFIG, fronted, partner

SECRET = "s3cr3t/key+456789"
CLIENT_SECRET = "cl13nt-s3cr3t-0987"


# -- what is repeated --------------------------------------------------------------------------------------------------


def repeating(heard: list[str], *, more: str = "") -> list[web.RouteDef]:
    """An upstream that repeats what it is shown, in whatever way the message says."""

    async def token(request: web.Request) -> web.Response:
        return web.json_response({"access_token": SECRET, "token_type": "Bearer", "expires_in": 60})

    async def call(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        shown = request.headers.get("authorization") or request.headers.get("x-api-key") or ""
        heard.append(shown)
        text = f"you showed {shown} {more}".strip()
        how = body["params"].get("message", {}).get("parts", [{}])[0].get("text", "")
        if how == "status":
            return web.Response(status=500, text=text)
        if how == "unreadable":
            return web.json_response({"nothing": text})
        if how == "error":
            error: Any = {"code": -32602, "message": text, "data": [{"said": text}]}
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": error})
        parts = [{"text": text}, {"data": {"shown": [text]}}, {"raw": "aGk=", "filename": text}]
        if how == "message":
            message = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": {"message": message}})
        state = {"asks": "TASK_STATE_INPUT_REQUIRED", "rejected": "TASK_STATE_REJECTED"}.get(how, "TASK_STATE_FAILED")
        status = {"state": state, "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}}
        artifact = {"artifactId": "a", "name": text, "parts": parts, "metadata": {"shown": text}}
        task = {"id": "t", "contextId": "c", "status": status, "artifacts": [artifact]}
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": {"task": task}})

    return [web.post("/token", token), web.post("/{path:.*}", call)]


HOW = ("status", "unreadable", "error", "message", "asks", "rejected", "failed")
KINDS = ("key", "bearer", "basic", "tokens", "forward")


@asynccontextmanager
async def showing(kind: str, url: str) -> AsyncIterator[tuple[UpstreamAgent, Credentials | None]]:
    """An agent that shows SECRET to its upstream, and what its caller shows."""

    def made(egress: Egress) -> Credentials | None:
        match kind:
            case "key":
                return ApiKey(SECRET)
            case "bearer":
                return BearerToken(SECRET)
            case "tokens":
                return ClientCredentials(f"{url}/token", "us", CLIENT_SECRET, egress=egress)
        return None

    basic = "Basic " + base64.b64encode(f"us:{SECRET}".encode()).decode()
    forwarded = {"forward": BearerToken(SECRET), "basic": ApiKey(basic, "Authorization")}.get(kind)
    yield partner(url, dialect="1.0", make_credentials=made, forwards=forwarded is not None), forwarded


@pytest.mark.parametrize("kind", KINDS)
async def test_what_an_upstream_repeats_of_what_it_was_shown_reaches_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level("DEBUG", "dragoman")
    kept = replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}", metrics=True)
    heard: list[str] = []
    more = CLIENT_SECRET if kind == "tokens" else SECRET
    told: list[Any] = []
    async with (
        web_site(*repeating(heard, more=more)) as url,
        showing(kind, url) as (agent, caller),
        serving(kept, [agent]) as front,
        aiohttp.ClientSession() as http,
    ):
        async with connect(f"{front}/agents/partner", credentials=caller) as connection:
            for how in HOW:
                told.append(await asked(connection, how))
        for page in ("ready", "metrics", "agents/partner/.well-known/agent-card.json"):
            async with http.get(f"{front}/{page}") as answer:
                told.append(await answer.text())
    assert len(heard) >= len(HOW)
    assert all(heard)
    seen = repr(told) + caplog.text + "".join(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())
    assert "you showed" in seen
    secrets = (SECRET, CLIENT_SECRET, SECRET.replace("/", "%2F").replace("+", "%2B"), heard[0].partition(" ")[2])
    assert not [secret for secret in secrets if secret and secret in seen]


async def test_our_key_is_not_told_to_a_caller_whose_own_another_agent_forwards() -> None:
    other = UpstreamAgent(
        Profile(id="other", name="Other", description="Ours", version="0.1", skills=()),
        Upstream(url="http://127.0.0.1:9", credentials=UpstreamCredentials(forward=True)),
    )
    async with (
        web_site(*repeating([])) as url,
        showing("key", url) as (agent, _),
        serving(CONFIG, [agent, other]) as front,
        connect(f"{front}/agents/partner", credentials=ApiKey("callers-key-0987654"), extensions=["urn:x"]) as caller,
    ):
        told = repr(await asked(caller, "failed"))
    assert "you showed ***" in told
    assert SECRET not in told


async def test_a_secret_that_comes_in_chunks_is_not_told_to_its_end(gates: Gates) -> None:
    leaks = Agent("leaks")

    @leaks.skill
    async def leak(ctx: Context) -> AsyncIterator[str]:
        """Says it in pieces."""
        for piece in ("it is ", "upst", "ream-", "key-1", "234", "56", ", I think"):
            yield piece

    async with serving(CONFIG, [leaks]) as url:
        agent = partner(f"{url}/agents/leaks", make_credentials=lambda egress: ApiKey("upstream-key-123456"))
        async with fronted(agent) as connection:
            told = text_of(await asked(connection, "go"))
    assert told.startswith("it is upst***")
    assert told.endswith("***, I think")
    assert not {"123", "234", "345", "456"} & {told[at : at + 3] for at in range(len(told))}


async def test_what_is_no_secret_comes_as_it_is(gates: Gates) -> None:
    config = replace(CONFIG, api_key="upstream-key-123456")
    async with serving(config, house(gates)) as url:
        agent = partner(url + AT["1.0"], make_credentials=lambda egress: ApiKey("upstream-key-123456"))
        async with fronted(agent) as connection:
            given = [Part(text="the upstream key-123"), Part(data={"a": [1, None]}), Part(raw=b"\0\xff", filename="f")]
            task = await asked(connection, given)
            assert task.artifacts[0].parts == tuple(given)


# -- the signature of its card -----------------------------------------------------------------------------------------


async def ready(url: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/ready") as answer:
        return await answer.json()


async def test_a_card_that_is_signed_by_a_key_of_the_configuration_is_used(gates: Gates, tmp_path: Path) -> None:
    async with serving(CONFIG, house(gates)) as url:
        keys = f"{url}/.well-known/jwks.json"
        async with fronted(partner(url + AT["1.0"], card_keys=(keys,))) as connection:
            assert text_of(await asked(connection, "hello")) == "hello"
        async with aiohttp.ClientSession() as http, http.get(keys) as answer:
            (tmp_path / "keys.json").write_text(await answer.text())
        agent = partner(url + AT["1.0"], card_keys=(str(tmp_path / "keys.json"),))
        async with fronted(agent) as connection:
            assert agent.profile.name == "script"
            assert text_of(await asked(connection, "hello")) == "hello"


@pytest.mark.parametrize("how", ["unsigned", "others", "dialect", "none"])
async def test_a_card_that_is_not_signed_as_it_has_to_be_is_not_used(
    gates: Gates, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    behind = replace(CONFIG, sign_cards=how != "unsigned")
    more: dict[str, Any] = {"dialect": {"dialect": "1.0"}, "none": {"card": "/nowhere.json"}}.get(how, {})
    async with serving(behind, house(gates)) as url, serving(CONFIG, house(gates)) as other:
        at = url + ("/agents/script" if how != "none" else "")
        agent = partner(at, card_keys=(f"{other}/.well-known/jwks.json",), **more)
        async with serving(CONFIG, [agent]) as front, connect(f"{front}/agents/partner") as connection:
            told = await ready(front)
            task = await asked(connection, "hello")
            assert (task.status.state, task.artifacts) == (TaskState.FAILED, ())
            assert "its card is not signed as its operator here requires" in told_by(task)
            assert agent.profile.name == "Partner"
        fault = told["degraded"]["partner"]
        assert fault == (
            "it has no card where one is expected"
            if how == "none"
            else "its card is not signed by a key of `card_keys`"
        )
        assert fault in caplog.text
        findings = [
            finding async for finding in partner(at, card_keys=(f"{other}/.well-known/jwks.json",), **more).check()
        ]
        assert [finding.ok for finding in findings] == [False]
        assert findings[0].what.startswith(fault)


async def test_keys_that_cannot_be_had_are_named(gates: Gates, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"not": "keys"}')
    async with serving(CONFIG, house(gates)) as url:
        for place, told in (("keys.json", "expected a JWK Set"), ("gone.json", "No such file")):
            agent = partner(url + AT["1.0"], card_keys=(str(tmp_path / place),))
            findings: list[CheckResult] = [finding async for finding in agent.check()]
            assert findings[0].what.startswith("the keys that must have signed its card cannot be read: ")
            assert told in findings[0].what
            assert "card_keys" in findings[0].fix


async def test_a_card_that_is_signed_by_another_key_from_now_on_is_read_with_new_keys(gates: Gates) -> None:
    """The key is changed at the URL where the keys are; the card before stays in use until then."""
    async with serving(CONFIG, house(gates)) as one, serving(CONFIG, house(gates)) as two:
        at = [one]

        async def passed_on(request: web.Request) -> web.Response:
            async with aiohttp.ClientSession() as http, http.get(at[0] + request.path) as answer:
                return web.json_response(json.loads(await answer.text()), status=answer.status)

        async with web_site(web.get("/{path:.*}", passed_on)) as url:
            now = [0.0]
            agent = partner(
                f"{url}/agents/script",
                card_keys=(f"{url}/.well-known/jwks.json",),
                card_s=0.1,
                origins=(one, two),
                clock=lambda: now[0],
            )
            async with fronted(agent) as connection:
                spoken = await agent.route.endpoint.connection()
                assert spoken is not None
                assert spoken.interface.url.startswith(one)
                now[0] += 60.0
                at[0] = two
                await until(lambda: spoken.interface.url.startswith(two))
                assert text_of(await asked(connection, "hello")) == "hello"
                assert agent.degraded is None
