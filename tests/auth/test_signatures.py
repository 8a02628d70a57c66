"""Signatures: what is signed verifies, what was changed does not, and nothing in a card decides how it is verified."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, OctKey

from dragoman.auth.signatures import (
    SIGNATURES_MAX,
    VERIFIABLE,
    CardNotVerified,
    Signer,
    SigningRoom,
    canonical,
    verify_card,
)
from dragoman.client.card import verify
from dragoman.dialects import cards
from dragoman.model.card import AgentExtension, AgentSkill, Profile
from dragoman.model.ids import SystemClock
from dragoman.store.open import open_store

JKU = "https://agents.example.org/.well-known/jwks.json"
PROFILE = Profile(
    id="weather",
    name="Wetter für überall",
    description="Forecasts",
    version="1.2.0",
    skills=(AgentSkill(id="forecast", name="Forecast", description="", tags=("weather",)),),
    extensions=(AgentExtension(uri="https://example.org/ext", params={"count": 5, "share": 0.25, "none": ""}),),
)
AT = cards.interfaces("https://agents.example.org", "/agents/weather")


def signer(kid: str = "k1") -> Signer:
    return Signer(ECKey.generate_key("P-256"), kid)


def keys(*signers: Signer) -> dict[str, Any]:
    return {"keys": [key for each in signers for key in msgspec.json.decode(each.jwks())["keys"]]}


def whole_card() -> dict[str, Any]:
    document = cards.well_known(cards.card(PROFILE, AT), "").document
    card: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return card


def forged(header: dict[str, Any], card: dict[str, Any], key: Any) -> dict[str, Any]:
    protected, _, signature = jws.serialize_compact(
        header, canonical(card), key, registry=jws.JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
    ).split(".")
    return {**card, "signatures": [{"protected": protected, "signature": signature}]}


def test_a_signed_card_verifies_and_names_its_key() -> None:
    ours = signer("mine")
    card = whole_card()
    signed = {**card, "signatures": [ours.sign(card, JKU)]}
    assert verify(signed, keys(signer("other"), ours)) == "mine"


def test_the_header_says_algorithm_key_and_where_the_key_is() -> None:
    protected = signer().sign({"name": "x"}, JKU)["protected"]
    header = json.loads(base64.urlsafe_b64decode(protected + "=" * (-len(protected) % 4)))
    assert header == {"alg": "ES256", "typ": "JOSE", "kid": "k1", "jku": JKU}


def test_the_public_key_set_holds_nothing_private() -> None:
    assert set(keys(signer())["keys"][0]) == {"kty", "crv", "x", "y", "kid", "use", "alg"}


def test_a_signature_over_the_fields_of_1_0_alone_verifies_on_the_hybrid_card() -> None:
    ours = signer()
    one = msgspec.to_builtins(cards.with_modes(cards.card(PROFILE, AT)))
    assert verify({**whole_card(), "signatures": [ours.sign(one, JKU)]}, keys(ours)) == "k1"


def test_a_card_without_signatures_is_refused() -> None:
    with pytest.raises(CardNotVerified, match="not signed"):
        verify(whole_card(), keys(signer()))


@pytest.mark.parametrize("path", ["name", "url", "version", "description", "supportedInterfaces", "capabilities"])
def test_a_card_that_was_changed_is_refused(path: str) -> None:
    ours, card = signer(), whole_card()
    signed = {**card, "signatures": [ours.sign(card, JKU)], path: "https://evil.example.org"}
    with pytest.raises(CardNotVerified):
        verify(signed, keys(ours))


def test_a_field_that_was_added_is_refused() -> None:
    ours, card = signer(), whole_card()
    with pytest.raises(CardNotVerified):
        verify({**card, "signatures": [ours.sign(card, JKU)], "iconUrl": "https://evil.example.org"}, keys(ours))


def test_a_signature_of_another_key_of_the_same_id_is_refused() -> None:
    card = whole_card()
    with pytest.raises(CardNotVerified):
        verify({**card, "signatures": [signer("k1").sign(card, JKU)]}, keys(signer("k1")))


def test_one_good_signature_among_bad_ones_is_enough() -> None:
    ours, card = signer(), whole_card()
    bad: list[Any] = [None, {"protected": "?", "signature": "?"}, {"protected": 5}, signer("k1").sign(card, JKU)]
    assert verify({**card, "signatures": [*bad, ours.sign(card, JKU)]}, keys(ours)) == "k1"


def test_a_public_key_used_as_a_shared_secret_is_refused() -> None:
    ours = signer()
    public = keys(ours)["keys"][0]
    secret = OctKey.import_key(json.dumps(public))
    with pytest.raises(CardNotVerified):
        verify(forged({"alg": "HS256", "kid": "k1"}, whole_card(), secret), keys(ours))


def test_a_key_that_the_signature_brings_along_is_not_used() -> None:
    theirs = ECKey.generate_key("P-256")
    header = {"alg": "ES256", "jwk": theirs.as_dict(private=False), "jku": "https://evil.example.org/jwks.json"}
    with pytest.raises(CardNotVerified):
        verify(forged(header, whole_card(), theirs), keys(signer()))


def test_an_algorithm_that_was_not_named_is_refused() -> None:
    ours, card = signer(), whole_card()
    with pytest.raises(CardNotVerified):
        verify_card({**card, "signatures": [ours.sign(card, JKU)]}, (), keys(ours), ["RS256"])


def test_the_asymmetric_algorithms_alone_are_verifiable() -> None:
    assert not {"none", "HS256", "HS384", "HS512"} & set(VERIFIABLE)


def test_nesting_too_deep_has_no_canonical_form() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="nested deeper"):
        canonical({"params": deep})


def test_a_hostile_card_of_any_depth_is_refused_and_nothing_else() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CardNotVerified):
        verify_card({"deep": deep, "signatures": [signer().sign({}, JKU)]}, (), keys(signer()), VERIFIABLE)


@pytest.mark.parametrize(
    "header", [b'{"alg":"ES256","kid":"k1","crit":5}', b"[" * 5000, b'{"alg":"ES256","kid":"k1","x":' + b"[" * 2000]
)
def test_a_hostile_header_is_refused_and_nothing_else(header: bytes) -> None:
    protected = base64.urlsafe_b64encode(header).decode().rstrip("=")
    with pytest.raises(CardNotVerified):
        verify({**whole_card(), "signatures": [{"protected": protected, "signature": "AA"}]}, keys(signer()))


def test_of_many_signatures_the_first_ones_are_looked_at() -> None:
    ours, card = signer(), whole_card()
    wrong = {**ours.sign(card, JKU), "signature": "A" * 86}
    assert verify({**card, "signatures": [*[wrong] * (SIGNATURES_MAX - 1), ours.sign(card, JKU)]}, keys(ours)) == "k1"
    with pytest.raises(CardNotVerified):
        verify({**card, "signatures": [*[wrong] * SIGNATURES_MAX, ours.sign(card, JKU)]}, keys(ours))


@pytest.mark.parametrize("odd", [5, {}, {"kty": "XYZ"}, {"kty": "EC", "crv": "P-256", "x": "!!", "y": "a"}])
def test_what_is_no_public_key_in_a_key_set_is_ignored(odd: Any) -> None:
    ours, card = signer(), whole_card()
    signed = {**card, "signatures": [ours.sign(card, JKU)]}
    assert verify(signed, {"keys": [odd, *keys(ours)["keys"]]}) == "k1"
    for none in ({"keys": [odd]}, {"keys": None}, {}):
        with pytest.raises(CardNotVerified, match="no public key"):
            verify(signed, none)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
ANY_SIGNER = signer()


@given(st.dictionaries(st.text(), JSON, max_size=4), JSON)
def test_whatever_is_in_a_card_it_verifies_or_is_refused(card: dict[str, Any], signatures: Any) -> None:
    with pytest.raises(CardNotVerified):
        verify({**card, "signatures": signatures}, keys(ANY_SIGNER))


async def test_all_servers_on_one_store_sign_with_one_key_also_after_a_restart(tmp_path: Any) -> None:
    clock, url = SystemClock(), f"sqlite:///{tmp_path}/d.db"
    kids = set()
    for _ in range(2):
        store = open_store(url, clock)
        await store.open("one")
        try:
            rooms = [SigningRoom(store.keys, clock) for _ in range(2)]
            kids |= {(await room.signer()).jwks() for room in rooms}
        finally:
            await store.close()
    assert len(kids) == 1
