"""`dragoman auth`: tokens by device code, by client credentials and from an OpenID provider; where they are kept."""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import pytest

from dragoman.cli.a2a.tokens import stored_token
from dragoman.client import BearerToken
from dragoman.net.egress import Egress
from tests.cli.a2a.command import Shell
from tests.cli.a2a.peer import Asked, FarAgent, far_agent, serve_http

SECRET = "s3cret-of-the-client"


class Issuer:
    """An authorization server. `refusals` are answered to the next requests for a token, one each."""

    def __init__(self) -> None:
        self.url = ""
        self.refusals: list[str] = []
        self.life_s = 3600
        self.refreshes = True
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.granted = 0

    def answer(self, asked: Asked) -> tuple[int, Mapping[str, Any] | str]:
        path = asked.line.partition(" ")[2]
        form = dict(parse_qsl(asked.body.decode()))
        self.asked.append((path, form, asked.headers))
        if path == "/.well-known/openid-configuration":
            return 200, {
                "token_endpoint": f"{self.url}/token",
                "device_authorization_endpoint": f"{self.url}/device",
            }
        if path == "/":
            return 404, "no"
        if path == "/device":
            return 200, {
                "device_code": "device-s3cret",
                "user_code": "WDJB-MJHT",
                "verification_uri": "https://issuer.example/device",
                "expires_in": 60,
                "interval": 0.01,
            }
        if self.refusals:
            return 400, {"error": self.refusals.pop(0), "error_description": "\x1b[2Jhostile"}
        self.granted += 1
        token = {"access_token": f"t0ken-{self.granted}", "token_type": "Bearer", "expires_in": self.life_s}
        return 200, {**token, "refresh_token": "r3fresh"} if self.refreshes else token

    @property
    def schemes(self) -> dict[str, Any]:
        flows = {
            "clientCredentials": {"tokenUrl": f"{self.url}/token", "scopes": {"tasks": "all tasks"}},
            "deviceCode": {"tokenUrl": f"{self.url}/token", "deviceAuthorizationUrl": f"{self.url}/device"},
        }
        return {"oauth": {"oauth2SecurityScheme": {"flows": flows}}}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    with serve_http(issuer.answer) as url:
        issuer.url = url
        yield issuer


def sent_tokens(agent: FarAgent) -> set[str | None]:
    return {asked.headers.get("authorization") for asked in agent.calls}


def login(shell: Shell, agent: FarAgent, issuer: Issuer, *words: str, **environment: str) -> tuple[int, str]:
    ran = shell.run(
        "auth", "login", "-a", agent.url, "--client-id", "cli", "--trust-origin", issuer.url, *words, **environment
    )
    assert not any(secret in ran.out + ran.err for secret in (SECRET, "t0ken", "r3fresh", "device-s3cret"))
    return ran.status, ran.out + ran.err


@pytest.mark.requirement("AUTH_006", "AUTH_007")
def test_client_credentials_are_exchanged_and_the_token_is_sent_from_then_on(
    shell: Shell, agent: FarAgent, issuer: Issuer
) -> None:
    agent.schemes = issuer.schemes
    assert login(shell, agent, issuer, A2ACLI_CLIENT_SECRET=SECRET)[0] == 0
    path, form, headers = issuer.asked[-1]
    assert (path, form) == ("/token", {"grant_type": "client_credentials", "scope": "tasks"})
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode() == f"cli:{SECRET}"
    assert shell.run("send", "-a", agent.url, "hello").status == 0
    assert sent_tokens(agent) == {"Bearer t0ken-1"}
    assert all("authorization" not in asked.headers for asked in agent.card_requests)


@pytest.mark.requirement("AUTH_005")
def test_a_device_code_is_shown_and_polled_for(shell: Shell, agent: FarAgent, issuer: Issuer) -> None:
    agent.schemes = issuer.schemes
    issuer.refusals = ["authorization_pending", "authorization_pending"]
    status, printed = login(shell, agent, issuer)
    assert status == 0
    assert "open https://issuer.example/device and enter the code WDJB-MJHT" in printed
    polls = [form for path, form, _ in issuer.asked if path == "/token"]
    assert len(polls) == 3
    assert polls[-1]["grant_type"] == "urn:ietf:params:oauth:grant-type:device_code"
    assert polls[-1]["device_code"] == "device-s3cret"


