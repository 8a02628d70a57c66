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
from dragoman.model.ids import Clock
from dragoman.net.address import Guard
from dragoman.net.egress import Egress, operator_named
from dragoman.net.resolver import Resolver
from dragoman.push.announcer import Announcer
from dragoman.push.courier import CONNECT_S, CONNECTIONS_MAX, Courier
from dragoman.push.headers import Token
from dragoman.store.outbox import Outbox
from dragoman.telemetry.counts import Counts

DIALECTS: tuple[Dialect, ...] = (v1.JSONRPC, v03.JSONRPC, beeos.JSONRPC, evoai.JSONRPC, protoagent.JSONRPC)

ANSWER_BYTES_MAX = 16_384
"""A receiver's answer is of no interest beyond its status."""


class Webhooks(Struct, frozen=True):
    """What tells webhooks: who writes down what is owed, and who brings it."""

    announcer: Announcer
    courier: Courier


async def webhooks_of(
    config: Config, outbox: Outbox, clock: Clock, signing: SigningRoom, counts: Counts | None
) -> Webhooks:
    """Both, of one configuration. Raises StoreError if calls are to be signed and the key cannot be had."""
    guard, resolver = Guard(config.push_allowed_hosts, config.push_allowed_cidrs), Resolver()
    ways = [
        Egress(
            policy,
            connect_timeout_s=CONNECT_S,
            max_answer_bytes=ANSWER_BYTES_MAX,
            connections_max=CONNECTIONS_MAX,
            resolver=resolver,
        )
        for policy in (guard, operator_named)
    ]
    forms: Mapping[str, PushForm] = {each.name: each.push for each in DIALECTS if each.push is not None}
    courier = Courier(
        outbox,
        forms,
        guarded=ways[0],
        unguarded=ways[1],
        named=guard.named,
        clock=clock,
        token=await _token(config, clock, signing) if config.push_jwt else None,
        counts=counts,
    )
    return Webhooks(Announcer(forms, guard, resolver, courier.wake), courier)


async def _token(config: Config, clock: Clock, signing: SigningRoom) -> Token:
    """A JWT for each call: who sends it, whom it is for, and of which body it speaks."""
    signer, issuer = await signing.signer(), config.public_url or "dragoman"

    def token(url: str, delivery_id: str, task_id: str, body: bytes) -> str:
        claims = {"iss": issuer, "aud": url, "jti": delivery_id, "sub": task_id, "sha256": sha256(body).hexdigest()}
        return signer.token(claims, clock.now_ms() // 1000)

    return token
