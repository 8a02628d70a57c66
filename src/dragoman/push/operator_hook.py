"""OperatorHook: the operator's own webhook, which is told of budgets.

Invariant: an attempt that fails costs itself alone. A notice keeps its `webhook-id` through all attempts, and the
signature covers it (Standard Webhooks 1.0), so that a receiver can drop repeats.
"""

import logging
from typing import Any

import msgspec

from dragoman.dialects.api import Signing
from dragoman.dialects.push import standard_signature
from dragoman.model.ids import Clock
from dragoman.net.egress import Poster
from dragoman.net.errors import EgressError
from dragoman.net.target import parse_operator_url, shown_url
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.budgets")

ATTEMPT_S = 10.0
"""How long one call may take, as those of tasks' webhooks."""


class OperatorHook:
    """Calls the `url` that the operator set. With a `secret` calls are signed."""

    def __init__(self, url: str, secret: str | None, poster: Poster, clock: Clock) -> None:
        self._to, _ = parse_operator_url(url, shown_url(url))
        self._shown = shown_url(url)
        self._secret = secret
        self._poster = poster
        self._clock = clock

    async def tell(self, notice_id: str, notice: dict[str, Any]) -> bool:
        """Make one call. Returns whether it has arrived."""
        body = msgspec.json.encode(notice)
        headers = {"content-type": "application/json", "webhook-id": notice_id}
        if self._secret is not None:
            signing = Signing(delivery_id=notice_id, task_id="", timestamp_s=self._clock.now_ms() // 1000, body=body)
            headers |= dict(standard_signature(self._secret, signing))
        try:
            reply = await self._poster.post(self._to, body=body, headers=headers, timeout_s=ATTEMPT_S)
        except EgressError as error:
            log.warning("budget_webhook %s cannot be called: %s", self._shown, error, extra=about("budget_webhook"))
            return False
        if 200 <= reply.status < 300:
            return True
        log.warning("budget_webhook %s answered %d", self._shown, reply.status, extra=about("budget_webhook"))
        return False

    async def close(self) -> None:
        """Close its connections."""
        await self._poster.close()