@pytest.mark.requirement("AUTH_010")
@pytest.mark.parametrize("named", ["", "/.well-known/openid-configuration"])
def test_an_openid_provider_is_asked_for_its_endpoints(
    shell: Shell, agent: FarAgent, issuer: Issuer, named: str
) -> None:
    agent.schemes = {"oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": issuer.url + named}}}
    assert login(shell, agent, issuer, "--scope", "openid", "--scope", "a2a")[0] == 0
    paths = [path for path, _, _ in issuer.asked]
    assert paths[-3:] == ["/.well-known/openid-configuration", "/device", "/token"]
    assert len(paths) == (3 if named else 4)
    assert issuer.asked[-2][1]["scope"] == "openid a2a"
    assert shell.run("send", "-a", agent.url, "hello").status == 0
    assert sent_tokens(agent) == {"Bearer t0ken-1"}


@pytest.mark.requirement("AUTH_007")
def test_the_tokens_file_is_its_owners_alone(shell: Shell, agent: FarAgent, issuer: Issuer) -> None:
    agent.schemes = issuer.schemes
    login(shell, agent, issuer, A2ACLI_CLIENT_SECRET=SECRET)
    path = shell.home / ".config/a2a-cli/tokens.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["tokens.json"]
    path.chmod(0o644)
    ran = shell.run("send", "-a", agent.url, "hello")
    assert "can be read by others and is ignored" in ran.err
    assert sent_tokens(agent) == {None}


@pytest.mark.requirement("AUTH_007")
def test_a_found_file_cannot_send_the_users_secret_to_its_own_issuer(
    shell: Shell, agent: FarAgent, issuer: Issuer
) -> None:
    agent.schemes = issuer.schemes
    asked: list[Asked] = []

    def note(request: Asked) -> tuple[int, str]:
        asked.append(request)
        return 404, "{}"

    with serve_http(note) as stranger:
        for line in ("", f"A2ACLI_AGENT_CARD={agent.url}\n"):
            (shell.work / ".env").write_text(f"{line}A2ACLI_TOKEN_URL={stranger}/token\n")
            status, said = login(shell, agent, issuer, A2ACLI_CLIENT_SECRET=SECRET)
            assert (status, "A2ACLI_TOKEN_URL in" in said) == (0, True), said
    assert asked == []


@pytest.mark.requirement("AUTH_007")
def test_a_card_in_a_file_cannot_send_a_token_to_a_stranger(shell: Shell, agent: FarAgent, issuer: Issuer) -> None:
    """Its first endpoint is that of the login; the one that is spoken is another's."""
    agent.schemes = issuer.schemes
    login(shell, agent, issuer, A2ACLI_CLIENT_SECRET=SECRET)
    with far_agent() as stranger:
        stranger.schemes = agent.schemes
        (first,), (second,) = agent.card["supportedInterfaces"], stranger.card["supportedInterfaces"]
        card = {**agent.card, "supportedInterfaces": [{**first, "protocolBinding": "SLIMRPC"}, second]}
        (shell.work / "card.json").write_text(json.dumps(card))
        for words in (("send", "hello"), ("doctor", "--fail-on", "never")):
            ran = shell.run(*words, "-a", "./card.json")
            assert ran.status == 0, ran.err
            assert sent_tokens(stranger) == {None}
            stranger.asked.clear()


@pytest.mark.requirement("AUTH_007")
def test_a_token_goes_to_no_other_origin(shell: Shell, agent: FarAgent, issuer: Issuer) -> None:
    agent.schemes = issuer.schemes
    login(shell, agent, issuer, A2ACLI_CLIENT_SECRET=SECRET)
    other = FarAgent()
    with serve_http(other.answer) as url:
        other.url, other.schemes = url, issuer.schemes
        assert shell.run("send", "-a", url, "hello").status == 0
    assert sent_tokens(other) == {None}


