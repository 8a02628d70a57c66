"""When a failed delivery is retried.

Invariant: pure; randomness is passed in as a number.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

DELAYS_S = (1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0)
"""The delays before each retry (DESIGN §7). A short outage is over within a minute; longer ones have seven hours."""

JITTER = 0.2
"""How much a delay varies, either way, so that deliveries that failed together are not retried together."""

RETRY_AFTER_MAX_S = 21600.0
"""Most that `Retry-After` counts for: our own longest delay, so that a receiver cannot postpone deliveries for ever."""


class Schedule(Struct, frozen=True):
    """How long to wait after the first failure, the second, and so on. After the last delay comes the last attempt."""

    delays_s: tuple[float, ...] = DELAYS_S
    jitter: float = JITTER

    def delay_s(self, attempts: int, chance: float, retry_after_s: float | None = None) -> float | None:
        """How long to wait after a failure that `attempts` failures preceded; None: no more attempts.

        `chance` is from 0 to 1. The receiver's `retry_after_s` is honoured up to six hours.
        """
        if attempts >= len(self.delays_s):
            return None
        delay_s = self.delays_s[attempts] * (1 + self.jitter * (2 * chance - 1))
        return delay_s if retry_after_s is None else max(delay_s, min(retry_after_s, RETRY_AFTER_MAX_S))


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """Parse a `Retry-After` header to seconds from now (RFC 9110 §10.2.3); None if it is missing or invalid."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # OverflowError: a number in the date has too many digits
        return None
    if at.tzinfo is None:  # the date has the zone -0000; HTTP dates are UTC
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds())
