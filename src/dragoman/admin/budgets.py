"""The budgets, and what is used and reserved of each.

Invariant: pure values. Amounts are exact decimal numbers as text: tokens, tasks, or money in the unit's currency.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman.admin.question import Column, Question


class BudgetQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The accounts of budgets whose period has not ended, at most `limit` on a page, after `cursor`."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    cursor: str = ""


class BudgetLine(Struct, frozen=True, kw_only=True):
    """An account of a budget: that of one `member` if the budget is `per` key, team, agent or conversation.

    `key`, `team` and `agent` are those whose tasks count, null for all; `owner` is the principal of a conversation.
    `reserved` is held by tasks that have not ended. `limit` is null once the budget is gone from the configuration.
    `resets_at` is when its period ends, null if it does not.
    """

    budget: str
    per: str | None = None
    member: str = ""
    owner: str = ""
    key: str | None = None
    team: str | None = None
    agent: str | None = None
    unit: str
    limit: str | None = None
    used: str
    reserved: str
    percent: int | None = None
    mode: str | None = None
    period: str | None = None
    time_zone: str | None = None
    resets_at: str | None = None


class BudgetLines(Struct, frozen=True, kw_only=True):
    """A page of accounts, in the order of their names. `next_cursor` is empty on the last one."""

    budgets: tuple[BudgetLine, ...]
    next_cursor: str = ""


LIST_BUDGETS = Question(
    name="listBudgets",
    of_teams=True,
    path="/budgets",
    summary="List the budgets with what is used and reserved of each, and when it resets.",
    given=BudgetQuery,
    answer=BudgetLines,
    action="budgets.list",
    stored=True,
    lines="budgets",
    columns=(
        *(Column("BUDGET", "budget"), Column("KEY", "key"), Column("TEAM", "team"), Column("AGENT", "agent")),
        *(Column("PER", "per"), Column("OF", "member"), Column("UNIT", "unit")),
        *(Column("LIMIT", "limit"), Column("USED", "used"), Column("RESERVED", "reserved"), Column("%", "percent")),
        *(Column("MODE", "mode"), Column("RESETS", "resets_at")),
    ),
    none="There are no budgets: write [[budgets]] into the configuration file.",
)
