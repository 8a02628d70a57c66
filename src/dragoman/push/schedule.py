"""When a delivery that failed is tried again.

Invariant: pure; what happens at random comes in as a number.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

DELAYS_S = (1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0)
"""DESIGN §7: what is a short outage is over within a minute; what is not gets most of a day."""

JITTER = 0.2
"""How far a delay may be off, either way: what failed together does not come back together."""

RETRY_AFTER_MAX_S = 21600.0
"""As long as the longest delay of our own: a receiver cannot put its deliveries off for ever."""


class Schedule(Struct, frozen=True):
    """How long to wait after the first failure, the second, and so on; after the last of them there is no other try."""

    delays_s: tuple[float, ...] = DELAYS_S
    jitter: float = JITTER

    def delay_s(self, attempts: int, chance: float, retry_after_s: float | None = None) -> float | None:
        """How long to wait, when `attempts` had failed before the one that has just failed; None: it is over.

        `chance` is from 0 to 1. What the receiver asks for in `retry_after_s` is waited for, up to six hours.
        """
        if attempts >= len(self.delays_s):
            return None
        delay_s = self.delays_s[attempts] * (1 + self.jitter * (2 * chance - 1))
        return delay_s if retry_after_s is None else max(delay_s, min(retry_after_s, RETRY_AFTER_MAX_S))


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """What a `Retry-After` header asks for, in seconds from now (RFC 9110 §10.2.3); None if it asks for nothing."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # the latter for numbers of many digits, which a receiver may well write
        return None
    if at.tzinfo is None:  # the date said -0000; HTTP dates are UTC
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds())
