"""The wait that an answer asks for (RFC 9110 §10.2.3).

Invariant: pure. A text that is neither a number of seconds nor a date asks for nothing.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


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
