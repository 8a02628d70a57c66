"""The caller's identity: every way to say it, which one wins, how long it is believed, and what all others are told."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.auth.authenticator import ENTRY_BYTES, Authenticator, CredentialCache
from dragoman.auth.certificates import Certificates
from dragoman.auth.keys import digest_of, id_of, make_key
from dragoman.dialects.v03.card import card as card_03
from dragoman.model.card import AgentCapabilities, AgentCard, AgentInterface
from dragoman.model.errors import Unauthorized, Unavailable
from dragoman.model.principal import ANONYMOUS, AccessRole, Principal, Scope
from dragoman.store.api import Store, StoreError
from dragoman.store.keyring import KeyRing, StoredKey
from dragoman.store.open import open_store
from tests.auth.issuer import issuing, token, verifying
from tests.store.cases.bench import SetClock

PEER = "127.0.0.1"
INTERFACE = AgentInterface(url="http://x/", protocol_binding="JSONRPC", protocol_version="1.0")
NUMBERS = iter(range(1, 1 << 16))


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def store(tmp_path: Path, clock: SetClock) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/keys.db", clock)
    await store.open("test")
    yield store
    await store.close()


async def made(store: Store, name: str = "alice", **more: Any) -> str:
    """A key that is in the store."""
    seed = next(NUMBERS).to_bytes(2)
    new = make_key(lambda count: (seed * count)[:count])
    fields = {"role": AccessRole.CALLER, "agents": None, "scopes": None, "made_ms": 1, **more}
    await store.keys.add(StoredKey(id=new.id, name=name, digest=digest_of(new.text), **fields))
    return new.text


def key(text: str, header: str = "x-api-key") -> dict[bytes, bytes]:
    return {header.encode(): text.encode()}


def bearer(text: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {text}".encode()}


async def refusal(authenticator: Authenticator, headers: dict[bytes, bytes]) -> Unauthorized:
    with pytest.raises(Unauthorized) as caught:
        await authenticator.identify(headers, PEER)
    return caught.value


# -- keys of the store -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [key, lambda text: key(text, "x-agent-api-key"), bearer])
async def test_a_key_names_its_principal_wherever_it_is_sent(store: Store, clock: SetClock, sent: Any) -> None:
    text = await made(store, role=AccessRole.AGENT, agents=("echo",), scopes=(Scope.SEND,))
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    assert authenticator.known(sent(text), PEER) is None
    rights = frozenset({"echo"}), frozenset({Scope.SEND})
    expected = Principal("key:alice", AccessRole.AGENT, *rights, key=id_of(text) or "")
    assert await authenticator.identify(sent(text), PEER) == expected
    assert authenticator.known(sent(text), PEER) == expected


@pytest.mark.parametrize("value", ["bearer {}", "BEARER {}", "  Bearer   {}  "])
async def test_the_word_bearer_is_of_any_case(store: Store, clock: SetClock, value: str) -> None:
    headers = {b"authorization": value.format(await made(store)).encode()}
    assert (await Authenticator(store.keys, clock, agent_keys={}).identify(headers, PEER)).id == "key:alice"


async def test_all_ways_in_which_a_key_is_wrong_look_the_same(store: Store, clock: SetClock) -> None:
    good = await made(store)
    revoked, expired = await made(store), await made(store, expires_ms=clock.ms)
    await store.keys.revoke(revoked[4:16], clock.ms)
    wrong = [
        revoked,
        expired,
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good[:-1],
        good + "A",
        good.upper(),
        "dgm_" + "a" * 12 + "_" + "A" * 43,
        "dgm_",
        "secret",
        "schlüssel",
        "a.b.c",
        "x" * 100_000,
        "\0",
    ]
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    told = {
        (error.message, error.missing, error.scheme)
        for text in wrong
        for headers in (key(text), bearer(text))
        for error in [await refusal(authenticator, headers)]
    }
    assert told == {("the key is not valid here", False, "Bearer")}
    assert (await authenticator.identify(key(good), PEER)).id == "key:alice"


@pytest.mark.parametrize(
    "headers", [{}, {b"x-api-key": b""}, {b"x-api-key": b"  "}, {b"authorization": b"Basic YTpi"}, {b"cookie": b"x"}]
)
async def test_who_says_nothing_is_told_what_to_send(
    store: Store, clock: SetClock, headers: dict[bytes, bytes]
) -> None:
    await made(store)
    error = await refusal(Authenticator(store.keys, clock, agent_keys={}), headers)
    assert error.missing
    assert "x-api-key" in error.message


async def test_a_key_that_is_revoked_is_refused_within_a_second(store: Store, clock: SetClock) -> None:
    text = await made(store)
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    await authenticator.identify(key(text), PEER)
    await store.keys.revoke(text[4:16], clock.ms)
    clock.ms += 999
    assert authenticator.known(key(text), PEER) is not None
    clock.ms += 1
    assert authenticator.known(key(text), PEER) is None
    await refusal(authenticator, key(text))


async def test_a_key_is_not_believed_beyond_its_end(store: Store, clock: SetClock) -> None:
    text = await made(store, expires_ms=clock.ms + 400)
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    await authenticator.identify(key(text), PEER)
    clock.ms += 399
    assert authenticator.known(key(text), PEER) is not None
    clock.ms += 1
    assert authenticator.known(key(text), PEER) is None
    await refusal(authenticator, key(text))


async def test_a_clock_that_is_set_back_makes_nobody_known_for_longer(store: Store, clock: SetClock) -> None:
    text = await made(store)
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    await authenticator.identify(key(text), PEER)
    clock.ms -= 3_600_000
    assert authenticator.known(key(text), PEER) is None


async def test_credentials_that_name_different_callers_are_refused(store: Store, clock: SetClock) -> None:
    alice, bob = await made(store, "alice"), await made(store, "bob")
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    for sent in (
        key(alice) | bearer(bob),
        key(bob) | key(alice, "x-agent-api-key"),
        key("strange") | key(alice, "x-agent-api-key") | bearer(bob),
    ):
        for _ in range(2):  # the second time both are remembered
            assert "name different callers of this server" in (await refusal(authenticator, sent)).message
            assert authenticator.known(sent, PEER) is None
    assert (await authenticator.identify(key(alice) | bearer(alice), PEER)).id == "key:alice"


async def test_a_credential_that_is_not_known_here_counts_for_nothing_beside_one_that_is(
    store: Store, clock: SetClock
) -> None:
    """It may be one for an upstream, to which it is forwarded."""
    bob = await made(store, "bob")
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    for sent in (key(bob) | bearer("upstream's"), key("upstream's") | bearer(bob)):
        assert authenticator.known(sent, PEER) is None
        assert (await authenticator.identify(sent, PEER)).id == "key:bob"
        known = authenticator.known(sent, PEER)
        assert known is not None
        assert known.id == "key:bob"
    await refusal(authenticator, bearer("upstream's"))
    await refusal(authenticator, key("upstream's") | bearer("upstream's"))
    clock.ms += 1000
    assert authenticator.known(key(bob) | bearer("upstream's"), PEER) is None, "it may be a key by now"
    assert (await authenticator.identify(key(" ") | bearer(bob), PEER)).id == "key:bob"
    basic = {b"authorization": b"Basic YTpi"} | key(bob, "x-agent-api-key")
    assert (await authenticator.identify(basic, PEER)).id == "key:bob"
    assert authenticator.known(basic, PEER) is not None


async def test_what_was_sent_in_one_header_is_not_known_in_another(store: Store, clock: SetClock) -> None:
    text = await made(store)
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    await authenticator.identify(bearer(text), PEER)
    assert authenticator.known(key(f"Bearer {text}"), PEER) is None
    await refusal(authenticator, key(f"Bearer {text}"))


async def test_a_flood_of_wrong_keys_drives_no_known_one_out(store: Store, clock: SetClock) -> None:
    text = await made(store)
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    await authenticator.identify(key(text), PEER)
    for number in range(3000):
        await refusal(authenticator, key(f"dgm_{'a' * 12}_{number:043}"))
    assert authenticator.known(key(text), PEER) is not None


class Broken:
    """A ring whose store does not answer."""

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring
        self.broken = False

    async def find(self, key_id: str) -> StoredKey | None:
        if self.broken:
            raise StoreError("the disk is gone")
        return await self.ring.find(key_id)

    async def any(self) -> bool:
        if self.broken:
            raise StoreError("the disk is gone")
        return await self.ring.any()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ring, name)


async def test_a_store_that_does_not_answer_is_unavailable_and_opens_nothing(store: Store, clock: SetClock) -> None:
    text, ring = await made(store), Broken(store.keys)
    authenticator = Authenticator(ring, clock, agent_keys={})
    await authenticator.refresh()
    assert authenticator.required
    ring.broken = True
    clock.ms += 5000
    assert authenticator.required
    with pytest.raises(Unavailable, match="try again"):
        await authenticator.identify(key(text), PEER)
    assert (await refusal(authenticator, {})).missing


async def test_while_the_store_cannot_say_whether_it_has_keys_nobody_is_let_in_unasked(
    store: Store, clock: SetClock
) -> None:
    ring = Broken(store.keys)
    authenticator = Authenticator(ring, clock, agent_keys={})
    for broken in (True, False, True):
        ring.broken = broken
        clock.ms += 1000
        await authenticator.refresh()
        assert authenticator.required == broken
        if broken:
            assert authenticator.known({}, PEER) is None
            with pytest.raises(Unavailable, match="try again"):
                await authenticator.identify({}, PEER)
        else:
            assert await authenticator.identify({}, PEER) is ANONYMOUS
    ring.broken = False
    text = await made(store)
    clock.ms += 1000
    assert (await refusal(authenticator, {})).missing
    assert (await authenticator.identify(key(text), PEER)).id == "key:alice"


# -- whether anybody is asked ------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, key("wrong"), bearer("wrong"), bearer("a.b.c")])
async def test_a_server_that_asks_nobody_looks_at_no_header(
    store: Store, clock: SetClock, headers: dict[bytes, bytes]
) -> None:
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    await authenticator.refresh()
    assert not authenticator.required
    assert authenticator.known(headers, PEER) is ANONYMOUS
    assert await authenticator.identify(headers, PEER) is ANONYMOUS
    assert (authenticator.schemes(), authenticator.requirements()) == ({}, ())


async def test_the_first_key_that_another_process_makes_closes_the_server_within_a_second(
    store: Store, clock: SetClock
) -> None:
    authenticator = Authenticator(store.keys, clock, agent_keys={})
    await authenticator.refresh()
    assert authenticator.known({}, PEER) is ANONYMOUS
    text = await made(store)
    clock.ms += 999
    assert authenticator.known({}, PEER) is ANONYMOUS
    clock.ms += 1
    assert authenticator.known({}, PEER) is None
    assert (await refusal(authenticator, {})).missing
    assert authenticator.required
    await store.keys.revoke(text[4:16], clock.ms)
    clock.ms += 60_000
    assert authenticator.required  # a revoked key opens nothing


async def test_a_server_that_always_asks_asks_without_any_key(store: Store, clock: SetClock) -> None:
    authenticator = Authenticator(store.keys, clock, agent_keys={}, always=True)
    assert (await refusal(authenticator, {})).missing
    assert set(authenticator.schemes()) == {"apiKey", "bearer"}


# -- keys of the configuration -----------------------------------------------------------------------------------


async def test_the_shared_key_is_the_operators_and_stands_beside_the_others(store: Store, clock: SetClock) -> None:
    text = await made(store)
    authenticator = Authenticator(store.keys, clock, shared="s3cret", agent_keys={"echo": "its own"})
    assert authenticator.required
    for headers in (key("s3cret"), bearer("s3cret"), key("s3cret", "x-agent-api-key")):
        assert await authenticator.identify(headers, PEER) == Principal("shared", AccessRole.ADMIN)
        assert authenticator.known(headers, PEER) == Principal("shared", AccessRole.ADMIN)
    assert (await authenticator.identify(key(text), PEER)).id == "key:alice"
    assert (await authenticator.identify(key("its own"), PEER)).id == "agent-key:echo"


@pytest.mark.parametrize("sent", ["schlüssel".encode(), "schlüssel".encode("latin-1")])
async def test_a_key_beyond_ascii_is_taken_in_both_charsets(clock: SetClock, sent: bytes) -> None:
    authenticator = Authenticator(None, clock, shared="schlüssel", agent_keys={"echo": "鍵"})
    assert (await authenticator.identify({b"x-api-key": sent}, PEER)).id == "shared"
    assert (await authenticator.identify(key("鍵"), PEER)).id == "agent-key:echo"


async def test_keys_of_agents_ask_only_those_who_call_these_agents(clock: SetClock) -> None:
    authenticator = Authenticator(None, clock, agent_keys={"a": "ka", "b": "kb", "c": "ka"})
    assert not authenticator.required
    assert [authenticator.required_for(agent) for agent in ("a", "b", "open")] == [True, True, False]
    assert await authenticator.identify({}, PEER) is ANONYMOUS
    assert await authenticator.identify(key("kb"), PEER) == Principal("agent-key:b", AccessRole.AGENT, frozenset({"b"}))
    both = await authenticator.identify(bearer("ka"), PEER)
    assert both == Principal("agent-key:a", AccessRole.AGENT, frozenset({"a", "c"}))
    assert not both.reaches("b")
    assert not (await refusal(authenticator, key("wrong"))).missing
    assert set(authenticator.schemes("a")) == {"apiKey", "bearer"}
    assert authenticator.schemes("open") == authenticator.schemes() == {}


# -- tokens and certificates -------------------------------------------------------------------------------------


async def test_a_token_is_verified_once_and_known_until_it_expires() -> None:
    async with issuing() as issuer, verifying(issuer) as tokens:
        authenticator = Authenticator(None, issuer.clock, agent_keys={}, tokens=tokens)
        headers = bearer(token(issuer.claims(exp=issuer.clock.ms // 1000 + 60)).decode())
        assert authenticator.required
        assert authenticator.known(headers, PEER) is None
        principal = await authenticator.identify(headers, PEER)
        issuer.clock.ms += 89_999
        assert authenticator.known(headers, PEER) is principal
        issuer.clock.ms += 1
        assert authenticator.known(headers, PEER) is None
        assert "expired" in (await refusal(authenticator, headers)).message


async def test_a_token_is_taken_as_bearer_only_and_keys_beside_it(store: Store, clock: SetClock) -> None:
    text = await made(store)
    async with issuing() as issuer, verifying(issuer) as tokens:
        authenticator = Authenticator(store.keys, clock, agent_keys={}, tokens=tokens)
        sent = token(issuer.claims()).decode()
        await refusal(authenticator, key(sent))
        assert (await authenticator.identify(bearer(text), PEER)).id == "key:alice"
        assert (await authenticator.identify(bearer(sent), PEER)).id == f"jwt:alice@{issuer.url}"
        assert "JWT" in (await refusal(authenticator, {})).message


async def test_an_issuer_that_is_away_is_not_the_callers_fault() -> None:
    async with issuing() as issuer, verifying(issuer) as tokens:
        issuer.fail()
        authenticator = Authenticator(None, issuer.clock, agent_keys={}, tokens=tokens)
        with pytest.raises(Unavailable):
            await authenticator.identify(bearer(token(issuer.claims()).decode()), PEER)


async def test_a_certificate_counts_where_no_key_is_sent(store: Store, clock: SetClock) -> None:
    text = await made(store)
    certificates = Certificates("X-Client-DN", ["10.0.0.0/8"])
    authenticator = Authenticator(store.keys, clock, agent_keys={}, certificates=certificates)
    named = {b"x-client-dn": b"CN=alice"}
    assert authenticator.known(named, "10.1.2.3") == Principal("cert:CN=alice")
    assert await authenticator.identify(named | {b"authorization": b"Basic x"}, "10.1.2.3") == Principal(
        "cert:CN=alice"
    )
    assert (await authenticator.identify(named | key(text), "10.1.2.3")).id == "key:alice"
    with pytest.raises(Unauthorized):
        await authenticator.identify(named | key("wrong"), "10.1.2.3")
    assert authenticator.known(named, "11.1.2.3") is None
    assert "certificate" in (await refusal(authenticator, named)).message


# -- what the card says ------------------------------------------------------------------------------------------


async def test_the_card_says_what_is_enforced_in_both_spellings(store: Store, clock: SetClock) -> None:
    async with issuing() as issuer, verifying(issuer) as tokens:
        certificates = Certificates("x-client-dn", ["10.0.0.0/8"])
        authenticator = Authenticator(store.keys, clock, agent_keys={}, tokens=tokens, certificates=certificates)
        await authenticator.refresh()
        assert "apiKey" not in authenticator.schemes()
        assert authenticator.schemes()["bearer"] == {
            "httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}
        }
        await made(store)
        clock.ms += 1000
        await authenticator.refresh()
        url = f"{issuer.url}/.well-known/openid-configuration"
        mtls = {"description": "A client certificate, verified by the proxy"}
        assert authenticator.schemes() == {
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}},
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "openIdConnect": {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}},
            "mtls": {"mtlsSecurityScheme": mtls},
        }
        card = AgentCard(
            name="x",
            description="",
            version="1",
            supported_interfaces=(),
            capabilities=AgentCapabilities(),
            default_input_modes=(),
            default_output_modes=(),
            skills=(),
            security_schemes=dict(authenticator.schemes()),
            security_requirements=authenticator.requirements(),
        )
        old = card_03(replace(card, supported_interfaces=(INTERFACE,)))
        assert old["securitySchemes"] == {
            "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            "bearer": {"type": "http", "scheme": "Bearer"},
            "openIdConnect": {"type": "openIdConnect", "openIdConnectUrl": url},
            "mtls": {"type": "mutualTLS", **mtls},
        }
        assert old["security"] == [{"apiKey": []}, {"bearer": []}, {"openIdConnect": []}, {"mtls": []}]


# -- what is known -----------------------------------------------------------------------------------------------


def test_what_was_seen_is_bounded_in_bytes_and_the_oldest_goes_first() -> None:
    seen, who = CredentialCache(max_bytes=3 * (ENTRY_BYTES + 10)), Principal("x")
    for name in (b"aaaaaaaaaa", b"bbbbbbbbbb", b"cccccccccc", b"aaaaaaaaaa", b"dddddddddd"):
        seen.put(name, who, 0, 10)
    assert [seen.get(letter * 10, 5) is who for letter in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    seen.put(b"e" * 10_000, who, 0, 10)
    assert len(seen) == 0
    for _ in range(100):
        seen.put(b"aaaaaaaaaa", who, 0, 10)
    assert len(seen) == 1


async def test_agents_keys_are_replaced_at_once_and_the_shared_one_stays(clock: SetClock) -> None:
    authenticator = Authenticator(None, clock, shared="all", agent_keys={"a": "old", "b": "both"})
    assert (await authenticator.identify(key("old"), PEER)).reaches("a")
    authenticator.replace_agent_keys({"a": "new", "b": "both"})
    await refusal(authenticator, key("old"))  # though it was believed a moment ago
    assert (await authenticator.identify(key("new"), PEER)).agents == {"a"}
    assert (await authenticator.identify(key("all"), PEER)).id == "shared"


def test_with_the_last_key_of_an_agent_goes_the_question(clock: SetClock) -> None:
    authenticator = Authenticator(None, clock, agent_keys={"a": "key"})
    assert authenticator.required_for("a")
    authenticator.replace_agent_keys({})
    assert not authenticator.required_for("a")
    assert authenticator.known({}, PEER) is ANONYMOUS
