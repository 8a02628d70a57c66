"""TimerWheel: one timer of the loop for many things that wait long, such as idle connections.

Invariant: nothing is looked at before its time, nor much more than a turn of the wheel after it. A thing in the wheel
takes a place in a set, where a timer of its own takes half a kilobyte and 2 µs.
"""

import asyncio
import math
from typing import Protocol

TURNS = 64
"""A turn of the wheel is at most this part of the time that things wait, so that they are looked at little late."""

TURN_MAX_S = 0.25
"""The longest turn of a wheel whose things wait for minutes."""

TURNS_MAX = 2048
"""Most turns in which things that wait equally long have their times. Each has a set, even if all have left it, until
its turn comes: in turns of 0.25 s those of a day would take 96 MB, and each look at them 0.1 s."""

LOOKS = 64
"""Most things that are looked at in a row, so that thousands with one time do not hold the loop."""

ROUNDING_S = 0.001
"""uvloop (0.23) rounds times to milliseconds: a timer might fire just before the turn that it waits for."""


class Timed(Protocol):
    """A thing that waits."""

    def look(self, now_s: float) -> None:
        """The time has come: `now_s` is the loop's. The thing is in the wheel no more."""
        ...


Bucket = set[Timed]
"""The things that have their time in one turn of the wheel. A thing that leaves the wheel is discarded from it."""


class TimerWheel:
    """Things that wait, by the turn in which their time comes. Most of them wait for `wait_s`."""

    def __init__(self, wait_s: float) -> None:
        self._turn_s = max(min(TURN_MAX_S, wait_s / TURNS), wait_s / TURNS_MAX) or TURN_MAX_S
        self._buckets: dict[int, Bucket] = {}
        self._timer: asyncio.Handle | None = None
        self._turn = 0
        """The turn for which the timer is set. During a look none is set: it is set after that, for the first turn."""
        self._looking = False

    def add(self, thing: Timed, at_s: float) -> Bucket:
        """Look at `thing` at a time of the loop's clock. Returns the bucket from which it can be discarded."""
        turn = math.ceil(at_s / self._turn_s)
        bucket = self._buckets.get(turn)
        if bucket is None:
            bucket = self._buckets[turn] = set()
            if not self._looking and (self._timer is None or turn < self._turn):
                self._set_timer(turn)
        bucket.add(thing)
        return bucket

    def _set_timer(self, turn: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._turn = turn
        self._timer = asyncio.get_running_loop().call_at(turn * self._turn_s + ROUNDING_S, self._look)

    def _look(self) -> None:
        """Look at a few of the things whose turns have come. The others wait for the loop's next turn."""
        self._timer, self._looking = None, True
        now_s, looks = asyncio.get_running_loop().time(), 0
        try:
            for turn in sorted(turn for turn in self._buckets if turn * self._turn_s <= now_s):
                bucket = self._buckets[turn]
                while bucket and looks < LOOKS:
                    looks += 1
                    bucket.pop().look(now_s)
                if bucket:
                    break
                del self._buckets[turn]
        finally:  # what one of them raises holds up none of the others
            self._looking = False
            if self._buckets:
                self._set_timer(min(self._buckets))
