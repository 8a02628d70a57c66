"""Signatures: signs agent cards (A2A 1.0 §8.4) and webhook calls, and verifies signed cards.

Invariant: the canonical form of RFC 8785 is signed. A signature is checked only with algorithms and keys that the
verifier has named, never with those that the signed content names.
"""

import asyncio
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.model.ids import Clock, new_id
from dragoman.store.api import StoreError
from dragoman.store.keyring import KeyRing, SigningKey

if TYPE_CHECKING:  # joserfc takes longer to import than a server may take to start
    from joserfc.jwk import ECKey, KeySet

log = logging.getLogger("dragoman.store")

ALGORITHM = "ES256"
"""The algorithm that every official verifier knows, and that A2A 1.0 §8.4.2 shows."""

VERIFIABLE = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "Ed25519", "EdDSA")
"""The algorithms accepted for another agent's card: the asymmetric ones."""

DEPTH_MAX = 100
"""The deepest nesting that is canonicalised, since the library recurses (the official SDKs stop at 128)."""

SIGNATURES_MAX = 20
"""Most signatures of a card that are checked. Each costs some verifications, and a stranger decides on their number."""

HEADER_BYTES_MAX = 8_192
CARD_BYTES_MAX = 4 << 20
"""The bounds for a signed card; the library's own are 512 and 128,000."""

TOKEN_TTL_S = 300
"""How long the token of a webhook call is valid, to allow for a receiver whose clock is off."""


class CardNotVerified(Exception):
    """A card has no signature that one of the given keys made. The message says what was found."""


class KeyUnreadable(StoreError):
    """The store's key for signatures is damaged. The message names the fix."""


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
        """The signature over the canonical form of `content`, as in a card. `jku` is the URL of the key.

        Empty values are left out, as the official SDKs leave them out before they verify.

        Raises ValueError for content without a canonical form: nesting too deep, integers beyond 2^53, NaN.
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
    """Makes the signer when it is first needed, with the store's key, or a new one that the store then keeps."""

    def __init__(self, ring: KeyRing, clock: Clock) -> None:
        self._ring = ring
        self._clock = clock
        self._signer: Signer | None = None
        self._making = asyncio.Lock()
        self._named = False

    async def signer_if_readable(self) -> Signer | None:
        """As `signer`, for what is of use without a signature, too: None if the key is damaged. The log says so once.

        Raises StoreError if the store cannot be read now.
        """
        try:
            return await self.signer()
        except KeyUnreadable as error:
            if not self._named:
                self._named = True
                log.error("cards are served without signatures: %s", error)
            return None

    async def signer(self) -> Signer:
        """The server's signer; the same for all servers on one store. Raises StoreError."""
        if self._signer is None:
            async with self._making:
                if self._signer is None:
                    self._signer = await self._load_or_make()
        return self._signer

    async def secret(self) -> bytes:
        """A secret that all servers on one store share, to derive keys for other purposes from. Raises StoreError."""
        await self.signer()  # makes the key, on a new store
        kept = await self._ring.signing_key()
        assert kept is not None  # the line above has made it
        return kept.jwk

    async def _load_or_make(self) -> Signer:
        kept = await self._ring.signing_key()
        if kept is None:
            kid = new_id()
            jwk = await asyncio.to_thread(_new_jwk)
            kept = await self._ring.signing_key(SigningKey(kid=kid, jwk=jwk, made_ms=self._clock.now_ms()))
            assert kept is not None  # an offer was made, so there is a key
        return Signer(await asyncio.to_thread(_key, kept), kept.kid)


def _new_jwk() -> bytes:
    from joserfc.jwk import ECKey

    return msgspec.json.encode(ECKey.generate_key("P-256").as_dict(private=True))


def _key(kept: SigningKey) -> "ECKey":
    """Read the key of a row. Raises KeyUnreadable: another one in its place would void what was signed before."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey

    try:
        key = ECKey.import_key(msgspec.json.decode(kept.jwk))
    except (JoseError, msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
        raise KeyUnreadable(
            f"the server's key for signatures ({kept.kid}) cannot be read: restore a backup, or delete its row in "
            "signing_keys, and the server makes another one"
        ) from error
    return key


def canonical(content: Any) -> bytes:
    """The canonical form (RFC 8785). Raises ValueError for content without one."""
    import rfc8785

    if _deeper_than(content, DEPTH_MAX):
        raise ValueError(f"nested deeper than {DEPTH_MAX}")
    return rfc8785.dumps(content)


def without_empty(content: Any) -> Any:
    """`content` without empty texts, lists and objects, as the official SDKs strip a card to sign it."""
    if isinstance(content, Mapping):
        members = {name: without_empty(value) for name, value in content.items()}
        return {name: value for name, value in members.items() if not _empty(value)}
    if isinstance(content, list | tuple):
        return [value for item in content if not _empty(value := without_empty(item))]
    return content


def verify_card(
    card: Mapping[str, Any], readings: Iterable[Mapping[str, Any]], keys: Mapping[str, Any], algorithms: Sequence[str]
) -> str:
    """Return the id (empty if it has none) of the key that signed `card`, or one of its `readings`.

    A signer may sign the whole card, or only the fields of one version of A2A. `readings` are the forms of the card
    that the caller accepts. `keys` is a JWK Set. Raises CardNotVerified.
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
        strict_check_header=False,  # other header members may be of use to the signer
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
                with (
                    warnings.catch_warnings()
                ):  # the name EdDSA is deprecated (RFC 9864), but most signers still use it
                    warnings.simplefilter("ignore", SecurityWarning)
                    found = jws.deserialize_compact(token, known, registry=registry)
            except (JoseError, ValueError, TypeError, RecursionError):  # an unreadable signature counts as none
                continue
            return str(found.headers().get("kid", ""))
    raise CardNotVerified(f"none of the card's {len(signatures)} signatures is by one of the {len(known.keys)} keys")


def _readable(keys: Mapping[str, Any]) -> "KeySet":
    """The public keys of a JWK Set; others are ignored (RFC 7517 §5). Raises CardNotVerified if there are none."""
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
    """Whether `content` is nested deeper. Works without recursion, since a stranger chose the depth."""
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
