"""Ids, time stamps, and the clock.

Invariant: ids are UUIDs of version 7 (RFC 9562), so that later ones sort after earlier ones; time stamps are UTC with
milliseconds (A2A 1.0 §5.6.1).
"""

import time
from datetime import UTC, datetime
from functools import lru_cache, partial
from random import getrandbits
from typing import Protocol

from uuid_utils import uuid7


def new_id() -> str:
    """A fresh id for a task, context, message or artifact."""
    return str(uuid7())


new_write = partial(getrandbits, 63)
"""Makes a fresh id for a write to a task's log: a number below 2^63."""


class Clock(Protocol):
    """The source of time; tests pass their own."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class SystemClock:
    """The machine's own time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


@lru_cache(maxsize=64)  # on a busy server many events have the same millisecond
def timestamp(ms: int) -> str:
    """`ms` since the epoch as `2026-11-20T07:00:00.000Z`. A time that no calendar has becomes the last one of ours."""
    seconds, rest = divmod(ms, 1000)
    return f"{_to_the_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=64)
def timestamp_ms(text: str) -> int:
    """Convert a result of `timestamp` back to milliseconds since the epoch. Any other text, of a damaged row, is 0."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000 + 0.5)
    except (ValueError, OverflowError):
        return 0


@lru_cache(maxsize=4)
def _to_the_second(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a damaged row says so, and must not hide the others
        return "9999-12-31T23:59:59"
