"""JWTs as bearer tokens (RFC 7519, RFC 8725): verified against the keys of one issuer.

Invariant: a token's header can only pick a key and an algorithm among the configured ones. `jku`, `jwk`, `x5u` and
`x5c` are ignored, and no extension that `crit` demands is supported.
"""

import math
from collections.abc import Collection
from typing import Any

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode
from msgspec import UNSET, Struct, UnsetType

from dragoman.auth.jwks import Jwks, same_issuer
from dragoman.model.errors import Unauthorized
from dragoman.model.ids import Clock
from dragoman.model.principal import Principal, Role, Scope

TOKEN_BYTES_MAX = 16 * 1024

SUBJECT_MAX = 255
"""OpenID Connect Core 1.0 §2."""

KID_MAX = 1000

WRONG = "the token is not valid here"


class _Header(Struct, frozen=True):
    """The members of a token's header that are read (RFC 7515 §4.1)."""

    alg: str
    kid: str | None = None
    crit: msgspec.Raw | UnsetType = UNSET


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """The claim `dragoman`: the limits of the token. A missing member sets no limit; unknown members are refused."""

    agents: frozenset[str] | None = None
    scopes: frozenset[Scope] | None = None
    role: Role = Role.CALLER


class _Claims(Struct, frozen=True):
    """The claims of a token that are read (RFC 7519 §4.1), with times in seconds since the epoch."""

    iss: str
    sub: str
    aud: str | tuple[str, ...]
    exp: float
    nbf: float = 0.0
    iat: float = 0.0
    dragoman: Grant = Grant()


class _Pinned(jws.JWSRegistry):
    """Allows only the given algorithms, and headers as long as tokens may be, since issuers put certificates there."""

    max_header_length = TOKEN_BYTES_MAX

    def get_alg(self, name: str) -> Any:
        """Skip the library's warning that `EdDSA` has a newer name, since issuers use the old one."""
        assert self.allowed is not None
        if name not in self.allowed:
            raise JoseError(name)
        return self.algorithms[name]


class Tokens:
    """Verifies the tokens of one issuer for one audience."""

    def __init__(
        self, jwks: Jwks, *, audience: str, algorithms: Collection[str], leeway_s: float, clock: Clock
    ) -> None:
        self.issuer = jwks.issuer
        self.discovery_url = jwks.discovery_url
        self._jwks = jwks
        self._audience = audience
        self._algorithms = frozenset(algorithms)
        self._registry = _Pinned(algorithms=self._algorithms, strict_check_header=False)
        self._leeway_s = leeway_s
        self._clock = clock
        self._header = msgspec.json.Decoder(_Header)
        self._claims = msgspec.json.Decoder(_Claims)

    async def verify(self, token: bytes) -> tuple[Principal, int]:
        """Return the token's principal, and until when (milliseconds since the epoch) it need not be verified again.

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
        claims = self._read_claims(signed.payload)
        until_s = claims.exp + self._leeway_s
        return self._principal(claims), int(min(until_s * 1000, found.until_ms))

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

    def _read_claims(self, payload: bytes | None) -> _Claims:
        """The claims of a token with a valid signature. Errors are detailed, since only a genuine bearer reads them."""
        try:
            claims = self._claims.decode(payload or b"")
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
        return Principal(f"jwt:{claims.sub}@{self.issuer}", grant.role, grant.agents, grant.scopes)
