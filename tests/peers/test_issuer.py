"""An OpenID Provider of somebody else's making: its tokens are got by client credentials, and verified."""

import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.auth.issuers import IssuerEgress
from dragoman.auth.tokens import Jwks, TokenVerifier
from dragoman.client.credentials import ClientCredentials
from dragoman.client.errors import NoToken
from dragoman.model.errors import Unauthorized
from dragoman.model.ids import SystemClock
from dragoman.model.principal import AccessRole, Principal, Scope
from dragoman.net.address import Resolver
from dragoman.net.egress import Egress
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

JS = Path(__file__).parent / "js"
NEEDS = JS / "node_modules" / "oidc-provider"
NODE = shutil.which("node") or "node"
SECRET = "a secret: with/odd+characters %"
AUDIENCE = "https://agents.example.org"
STOP_TIMEOUT_S = 60.0
START_TIMEOUT_S, STARTS_MAX = 60.0, 3

pytestmark = [pytest.mark.peer, pytest.mark.slow]


class Provider:
    """The provider's process, which can be ended and started anew on its port."""

    def __init__(self, log: Path) -> None:
        self.port = kept_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self, keys: str) -> None:
        """Start it with fresh keys of that name; returns when it listens.

        Node 20 can lock itself up in `generateKeyPairSync`, all of its threads asleep. Then another one is started.
        """
        for _ in range(STARTS_MAX):
            if self._begin(keys):
                return
            self.stop()
        pytest.fail(f"the provider does not listen:\n{self._log.read_text()}")

    def _begin(self, keys: str) -> bool:
        """Start a process, and return whether it listens in time."""
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                [*ENDS_WITH_US, NODE, "issuer.mjs", str(self.port), keys],
                cwd=JS,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S)
        return bool(ready) and self._process.stdout.readline().strip() == f"listening {self.url}"

    def stop(self) -> None:
        """End it, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(STOP_TIMEOUT_S)
            assert process.stdout is not None
            process.stdout.close()


class Later:
    """The machine's clock, and so much later."""

    def __init__(self) -> None:
        self.later_ms = 0

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self.later_ms


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    assert NEEDS.exists(), f"{NEEDS} is missing: run `make peers`"
    provider = Provider(tmp_path / "log")
    provider.start("first")
    yield provider
    provider.stop()


def tokens_of(provider: Provider, egress: Egress, clock: Later, audience: str = AUDIENCE) -> TokenVerifier:
    algorithms = ("RS256", "ES256")
    jwks = Jwks(provider.url, None, algorithms, IssuerEgress(egress, Egress(), Resolver()), clock)
    return TokenVerifier(jwks, audience=audience, algorithms=algorithms, leeway_s=30, clock=clock)


async def sent(credentials: ClientCredentials) -> bytes:
    return (await credentials.headers())["Authorization"].removeprefix("Bearer ").encode()


async def test_tokens_of_both_kinds_of_key_verify_and_carry_their_limits(provider: Provider, egress: Egress) -> None:
    tokens, url = tokens_of(provider, egress, Later()), f"{provider.url}/token"
    rsa = ClientCredentials(url, "client_secret_basic", SECRET, egress=egress, scope="limited")
    principal, _ = await tokens.verify(await sent(rsa))
    assert principal == Principal(
        f"jwt:client_secret_basic@{provider.url}", AccessRole.AGENT, frozenset({"echo"}), frozenset({Scope.SEND})
    )
    ec = ClientCredentials(url, "client_secret_post", SECRET, egress=egress, method="client_secret_post")
    principal, _ = await tokens.verify(await sent(ec))
    assert principal == Principal(f"jwt:client_secret_post@{provider.url}")
    elsewhere = tokens_of(provider, egress, Later(), audience="https://elsewhere.example")
    with pytest.raises(Unauthorized, match="audience"):
        await elsewhere.verify(await sent(rsa))


async def test_a_wrong_secret_gets_no_token(provider: Provider, egress: Egress) -> None:
    wrong = ClientCredentials(f"{provider.url}/token", "client_secret_basic", "wrong", egress=egress)
    with pytest.raises(NoToken, match="401, invalid_client") as caught:
        await wrong.headers()
    assert caught.value.permanent


async def test_the_provider_goes_away_and_comes_back_with_other_keys(provider: Provider, egress: Egress) -> None:
    clock = Later()
    tokens, url = tokens_of(provider, egress, clock), f"{provider.url}/token"
    first = await sent(ClientCredentials(url, "client_secret_basic", SECRET, egress=egress))
    await tokens.verify(first)
    provider.stop()
    await tokens.verify(first)
    provider.start("second")
    second = await sent(ClientCredentials(url, "client_secret_basic", SECRET, egress=egress))
    clock.later_ms = 31_000
    principal, _ = await tokens.verify(second)
    assert principal.id == f"jwt:client_secret_basic@{provider.url}"
    with pytest.raises(Unauthorized):
        await tokens.verify(first)
