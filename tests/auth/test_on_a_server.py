"""A real server that asks: a token, a certificate and a key at its door, and what everybody else gets there."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_bytes
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from dragoman.agents.python.agent import Agent
from dragoman.auth.keys import make_key
from dragoman.auth.signatures import CardNotVerified
from dragoman.client.card import verify
from dragoman.config import AgentEntry, Config
from dragoman.model.ids import SystemClock
from dragoman.net.egress import Egress, HttpReply
from dragoman.server import serving
from tests.auth.issuer import AUDIENCE, OTHER, Issuer, issuing, token
from tests.kit.waiting import no_hang

SEND = (
    b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":'
    b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}'
)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with no_hang(), issuing() as issuer:
        issuer.clock.ms = SystemClock().now_ms()  # the server's
        yield issuer


def who() -> Agent:
    agent = Agent("who")

    @agent.skill()
    async def name(ctx: Any) -> str:
        return f"{ctx.principal.id} {ctx.principal.role}"

    return agent


async def sent(egress: Egress, url: str, headers: dict[str, str]) -> HttpReply:
    always = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    return await egress.request("POST", f"{url}/agents/who", body=SEND, headers=always | headers, timeout_s=60.0)


def bearer(sent: bytes) -> dict[str, str]:
    return {"Authorization": f"Bearer {sent.decode()}"}


async def test_a_key_and_a_token_of_different_callers_are_refused_and_one_for_elsewhere_is_not(
    issuer: Issuer, egress: Egress, tmp_path: Path
) -> None:
    config = Config(
        port=0, store=f"sqlite:///{tmp_path}/x.db", jwt_issuer=issuer.url, jwt_audience=AUDIENCE, api_key="shared"
    )
    async with serving(config, [who()]) as url:
        ours, key = token(issuer.claims()), {"x-api-key": "shared"}
        for _ in range(2):
            both = await sent(egress, url, key | bearer(ours))
            assert (both.status, b"name different callers of this server" in both.body) == (401, True)
            for elsewhere in (token(issuer.claims(), key=OTHER), token(issuer.claims(aud="x")), b"a.b.c"):
                reply = await sent(egress, url, key | bearer(elsewhere))
                assert (reply.status, b"shared" in reply.body) == (200, True), reply.body
            reply = await sent(egress, url, {"x-api-key": "elsewhere"} | bearer(ours))
            assert (reply.status, f"jwt:alice@{issuer.url} caller".encode() in reply.body) == (200, True)


@pytest.mark.parametrize("name", ["x-api-key", "X-Agent-API-Key", "Authorization"])
async def test_a_header_with_two_different_credentials_is_refused(tmp_path: Path, name: str) -> None:
    """A proxy that looks at the first one and a server that takes the last would see two callers."""
    who_asks, store = who(), f"sqlite:///{tmp_path}/x.db"
    config = Config(port=0, store=store, api_key="shared", agents=(AgentEntry(id="who", run="x:y", api_key="its own"),))
    word = "Bearer " if name == "Authorization" else ""
    always = [("Content-Type", "application/json"), ("A2A-Version", "1.0")]
    async with serving(config, [who_asks]) as url, aiohttp.ClientSession(url) as http:
        for keys, status in (
            (("shared", "its own"), 401),
            (("elsewhere", "shared"), 401),
            (("shared", "its own"), 401),
            (("shared", "shared"), 200),
        ):
            headers = CIMultiDict([*always, *((name, word + key) for key in keys)])
            async with http.post("/agents/who", data=SEND, headers=headers) as answer:
                assert answer.status == status, keys
                assert (f"{name.lower()} was sent twice" in await answer.text()) is (status == 401)


async def test_a_token_of_the_issuer_opens_the_server_and_its_claims_count(
    issuer: Issuer, egress: Egress, tmp_path: Path
) -> None:
    config = Config(port=0, store=f"sqlite:///{tmp_path}/x.db", jwt_issuer=issuer.url, jwt_audience=AUDIENCE)
    async with serving(config, [who()]) as url:
        for _ in range(2):
            good = await sent(egress, url, bearer(token(issuer.claims())))
            assert (good.status, f"jwt:alice@{issuer.url} caller".encode() in good.body) == (200, True)
        missing = await sent(egress, url, {})
        assert (missing.status, missing.headers["www-authenticate"]) == (401, 'Bearer realm="dragoman"')
        for wrong in (token(issuer.claims(), key=OTHER), token(issuer.claims(aud="x")), b"a.b.c", b"dgm_x"):
            reply = await sent(egress, url, bearer(wrong))
            assert reply.status == 401
            assert reply.headers["www-authenticate"].endswith('error="invalid_token"')
        elsewhere = token(issuer.claims(dragoman={"agents": ["other"]}))
        assert (await sent(egress, url, bearer(elsewhere))).status == 403
    assert issuer.fetches == 1


async def test_an_issuer_that_is_away_is_503_with_a_time_to_come_back(issuer: Issuer, egress: Egress) -> None:
    issuer.fail()
    config = Config(port=0, store="memory:", jwt_issuer=issuer.url, jwt_audience=AUDIENCE)
    async with serving(config, [who()]) as url:
        reply = await sent(egress, url, bearer(token(issuer.claims())))
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize(("trusted", "status"), [("127.0.0.1/32", 200), ("10.0.0.0/8", 401)])
async def test_a_certificate_counts_from_a_trusted_proxy_only(egress: Egress, trusted: str, status: int) -> None:
    config = Config(port=0, store="memory:", client_cert_header="X-Client-DN", trusted_proxies=(trusted,))
    async with serving(config, [who()]) as url:
        reply = await sent(egress, url, {"X-Client-DN": "CN=ann,O=Example", "X-Forwarded-For": "127.0.0.1"})
        assert reply.status == status
        assert (b"cert:CN=ann,O=Example caller" in reply.body) == (status == 200)
        assert (await sent(egress, url, {})).status == 401


@pytest.mark.parametrize("mount", ["", "/agents/who", "/who", "/a2a"])
async def test_cards_of_a_server_that_asks_verify_the_extended_ones_too(
    egress: Egress, tmp_path: Path, mount: str
) -> None:
    """In the form of each version, and where a card is for both and has its security in both spellings."""
    config = Config(port=0, store=f"sqlite:///{tmp_path}/x.db", api_key="a-key-of-20-characters")
    async with serving(config, [who()]) as url:
        keys = json.loads((await egress.request("GET", f"{url}/.well-known/jwks.json", timeout_s=60.0)).body)
        card = json.loads(
            (await egress.request("GET", f"{url}{mount}/.well-known/agent-card.json", timeout_s=60.0)).body
        )
        assert card["securitySchemes"]
        for signature in card["signatures"][:1]:  # over what 1.0 has of it
            assert verify({**card, "signatures": [signature]}, keys)
        extended = []
        for version in ("1.0", "0.3"):
            form = await egress.request(
                "GET", f"{url}{mount}/.well-known/agent-card.json", headers={"A2A-Version": version}, timeout_s=60
            )
            extended.append(json.loads(form.body))
        if mount in ("", "/agents/who"):
            for agent in ("node", "python-httpx/0.28.1"):
                headers = {"x-api-key": "a-key-of-20-characters", "User-Agent": agent}
                form = await egress.request("GET", f"{url}{mount}/v1/card", headers=headers, timeout_s=60)
                extended.append(json.loads(form.body))
        for version, method in (("1.0", "GetExtendedAgentCard"), ("0.3", "agent/getAuthenticatedExtendedCard")):
            if mount == "/who" and version == "1.0":
                continue  # not over JSON-RPC
            headers = {
                "Content-Type": "application/json",
                "A2A-Version": version,
                "x-api-key": "a-key-of-20-characters",
            }
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}).encode()
            at = f"{url}{mount or '/'}"
            reply = await egress.request("POST", at, body=body, headers=headers, timeout_s=60.0)
            extended.append(json.loads(reply.body)["result"])
        for shown in extended:
            assert verify(shown, keys)
            with pytest.raises(CardNotVerified):
                verify({**shown, "description": "another"}, keys)


@pytest.mark.parametrize("own", [True, False])
async def test_a_shared_key_that_is_somebodys_own_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, own: bool
) -> None:
    key = make_key(token_bytes).text if own else "a-key-of-20-characters"
    async with serving(Config(port=0, store=f"sqlite:///{tmp_path}/x.db", api_key=key), [who()]):
        warned = "an operator's key belongs in DRAGOMAN_OPERATOR_KEY" in caplog.text
    assert warned == own
    assert key not in caplog.text
