"""An issuer of somebody else's making exchanges callers' tokens: what it takes and gives, and servers in a row."""

import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from dragoman.agents.configured_credentials import ConfiguredCredentials
from dragoman.agents.exchange_check import check_exchange
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.client import BearerToken, connect
from dragoman.client.errors import ExchangeRefused, ExchangeUnusable
from dragoman.client.token_exchange import SubjectToken, TokenExchange, read_subject_token
from dragoman.config import Upstream, UpstreamCredentials
from dragoman.engine.admin.inspection import Inspector
from dragoman.model.card import Profile
from dragoman.net.egress import Egress
from dragoman.server import serving
from tests.auth.exchanging import claims_of
from tests.kit.places import asked, beside, quick, sqlite_url
from tests.kit.values import text_of
from tests.peers.test_peers import IDPYOIDC
from tests.processes import ENDS_WITH_US
from tests.soak import times
from tests.systems.test_exchange import EVERY, who

SCRIPT = Path(__file__).parent / "servers" / "idpyoidc_issuer.py"
CLIENT, SECRET = "gateway", "the-secret-of-the-gateway"
FRONT, BACK, FAR = AUDIENCES = ("https://front.example", "https://back.example", "https://far.example")
SCOPES = ("read", "write", "list")

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of the issuer, which ends when its input does."""
    assert IDPYOIDC.exists(), f"{IDPYOIDC} is missing: run `make peers`"
    pipe = subprocess.PIPE
    with subprocess.Popen([*ENDS_WITH_US, str(IDPYOIDC), str(SCRIPT)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    egress = Egress()
    yield egress
    await egress.close()


async def signed_in(url: str, egress: Egress, name: str, scope: str, audience: str = FRONT) -> str:
    """A token of somebody for that audience."""
    body = json.encode({"name": name, "scope": scope.split(), "audience": audience})
    reply = await egress.request("POST", f"{url}/subject", timeout_s=60, body=body)
    assert reply.ok
    token: str = json.decode(reply.body)["token"]
    return token


def table(url: str, audience: str, **more: Any) -> UpstreamCredentials:
    given = {"exchange": True, "client_id": CLIENT, "env": "X", "audience": audience, **more}
    return UpstreamCredentials(token_url=f"{url}/token", **given)


def exchange(url: str, egress: Egress, audience: str, *, secret: str = SECRET, **more: Any) -> TokenExchange:
    made = ConfiguredCredentials(table(url, audience, **more), secret).make(egress)
    assert isinstance(made, TokenExchange)
    return made


def subject(token: str) -> SubjectToken:
    found = read_subject_token({"authorization": f"Bearer {token}"})
    assert found is not None
    return found


async def test_a_token_is_exchanged_for_one_of_the_audience(url: str, egress: Egress) -> None:
    mine = await signed_in(url, egress, "alice", "read list")
    issued = await exchange(url, egress, BACK, scope="read write").token_for(subject(mine))
    claims = claims_of(issued.token)
    assert (claims["aud"], claims["scope"], claims["sub"]) == ([BACK], "read", claims_of(mine)["sub"])
    assert (issued.link.actors, issued.link.issuer, issued.link.scope) == ((CLIENT,), url, "read")


async def test_what_it_refuses_is_told_apart(url: str, egress: Egress) -> None:
    mine = await signed_in(url, egress, "alice", "read")
    with pytest.raises(ExchangeUnusable, match="invalid_target"):
        await exchange(url, egress, "https://unknown.example").token_for(subject(mine))
    with pytest.raises((ExchangeUnusable, ExchangeRefused)):
        await exchange(url, egress, BACK, secret="wrong").token_for(subject(mine))
    head, claims, _ = mine.split(".")
    with pytest.raises(ExchangeRefused, match="invalid_request"):
        await exchange(url, egress, BACK).token_for(subject(f"{head}.{claims}.c2lnbmVk"))


async def test_its_check_says_that_it_is_set_up(url: str, egress: Egress) -> None:
    (finding,) = [each async for each in check_exchange(exchange(url, egress, BACK, scope="read"))]
    assert finding.ok
    assert BACK in finding.what
    (finding,) = [each async for each in check_exchange(exchange(url, egress, BACK, secret="wrong"))]
    assert (finding.ok, "as a client" in finding.what) == (False, True)


async def test_servers_in_a_row_accept_its_tokens(url: str, egress: Egress, tmp_path: Path) -> None:
    """Each server verifies its tokens by the issuer's keys, and takes none that is for another one."""

    def settings(audience: str, **more: Any) -> Any:
        return quick(jwt_issuer=url, jwt_audience=audience, **more)

    def agent(at: str, audience: str) -> UpstreamAgent:
        shown = table(url, audience, scope="read write")
        profile = Profile(id="who", name="Who", description="Ours", version="0.1", skills=())
        make = ConfiguredCredentials(shown, SECRET).make
        return UpstreamAgent(profile, Upstream(url=f"{at}/agents/who", credentials=shown), make_credentials=make)

    mine = await signed_in(url, egress, "alice", "read list")
    kept = sqlite_url(tmp_path)
    async with (
        serving(settings(FAR), [who()]) as far,
        serving(settings(BACK, store=kept), [agent(far, FAR)]) as back,
        serving(settings(FRONT), [agent(back, BACK)]) as front,
        connect(f"{front}/agents/who", credentials=BearerToken(mine)) as caller,
    ):
        assert text_of(await asked(caller, "hello")) == f"jwt:{claims_of(mine)['sub']}"
    async with beside(kept) as store:
        ((task_id,),) = [(row.head.id,) for row in (await store.list_rows(EVERY)).rows]
        told, own = (await Inspector(store).show(task_id)).acting
    assert (told.audience, told.told, own.audience, own.told) == (BACK, True, FAR, False)
    assert told.subject == own.subject == claims_of(mine)["sub"]


async def test_in_random_chains_no_scope_widens_and_no_token_leaves_its_audience(url: str, egress: Egress) -> None:
    exchanges: dict[tuple[str, str | None], TokenExchange] = {}
    walked = 0
    for seed in range(times(15, 10_000)):
        chance = random.Random(seed)
        scope = chance.sample(SCOPES, chance.randrange(1, 4))
        held = subject(await signed_in(url, egress, f"user-{seed % 7}", " ".join(scope)))
        for _ in range(chance.randrange(1, 4)):
            audience = chance.choice(AUDIENCES)
            wanted = chance.choice((None, " ".join(chance.sample(SCOPES, chance.randrange(1, 4)))))
            made = exchanges.setdefault((audience, wanted), exchange(url, egress, audience, scope=wanted))
            allowed = held.scope if wanted is None else held.scope & set(wanted.split())
            if not allowed:
                with pytest.raises(ExchangeRefused, match="none of the scopes"):
                    await made.token_for(held)
                break
            issued = await made.token_for(held)
            claims = claims_of(issued.token)
            assert claims["aud"] == [audience]
            assert claims["sub"] == held.subject
            held = subject(issued.token)
            assert held.scope <= allowed
            walked += 1
    assert walked
