"""The server's own signatures: of agent cards (A2A 1.0 §8.4) and of webhook calls, and how such are verified.

Invariant: what is signed is the canonical form of RFC 8785; a signature is checked only with the algorithms and keys
that the one who checks has named, never with what the signed thing itself names.
"""

import asyncio
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.model.ids import Clock, new_id
from dragoman.store.keyring import KeyRing, SigningKey

if TYPE_CHECKING:  # joserfc takes longer to import than a server may take to start
    from joserfc.jwk import ECKey, KeySet

ALGORITHM = "ES256"
"""What every official verifier knows, and what A2A 1.0 §8.4.2 shows."""

VERIFIABLE = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "Ed25519", "EdDSA")
"""Signatures by which another agent's card may be signed: the asymmetric ones."""

DEPTH_MAX = 100
"""Deepest nesting that is brought into canonical form: the library recurses (the official SDKs stop at 128)."""

SIGNATURES_MAX = 20
"""Of a card that are looked at: each costs some verifications, and a card is its signer's to fill."""

HEADER_BYTES_MAX = 8_192
CARD_BYTES_MAX = 4 << 20
"""Of a signed card; the library's own bounds are 512 and 128,000."""

TOKEN_TTL_S = 300
"""How long the token of a webhook call is valid: as long as a receiver may be off by the clock."""


class CardNotVerified(Exception):
    """A card has no signature that one of the given keys made. The message says what was found."""


class Signer:
    """One private key of the server."""

    def __init__(self, key: "ECKey", kid: str) -> None:
        self._key = key
        self.kid = kid

    def jwks(self) -> bytes:
        """The public key as a JWK Set (RFC 7517 §5)."""
        public = self._key.as_dict(private=False, kid=self.kid, use="sig", alg=ALGORITHM)
        return msgspec.json.encode({"keys": [public]})

    def sign(self, content: Mapping[str, Any], jku: str) -> dict[str, str]:
        """The signature over the canonical form of `content`, as a card has it. `jku` is where the key is.

        What is empty is left out, as the official SDKs leave it out before they verify.

        Raises ValueError for what has no canonical form: nesting too deep, integers beyond 2^53, NaN.
        """
        from joserfc import jws

        header = {"alg": ALGORITHM, "typ": "JOSE", "kid": self.kid, "jku": jku}
        if _deeper_than(content, DEPTH_MAX):
            raise ValueError(f"nested deeper than {DEPTH_MAX}")
        payload = canonical(without_empty(content))
        protected, _, signature = jws.serialize_compact(header, payload, self._key).split(".")
        return {"protected": protected, "signature": signature}

    def token(self, claims: Mapping[str, Any], now_s: int) -> str:
        """A JWT with `claims`, valid from `now_s` for `TOKEN_TTL_S`."""
        from joserfc import jwt

        header = {"alg": ALGORITHM, "typ": "JWT", "kid": self.kid}
        return jwt.encode(header, {**claims, "iat": now_s, "exp": now_s + TOKEN_TTL_S}, self._key)


class SigningRoom:
    """Where the signer is made when it is first needed: the key from the store, or a new one that the store keeps."""

    def __init__(self, ring: KeyRing, clock: Clock) -> None:
        self._ring = ring
        self._clock = clock
        self._signer: Signer | None = None
        self._making = asyncio.Lock()

    async def signer(self) -> Signer:
        """The server's signer; the same for all servers on one store. Raises StoreError."""
        if self._signer is None:
            async with self._making:
                if self._signer is None:
                    self._signer = await self._made()
        return self._signer

    async def _made(self) -> Signer:
        kept = await self._ring.signing_key()
        if kept is None:
            kid = new_id()
            jwk = await asyncio.to_thread(_new_jwk)
            kept = await self._ring.signing_key(SigningKey(kid=kid, jwk=jwk, made_ms=self._clock.now_ms()))
            assert kept is not None  # one was offered
        return Signer(await asyncio.to_thread(_key, kept.jwk), kept.kid)


def _new_jwk() -> bytes:
    from joserfc.jwk import ECKey

    return msgspec.json.encode(ECKey.generate_key("P-256").as_dict(private=True))


def _key(jwk: bytes) -> "ECKey":
    from joserfc.jwk import ECKey

    return ECKey.import_key(msgspec.json.decode(jwk))


