"""The figures of tasks over an hour, a day or a month: how many ended and how, how long they took, what they used.

Invariant: pure values. A number that nobody reported is null, never 0.
"""

from typing import Literal

from msgspec import Struct

from dragoman.admin.question import Column, Question

Span = Literal["hour", "day", "month"]


class SeriesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last `span` until now. With an `agent`, the points are those of that agent alone."""

    span: Span = "hour"
    agent: str | None = None


class SeriesPoint(Struct, frozen=True, kw_only=True):
    """The tasks that ended in one step, which begins at `at`, by the state of their end.

    Half of them took at most `p50_s` from their first message, and 95 of 100 at most `p95_s`: the bounds of buckets;
    null if none ended. Tokens and `cost` are those of runs that ended; null if no run reported any, or no price
    applies.
    """

    at: str
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    rejected: int = 0
    p50_s: float | None = None
    p95_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: str | None = None


class SeriesAgent(SeriesPoint, frozen=True, kw_only=True):
    """The same of one agent in the whole span. `ended` counts the tasks that ended, step by step."""

    agent: str
    ended: tuple[int, ...]


class SeriesReport(Struct, frozen=True, kw_only=True):
    """The points of a span, the oldest first, a point each `step_s`; days are those of UTC. The last one is not over.

    `agents` are those with a task that ended in the span, or usage, the most used first. `currency` is that of the
    costs, null without prices. `counted` is false if the server counts no tasks, because it has no metrics. A server
    that crashes loses the counts of at most a minute. They go back to the start of the first version that kept them.
    """

    span: Span
    step_s: int
    points: tuple[SeriesPoint, ...]
    agents: tuple[SeriesAgent, ...]
    currency: str | None = None
    counted: bool = True


SHOW_SERIES = Question(
    name="showSeries",
    path="/series",
    summary="Show how many tasks ended in an hour, a day or a month, how long they took, and what they used.",
    given=SeriesQuery,
    answer=SeriesReport,
    action="series.show",
    shared=True,
    lines="agents",
    columns=(
        *(Column("AGENT", "agent"), Column("COMPLETED", "completed"), Column("FAILED", "failed")),
        *(
            Column("CANCELED", "canceled"),
            Column("REJECTED", "rejected"),
            Column("P50", "p50_s"),
            Column("P95", "p95_s"),
        ),
        *(Column("IN", "input_tokens"), Column("OUT", "output_tokens"), Column("COST", "cost")),
    ),
    none="No task ended in this time.",
)
