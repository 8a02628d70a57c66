"""A check of an exchange says what stands in its way, without a caller's token."""

from collections.abc import AsyncIterator
from urllib.parse import parse_qs

import pytest

from dragoman.agents.exchange_check import check_exchange
from dragoman.agents.mcp.http import HttpReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.model.agent import ChatAgent
from dragoman.agents.model.pool import ModelPool, PoolEndpoint
from dragoman.client.token_endpoint import TokenEndpoint
from dragoman.client.token_exchange import ExchangeTerms, TokenExchange
from dragoman.config import Model, UpstreamCredentials
from dragoman.engine.api import CheckResult
from dragoman.model.card import Profile
from dragoman.net.egress import Egress
from tests.kit.waiting import no_hang
from tests.net.peer import Peer, Script, listening, nobody, says, status

TOKEN = "POST /token"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with no_hang(), listening() as peer:
        yield peer


def exchange(url: str, egress: Egress) -> TokenExchange:
    terms = ExchangeTerms(audience="https://back.example", scope=("read", "write"))
    return TokenExchange(TokenEndpoint(f"{url}/token", "front", "secret", egress=egress), terms)


async def findings(exchanged: TokenExchange) -> list[CheckResult]:
    return [finding async for finding in check_exchange(exchanged)]


def refuses(error: str, code: int = 400) -> Script:
    return says({"error": error}, code)


@pytest.mark.parametrize(
    ("script", "what", "fix"),
    [
        (refuses("invalid_client", 401), "does not know this server as a client (invalid_client)", "client_id, method"),
        (status(401), "does not know this server as a client", "client_id, method"),
        (refuses("unauthorized_client"), "does not let this server exchange tokens", "allow the client token exchange"),
        (refuses("unsupported_grant_type"), "does not exchange tokens", "turn token exchange (RFC 8693) on"),
        (refuses("invalid_target"), "does not know the audience or the resource", "name it as the issuer does"),
        (refuses("invalid_scope"), "does not know the scope", "name scopes of the audience"),
        (status(404), "is no token endpoint (status 404)", "token_url is right"),
        (says({"access_token": "t", "token_type": "Bearer"}), "a token that nobody has signed", "verifies the tokens"),
        (says(b"<html>"), "gives no answer: no token: expected access_token", "token_url is right"),
    ],
)
async def test_what_stands_in_its_way_is_named_with_the_fix(
    peer: Peer, egress: Egress, script: Script, what: str, fix: str
) -> None:
    peer.scripts[TOKEN] = script
    (finding,) = await findings(exchange(peer.url, egress))
    assert not finding.ok
    assert what in finding.what
    assert fix in finding.fix


@pytest.mark.parametrize("error", ["invalid_request", "invalid_grant", "access_denied"])
async def test_an_issuer_that_refuses_the_token_itself_is_set_up(peer: Peer, egress: Egress, error: str) -> None:
    peer.scripts[TOKEN] = refuses(error)
    (finding,) = await findings(exchange(peer.url, egress))
    assert finding.ok
    assert "exchanges tokens for https://back.example" in finding.what
    form = parse_qs(peer.asked[0].body.decode())
    assert (form["scope"], form["audience"]) == (["read write"], ["https://back.example"])
    assert form["subject_token"][0].endswith(".")  # no signature


async def test_an_issuer_that_is_away_or_without_tls_is_named(egress: Egress) -> None:
    (finding,) = await findings(exchange(await nobody(), egress))
    assert (finding.ok, "gives no answer" in finding.what) == (False, True)
    first, *_ = await findings(exchange("http://issuer.invalid", egress))
    assert (first.ok, "without TLS" in first.what) == (False, True)


async def test_the_exchange_of_a_models_tools_is_checked(peer: Peer, egress: Egress) -> None:
    peer.scripts[TOKEN] = refuses("invalid_client", 401)
    reach = HttpReach(f"{peer.url}/mcp", lambda egress: exchange(peer.url, egress))
    tools = McpTools([McpGrant(name="back", reach=reach)])
    called, refused = [finding async for finding in tools.check()]
    assert called.ok
    assert "with tokens for its callers" in called.what
    assert "does not know this server as a client" in refused.what
    assert peer.paths == [TOKEN]


async def test_the_exchange_of_a_model_is_checked(peer: Peer, egress: Egress) -> None:
    peer.scripts[TOKEN] = refuses("unauthorized_client")
    credentials = UpstreamCredentials(
        exchange=True, token_url=f"{peer.url}/token", client_id="front", env="X", audience="https://api"
    )
    model = Model(url=peer.url, model="small", credentials=credentials)
    profile = Profile(id="chat", name="Chat", description="Ours", version="0.1", skills=())
    agent = ChatAgent(profile, model, ModelPool([PoolEndpoint(model, "secret")]))
    called, refused = [finding async for finding in agent.check()]
    assert called.ok
    assert "does not let this server exchange tokens" in refused.what
    assert peer.paths == [TOKEN]
