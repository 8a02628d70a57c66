"""An issuer of tokens on loopback: its documents are served over HTTP, its tokens are signed with its own keys."""

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from dragoman.auth.issuers import IssuerEgress
from dragoman.auth.tokens import Jwks, TokenVerifier
from dragoman.net.address import Resolver
from dragoman.net.egress import Egress
from tests.net.peer import Peer, listening, says, status
from tests.store.cases.bench import SetClock

DISCOVERY, JWKS = "GET /realms/x/.well-known/openid-configuration", "GET /realms/x/keys"
AUDIENCE = "https://agents.example.org"
ALGORITHMS = ("RS256", "ES256")

RSA = RSAKey.generate_key(2048)
EC = ECKey.generate_key("P-256")
OTHER = RSAKey.generate_key(2048)
"""A key that the issuer does not have, or not yet."""

Key = RSAKey | ECKey | OKPKey


def jwk(key: Key, kid: str | None, **members: Any) -> dict[str, Any]:
    """A public key as an issuer publishes it."""
    return {**key.as_dict(private=False), **({} if kid is None else {"kid": kid}), "use": "sig", **members}


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def unsigned(header: Mapping[str, Any], claims: Any) -> str:
    """The signing input of a token."""
    return f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"


def token(claims: Any, *, key: Key = RSA, kid: str | None = "r1", alg: str = "RS256", **header: Any) -> bytes:
    """A token, well signed, whatever is in it."""
    head = {"alg": alg, **({} if kid is None else {"kid": kid}), **header}
    registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    registry.max_header_length = registry.max_payload_length = 1 << 20
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return jws.serialize_compact(head, payload, key, registry=registry).encode()


def signed(header: Mapping[str, Any], claims: Any) -> bytes:
    """A token with RSA's signature, whatever its header asks for, which a library might refuse to sign."""
    text = unsigned(header, claims)
    signature = RSA.private_key.sign(text.encode(), PKCS1v15(), SHA256())
    return f"{text}.{b64(signature)}".encode()


class Issuer:
    """Its documents can be changed; `peer.paths` has the requests."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.clock = SetClock()
        self.url = f"{peer.url}/realms/x"
        self.discovery: dict[str, Any] = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.keys: Sequence[Any] = (jwk(RSA, "r1"), jwk(EC, "e1"))
        self.control = "max-age=600"
        self.publish()

    def publish(self) -> None:
        """Serve what is to be published now."""
        self.peer.scripts[DISCOVERY] = says(self.discovery)
        self.peer.scripts[JWKS] = says({"keys": list(self.keys)}, headers={"Cache-Control": self.control})

    def fail(self, code: int = 503) -> None:
        """Answer with that status from now on."""
        self.peer.scripts[DISCOVERY] = self.peer.scripts[JWKS] = status(code)

    @property
    def fetches(self) -> int:
        """How often its keys were asked for."""
        return self.peer.paths.count(JWKS)

    def claims(self, **more: Any) -> dict[str, Any]:
        """The claims of a token that is good for an hour; None leaves one out."""
        now_s = self.clock.now_ms() // 1000
        all_of_them = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": now_s + 3600, "iat": now_s, **more}
        return {name: value for name, value in all_of_them.items() if value is not None}


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """An issuer on a free port."""
    async with listening() as peer:
        yield Issuer(peer)


@asynccontextmanager
async def verifying(
    issuer: Issuer,
    algorithms: Sequence[str] = ALGORITHMS,
    *,
    url: str | None = None,
    jwks_url: str | None = None,
    guarded: Egress | None = None,
) -> AsyncIterator[TokenVerifier]:
    """Tokens of that issuer, verified; `guarded` lets nothing through unless it is given."""
    issuers = IssuerEgress(Egress(), guarded or Egress(lambda address: "refused"), Resolver())
    jwks = Jwks(url or issuer.url, jwks_url, algorithms, issuers, issuer.clock)
    try:
        yield TokenVerifier(jwks, audience=AUDIENCE, algorithms=algorithms, leeway_s=30, clock=issuer.clock)
    finally:
        await issuers.close()
