"""Histogram: how many of some durations were up to each of a few bounds.

Invariant: adding a duration is one search among the bounds and two additions. Nothing is locked; one thread adds.
"""

from bisect import bisect_left

REQUEST_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds for requests: from a read in memory to a message that waits for its agent for minutes."""

COMMIT_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds for commits of a store: from one in memory to one on a disk that is failing."""


class Histogram:
    """`counts[i]` counts the durations up to `bounds_s[i]`, the last element all longer ones."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.counts)

    def add(self, took_s: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds_s, took_s)] += 1
        self.sum_s += took_s
