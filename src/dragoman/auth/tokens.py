"""JWTs as bearer tokens (RFC 7519, RFC 8725), verified against the keys of one issuer. The keys are fetched on demand
(RFC 7517, OpenID Connect Discovery 1.0).

Invariant: a token's header can only pick a key and an algorithm among the configured ones. `jku`, `jwk`, `x5u` and
`x5c` are ignored, and no extension that `crit` demands is supported. Only public keys for the configured algorithms are
accepted, each for those algorithms only, so that no token can choose a weaker verification.
"""

import asyncio
import logging
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.util import urlsafe_b64decode
from msgspec import UNSET, Struct, UnsetType

from dragoman.auth.issuers import IssuerEgress
from dragoman.model.errors import Unauthorized, Unavailable
from dragoman.model.ids import Clock
from dragoman.model.principal import AccessRole, Principal, Scope, Team, join_team, reach_of
from dragoman.net.egress import Egress, HttpReply
from dragoman.net.errors import EgressError
from dragoman.net.target import Target, target
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

Key = RSAKey | ECKey | OKPKey

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", ())),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "Ed25519": ("OKP", ("Ed25519",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
"""The key type and curves of each algorithm (RFC 7518 §3.1, RFC 8037 §3.1, RFC 9864 §2.2). None uses a secret key."""

PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The members of a JWK that make up a public key; others are ignored."""

RSA_BITS = range(2048, 8192 + 1)
"""The least size is that of RFC 7518 §3.3; a key above the largest takes too long."""

DISCOVERY_PATH = "/.well-known/openid-configuration"
FETCH_S = 5.0
KEYS_MAX = 200

FRESH_S_MIN, FRESH_S_MAX, FRESH_S = 5 * 60, 24 * 3600, 3600
"""The bounds for how long keys are kept, which their response says, and the time for a response that does not say."""

STALE_S = 24 * 3600
"""How much longer keys are kept if new ones cannot be fetched."""

ASK_AGAIN_S = 30
"""Shortest time between two fetches for an unknown key, or after a failed fetch."""

RETRY_S = 5
"""The same while there are no keys at all."""

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?([0-9]{1,9})", re.IGNORECASE)

_IMPORTS: Mapping[str, Any] = {"RSA": RSAKey.import_key, "EC": ECKey.import_key, "OKP": OKPKey.import_key}

TOKEN_BYTES_MAX = 16 * 1024

SUBJECT_MAX = 255
"""OpenID Connect Core 1.0 §2."""

KID_MAX = 1000

WRONG = "the token is not valid here"


class TrustedKey(Struct, frozen=True):
    """A key, and how long a token that it verifies may be accepted without asking for the key again."""

    key: Key
    until_ms: int


class Verifier(Struct, frozen=True):
    """A public key, and the algorithms by which it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    key: Key


class IssuerFault(Exception):
    """The issuer's answer is unusable. The message says why."""


