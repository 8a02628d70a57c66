"""Counts: counters of tasks by state and duration, of present runs, and of refusals.

Invariant: counting is a few additions on the loop. Nothing is formatted, locked or allocated until somebody asks.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import Protocol

from dragoman.telemetry.genai import InvokedHead, InvokedRunner, ToolCall
from dragoman.telemetry.histogram import REQUEST_BOUNDS_S, Histogram

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
    """Calls of an agent of another server: by outcome, and the time to the first item of an answer."""

    __slots__ = ("outcomes", "waits")

    def __init__(self) -> None:
        self.outcomes = {"succeeded": 0, "refused": 0, "failed": 0}
        self.waits = Durations()


class RequestCounts:
    """The requests of one operation over one binding: outcomes, durations, and when the first event came.

    `first_events` is the time from the arrival of a request to the first event of the stream that answers it.
    """

    __slots__ = ("durations", "first_events", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.durations = Histogram(REQUEST_BOUNDS_S)
        self.first_events = Histogram(REQUEST_BOUNDS_S)

    def answered(self, took_s: float, outcome: str) -> None:
        """Count a request that was answered, or whose stream has ended."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        durations = self.durations  # as `Histogram.add`, without a call: this is done for every request
        durations.counts[bisect_left(durations.bounds_s, took_s)] += 1
        durations.sum_s += took_s


class WorkerPool(Protocol):
    """The workers of an agent at this moment."""

    @property
    def connected(self) -> int:
        """How many workers have called lately, or wait for work."""
        ...

    @property
    def held(self) -> int:
        """How many tasks they have."""
        ...

    @property
    def lost(self) -> int:
        """How many leases have run out since the server started."""
        ...


class AgentRuns:
    """The number of runs of one agent, and of their steps by outcome. It is the Execution of each run, and of each
    step."""

    __slots__ = ("active", "steps")

    traceparent: str | None = None
    context: Context | None = None

    def __init__(self) -> None:
        self.active = 0
        self.steps: dict[str, int] = {}
        """By outcome: `succeeded`, `failed`, or `replayed` for one that is recorded, and was not executed again."""

    def begin(self) -> None:
        """A run begins."""
        self.active += 1

    def step_begins(self, name: str, key: str) -> "AgentRuns":
        """A step is executed now."""
        return self

    def executed(self, attempts: int, failure: str | None) -> None:
        """A step was executed, and its outcome is known."""
        outcome = "succeeded" if failure is None else "failed"
        self.steps[outcome] = self.steps.get(outcome, 0) + 1

    def step_told(self, name: str, key: str, began_ms: int, ended_ms: int, attempts: int, failure: str | None) -> None:
        """A worker has executed a step."""
        self.executed(attempts, failure)

    def interrupted(self) -> None:
        """A step has no outcome, so that it is not counted."""

    def step_replayed(self) -> None:
        """A step was not executed again."""
        self.steps["replayed"] = self.steps.get("replayed", 0) + 1

    def sleeps(self, until: str) -> None:
        """A task sleeps. The store counts those."""

    def tool_called(self, call: ToolCall) -> None:
        """A tool is called. That is not counted."""

    def exchanged(self, subject: str, actors: Sequence[str], audience: str, issuer: str) -> None:
        """A token was exchanged. That is not counted: most calls use one that is there."""

    def finished(self, state: str) -> None:
        """A run is over."""
        self.active -= 1


class Counts:
    """Counts since the process began. It is an Observer of the engine."""

    __slots__ = (
        "budget_warnings",
        "durations",
        "leases_lost",
        "pushes",
        "pushes_dead",
        "pushes_paused",
        "pushes_waiting",
        "refusals",
        "requests",
        "runs",
        "tasks",
        "tokens",
        "upstreams",
        "workers",
    )

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, str], int] = {}
        self.durations: dict[str, Durations] = {}
        self.leases_lost: dict[str, int] = {}
        self.budget_warnings: dict[tuple[str, int], int] = {}
        self.refusals: dict[str, int] = {}
        self.requests: dict[tuple[str, str], RequestCounts] = {}
        """By operation and binding."""
        self.runs: dict[str, AgentRuns] = {}
        self.tokens: dict[tuple[str, str], int] = {}
        """By agent and kind, `input` or `output`."""
        self.pushes: dict[str, int] = {}
        self.pushes_waiting = 0
        self.pushes_dead = 0
        self.pushes_paused = 0
        self.upstreams: dict[str, UpstreamCalls] = {}
        """By agent, or `agent/member` in a pool."""
        self.workers: dict[str, WorkerPool] = {}

    def serve(self, upstreams: Mapping[str, UpstreamCalls], workers: Mapping[str, WorkerPool]) -> None:
        """Show these agents of other servers, and the workers of these agents, from now on."""
        self.upstreams, self.workers = dict(upstreams), dict(workers)

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

    def used(self, agent: str, input_tokens: int, output_tokens: int) -> None:
        """A task that ended has used so many tokens, as its agent reported them."""
        for kind, tokens in (("input", input_tokens), ("output", output_tokens)):
            self.tokens[agent, kind] = self.tokens.get((agent, kind), 0) + tokens

    def executing(self, head: InvokedHead, runner: InvokedRunner | None) -> AgentRuns:
        """A run begins."""
        agent = head.agent
        runs = self.runs.get(agent)
        if runs is None:
            runs = self.runs[agent] = AgentRuns()
        runs.begin()
        return runs

    def refused(self, reason: str) -> None:
        """A request was refused; `reason` is the class of the error."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def budget_warned(self, budget: str, threshold: int) -> None:
        """Operators were warned that a budget is used to a threshold, in percent."""
        key = budget, threshold
        self.budget_warnings[key] = self.budget_warnings.get(key, 0) + 1

    def owed(self, waiting: int, dead: int, paused: int) -> None:
        """So many webhook calls are pending, were given up, or wait for paused hosts at present."""
        self.pushes_waiting, self.pushes_dead, self.pushes_paused = waiting, dead, paused

    def pushed(self, outcome: str) -> None:
        """A webhook was called: `delivered`, `retry`, `dead`, or `gone` for good."""
        self.pushes[outcome] = self.pushes.get(outcome, 0) + 1
