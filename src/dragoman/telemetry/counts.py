"""Counts: counters of tasks by state and duration, of present runs, and of refusals.

Invariant: counting is a few additions on the loop. Nothing is formatted, locked or allocated until somebody asks.
"""

from bisect import bisect_left
from collections.abc import Callable
from contextvars import Context

BOUNDS_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000)
"""Upper bounds of the histogram of durations: from an echo to an agent that works for half an hour."""


class Durations:
    """A histogram of durations: `counts[i]` counts those up to `BOUNDS_MS[i]`, the last element all longer ones."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0

    def add(self, took_ms: int) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        self.sum_ms += took_ms


class UpstreamCalls:
    """Calls of an agent of another server: by outcome, and the time to the first item of an answer.

    `state` returns the state of the circuit breaker: `closed` (calls go out), `open`, `half-open`.
    """

    __slots__ = ("outcomes", "state", "waits")

    def __init__(self, state: Callable[[], str]) -> None:
        self.state = state
        self.outcomes = {"succeeded": 0, "refused": 0, "failed": 0}
        self.waits = Durations()


class Counts:
    """Counts since the process began. It is an Observer of the engine, and the one Execution for all runs."""

    __slots__ = (
        "durations",
        "leases_lost",
        "pushes",
        "pushes_dead",
        "pushes_waiting",
        "refusals",
        "runs",
        "tasks",
        "upstreams",
    )

    traceparent: str | None = None
    context: Context | None = None

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, str], int] = {}
        self.durations: dict[str, Durations] = {}
        self.leases_lost: dict[str, int] = {}
        self.refusals: dict[str, int] = {}
        self.runs = 0
        self.pushes: dict[str, int] = {}
        self.pushes_waiting = 0
        self.pushes_dead = 0
        self.upstreams: dict[str, UpstreamCalls] = {}

    def submitted(self, agent: str) -> None:
        """A task was written."""
        key = agent, "submitted"
        self.tasks[key] = self.tasks.get(key, 0) + 1

    def cancel_requested(self, agent: str) -> None:
        """Somebody asked for a task to be canceled."""
        key = agent, "cancel_requested"
        self.tasks[key] = self.tasks.get(key, 0) + 1

    def ended(self, agent: str, state: str, duration_ms: int) -> None:
        """A task ended, in any terminal state."""
        key = agent, state
        self.tasks[key] = self.tasks.get(key, 0) + 1
        durations = self.durations.get(agent)
        if durations is None:
            durations = self.durations[agent] = Durations()
        durations.add(duration_ms)

    def taken_over(self, agent: str) -> None:
        """A task that nobody alive worked on was claimed."""
        key = agent, "taken_over"
        self.tasks[key] = self.tasks.get(key, 0) + 1

    def lease_lost(self, agent: str) -> None:
        """Another server has leased a task that was run here."""
        self.leases_lost[agent] = self.leases_lost.get(agent, 0) + 1

    def executing(self, agent: str, task_id: str, traceparent: str | None) -> "Counts":
        """A run begins."""
        self.runs += 1
        return self

    def finished(self, state: str) -> None:
        """A run is over."""
        self.runs -= 1

    def refused(self, reason: str) -> None:
        """A request was refused; `reason` is the class of the error."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def pushed(self, outcome: str) -> None:
        """A webhook was called: `delivered`, `retry`, `dead`, or `gone` for good."""
        self.pushes[outcome] = self.pushes.get(outcome, 0) + 1