class Jwks:
    """The keys of one issuer, fetched on demand."""

    def __init__(
        self, issuer: str, jwks_url: str | None, algorithms: Collection[str], issuers: IssuerEgress, clock: Clock
    ) -> None:
        self.issuer = issuer.rstrip("/")
        self.discovery_url = self.issuer + DISCOVERY_PATH
        self._jwks_url = jwks_url
        self._algorithms = frozenset(algorithms) & KINDS.keys()
        self._issuers = issuers
        self._clock = clock
        self._keys: tuple[Verifier, ...] = ()
        self._fresh_until_ms = 0
        self._fetched_ms: int | None = None
        self._tried_ms: int | None = None
        self._failed = False
        self._fetching = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> TrustedKey | None:
        """The key with this id for this algorithm; without an id the only key for it. None if the issuer has none.

        Raises Unavailable if the issuer does not answer.
        """
        if self._due(kid, algorithm):
            if self._usable and self._fetching.locked() and (found := self._match(kid, algorithm)) is not None:
                return found  # a fetch is under way; the known key will do
            async with self._fetching:
                if self._due(kid, algorithm):
                    await self._fetch()
        found = self._match(kid, algorithm)
        if found is None and (self._failed or not self._usable):
            raise Unavailable("the issuer of the token cannot be reached to verify it: try again", RETRY_S)
        return found

    @property
    def _usable(self) -> bool:
        """Whether there are keys, and they are not too old."""
        now_ms = self._clock.now_ms()
        return self._fetched_ms is not None and self._fetched_ms <= now_ms < self._fresh_until_ms + STALE_S * 1000

    def _due(self, kid: str | None, algorithm: str) -> bool:
        """Whether to fetch the keys now."""
        now_ms = self._clock.now_ms()
        fresh = self._fetched_ms is not None and self._fetched_ms <= now_ms < self._fresh_until_ms
        if fresh and self._match(kid, algorithm) is not None:
            return False
        if self._tried_ms is None or now_ms < self._tried_ms:
            return True
        if not fresh and not self._failed:
            return True
        return now_ms - self._tried_ms >= (ASK_AGAIN_S if self._usable else RETRY_S) * 1000

    def _match(self, kid: str | None, algorithm: str) -> TrustedKey | None:
        if not self._usable:
            return None
        keys = [each.key for each in self._keys if algorithm in each.algorithms and kid in (None, each.kid)]
        if not keys or (kid is None and len(keys) > 1):
            return None
        return TrustedKey(keys[0], max(self._fresh_until_ms, self._clock.now_ms() + ASK_AGAIN_S * 1000))

    async def _fetch(self) -> None:
        """Fetch the keys. If that fails, the known ones stay."""
        self._tried_ms = self._clock.now_ms()
        try:
            url = self._jwks_url or await self._discover()
            to = target(url)
            reply = await get_json(self._issuers.named if self._jwks_url else self._issuers.to(to, self.issuer), to)
            document = read_document(reply, url)
            jwks = document.get("keys")
            if not isinstance(jwks, list):
                raise IssuerFault(f"{url}: expected a JWK Set with `keys`")
            keys = tuple(key for each in jwks[:KEYS_MAX] if (key := verifier(each, self._algorithms)) is not None)
        except (EgressError, IssuerFault) as error:
            log.warning("the keys of the issuer %s cannot be fetched: %s", self.issuer, error)
            self._failed = True
            return
        if not keys:  # an issuer may withdraw all of them
            log.warning("%s: of %d keys none is for %s", url, len(jwks), ", ".join(sorted(self._algorithms)))
        self._keys, self._failed = keys, False
        self._fetched_ms = self._clock.now_ms()
        self._fresh_until_ms = self._fetched_ms + _fresh_s(reply) * 1000

    async def _discover(self) -> str:
        """Discover the URL of the issuer's keys."""
        document = read_document(await get_json(self._issuers.named, self.discovery_url), self.discovery_url)
        return keys_url(document, self.issuer)


async def get_json(egress: Egress, url: str | Target) -> HttpReply:
    """Fetch a document of an issuer. Raises EgressError."""
    return await egress.request("GET", url, timeout_s=FETCH_S, headers={"Accept": "application/json"})


def keys_url(document: Mapping[str, Any], issuer: str) -> str:
    """`jwks_uri` of an issuer's discovery document (OpenID Connect Discovery 1.0 §4). Raises IssuerFault."""
    said, url = document.get("issuer"), document.get("jwks_uri")
    if not isinstance(said, str) or not same_issuer(said, issuer):  # §4.3: MUST be identical
        raise IssuerFault(f"its discovery document is that of another issuer, {said!r:.200}")
    if not isinstance(url, str) or not url:
        raise IssuerFault("its discovery document has no `jwks_uri`")
    if issuer.startswith("https:") and not url.lower().startswith("https:"):
        raise IssuerFault(f"its discovery document has a `jwks_uri` without TLS, {url!r:.200}")
    return url


def same_issuer(said: str, issuer: str) -> bool:
    """Whether `said` is the issuer. It may end in one more slash, which the setting of a URL does not keep."""
    return said.removesuffix("/") == issuer.removesuffix("/")


def verifier(jwk: object, algorithms: Collection[str]) -> Verifier | None:
    """The public key in a JWK, with those of the algorithms that it may verify; None if there are none.

    Keys for encryption (§4.2), other operations (§4.3) or another algorithm (§4.4) are not used, nor are RSA keys that
    are too small or absurdly large.
    """
    kind = jwk.get("kty") if isinstance(jwk, dict) else None
    if not isinstance(jwk, dict) or not isinstance(kind, str) or kind not in PUBLIC:
        return None
    kid, operations, curve = jwk.get("kid"), jwk.get("key_ops"), jwk.get("crv")
    fits = frozenset(
        name
        for name in algorithms
        if KINDS[name][0] == kind and (not KINDS[name][1] or curve in KINDS[name][1]) and jwk.get("alg") in (None, name)
    )
    if jwk.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations) or not fits:
        return None
    members = {name: jwk.get(name) for name in PUBLIC[kind]}
    if not all(isinstance(value, str) for value in members.values()):
        return None
    if kind == "RSA" and not _rsa_size_ok(str(members["n"])):
        return None
    try:
        key = _IMPORTS[kind]({"kty": kind, **members})
    except (JoseError, ValueError, TypeError):
        return None
    return Verifier(kid if isinstance(kid, str) else None, fits, key)


