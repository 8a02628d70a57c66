"""`auth login` to a live agent that takes tokens of an OpenID provider and verifies each of them."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.auth.issuer import AUDIENCE, RSA, jwk, token
from tests.cli.a2a.command import Shell, demo_agents_with
from tests.cli.a2a.peer import Asked, serve_http
from tests.cli.a2a.test_auth import SECRET, Issuer
from tests.compliance.proxied import proxied

TOKEN_SERVER = "token-server"


class Provider(Issuer):
    """An OpenID provider whose tokens are signed, so that a server can verify them."""

    def answer(self, asked: Asked) -> tuple[int, Mapping[str, Any] | str]:
        status, answer = super().answer(asked) if "/keys" not in asked.line else (200, {"keys": [jwk(RSA, "r1")]})
        if not isinstance(answer, Mapping):
            return status, answer
        if "token_endpoint" in answer:
            return status, {**answer, "issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        if "access_token" in answer:
            now_s = int(time.time())
            claims = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": now_s + 3600, "iat": now_s}
            return status, {**answer, "access_token": token(claims).decode()}
        return status, answer


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    with serve_http(provider.answer) as url:
        provider.url = url
        yield provider


@pytest.fixture(scope="module")
def server(provider: Provider) -> Iterator[str]:
    with demo_agents_with(f"jwt_issuer={provider.url!r}, jwt_audience={AUDIENCE!r}") as url:
        yield url


@pytest.mark.requirement("AUTH_006", "AUTH_007", "AUTH_010", "CONFIG_001", on=TOKEN_SERVER)
def test_client_credentials_open_the_agent_from_then_on(shell: Shell, provider: Provider, server: str) -> None:
    refused = shell.run("send", "hello", "-a", server, "-o", "json")
    assert (refused.status, refused.json["error"]["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    words = ("auth", "login", "-a", server, "--client-id", "cli", "--trust-origin", provider.url)
    login = shell.run(*words, A2ACLI_CLIENT_SECRET=SECRET)
    assert (login.status, login.fields["Logged in"]) == (0, server), login.err
    assert provider.asked[-1][1]["grant_type"] == "client_credentials"
    for _ in range(2):
        assert shell.run("send", "hello", "-a", server).fields["State"] == "TASK_STATE_COMPLETED"
    path = shell.home / ".config/a2a-cli/tokens.json"
    assert path.stat().st_mode & 0o777 == 0o600
    kept = path.read_text()
    debug = shell.run("send", "hello", "-a", server, "--debug", "--verbose")
    for word in kept.split('"'):
        assert len(word) < 100 or word not in debug.out + debug.err  # the token is in no log
    shown = shell.run("config", "show")
    assert shown.fields["login"] == f"{server} [redacted] ({path})"
    assert shell.run("auth", "logout", "-a", server).status == 0
    assert "login" not in shell.run("config", "show").fields
    assert shell.run("send", "hello", "-a", server).status == 4


@pytest.mark.requirement("AUTH_005", "AUTH_007", "AUTH_010", on=TOKEN_SERVER)
def test_a_device_code_opens_the_agent(shell: Shell, provider: Provider, server: str) -> None:
    provider.refusals = ["authorization_pending"]
    login = shell.run("auth", "login", "-a", server, "--client-id", "cli", "--trust-origin", provider.url)
    assert login.status == 0, login.err
    assert "enter the code WDJB-MJHT" in login.err
    assert provider.asked[-1][1]["grant_type"] == "urn:ietf:params:oauth:grant-type:device_code"
    with proxied(server) as proxy:  # another origin, which gets no token
        assert shell.run("send", "hello", "-a", proxy.url).status == 4
        assert b"authorization:" not in b"".join(proxy.asked).lower()
    assert shell.run("send", "hello", "-a", server).fields["State"] == "TASK_STATE_COMPLETED"
