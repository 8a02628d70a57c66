"""The issuer's keys: found by discovery, kept, fetched again when they change, and used on while it is away."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from joserfc.jwk import ECKey, RSAKey

from dragoman.auth.tokens import IssuerFault, TokenVerifier, keys_url
from dragoman.model.errors import Unauthorized, Unavailable
from dragoman.net.egress import Egress
from tests.auth.issuer import DISCOVERY, EC, JWKS, OTHER, RSA, Issuer, issuing, jwk, token, verifying
from tests.kit.waiting import no_hang
from tests.net.peer import hangs, listening, raw, says

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with no_hang(), issuing() as issuer:
        yield issuer


@pytest.fixture
async def tokens(issuer: Issuer) -> AsyncIterator[TokenVerifier]:
    async with verifying(issuer) as tokens:
        yield tokens


async def works(tokens: TokenVerifier, issuer: Issuer, **how: Any) -> bool:
    """Whether a token that is good now is taken; Unavailable goes through."""
    try:
        await tokens.verify(token(issuer.claims(), **how))
    except Unauthorized:
        return False
    return True


async def test_keys_are_fetched_once_for_many_callers_at_once(issuer: Issuer, tokens: TokenVerifier) -> None:
    assert await asyncio.gather(*(works(tokens, issuer) for _ in range(50))) == [True] * 50
    assert issuer.peer.paths == [DISCOVERY, JWKS]


@pytest.mark.parametrize(
    ("control", "kept_s"),
    [
        ("max-age=600", 600),
        ("public, max-age=900, must-revalidate", 900),
        ("max-age=1", 300),
        ("no-store", 300),
        ("max-age=999999999", 86_400),
        ("s-max-age=9", 3600),
        ("", 3600),
    ],
)
async def test_keys_are_kept_as_long_as_their_answer_says_within_bounds(
    issuer: Issuer, control: str, kept_s: int
) -> None:
    issuer.control = control
    issuer.publish()
    async with verifying(issuer) as tokens:
        assert await works(tokens, issuer)
        issuer.clock.ms += kept_s * 1000 - 1
        assert await works(tokens, issuer)
        assert issuer.fetches == 1
        issuer.clock.ms += 1
        assert await works(tokens, issuer)
        assert issuer.fetches == 2


async def test_a_key_that_is_new_is_fetched_at_once_and_one_that_is_gone_ends_with_the_old_answer(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    assert await works(tokens, issuer)
    issuer.keys = [jwk(OTHER, "r2")]
    issuer.publish()
    issuer.clock.ms += 30_000
    assert await works(tokens, issuer, key=OTHER, kid="r2")
    assert not await works(tokens, issuer, kid="r1")


async def test_unknown_ids_of_keys_ask_the_issuer_at_most_twice_a_minute(issuer: Issuer, tokens: TokenVerifier) -> None:
    assert await works(tokens, issuer)
    for turn in range(60):
        issuer.clock.ms += 1000
        results = await asyncio.gather(*(works(tokens, issuer, kid=f"{turn}-{n}") for n in range(5)))
        assert results == [False] * 5
    assert issuer.fetches == 3


async def test_while_the_issuer_is_away_its_keys_are_used_for_a_day_more(issuer: Issuer, tokens: TokenVerifier) -> None:
    assert await works(tokens, issuer)
    issuer.fail()
    issuer.clock.ms += 600_000 + 24 * HOUR_MS - 1
    assert await works(tokens, issuer)
    asked = len(issuer.peer.asked)
    assert await works(tokens, issuer)
    assert len(issuer.peer.asked) == asked  # not at every request
    issuer.clock.ms += 1
    with pytest.raises(Unavailable):
        await works(tokens, issuer)
    issuer.publish()
    issuer.clock.ms += 5000
    assert await works(tokens, issuer)


async def test_what_stale_keys_verify_is_believed_for_half_a_minute(issuer: Issuer, tokens: TokenVerifier) -> None:
    await works(tokens, issuer)
    issuer.fail()
    issuer.clock.ms += 700_000
    _, until_ms = await tokens.verify(token(issuer.claims()))
    assert until_ms == issuer.clock.ms + 30_000


async def test_an_issuer_that_was_never_reached_is_unavailable_and_is_asked_again_soon(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    issuer.fail(500)
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            await works(tokens, issuer)
        assert caught.value.retry_after_s == 5
    assert issuer.peer.paths == [DISCOVERY]
    issuer.publish()
    issuer.clock.ms += 5000
    assert await works(tokens, issuer)


async def test_a_new_key_while_the_issuer_is_away_is_unavailable_and_not_wrong(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    await works(tokens, issuer)
    issuer.fail()
    issuer.clock.ms += 31_000
    for _ in range(2):
        with pytest.raises(Unavailable):
            await works(tokens, issuer, key=OTHER, kid="r2")
    assert await works(tokens, issuer)


async def test_a_slow_issuer_delays_nobody_whose_key_is_known(issuer: Issuer, tokens: TokenVerifier) -> None:
    await works(tokens, issuer)
    issuer.clock.ms += 700_000
    issuer.peer.scripts[DISCOVERY] = hangs()
    issuer.peer.came.clear()
    first = asyncio.create_task(works(tokens, issuer))
    await issuer.peer.came.wait()
    assert await works(tokens, issuer)
    assert not first.done()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_caller_who_leaves_while_keys_are_fetched_leaves_the_next_to_fetch(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    issuer.peer.scripts[DISCOVERY] = hangs()
    first = asyncio.create_task(works(tokens, issuer))
    await issuer.peer.came.wait()
    issuer.publish()
    second = asyncio.create_task(works(tokens, issuer))
    first.cancel()
    assert await second


async def test_a_clock_that_is_set_back_does_not_keep_keys_for_ever(issuer: Issuer, tokens: TokenVerifier) -> None:
    await works(tokens, issuer)
    issuer.clock.ms -= 10 * HOUR_MS
    assert await works(tokens, issuer)
    assert issuer.fetches == 2


# -- discovery -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {"jwks_uri": "{url}/keys"},
        {"issuer": "https://elsewhere.example", "jwks_uri": "{url}/keys"},
        {"issuer": "{url}/more", "jwks_uri": "{url}/keys"},
        {"issuer": ["{url}"], "jwks_uri": "{url}/keys"},
        {"issuer": "{url}"},
        {"issuer": "{url}", "jwks_uri": 5},
        {"issuer": "{url}", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "{url}", "jwks_uri": "http://[::1/"},
        {"issuer": "{url}", "jwks_uri": "keys"},
        [],
        None,
    ],
)
async def test_a_discovery_document_that_is_not_the_issuers_is_not_followed(
    issuer: Issuer, tokens: TokenVerifier, document: Any
) -> None:
    if isinstance(document, dict):
        document = {
            name: value.replace("{url}", issuer.url) if isinstance(value, str) else value
            for name, value in document.items()
        }
    issuer.peer.scripts[DISCOVERY] = says(document)
    with pytest.raises(Unavailable):
        await works(tokens, issuer)
    assert issuer.fetches == 0


@pytest.mark.parametrize(
    "script",
    [
        says(b"<html>"),
        says({}),
        says({"keys": {}}),
        raw(b"x"),
        raw(b"["),
        says(b"", 302, {"Location": "/realms/x/keys2"}),
    ],
)
async def test_an_answer_without_keys_is_none(issuer: Issuer, tokens: TokenVerifier, script: Any) -> None:
    issuer.peer.scripts[JWKS] = script
    issuer.peer.scripts["GET /realms/x/keys2"] = says({"keys": list(issuer.keys)})
    with pytest.raises(Unavailable):
        await works(tokens, issuer)


async def test_keys_on_another_host_are_fetched_through_the_guard_only(issuer: Issuer) -> None:
    async with listening() as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        other.scripts["GET /keys"] = says({"keys": list(issuer.keys)})
        issuer.discovery["jwks_uri"] = f"{elsewhere}/keys"
        issuer.publish()
        async with verifying(issuer) as tokens:
            with pytest.raises(Unavailable):
                await works(tokens, issuer)
        assert other.paths == []
        async with verifying(issuer, guarded=Egress()) as tokens:
            assert await works(tokens, issuer)


@pytest.mark.parametrize("odd", ["http://user@", "http:\\/\\/", "\thttp://"])
async def test_an_address_for_the_keys_that_can_be_read_in_two_ways_is_not_followed(issuer: Issuer, odd: str) -> None:
    issuer.discovery["jwks_uri"] = issuer.url.replace("http://", odd) + "/keys"
    issuer.publish()
    async with verifying(issuer) as tokens:
        with pytest.raises(Unavailable):
            await works(tokens, issuer)
    assert issuer.fetches == 0


async def test_an_address_for_the_keys_that_the_operator_names_needs_no_discovery(issuer: Issuer) -> None:
    async with verifying(issuer, jwks_url=f"{issuer.url}/keys") as tokens:
        assert await works(tokens, issuer)
    assert issuer.peer.paths == [JWKS]


@pytest.mark.parametrize("url", ["http://id.example.org/keys", "HTTP://id.example.org/keys", "//id.example.org/keys"])
def test_an_issuer_with_tls_does_not_lead_to_keys_without(url: str) -> None:
    issuer = "https://id.example.org"
    with pytest.raises(IssuerFault, match="without TLS"):
        keys_url({"issuer": issuer, "jwks_uri": url}, issuer)
    assert keys_url({"issuer": issuer, "jwks_uri": "HTTPS://x/keys"}, issuer) == "HTTPS://x/keys"


# -- which keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "published",
    [
        jwk(RSA, "r1", use="enc"),
        jwk(RSA, "r1", alg="RS512"),
        jwk(RSA, "r1", alg="RSA-OAEP"),
        jwk(RSA, "r1", key_ops=["encrypt"]),
        jwk(RSA, "r1", kty="EC"),
        jwk(RSA, "r1", kty="oct"),
        jwk(RSA, "r1", kty=["RSA"]),
        jwk(RSA, "r1", n="!"),
        jwk(RSA, "r1", n=None),
        jwk(RSA, "r1", e="AA"),
        jwk(RSA, "r1", n=jwk(RSA, None)["n"] * 30),
        jwk(RSA, "R1"),
        jwk(RSA, None),
        {**jwk(RSA, None), "kid": 1},
        jwk(EC, "r1"),
        "r1",
        None,
        7,
    ],
)
async def test_a_key_that_is_not_for_this_is_not_used(issuer: Issuer, published: Any) -> None:
    issuer.keys = [published, jwk(ECKey.generate_key("P-256"), "e")]
    issuer.publish()
    async with verifying(issuer) as tokens:
        assert not await works(tokens, issuer)


@pytest.mark.filterwarnings("ignore:Key size should be")
async def test_an_rsa_key_that_is_too_small_is_not_used(issuer: Issuer) -> None:
    small = RSAKey.generate_key(1024)
    issuer.keys = [jwk(small, "s"), jwk(RSA, "r1")]
    issuer.publish()
    async with verifying(issuer) as tokens:
        assert not await works(tokens, issuer, key=small, kid="s")
        assert await works(tokens, issuer)


async def test_one_key_that_is_broken_or_private_does_not_spoil_the_others(issuer: Issuer) -> None:
    private = {**OTHER.as_dict(private=True), "kid": "p"}
    issuer.keys = [7, {"kty": "AKP", "kid": "m", "pub": "x"}, {"kty": "RSA"}, private, jwk(RSA, "r1")]
    issuer.publish()
    async with verifying(issuer) as tokens:
        assert await works(tokens, issuer)
        assert await works(tokens, issuer, key=OTHER, kid="p")


async def test_without_an_id_the_only_key_of_its_kind_verifies(issuer: Issuer, tokens: TokenVerifier) -> None:
    assert await works(tokens, issuer, kid=None)
    issuer.keys = [jwk(RSA, None), jwk(OTHER, "r2")]
    issuer.publish()
    issuer.clock.ms += 700_000
    assert not await works(tokens, issuer, kid=None)


async def test_an_issuer_may_take_all_its_keys_back(issuer: Issuer, tokens: TokenVerifier) -> None:
    await works(tokens, issuer)
    issuer.keys = []
    issuer.publish()
    issuer.clock.ms += 700_000
    assert not await works(tokens, issuer)
