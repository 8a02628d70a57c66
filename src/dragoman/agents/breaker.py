"""Breaker: holds back calls to an upstream that does not answer, and lets one through now and then as a test.

    CLOSED ── so many failures in a row ──► OPEN ── the pause ends, or `half_open` ──► HALF_OPEN ── a success ──► CLOSED
                                              ▲                                        │     │
                                              └──────── a failure: a longer pause ─────┘     └─ unknown: the next call

A success closes it in every state. How a call is judged is its caller's (`remote.admission`, `model.endpoint`).

Invariant: while it is open, no call goes out. While it is half open, one call goes out at a time, and its outcome
decides.
"""

import time
from collections.abc import Callable
from enum import StrEnum

from dragoman.model.errors import Unavailable

PAUSE_GROWTH = 2.0
PAUSE_S_MAX = 300.0
"""The longest pause."""


OPENED_MAX = 64
"""Bounds the exponent of the pause: long before this, even a pause of 0.1 s has grown to the longest."""


class State(StrEnum):
    """Whether calls go out."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Opens for `pause_s` after `failures` failures in a row, longer each time it reopens. `clock` counts seconds."""

    __slots__ = ("_failures", "_in_a_row", "_pause_s", "_trial_until_s", "_until_s", "clock", "opened")

    def __init__(self, failures: int = 5, pause_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = failures
        self._pause_s = pause_s
        self.clock = clock
        self._in_a_row = 0
        self.opened = 0
        """How often it has opened since the last success: 0 while it is closed."""
        self._until_s = 0.0
        self._trial_until_s = 0.0

    @property
    def state(self) -> State:
        """Open until the pause is over, then half open until a call succeeds."""
        if not self.opened:
            return State.CLOSED
        return State.OPEN if self.clock() < self._until_s else State.HALF_OPEN

    @property
    def wait_s(self) -> float:
        """Seconds until a call may be made, 0 if now. While a trial call is under way: a tenth of the pause."""
        if not self.opened:
            return 0.0
        if (left := self._until_s - self.clock()) > 0:
            return left
        return self._pause_s / 10 if self._trial_running else 0.0

    def refusal(self, agent_id: str, retry_s_max: float = PAUSE_S_MAX) -> Unavailable:
        """The error for a send to an agent whose calls are held back. It names no longer time than `retry_s_max`."""
        retry_s = int(min(self.wait_s, retry_s_max)) + 1
        return Unavailable(f"agent {agent_id!r} cannot be reached at present: try again", retry_s)

    @property
    def _trial_running(self) -> bool:
        """Whether a trial call is under way. A trial that takes longer than a pause no longer holds others back."""
        return self.clock() < self._trial_until_s

    def admit(self) -> bool:
        """Whether a call may be made now. If so, report its outcome by a `record_` method."""
        if not self.opened:
            return True
        if self.wait_s > 0:
            return False
        self._trial_until_s = self.clock() + self._pause_s
        return True

    def record_success(self) -> None:
        """Record that a call got through."""
        self._in_a_row = self.opened = 0
        self._trial_until_s = 0.0

    def record_failure(self) -> float | None:
        """Record that a call did not get through. Failures that arrive while it is open do not count.

        Returns the length of the pause in seconds if this failure opens the breaker, else None.
        """
        self._in_a_row += 1
        if self.opened and self.clock() < self._until_s:
            return None
        if self.opened or self._in_a_row >= self._failures:
            pause_s = min(PAUSE_S_MAX, self._pause_s * PAUSE_GROWTH**self.opened)
            self.opened = min(self.opened + 1, OPENED_MAX)
            self._until_s = self.clock() + pause_s
            self._trial_until_s = 0.0
            return pause_s
        return None

    def half_open(self) -> bool:
        """Allow a call now, because the upstream has shown that it answers. False if calls were not held back."""
        held_back = self.clock() < self._until_s
        self._until_s = min(self._until_s, self.clock())
        return self.opened > 0 and held_back

    def record_unknown(self) -> None:
        """Record that a call was given up before its outcome was known."""
        self._trial_until_s = 0.0
