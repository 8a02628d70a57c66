"""Token exchange: what is asked for, which tokens are taken, how long they are used, and where they go."""

import asyncio
import json
import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qs
from weakref import ref

import pytest

from dragoman.client.credentials import Authorized, ClientCredentials
from dragoman.client.errors import ExchangeRefused, ExchangeUnusable, NoToken
from dragoman.client.token_endpoint import TokenAnswer, TokenEndpoint
from dragoman.client.token_exchange import (
    REFUSED_S,
    ExchangeTerms,
    SubjectToken,
    TokenExchange,
    present_subject,
    read_subject_token,
)
from dragoman.model.ids import SystemClock
from dragoman.net.egress import Egress, HttpReply
from tests.kit.waiting import no_hang, until
from tests.net.peer import Peer, Script, listening, says, status
from tests.soak import times
from tests.store.cases.bench import SetClock

TOKEN, API = "POST /token", "POST /api"
SECRET = "s3cret/+ %ü"
AUDIENCE = "https://back.example"


def jwt(**claims: Any) -> str:
    """A token with these claims, which nobody here verifies."""
    parts = ({"alg": "RS256"}, claims)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + ".c2lnbmVk"


def subject(**claims: Any) -> SubjectToken:
    found = read_subject_token({"authorization": f"Bearer {jwt(**{'sub': 'alice', **claims})}"})
    assert found is not None
    return found


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with no_hang(), listening() as peer:
        peer.scripts = {TOKEN: gives("t1"), API: says({})}
        yield peer


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def gives(token: str, **more: Any) -> Script:
    return says({"access_token": token, "token_type": "Bearer", "expires_in": 3600, **more})


def exchange(peer: Peer, egress: Egress, clock: SetClock, *, actor: bool = False, **terms: Any) -> TokenExchange:
    endpoint = TokenEndpoint(f"{peer.url}/token", "front", SECRET, egress=egress)
    own = ClientCredentials(f"{peer.url}/token", "front", SECRET, egress=egress, clock=clock) if actor else None
    return TokenExchange(endpoint, ExchangeTerms(**{"audience": AUDIENCE, **terms}), actor=own, clock=clock)


# -- the caller's token ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exp", [10**400, -(10**400), "soon", None, [7]], ids=["far", "past", "text", "null", "list"])
def test_a_token_that_names_no_moment_at_which_it_expires_says_nothing_of_it(exp: Any) -> None:
    assert subject(exp=exp).expires_ms is None


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer drk_abc.def", "Bearer a.b.c", "Basic dTpw", f"Basic {jwt(sub='a')}", "Bearer x.y.z.u.v"],
)
def test_what_is_no_token_of_an_issuer_is_not_exchanged(header: str) -> None:
    assert read_subject_token({"authorization": header}) is None


def test_its_claims_are_read() -> None:
    act = {"sub": "front", "act": {"client_id": "app"}}
    found = subject(iss="https://issuer", scope="a b", exp=7, act=act)
    assert (found.subject, found.issuer, found.expires_ms) == ("alice", "https://issuer", 7000)
    assert (found.scope, found.actors) == (frozenset({"a", "b"}), ("front", "app"))
    assert subject(scp=["a", "c"]).scope == frozenset({"a", "c"})
    assert found.token not in repr(found)


# -- one exchange ------------------------------------------------------------------------------------------------------


async def test_an_actor_token_names_this_server(peer: Peer, egress: Egress, clock: SetClock) -> None:
    issued = await exchange(peer, egress, clock, actor=True, actor_type="urn:x").token_for(subject())
    own, asked = (parse_qs(each.body.decode()) for each in peer.asked)
    assert own["grant_type"] == ["client_credentials"]
    assert (asked["actor_token"], asked["actor_token_type"]) == (["t1"], ["urn:x"])
    assert (issued.link.subject, issued.link.actors, issued.link.client) == ("alice", ("front",), "front")


