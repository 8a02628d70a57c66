"""Breaker: keeps calls from an upstream that does not answer, and lets one through now and then to see whether it does.

Invariant: while it is open no call goes out; half open, one at a time, whose outcome decides.
"""

from collections.abc import Callable
from enum import StrEnum

PAUSE_GROWTH = 2.0
PAUSE_S_MAX = 300.0
"""Longest that an upstream is left alone."""


OPENED_MAX = 64
"""How often the pause may have grown: one of 0.1 s has long been the longest."""


class State(StrEnum):
    """Whether calls go out."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Opens after `failures` in a row for `pause_s`, longer each time it opens again. `clock` counts seconds."""

    __slots__ = ("_failures", "_in_a_row", "_opened", "_pause_s", "_trial_until_s", "_until_s", "clock")

    def __init__(self, failures: int, pause_s: float, clock: Callable[[], float]) -> None:
        self._failures = failures
        self._pause_s = pause_s
        self.clock = clock
        self._in_a_row = 0
        self._opened = 0
        self._until_s = 0.0
        self._trial_until_s = 0.0

    @property
    def state(self) -> State:
        """Open until its pause is over, then half open until a call has succeeded."""
        if not self._opened:
            return State.CLOSED
        return State.OPEN if self.clock() < self._until_s else State.HALF_OPEN

    @property
    def wait_s(self) -> float:
        """How long until a call may be made: 0 if now. While one is being tried, a share of the pause."""
        if not self._opened:
            return 0.0
        if (left := self._until_s - self.clock()) > 0:
            return left
        return self._pause_s / 10 if self._tried else 0.0

    @property
    def _tried(self) -> bool:
        """Whether a call is being tried. One that takes longer than a pause does not keep others back."""
        return self.clock() < self._trial_until_s

    def admit(self) -> bool:
        """Whether a call may be made now. If so, `succeeded`, `failed` or `unknown` is to be said of it."""
        if not self._opened:
            return True
        if self.wait_s > 0:
            return False
        self._trial_until_s = self.clock() + self._pause_s
        return True

    def succeeded(self) -> None:
        """A call got through."""
        self._in_a_row = self._opened = 0
        self._trial_until_s = 0.0

    def failed(self) -> float | None:
        """A call did not get through. What went out before it opened says nothing more.

        How long no call is made, if it opens by this one; else None.
        """
        self._in_a_row += 1
        if self._opened and self.clock() < self._until_s:
            return None
        if self._opened or self._in_a_row >= self._failures:
            pause_s = min(PAUSE_S_MAX, self._pause_s * PAUSE_GROWTH**self._opened)
            self._opened = min(self._opened + 1, OPENED_MAX)
            self._until_s = self.clock() + pause_s
            self._trial_until_s = 0.0
            return pause_s
        return None

    def half_open(self) -> bool:
        """Something else shows that it answers: a call may be made now. False if one might have been before."""
        held_back = self.clock() < self._until_s
        self._until_s = min(self._until_s, self.clock())
        return self._opened > 0 and held_back

    def unknown(self) -> None:
        """A call was given up before anything could be said of it."""
        self._trial_until_s = 0.0
