"""Pulse: how many tasks ended lately, and how long they took, for an operator's screen.

Invariant: nothing is counted here. The counts of the process are sampled every `STEP_S`, an hour of samples is kept,
and the differences between them are what happened. Requests to the admin API are left out: an operator who watches a
server that is idle sees that it is.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from dragoman.telemetry.counts import BOUNDS_MS, Counts
from dragoman.telemetry.histogram import REQUEST_BOUNDS_S, Histogram

STEP_S = 10.0
STEPS_A_MINUTE = 6
MINUTES = 60
WINDOW_STEPS = 5 * STEPS_A_MINUTE
"""The window of the quantiles: five minutes."""

ADMIN = "admin"
"""The binding of operators' requests, which `dragoman.bindings.traffic` counts like those of callers."""

BOUNDS_S = tuple(bound_ms / 1000 for bound_ms in BOUNDS_MS)


class Quantiles(Struct, frozen=True):
    """Half of the times in the window are at most `p50_s`, and 95 of 100 at most `p95_s`: the bounds of buckets."""

    p50_s: float
    p95_s: float


class Sample(Struct, frozen=True):
    """The counts at one moment."""

    tasks: dict[str, int]
    requests: int
    first_events: list[int]
    completions: list[int]
    commits: list[int]
    webhook_calls: dict[str, int]


class Pulse:
    """Samples `counts`. `commits` has how long commits took, and goes on."""

    def __init__(self, counts: Counts, commits: Histogram) -> None:
        self._commits = commits
        self._counts = counts
        self._samples: deque[Sample] = deque(maxlen=MINUTES * STEPS_A_MINUTE + 1)
        self.sample()

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await asyncio.sleep(STEP_S)
            self.sample()

    def sample(self) -> None:
        """Take a sample."""
        self._samples.append(self._now())

    def tasks_a_minute(self) -> dict[str, tuple[int, ...]]:
        """By `submitted` or the state of their end, how many tasks there were in each full minute, the oldest first."""
        minutes = self._minutes()
        states = sorted({state for sample in minutes for state in sample.tasks})
        return {
            state: tuple(later.tasks.get(state, 0) - sample.tasks.get(state, 0) for sample, later in pairwise(minutes))
            for state in states
        }

    def requests_a_minute(self) -> tuple[int, ...]:
        """How many requests were answered in each full minute, the oldest first."""
        minutes = self._minutes()
        return tuple(later.requests - sample.requests for sample, later in pairwise(minutes))

    def first_events(self) -> Quantiles | None:
        """The times from a request to the first event of its stream; None if there was none in the window."""
        now, before = self._now(), self._before()
        return quantiles(REQUEST_BOUNDS_S, _differences(now.first_events, before.first_events))

    def completions(self) -> Quantiles | None:
        """The times from a task's first message to its end; None if none ended in the window."""
        now, before = self._now(), self._before()
        return quantiles(BOUNDS_S, _differences(now.completions, before.completions))

    def commits(self) -> Quantiles | None:
        """The times that commits of the store took; None if there was none in the window."""
        now, before = self._now(), self._before()
        return quantiles(self._commits.bounds_s, _differences(now.commits, before.commits))

    def webhook_calls(self) -> dict[str, int]:
        """By outcome, how many webhook calls were made in the last hour."""
        now, first = self._now().webhook_calls, self._samples[0].webhook_calls
        return {outcome: count - first.get(outcome, 0) for outcome, count in sorted(now.items())}

    def _before(self) -> Sample:
        return self._samples[max(0, len(self._samples) - WINDOW_STEPS)]

    def _minutes(self) -> list[Sample]:
        """One sample a minute, up to the newest one."""
        return list(self._samples)[::-1][::STEPS_A_MINUTE][::-1]

    def _now(self) -> Sample:
        counts = self._counts
        tasks: dict[str, int] = {}
        for (_, state), count in counts.tasks.items():
            tasks[state] = tasks.get(state, 0) + count
        requests = [each for (_, binding), each in counts.requests.items() if binding != ADMIN]
        return Sample(
            tasks,
            sum(count for each in requests for count in each.outcomes.values()),
            _sums([each.first_events.counts for each in requests], len(REQUEST_BOUNDS_S) + 1),
            _sums([each.counts for each in counts.durations.values()], len(BOUNDS_MS) + 1),
            list(self._commits.counts),
            dict(counts.pushes),
        )


def quantiles(bounds_s: Sequence[float], counts: Sequence[int]) -> Quantiles | None:
    """The quantiles of a histogram, as the upper bounds of their buckets; None if it is empty.

    Beyond the last bound they are that bound.
    """
    total = sum(counts)
    if not total:
        return None

    def quantile(share: float) -> float:
        seen = 0
        for bound_s, count in zip(bounds_s, counts, strict=False):
            seen += count
            if seen >= share * total:
                return bound_s
        return bounds_s[-1]

    return Quantiles(quantile(0.5), quantile(0.95))


def _sums(rows: Sequence[Sequence[int]], size: int) -> list[int]:
    return [sum(row[place] for row in rows) for place in range(size)]


def _differences(now: Sequence[int], before: Sequence[int]) -> list[int]:
    return [later - earlier for later, earlier in zip(now, before, strict=True)]