async def test_the_actors_are_those_of_the_new_token(peer: Peer, egress: Egress, clock: SetClock) -> None:
    act = {"sub": "front@issuer", "act": {"sub": "app"}}
    peer.scripts[TOKEN] = gives(jwt(aud=AUDIENCE, sub="alice", iss="https://issuer", act=act, scope="a"))
    link = (await exchange(peer, egress, clock).token_for(subject(scope="a b"))).link
    assert (link.actors, link.issuer, link.scope) == (("front@issuer", "app"), "https://issuer", "a")
    peer.scripts[TOKEN] = gives("opaque")
    link = (await exchange(peer, egress, clock).token_for(subject(act={"sub": "app"}))).link
    assert link.actors == ("front", "app")


@pytest.mark.parametrize(
    ("claims", "terms", "told"),
    [
        ({"aud": AUDIENCE}, {}, ""),
        ({"aud": [AUDIENCE]}, {"resource": "https://back.example/api"}, ""),
        ({"aud": [AUDIENCE, "https://back.example/api"]}, {"resource": "https://back.example/api"}, ""),
        ({"aud": [AUDIENCE, "account"]}, {"audiences": frozenset({"account"})}, ""),
        ({"aud": [AUDIENCE, "account"]}, {}, "for another audience, too: account"),
        ({"aud": "https://far.example"}, {}, "not for https://back.example, but for https://far.example"),
        ({"aud": "account"}, {"audiences": frozenset({"account"})}, "not for https://back.example, but for account"),
        ({"sub": "alice"}, {}, "but for nobody in particular"),
        ({"aud": []}, {}, "but for nobody in particular"),
    ],
)
async def test_a_token_is_for_its_audience(
    peer: Peer, egress: Egress, clock: SetClock, claims: dict[str, Any], terms: dict[str, Any], told: str
) -> None:
    peer.scripts[TOKEN] = gives(jwt(**claims))
    exchanged = exchange(peer, egress, clock, **terms)
    if not told:
        assert (await exchanged.token_for(subject())).token == jwt(**claims)
        return
    with pytest.raises(ExchangeUnusable) as raised:
        await exchanged.token_for(subject())
    assert told in str(raised.value)


async def test_those_who_ask_at_once_share_a_token_and_others_of_the_same_subject_do_not(
    peer: Peer, egress: Egress, clock: SetClock
) -> None:
    exchanged = exchange(peer, egress, clock)
    mine = subject(jti=1)
    assert {one.token for one in await asyncio.gather(*(exchanged.token_for(mine) for _ in range(20)))} == {"t1"}
    assert len(peer.asked) == 1
    await exchanged.token_for(subject(jti=2))  # it may be forged: the issuer has to see it
    assert len(peer.asked) == 2


@pytest.mark.parametrize(
    ("life", "own_s", "used_s"),
    [
        ({"expires_in": 3600}, 100, 100),
        ({"expires_in": 100}, 3600, 90),
        ({"expires_in": None}, 3600, 270),
        ({"expires_in": 3600, "access_token": 200}, 3600, 180),
        ({"expires_in": None, "access_token": 200}, None, 180),
    ],
)
async def test_a_token_is_used_as_long_as_it_and_the_callers_own_live(
    peer: Peer, egress: Egress, clock: SetClock, life: dict[str, Any], own_s: int | None, used_s: int
) -> None:
    now_s = clock.now_ms() // 1000
    if "access_token" in life:
        life = {**life, "access_token": jwt(aud=AUDIENCE, exp=now_s + life["access_token"])}
    peer.scripts[TOKEN] = gives(token="t1", **{k: v for k, v in life.items() if k != "access_token"})
    if "access_token" in life:
        peer.scripts[TOKEN] = says({"token_type": "Bearer", **life})
    exchanged = exchange(peer, egress, clock)
    mine = subject(**({} if own_s is None else {"exp": now_s + own_s}))
    issued = await exchanged.token_for(mine)
    assert issued.until_ms <= clock.ms + used_s * 1000
    clock.ms += used_s * 1000 - 1
    await exchanged.token_for(mine)
    assert len(peer.asked) == 1
    clock.ms += 1001  # the clock of the test does not begin at a full second
    if own_s == used_s:
        with pytest.raises(ExchangeRefused, match="expired"):
            await exchanged.token_for(mine)
        assert len(peer.asked) == 1
    else:
        await exchanged.token_for(mine)
        assert len(peer.asked) == 2


