"""`dragoman admin usage|budgets`: what callers used, of which agents and models, what it cost, and what is left.

Invariant: it only reads. A number that nobody reported is shown as `-`, never as 0.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from dragoman.admin.question import Column
from dragoman.cli.admin.server import Desk, TaskPlace, read_pages, with_server
from dragoman.cli.command import Command
from dragoman.cli.listing import Listing, list_rows, lists
from dragoman.cli.tables import printable

if TYPE_CHECKING:
    from dragoman.admin.usage import UsageLine, UsageQuery, UsageReport

PAGE = 10_000
"""The most groups of one page."""

COLUMNS = (
    "runs",
    "tasks",
    "messages",
    "unreported",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "duration_s",
    "cost",
    "cost_complete",
    "cached_tokens",
    "uncertain",
)
"""The numbers of a group, by their names in the API."""


@click.command(cls=Command)
@click.option(
    "--by",
    default="principal,agent",
    show_default=True,
    metavar="NAMES",
    help="What tells groups apart: team, principal, agent, model, upstream, day, separated by commas.",
)
@click.option("--since", default="", metavar="DAY", help="First day (UTC), such as 2026-11-01.  [default: 30 days ago]")
@click.option("--until", default="", metavar="DAY", help="Last day (UTC).  [default: today]")
@lists(limit=None, cut=True, table_too=True)
@with_server
def usage(place: TaskPlace, by: str, since: str, until: str) -> Listing:
    """Show what callers used: runs, tokens, time and costs.

    Costs need `[prices]` in the configuration file.

    Examples:
      dragoman admin usage --by team,model --since 2026-11-01
      dragoman admin usage --by day -o csv
    """
    from dragoman.admin.usage import UsageQuery

    check(by, since, until)
    report = place.read(lambda desk: _read(desk, UsageQuery(by=by, since=since, until=until, limit=PAGE)))
    return Listing(
        rows=[_fields(line, report) for line in report.lines],
        columns=_columns(report),
        words=WORDS,
        footer=None if len(report.lines) < 2 else _fields(report.total, report) | {report.by[0]: "TOTAL"},
        name=report.by[0],
        member="lines",
        document=report,
        empty=f"Nothing was used from {report.since} to {report.until}.",
        remarks=_remarks(report),
        fields=(*report.by, *COLUMNS, "currency"),
    )


@click.command(cls=Command)
@lists(limit=None, cut=True)
@with_server
def budgets(place: TaskPlace) -> Listing:
    """Show the budgets and what is used of them.

    The list also says what open tasks have reserved, and when each budget resets. A row without a limit belongs to a
    budget that is no longer in the configuration.

    Examples:
      dragoman admin budgets
      dragoman admin budgets -o json
    """
    from dragoman.admin.budgets import LIST_BUDGETS, BudgetQuery

    async def read(desk: Desk) -> list[Any]:
        pages, _ = await read_pages(desk, LIST_BUDGETS, BudgetQuery())
        return [line for page in pages for line in page]

    return list_rows(LIST_BUDGETS, place.read(read), name="budget")


def check(by: str, since: str, until: str) -> None:
    """Check the flags. Raises UsageError."""
    from dragoman.engine.admin.usage_report import read_day, read_dimensions
    from dragoman.model.errors import InvalidParams

    try:
        read_dimensions(by)
        first = read_day("since", since) if since else None
        last = read_day("until", until) if until else None
    except InvalidParams as error:
        raise click.UsageError(f"--{error.message}") from error
    if first is not None and last is not None and first > last:
        raise click.UsageError(f"--since {since}: is after --until {until}")


async def _read(desk: Desk, query: "UsageQuery") -> "UsageReport":
    """All pages as one report."""
    from dragoman.admin.usage import SHOW_USAGE

    report = page = await desk.answer(SHOW_USAGE, query)
    while (following := SHOW_USAGE.next_page(query, page)) is not None:
        page = await desk.answer(SHOW_USAGE, following)
        report = replace(report, lines=report.lines + page.lines, next_cursor=page.next_cursor)
    return report


def _remarks(report: "UsageReport") -> list[str]:
    """The remarks on tokens that nobody knows."""
    remarks: list[str] = []
    if report.silent_agents:
        remarks.append(f"These agents report no tokens: {', '.join(map(printable, report.silent_agents))}.")
    if report.flat_agents:
        remarks.append(f"Charged by task, message or time alone: {', '.join(map(printable, report.flat_agents))}.")
    if count := report.total.uncertain:
        remarks.append(f"Nobody knows the tokens of {count} {'call' if count == 1 else 'calls'} or reports.")
    return remarks


def _columns(report: "UsageReport") -> list[Column]:
    money = [] if report.currency is None else [Column(f"COST {report.currency}", "cost")]
    return [
        *(Column(name.upper(), name) for name in report.by),
        *(Column("RUNS", "runs"), Column("MESSAGES", "messages"), Column("TOKENS IN", "input_tokens")),
        *(Column("TOKENS OUT", "output_tokens"), Column("TIME", "duration_s"), Column("NO TOKENS", "unreported")),
        *money,
    ]


def _fields(line: "UsageLine", report: "UsageReport") -> dict[str, Any]:
    """The members of a line in JSON, and the currency of its cost."""
    import msgspec

    return {**msgspec.to_builtins(line), "currency": report.currency}


def _cost(line: Mapping[str, Any]) -> str:
    cost = line["cost"]
    return "-" if cost is None else str(cost) if line["cost_complete"] else f"{cost} or more"


WORDS: Mapping[str, Callable[[Any], str]] = {
    "cost": _cost,
    "duration_s": lambda line: f"{line['duration_s']:.0f}s",
    "unreported": lambda line: str(line["unreported"] or "-"),
}
"""The words for numbers of a line."""
