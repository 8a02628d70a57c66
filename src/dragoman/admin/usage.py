"""The usage of callers in groups, and what it cost.

Invariant: pure values. A number that nobody reported is null, never 0.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.admin.question import Question
from dragoman.dialects.json_bounds import EXACT_MAX

Dimension = Literal["team", "principal", "agent", "model", "upstream", "day"]


DIMENSIONS: tuple[Dimension, ...] = ("team", "principal", "agent", "model", "upstream", "day")


class UsageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Usage from the day `since` to the day `until`, both included (`2026-11-22`, UTC), in groups.

    `by` lists what tells the groups apart, separated by commas: team, principal, agent, model, upstream, day. A page
    has at most `limit` groups, after `cursor`.
    """

    by: str = "principal,agent"
    since: str = ""
    until: str = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    cursor: Annotated[int, Meta(ge=0, le=EXACT_MAX)] = 0


class UsageLine(Struct, frozen=True, kw_only=True):
    """The usage of a group's runs: those of tasks that have ended, and direct answers.

    A field that does not tell the groups apart is null. An empty `team` stands for callers in none, an empty `model`
    for agents that named none, an empty `upstream` for agents that are no pool. `messages` are those of callers.
    `unreported` runs said nothing of tokens; `input_tokens`, `output_tokens`, `total_tokens` and `cached_tokens`, which
    are part of the first, are null if no run said anything. `uncertain` counts calls of models that broke off and
    reports that could not be read, whose tokens nobody knows. `duration_s` is the time from the first message to the
    end, waiting for callers included. A run that used several models counts with the first one that told of tokens.

    `cost` is an exact decimal number, null if no price applies. With `cost_complete` false, it leaves out what has no
    price, or was not reported.
    """

    team: str | None = None
    principal: str | None = None
    agent: str | None = None
    model: str | None = None
    upstream: str | None = None
    day: str | None = None
    runs: int = 0
    tasks: int = 0
    messages: int = 0
    unreported: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    duration_s: float = 0.0
    cost: str | None = None
    cost_complete: bool = False
    cached_tokens: int | None = None
    uncertain: int = 0


class UsageReport(Struct, frozen=True, kw_only=True):
    """Usage in groups, those with the most tokens first; with `day`, in the order of days.

    `silent_agents` are those none of whose runs said how many tokens they used, and `flat_agents` those among them that
    are charged by task, message or time all the same. `currency` is that of the costs, null without prices. `total`
    sums up all groups, those of other pages included. `next_cursor` is null on the last page.
    """

    since: str
    until: str
    by: tuple[Dimension, ...]
    lines: tuple[UsageLine, ...]
    total: UsageLine
    silent_agents: tuple[str, ...]
    currency: str | None = None
    next_cursor: int | None = None
    flat_agents: tuple[str, ...] = ()


SHOW_USAGE = Question(
    name="showUsage",
    of_teams=True,
    path="/usage",
    summary="Show what callers used, of which agents and models, by day, and what it cost.",
    given=UsageQuery,
    answer=UsageReport,
    action="usage.show",
    stored=True,
)