async def test_a_token_that_is_over_is_forgotten(peer: Peer, egress: Egress) -> None:
    peer.scripts[TOKEN] = gives("t1", expires_in=0.05)
    exchanged = exchange(peer, egress, SetClock(SystemClock().now_ms()))
    issued = ref(await exchanged.token_for(subject()))
    await until(lambda: issued() is None)


async def test_a_token_that_gives_way_to_those_of_others_is_forgotten(
    peer: Peer, egress: Egress, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.client.token_exchange.ENTRIES_MAX", 1)
    exchanged = exchange(peer, egress, clock)
    first = ref(await exchanged.token_for(subject(jti=1)))
    assert first() is not None
    await exchanged.token_for(subject(jti=2))
    assert first() is None


async def test_a_refusal_counts_for_a_while_and_for_that_token_alone(
    peer: Peer, egress: Egress, clock: SetClock
) -> None:
    peer.scripts[TOKEN] = says({"error": "invalid_grant"}, 400)
    exchanged = exchange(peer, egress, clock)
    for _ in range(3):
        with pytest.raises(ExchangeRefused, match="400, invalid_grant"):
            await exchanged.token_for(subject(jti=1))
    assert len(peer.asked) == 1
    peer.scripts[TOKEN] = gives("t1")
    await exchanged.token_for(subject(jti=2))
    clock.ms += REFUSED_S * 1000
    await exchanged.token_for(subject(jti=1))


@pytest.mark.parametrize("script", [status(503), status(429), says(b"nothing")])
async def test_an_issuer_that_fails_refuses_nothing(
    peer: Peer, egress: Egress, clock: SetClock, script: Script
) -> None:
    peer.scripts[TOKEN] = script
    exchanged = exchange(peer, egress, clock)
    with pytest.raises(NoToken) as raised:
        await exchanged.token_for(subject())
    assert not isinstance(raised.value, ExchangeRefused | ExchangeUnusable)
    peer.scripts[TOKEN] = gives("t1")
    assert (await exchanged.token_for(subject())).token == "t1"


async def test_those_who_waited_for_an_issuer_in_vain_do_not_wait_again(
    peer: Peer, egress: Egress, clock: SetClock
) -> None:
    peer.scripts[TOKEN] = status(503)
    exchanged = exchange(peer, egress, clock)
    came = await asyncio.gather(*(exchanged.token_for(subject()) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(each, NoToken) for each in came)
    assert len(peer.asked) == 1
    with pytest.raises(NoToken):
        await exchanged.token_for(subject())
    assert len(peer.asked) == 2


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (says({"error": "invalid_grant"}, 400), ExchangeRefused),
        (says({"error": "access_denied"}, 403), ExchangeRefused),
        (says({"error": "invalid_token"}, 401), ExchangeRefused),
        (says({"error": "invalid_client"}, 401), ExchangeUnusable),
        (status(401), ExchangeUnusable),
        (says({"error": "invalid_target"}, 400), ExchangeUnusable),
        (status(404), ExchangeUnusable),
    ],
)
async def test_a_refusal_is_the_callers_to_cure_or_the_operators(
    peer: Peer, egress: Egress, clock: SetClock, script: Script, kind: type[NoToken]
) -> None:
    peer.scripts[TOKEN] = script
    with pytest.raises(kind):
        await exchange(peer, egress, clock).token_for(subject())


async def test_a_token_that_the_other_server_refuses_is_exchanged_anew_once(
    peer: Peer, egress: Egress, clock: SetClock
) -> None:
    exchanged = exchange(peer, egress, clock)
    present_subject.set(subject())
    peer.scripts[API] = status(401)
    call = Authorized(egress, exchanged)
    for _ in range(3):
        assert (await call.request("POST", f"{peer.url}/api", timeout_s=60)).status == 401
    assert peer.paths.count(TOKEN) == 2
    present_subject.set(None)
    peer.asked.clear()
    await call.request("POST", f"{peer.url}/api", timeout_s=60)
    assert "authorization" not in peer.asked[0].headers


