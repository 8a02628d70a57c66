"""Tokens: who they name, what they are limited to, and every way in which one can be wrong."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OKPKey

from dragoman.auth.tokens import TokenVerifier
from dragoman.model.errors import Unauthorized
from dragoman.model.principal import AccessRole, Principal, Scope
from tests.auth.issuer import EC, OTHER, RSA, Issuer, Key, b64, issuing, jwk, signed, token, unsigned, verifying


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        yield issuer


@pytest.fixture
async def tokens(issuer: Issuer) -> AsyncIterator[TokenVerifier]:
    async with verifying(issuer) as tokens:
        yield tokens


async def refused(tokens: TokenVerifier, sent: bytes | str) -> str:
    with pytest.raises(Unauthorized) as caught:
        await tokens.verify(sent if isinstance(sent, bytes) else sent.encode())
    assert not caught.value.missing
    return caught.value.message


@pytest.mark.parametrize(("key", "kid", "alg"), [(RSA, "r1", "RS256"), (EC, "e1", "ES256")])
async def test_a_token_names_its_subject_and_its_issuer(
    issuer: Issuer, tokens: TokenVerifier, key: Key, kid: str, alg: str
) -> None:
    principal, _ = await tokens.verify(token(issuer.claims(), key=key, kid=kid, alg=alg))
    assert principal == Principal(f"jwt:alice@{issuer.url}")
    assert principal.role is AccessRole.CALLER


OKP = OKPKey.generate_key("Ed25519")
P384, P521 = ECKey.generate_key("P-384"), ECKey.generate_key("P-521")


@pytest.mark.parametrize(
    ("key", "alg"),
    [
        *((RSA, alg) for alg in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (EC, "ES256"),
        (P384, "ES384"),
        (P521, "ES512"),
        (OKP, "Ed25519"),
    ],
)
async def test_every_algorithm_that_can_be_configured_verifies(issuer: Issuer, key: Key, alg: str) -> None:
    issuer.keys = [jwk(key, "k")]
    issuer.publish()
    async with verifying(issuer, [alg]) as tokens:
        principal, _ = await tokens.verify(token(issuer.claims(), key=key, kid="k", alg=alg))
    assert principal.id.startswith("jwt:alice@")


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # the test's own signing; verifying warns of nothing
async def test_the_old_name_of_ed25519_verifies(issuer: Issuer) -> None:
    issuer.keys = [jwk(OKP, "k")]
    issuer.publish()
    async with verifying(issuer, ["EdDSA"]) as tokens:
        assert await tokens.verify(token(issuer.claims(), key=OKP, kid="k", alg="EdDSA"))


@pytest.mark.parametrize("audience", [["other", "https://agents.example.org"], "https://agents.example.org"])
async def test_the_audience_may_be_one_of_several(issuer: Issuer, tokens: TokenVerifier, audience: Any) -> None:
    assert await tokens.verify(token(issuer.claims(aud=audience)))


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_issuer_may_end_in_a_slash(issuer: Issuer, slash: str) -> None:
    issuer.discovery["issuer"] = issuer.url + slash
    issuer.publish()
    async with verifying(issuer) as tokens:
        principal, _ = await tokens.verify(token(issuer.claims(iss=issuer.url + "/")))
        assert principal.id == f"jwt:alice@{issuer.url}"
        assert "issuer" in await refused(tokens, token(issuer.claims(iss=issuer.url + "//")))


async def test_a_token_is_believed_until_it_expires_or_the_keys_do(issuer: Issuer, tokens: TokenVerifier) -> None:
    now_s = issuer.clock.now_ms() // 1000
    _, short = await tokens.verify(token(issuer.claims(exp=now_s + 60)))
    _, long = await tokens.verify(token(issuer.claims(exp=now_s + 36_000)))
    assert (short, long) == ((now_s + 60 + 30) * 1000, (now_s + 600) * 1000)


async def test_the_claim_dragoman_limits_a_token(issuer: Issuer, tokens: TokenVerifier) -> None:
    claim = {"agents": ["echo"], "scopes": ["send", "read"], "role": "agent"}
    principal, _ = await tokens.verify(token(issuer.claims(dragoman=claim)))
    assert (principal.role, principal.agents) == (AccessRole.AGENT, frozenset({"echo"}))
    assert principal.scopes == frozenset({Scope.SEND, Scope.READ})


@pytest.mark.parametrize(
    "claim",
    [
        {"agent": ["echo"]},
        {"scopes": ["everything"]},
        {"role": "root"},
        {"agents": "echo"},
        [],
        "admin",
    ],
)
async def test_a_claim_dragoman_that_is_not_understood_gives_nothing(
    issuer: Issuer, tokens: TokenVerifier, claim: Any
) -> None:
    assert "`dragoman`" in await refused(tokens, token(issuer.claims(dragoman=claim)))


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"iss": "https://elsewhere.example"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "somebody"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": None}, "aud"),
        ({"aud": {"x": 1}}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "a" * 256}, "sub"),
        ({"sub": "a\nb"}, "sub"),
        ({"sub": "a\u202eb"}, "sub"),
        ({"exp": None}, "exp"),
        ({"exp": "1900000000"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 0}, "expired"),
        ({"exp": -1e300}, "expired"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"iat": 4_000_000_000}, "not valid yet"),
    ],
)
async def test_a_claim_that_is_wrong_or_missing(
    issuer: Issuer, tokens: TokenVerifier, claims: dict[str, Any], told: str
) -> None:
    assert told in await refused(tokens, token(issuer.claims(**claims)))


async def test_clocks_may_differ_by_the_leeway_and_no_more(issuer: Issuer, tokens: TokenVerifier) -> None:
    now_s = issuer.clock.now_ms() // 1000
    for good in ({"exp": now_s - 29}, {"nbf": now_s + 30}, {"iat": now_s + 30}):
        assert await tokens.verify(token(issuer.claims(**good)))
    for bad in ({"exp": now_s - 30}, {"nbf": now_s + 31}, {"iat": now_s + 31}):
        await refused(tokens, token(issuer.claims(**bad)))


async def test_an_expiry_far_beyond_all_clocks_is_good(issuer: Issuer, tokens: TokenVerifier) -> None:
    assert await tokens.verify(token(issuer.claims(exp=1e308)))
    await refused(tokens, token(json.dumps(issuer.claims()).replace('"exp": ', '"exp": 1e999, "x": ').encode()))


async def test_a_subject_may_be_of_any_script(issuer: Issuer, tokens: TokenVerifier) -> None:
    principal, _ = await tokens.verify(token(issuer.claims(sub="Łucja 山田")))
    assert principal.id == f"jwt:Łucja 山田@{issuer.url}"


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b'{"sub":"\xff"}', b'{"sub":"\\ud800"}', b"[" * 9000])
async def test_a_payload_that_is_no_claims(tokens: TokenVerifier, payload: bytes) -> None:
    await refused(tokens, token(payload))


# -- how a token would like to be verified ---------------------------------------------------------------------


async def test_no_algorithm_is_no_signature(issuer: Issuer, tokens: TokenVerifier) -> None:
    for name in ("none", "None", "NONE", ""):
        await refused(tokens, unsigned({"alg": name, "kid": "r1"}, issuer.claims()) + ".")


@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
async def test_a_public_key_is_no_secret(issuer: Issuer, tokens: TokenVerifier, alg: str) -> None:
    digest = getattr(hashlib, f"sha{alg[2:]}")
    for secret in (RSA.as_pem(private=False), RSA.as_der(private=False), json.dumps(jwk(RSA, "r1")).encode()):
        text = unsigned({"alg": alg, "kid": "r1"}, issuer.claims())
        await refused(tokens, f"{text}.{b64(hmac.new(secret, text.encode(), digest).digest())}")


async def test_a_secret_key_that_the_issuer_publishes_is_not_used(issuer: Issuer) -> None:
    issuer.keys = [{"kty": "oct", "kid": "s", "k": b64(b"secret" * 6), "alg": "HS256"}, jwk(RSA, "r1")]
    issuer.publish()
    async with verifying(issuer, ["RS256", "HS256", "none"]) as tokens:  # even if somebody could configure it
        text = unsigned({"alg": "HS256", "kid": "s"}, issuer.claims())
        signature = hmac.new(b"secret" * 6, text.encode(), hashlib.sha256).digest()
        await refused(tokens, f"{text}.{b64(signature)}")
        await refused(tokens, unsigned({"alg": "none", "kid": "r1"}, issuer.claims()) + ".")


async def test_an_algorithm_that_is_not_configured_is_refused_although_the_key_fits(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    for alg in ("RS512", "PS256"):
        await refused(tokens, token(issuer.claims(), alg=alg))
    assert issuer.fetches == 0


async def test_no_algorithm_configured_is_no_algorithm_allowed(issuer: Issuer) -> None:
    async with verifying(issuer, []) as tokens:
        await refused(tokens, token(issuer.claims()))


async def test_a_key_of_another_kind_does_not_verify(issuer: Issuer, tokens: TokenVerifier) -> None:
    await refused(tokens, token(issuer.claims(), kid="e1"))
    await refused(tokens, token(issuer.claims(), key=EC, kid="r1", alg="ES256"))
    issuer.keys = [jwk(P384, "p")]
    issuer.publish()
    text = unsigned({"alg": "ES256", "kid": "p"}, issuer.claims())
    issuer.clock.ms += 31_000
    await refused(tokens, f"{text}.{b64(bytes(64))}")


async def test_a_key_that_the_token_brings_along_or_points_to_is_not_looked_at(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    own = jwk(OTHER, "r1")
    issuer.peer.scripts["GET /evil"] = issuer.peer.scripts["GET /realms/x/keys"]
    evil = f"{issuer.peer.url}/evil"
    for more in ({"jwk": own}, {"jku": evil}, {"x5u": evil}, {"x5c": ["MIIB"]}, {"jwk": own, "jku": evil}):
        for kid in ("r1", "r2", None):
            await refused(tokens, token(issuer.claims(), key=OTHER, kid=kid, **more))
    assert "GET /evil" not in issuer.peer.paths
    assert await tokens.verify(token(issuer.claims(), jku=evil, x5t="x", nonce="n"))


@pytest.mark.parametrize("kid", ["../../keys", "' OR 1=1 --", "r1\0", "/dev/null", "", "x" * 5000, "r\u0131"])
async def test_an_id_of_a_key_is_only_compared(issuer: Issuer, tokens: TokenVerifier, kid: str) -> None:
    await refused(tokens, token(issuer.claims(), kid=kid))
    assert issuer.fetches <= 1


@pytest.mark.parametrize("crit", [["b64"], ["exp"], ["x"], [], "x", None])
async def test_what_must_be_understood_is_not(issuer: Issuer, tokens: TokenVerifier, crit: Any) -> None:
    """RFC 7515 §4.1.11. The tokens are well signed: they would be good if nothing had to be understood."""
    header = {"alg": "RS256", "kid": "r1"}
    for unencoded in ({}, {"b64": False}, {"b64": True}):
        await refused(tokens, signed({**header, "crit": crit, **unencoded}, issuer.claims()))
        assert await tokens.verify(signed({**header, "b64": True}, issuer.claims()))


async def test_a_signature_that_is_changed_cut_or_spelled_otherwise(issuer: Issuer, tokens: TokenVerifier) -> None:
    sent = token(issuer.claims())
    head, claims, signature = sent.decode().split(".")
    more = b64(json.dumps(issuer.claims(sub="bob")).encode())
    for bad in (
        f"{head}.{more}.{signature}",
        f"{head}.{claims}.{signature[:-4]}",
        f"{head}.{claims}.{signature}==",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}..{signature}",
        f".{claims}.{signature}",
        f"{head}.{claims}.{signature}.{signature}.{signature}",
        f"{head}=.{claims}.{signature}",
        f"{head}.{claims}.{signature}\n",
        "..",
        "a.b.c",
    ):
        await refused(tokens, bad)
    assert await tokens.verify(sent)


async def test_a_token_of_16_kb_is_verified_and_one_that_is_larger_is_not_looked_at(
    issuer: Issuer, tokens: TokenVerifier
) -> None:
    padded = token(issuer.claims(more="x" * 11_500))
    assert 15_000 < len(padded) <= 16_384
    assert await tokens.verify(padded)
    await refused(tokens, token(issuer.claims(more="x" * 13_000)))
    assert await tokens.verify(token(issuer.claims(), x5c=["M" * 4000]))


@given(
    st.binary(max_size=300)
    | st.lists(st.binary(max_size=60).map(b64), min_size=3, max_size=3).map(lambda parts: ".".join(parts).encode())
)
async def test_whatever_comes_is_a_principal_or_unauthorized(sent: bytes) -> None:
    async with issuing() as issuer, verifying(issuer) as tokens:
        await refused(tokens, sent)


async def test_a_header_of_any_depth_is_unauthorized(issuer: Issuer, tokens: TokenVerifier) -> None:
    """msgspec and json, which the library reads it with again, give up at different depths."""
    for depth in range(800, 1100):
        header = b'{"alg":"RS256","kid":"r1","x":' + b"[" * depth + b"]" * depth + b"}"
        await refused(tokens, f"{b64(header)}.{b64(b'{}')}.AA")


@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "crit", "typ", "jwk"]),
        st.none()
        | st.sampled_from(["RS256", "ES256", "r1", "e1", "none"])
        | st.integers()
        | st.lists(st.text(max_size=3)),
    )
)
async def test_whatever_a_header_says_is_a_principal_or_unauthorized(header: dict[str, Any]) -> None:
    async with issuing() as issuer, verifying(issuer) as tokens:
        await refused(tokens, f"{unsigned(header, issuer.claims())}.{b64(bytes(64))}")