@pytest.mark.requirement("AUTH_007")
def test_an_expired_token_is_renewed(shell: Shell, agent: FarAgent, issuer: Issuer) -> None:
    agent.schemes, issuer.life_s = issuer.schemes, 5
    login(shell, agent, issuer)
    assert shell.run("send", "-a", agent.url, "hello").status == 0
    assert issuer.asked[-1][1] == {"grant_type": "refresh_token", "refresh_token": "r3fresh", "client_id": "cli"}
    assert sent_tokens(agent) == {"Bearer t0ken-2"}
    issuer.refusals = ["invalid_grant"]
    agent.asked.clear()
    ran = shell.run("send", "-a", agent.url, "hello")
    assert "could not be renewed" in ran.err
    assert sent_tokens(agent) == {None}


@pytest.mark.requirement("AUTH_007")
@pytest.mark.parametrize("secret", [SECRET, ""])
def test_commands_that_run_at_once_renew_a_token_once(
    shell: Shell, agent: FarAgent, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    agent.schemes, issuer.life_s = issuer.schemes, 5
    assert login(shell, agent, issuer, **({"A2ACLI_CLIENT_SECRET": secret} if secret else {}))[0] == 0
    issuer.life_s = 3600
    monkeypatch.setenv("HOME", str(shell.home))

    async def ask() -> list[BearerToken | None]:
        egress = Egress()
        try:
            return await asyncio.gather(*(stored_token(agent.url, egress) for _ in range(12)))
        finally:
            await egress.close()

    assert {each and each.token for each in asyncio.run(ask())} == {"t0ken-2"}
    assert issuer.granted == 2


def test_logins_are_listed_and_deleted(shell: Shell, agent: FarAgent, issuer: Issuer) -> None:
    agent.schemes = issuer.schemes
    login(shell, agent, issuer, A2ACLI_CLIENT_SECRET=SECRET)
    shown = shell.run("auth", "status", "-o", "json")
    assert [row["origin"] for row in shown.json["logins"]] == [agent.url]
    assert "t0ken" not in shown.out
    assert shell.run("auth", "logout", "-a", agent.url).status == 0
    assert shell.run("auth", "status", "-o", "json").json == {"logins": []}
    assert json.loads((shell.home / ".config/a2a-cli/tokens.json").read_text()) == {}


@pytest.mark.parametrize(
    ("refusal", "says"),
    [("access_denied", "the user refused"), ("expired_token", "nobody agreed in time"), ("invalid_scope", "--scope")],
)
def test_a_refusal_is_told_by_its_code(shell: Shell, agent: FarAgent, issuer: Issuer, refusal: str, says: str) -> None:
    agent.schemes, issuer.refusals = issuer.schemes, [refusal]
    status, printed = login(shell, agent, issuer)
    assert status == 4
    assert says in printed
    assert "hostile" not in printed


def test_an_issuer_that_only_the_card_names_is_not_called_in_the_private_network(
    shell: Shell, agent: FarAgent, issuer: Issuer
) -> None:
    agent.schemes = issuer.schemes
    ran = shell.run("auth", "login", "-a", agent.url, "--client-id", "cli", A2ACLI_CLIENT_SECRET=SECRET)
    assert ran.status == 3
    assert "may not be called from here" in ran.err
    assert issuer.asked == []


def test_a_secret_is_not_sent_in_clear_text(shell: Shell, agent: FarAgent) -> None:
    words = ("--client-id", "cli", "--token-url", "http://issuer.example/token")
    ran = shell.run("auth", "login", "-a", agent.url, *words, A2ACLI_CLIENT_SECRET=SECRET)
    assert ran.status == 4
    assert "is not https, so no secret is sent to it" in ran.err


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ((), 2, "no OAuth client is named"),
        (("--client-id", "cli", "--flow", "client-credentials"), 2, "client credentials need a secret"),
        (("--client-id", "cli"), 4, "names no device code flow"),
    ],
)
def test_what_is_missing_is_named(
    shell: Shell, agent: FarAgent, words: tuple[str, ...], status: int, says: str
) -> None:
    ran = shell.run("auth", "login", "-a", agent.url, *words)
    assert ran.status == status
    assert says in ran.err
