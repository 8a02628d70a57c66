"""Webhooks: the announcer and the courier, with the two ways out that they use.

Invariant: hosts that the operator named have connections of their own; all others are checked as they are dialled.
"""

from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct

from dragoman.auth.signatures import SigningRoom
from dragoman.config import Config
from dragoman.dialects import beeos, evoai, protoagent, v03, v1
from dragoman.dialects.api import Dialect, PushForm
from dragoman.engine.files import Files
from dragoman.model.ids import Clock
from dragoman.net.address import Guard
from dragoman.net.egress import operator_named
from dragoman.net.resolver import Resolver
from dragoman.push.announcer import Announcer
from dragoman.push.courier import Courier, way_out
from dragoman.push.headers import Token
from dragoman.store.outbox import Outbox
from dragoman.telemetry.counts import Counts

DIALECTS: tuple[Dialect, ...] = (v1.JSONRPC, v03.JSONRPC, beeos.JSONRPC, evoai.JSONRPC, protoagent.JSONRPC)

LEAVE_S = 2.0
"""How long a stopping server waits for receivers that were called just now."""


class Webhooks(Struct, frozen=True):
    """What tells webhooks: who writes down what is owed, and who brings it."""

    announcer: Announcer
    courier: Courier
    resolver: Resolver

    async def close(self) -> None:
        """Stop: calls under way get a moment, what is cut off is called again when a server is there."""
        await self.courier.drain(LEAVE_S)
        await self.resolver.close()


async def webhooks_of(
    config: Config, outbox: Outbox, clock: Clock, signing: SigningRoom, counts: Counts | None, files: Files
) -> Webhooks:
    """Both, of one configuration. Raises StoreError if calls are to be signed and the key cannot be had."""
    guard, resolver = Guard(config.push_allowed_hosts, config.push_allowed_cidrs), Resolver()
    forms: Mapping[str, PushForm] = {each.name: each.push for each in DIALECTS if each.push is not None}
    courier = Courier(
        outbox,
        forms,
        guarded=way_out(guard, resolver),
        unguarded=way_out(operator_named, resolver),
        named=guard.named,
        clock=clock,
        token=await _token(config, clock, signing) if config.push_jwt else None,
        counts=counts,
    )
    return Webhooks(Announcer(forms, guard, resolver, courier.wake, files), courier, resolver)


async def _token(config: Config, clock: Clock, signing: SigningRoom) -> Token:
    """A JWT for each call: who sends it, whom it is for, and of which body it speaks."""
    signer, issuer = await signing.signer(), config.public_url or "dragoman"

    def token(url: str, delivery_id: str, task_id: str, body: bytes) -> str:
        claims = {"iss": issuer, "aud": url, "jti": delivery_id, "sub": task_id, "sha256": sha256(body).hexdigest()}
        return signer.token(claims, clock.now_ms() // 1000)

    return token