def _rsa_size_ok(modulus: str) -> bool:
    """Check the size by the length of the base64, without computing with a key that is out of bounds."""
    return len(modulus.rstrip("=")) * 6 // 8 * 8 in RSA_BITS


def read_document(reply: HttpReply, url: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises IssuerFault."""
    if not reply.ok:
        raise IssuerFault(f"{url}: answered with HTTP status {reply.status}, expected 200")
    try:
        return msgspec.json.decode(reply.body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IssuerFault(f"{url}: expected a JSON object, got something else") from None


def _fresh_s(reply: HttpReply) -> int:
    """How long an answer may be kept (RFC 9111 §5.2.2.1), within bounds."""
    control = reply.headers.get("cache-control", "")
    if (said := _MAX_AGE.search(control)) is not None:
        return min(max(int(said[1]), FRESH_S_MIN), FRESH_S_MAX)
    return FRESH_S_MIN if "no-" in control.lower() else FRESH_S


class _Header(Struct, frozen=True):
    """The members of a token's header that are read (RFC 7515 §4.1)."""

    alg: str
    kid: str | None = None
    crit: msgspec.Raw | UnsetType = UNSET


class TokenGrant(Struct, frozen=True, forbid_unknown_fields=True):
    """The claim `dragoman`: the limits of the token. A missing member sets no limit; unknown members are refused."""

    agents: frozenset[str] | None = None
    scopes: frozenset[Scope] | None = None
    role: AccessRole = AccessRole.CALLER


class _Claims(Struct, frozen=True):
    """The claims of a token that are read (RFC 7519 §4.1), with times in seconds since the epoch."""

    iss: str
    sub: str
    aud: str | tuple[str, ...]
    exp: float
    nbf: float = 0.0
    iat: float = 0.0
    dragoman: TokenGrant = TokenGrant()


class _Pinned(jws.JWSRegistry):
    """Allows only the given algorithms, and headers as long as tokens may be, since issuers put certificates there."""

    max_header_length = TOKEN_BYTES_MAX

    def get_alg(self, name: str) -> Any:
        """Skip the library's warning that `EdDSA` has a newer name, since issuers use the old one."""
        assert self.allowed is not None
        if name not in self.allowed:
            raise JoseError(name)
        return self.algorithms[name]


class SignedTokens:
    """Opens the tokens that one issuer has signed by one of the algorithms."""

    def __init__(self, jwks: Jwks, algorithms: Collection[str]) -> None:
        self._jwks = jwks
        self._algorithms = frozenset(algorithms)
        self._registry = _Pinned(algorithms=self._algorithms, strict_check_header=False)
        self._header = msgspec.json.Decoder(_Header)

    async def open(self, token: bytes) -> tuple[bytes, int]:
        """Return the payload, and until when (milliseconds since the epoch) its key need not be asked for again.

        Raises Unauthorized, or Unavailable if the issuer's keys cannot be fetched.
        """
        header = self._read_header(token)
        found = await self._jwks.find(header.kid, header.alg)
        if found is None:
            raise Unauthorized(WRONG)
        try:
            signed = jws.deserialize_compact(token, found.key, registry=self._registry)
        except (
            JoseError,
            ValueError,
            TypeError,  # where a header is not of the type that the library expects
            RecursionError,  # where it is nested less deeply than msgspec gives up at, and more than json does
        ):
            raise Unauthorized(WRONG) from None
        return signed.payload or b"", found.until_ms

    def _read_header(self, token: bytes) -> _Header:
        if len(token) > TOKEN_BYTES_MAX or token.count(b".") != 2:
            raise Unauthorized(WRONG)
        try:
            header = self._header.decode(urlsafe_b64decode(token[: token.index(b".")]))
        except (ValueError, RecursionError):  # of base64, JSON, or text
            raise Unauthorized(WRONG) from None
        long = header.kid is not None and len(header.kid) > KID_MAX
        if header.alg not in self._algorithms or header.crit is not UNSET or long:
            raise Unauthorized(WRONG)
        return header


class TokenTeam(Struct, frozen=True):
    """A team, and the claim that a token is in it: `claim` must be `value`, or a list that has it.

    Dots in the name of a claim lead into objects.
    """

    claim: str
    value: str
    team: Team

    def has(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token with these claims is in the team."""
        return has_claim(claims, self.claim, self.value)


class TokenVerifier:
    """Verifies the tokens of one issuer for one audience, and puts their principals into `teams`."""

    def __init__(
        self,
        jwks: Jwks,
        *,
        audience: str,
        algorithms: Collection[str],
        leeway_s: float,
        clock: Clock,
        teams: Sequence[TokenTeam] = (),
    ) -> None:
        self.issuer = jwks.issuer
        self.discovery_url = jwks.discovery_url
        self._signed = SignedTokens(jwks, algorithms)
        self._audience = audience
        self._leeway_s = leeway_s
        self._clock = clock
        self._claims = msgspec.json.Decoder(_Claims)
        self._teams = tuple(teams)

    async def verify(self, token: bytes) -> tuple[Principal, int]:
        """Return the token's principal, and until when (milliseconds since the epoch) it need not be verified again.

        Raises Unauthorized, or Unavailable if the issuer's keys cannot be fetched.
        """
        payload, until_ms = await self._signed.open(token)
        claims = self._read_claims(payload)
        until_s = claims.exp + self._leeway_s
        principal = self._principal(claims)
        if self._teams:
            principal = self._join(principal, payload)
        return principal, int(min(until_s * 1000, until_ms))

    def _join(self, principal: Principal, payload: bytes) -> Principal:
        """The principal in its team, if it has one. Raises Unauthorized if the token is in more than one."""
        try:
            claims = msgspec.json.decode(payload, type=dict[str, Any])
        except (ValueError, RecursionError):  # in a claim that is not read otherwise
            raise Unauthorized(WRONG) from None
        found = [each for each in self._teams if each.has(claims)]
        if len(found) > 1:
            log.warning(
                "a token of %s is refused: it is in the teams %s, and a token is in one: let the claims that [[teams]] "
                "name tell them apart, or give the token one of these values",
                principal.id,
                " and ".join(f"{each.team.id} ({each.claim} = {each.value!r})" for each in found),
                extra=about(principal.id),
            )
            raise Unauthorized(f"{WRONG}: its claims put it in more than one team")
        return join_team(principal, found[0].team) if found else principal

    def _read_claims(self, payload: bytes) -> _Claims:
        """The claims of a token with a valid signature. Errors are detailed, since only a genuine bearer reads them."""
        try:
            claims = self._claims.decode(payload)
        except (ValueError, RecursionError):
            raise Unauthorized(
                f"{WRONG}: it needs iss, sub, aud and exp, and a claim `dragoman` only as documented"
            ) from None
        now_s = self._clock.now_ms() / 1000
        audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
        if not same_issuer(claims.iss, self.issuer):
            raise Unauthorized(f"{WRONG}: its issuer (iss) is another")
        if self._audience not in audiences:
            raise Unauthorized(f"{WRONG}: it is for another audience (aud)")
        if not claims.exp > now_s - self._leeway_s:  # RFC 7519 §4.1.4: on or after
            raise Unauthorized(f"{WRONG}: it has expired (exp)")
        if not max(claims.nbf, claims.iat) <= now_s + self._leeway_s or not math.isfinite(claims.exp):
            raise Unauthorized(f"{WRONG}: it is not valid yet (nbf, iat)")
        if not 0 < len(claims.sub) <= SUBJECT_MAX or not claims.sub.isprintable():
            raise Unauthorized(f"{WRONG}: its subject (sub) is empty, too long or not text")
        return claims

    def _principal(self, claims: _Claims) -> Principal:
        grant = claims.dragoman
        return Principal(
            f"jwt:{claims.sub}@{self.issuer}", grant.role, reach_of(grant.role, grant.agents), grant.scopes
        )


def has_claim(claims: Mapping[str, Any], name: str, value: str) -> bool:
    """Whether a claim is a value, or a list that has it."""
    found = _read_claim(claims, name)
    held = found if isinstance(found, list) else [found]
    return any(isinstance(each, str) and each == value for each in held)


def _read_claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name; if there is none, dots lead into objects, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found