def canonical(content: Any) -> bytes:
    """The canonical form (RFC 8785). Raises ValueError for what has none."""
    import rfc8785

    if _deeper_than(content, DEPTH_MAX):
        raise ValueError(f"nested deeper than {DEPTH_MAX}")
    return rfc8785.dumps(content)


def without_empty(content: Any) -> Any:
    """`content` without texts, lists and objects that are empty: what the official SDKs leave of a card to sign it."""
    if isinstance(content, Mapping):
        members = {name: without_empty(value) for name, value in content.items()}
        return {name: value for name, value in members.items() if not _empty(value)}
    if isinstance(content, list | tuple):
        return [value for item in content if not _empty(value := without_empty(item))]
    return content


def verify_card(
    card: Mapping[str, Any], readings: Iterable[Mapping[str, Any]], keys: Mapping[str, Any], algorithms: Sequence[str]
) -> str:
    """The id of the key (empty if it has none) that signed `card`, or one of the `readings` of it.

    A card is signed as its signer reads it: whole, or as the fields of one version of A2A. `readings` are those under
    which the one who asks would take it. `keys` is a JWK Set. Raises CardNotVerified.
    """
    from joserfc import jws
    from joserfc.errors import JoseError, SecurityWarning

    signatures = card.get("signatures")
    if not isinstance(signatures, list) or not signatures:
        raise CardNotVerified("the card is not signed")
    if _deeper_than(card, DEPTH_MAX):
        raise CardNotVerified(f"the card is nested deeper than {DEPTH_MAX}")
    bare = {name: value for name, value in card.items() if name != "signatures"}
    payloads = {_payload(form) for each in (bare, *readings) for form in (each, without_empty(each))} - {b""}
    registry = jws.JWSRegistry(
        algorithms=list(algorithms),
        strict_check_header=False,  # what else a header says, its signer may have use for
    )
    registry.max_header_length, registry.max_payload_length = HEADER_BYTES_MAX, CARD_BYTES_MAX
    known = _readable(keys)
    for signature in signatures[:SIGNATURES_MAX]:
        match signature:
            case {"protected": str(protected), "signature": str(signed)}:
                pass
            case _:
                continue
        for payload in payloads:
            try:
                token = b".".join((protected.encode(), payload, signed.encode()))
                with warnings.catch_warnings():  # EdDSA's name is deprecated (RFC 9864), and most that use it still do
                    warnings.simplefilter("ignore", SecurityWarning)
                    found = jws.deserialize_compact(token, known, registry=registry)
            except (JoseError, ValueError, TypeError, RecursionError):  # one that cannot be read is none
                continue
            return str(found.headers().get("kid", ""))
    raise CardNotVerified(f"none of the card's {len(signatures)} signatures is by one of the {len(known.keys)} keys")


def _readable(keys: Mapping[str, Any]) -> "KeySet":
    """The public keys of a JWK Set; what is none is ignored (RFC 7517 §5). Raises CardNotVerified if all are none."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    listed = keys.get("keys")
    known = KeySet([])
    for each in listed if isinstance(listed, list | tuple) else ():
        if not isinstance(each, Mapping) or each.get("kty") not in ("EC", "RSA", "OKP"):
            continue
        try:
            known.keys += KeySet.import_key_set({"keys": [dict(each)]}).keys
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not known.keys:
        raise CardNotVerified("there is no public key to verify the card with")
    return known


def _payload(reading: Mapping[str, Any]) -> bytes:
    from joserfc.util import urlsafe_b64encode

    try:
        return urlsafe_b64encode(canonical(reading))
    except ValueError:
        return b""


def _empty(value: Any) -> bool:
    return isinstance(value, str | Mapping | list | tuple) and not value


def _deeper_than(content: Any, levels: int) -> bool:
    """Without recursion: the depth of what a stranger sent is not known yet."""
    layer = [content]
    for _ in range(levels):
        inner: list[Any] = []
        for each in layer:
            if isinstance(each, Mapping):
                inner += each.values()
            elif isinstance(each, list | tuple):
                inner += each
        if not inner:
            return False
        layer = inner
    return any(isinstance(each, Mapping | list | tuple) for each in layer)