async def test_a_token_of_a_caller_that_has_expired_is_not_exchanged_after_a_refusal_either(
    peer: Peer, egress: Egress, clock: SetClock
) -> None:
    exchanged = exchange(peer, egress, clock)
    mine = subject(exp=clock.now_ms() // 1000 + 60)
    issued = await exchanged.token_for(mine)
    clock.ms += 61_000
    before = present_subject.set(mine)
    try:
        with pytest.raises(ExchangeRefused, match="expired"):
            await exchanged.renewed(issued.headers)
    finally:
        present_subject.reset(before)
    assert peer.paths.count(TOKEN) == 1


# -- chains of servers -------------------------------------------------------------------------------------------------

SCOPES = ("read", "write", "list", "admin")


class HostileIssuer:
    """An issuer that gives what was asked for, or something else: more scope, another audience, no word of either."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.shown, self.client_id, self.secrets, self.safe = "https://issuer/token", "server", (), True
        self.asked: list[Mapping[str, str | None]] = []

    async def request_token(self, form: Mapping[str, str | None]) -> TokenAnswer:
        self.asked.append(form)
        chance = self.chance
        asked = (form["scope"] or "").split()
        given = chance.choice((asked, asked, asked[:1], [*asked, chance.choice(SCOPES)]))
        other = f"https://{chance.randrange(5)}.example"
        audience = chance.choice(
            (form["audience"], form["audience"], form["audience"], other, [form["audience"], other])
        )
        claims: dict[str, Any] = {"sub": "alice", "jti": chance.random(), "exp": 10**12}
        if chance.random() < 0.9:
            claims["aud"] = audience
        if chance.random() < 0.8:
            claims[chance.choice(("scope", "scp"))] = chance.choice((" ".join(given), given))
        told = chance.choice((None, " ".join(given)))
        return TokenAnswer(jwt(**claims), "Bearer", 3600, told)


class Servers:
    """The servers of a chain. `seen` has the tokens that each was shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def request(
        self, method: str, url: Any, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> HttpReply:
        assert headers is not None
        self.seen.append((str(url), headers["Authorization"].removeprefix("Bearer ")))
        return HttpReply(200, {}, b"")


async def _walk(chance: random.Random) -> tuple[int, int]:
    """Walk one chain of servers. Returns how many exchanges were made, and how many of the tokens were taken."""
    held = subject(scope=" ".join(chance.sample(SCOPES, chance.randrange(5))), exp=10**12, jti=chance.random())
    allowed, made, taken = held.scope, 0, 0
    for _ in range(chance.randrange(1, 6)):
        place = f"https://{chance.randrange(5)}.example"
        scope = chance.choice((None, tuple(chance.sample(SCOPES, chance.randrange(1, 4)))))
        issuer, servers = HostileIssuer(chance), Servers()
        exchanged = TokenExchange(issuer, ExchangeTerms(audience=place, scope=scope))  # type: ignore[arg-type]
        present_subject.set(held)
        try:
            await Authorized(servers, exchanged).request("POST", place, timeout_s=1)  # type: ignore[arg-type]
        except (ExchangeRefused, ExchangeUnusable):
            assert servers.seen == []
            break
        finally:
            made += len(issuer.asked)
            for form in issuer.asked:
                assert set((form["scope"] or "").split()) <= allowed  # nothing is asked for that the caller's has not
                assert form["subject_token"] == held.token
        ((where, token),) = servers.seen
        shown = read_subject_token({"authorization": f"Bearer {token}"})
        assert shown is not None
        assert _audiences_in(token) <= {where}
        assert shown.scope <= allowed
        assert scope is None or shown.scope <= set(scope)
        taken += 1
        held, allowed = shown, shown.scope
    return made, taken


def _audiences_in(token: str) -> set[str]:
    part = token.split(".")[1]
    found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))).get("aud", [])
    return {found} if isinstance(found, str) else set(found)


async def test_in_no_chain_does_a_scope_widen_or_a_token_leave_its_audience() -> None:
    made = taken = 0
    for seed in range(times(1_000, 10_000)):
        one, other = await _walk(random.Random(seed))
        made, taken = made + one, taken + other
    assert made > taken > made // 4  # hostile enough, and not too hostile to see long chains
