"""Assembly of webhooks: the announcer and the courier, with the two Posters that the courier uses.

Invariant: hosts that the operator named have connections of their own. All others are checked when they are dialled.
"""

from datetime import timedelta
from functools import partial
from hashlib import sha256

from msgspec import Struct

from dragoman.auth.signatures import SigningRoom
from dragoman.config import Config
from dragoman.dialects.registry import push_forms
from dragoman.engine.files import Files
from dragoman.model.ids import Clock
from dragoman.net.address import Guard, Resolver
from dragoman.net.dialer import operator_named
from dragoman.push.announcer import WebhookAnnouncer
from dragoman.push.caller import Caller, Posters, Token
from dragoman.push.courier import Courier, CourierSettings, way_out
from dragoman.push.operator_hook import OperatorHook
from dragoman.server.observation import Observation
from dragoman.store.outbox import Outbox
from dragoman.telemetry.job_effects import JobEffect, refusal

LEAVE_S = 2.0
"""How long a stopping server waits for calls to receivers that are under way."""


class WebhookParts(Struct, frozen=True):
    """The announcer, which makes deliveries, and the courier, which sends them."""

    announcer: WebhookAnnouncer
    courier: Courier
    resolver: Resolver
    budget_hook: OperatorHook | None = None
    """The operator's own webhook, if there is one."""

    async def close(self) -> None:
        """Stop. Calls under way get `LEAVE_S`; those cut off are repeated when a server runs again."""
        await self.courier.drain(LEAVE_S)
        if self.budget_hook is not None:
            await self.budget_hook.close()
        await self.resolver.close()


async def make_webhooks(
    config: Config, outbox: Outbox, clock: Clock, signing: SigningRoom, observation: Observation, files: Files
) -> WebhookParts:
    """Make both from one configuration. Raises StoreError if calls are signed and the key cannot be loaded."""
    guard, resolver = Guard(config.push_allowed_hosts, config.push_allowed_cidrs), Resolver()
    forms = push_forms()
    posters = Posters(way_out(guard, resolver), way_out(operator_named, resolver), guard.named)
    token = await _token(config, clock, signing) if config.push_jwt else None
    settings = CourierSettings(keeps_receipts=config.delivered_retention != timedelta())
    courier = Courier(outbox, Caller(forms, posters, clock, token), clock, observation.counts, settings)
    unsent = partial(refusal, observation.jobs, JobEffect.NO_WEBHOOKS)
    announcer = WebhookAnnouncer(forms, guard, resolver, courier.wake, files, unsent)
    hook = None
    if config.budget_webhook is not None:
        way = way_out(operator_named, resolver)
        hook = OperatorHook(config.budget_webhook, config.budget_webhook_secret, way, clock)
    return WebhookParts(announcer, courier, resolver, hook)


async def _token(config: Config, clock: Clock, signing: SigningRoom) -> Token:
    """Return a function that makes a JWT for a call, with its sender, its receiver and the digest of its body."""
    signer, issuer = await signing.signer(), config.public_url or "dragoman"

    def token(url: str, delivery_id: str, task_id: str, body: bytes) -> str:
        claims = {"iss": issuer, "aud": url, "jti": delivery_id, "sub": task_id, "sha256": sha256(body).hexdigest()}
        return signer.token(claims, clock.now_ms() // 1000)

    return token
