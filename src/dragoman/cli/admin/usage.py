"""`dragoman admin usage`: what callers used, of which agents and models, by day, and what it cost.

Invariant: it only reads. A number that nobody reported is shown as `-`, never as 0.
"""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.server import TaskPlace, finish, run, with_server
from dragoman.cli.store_commands import at_store, operator
from dragoman.cli.tables import printable, table

if TYPE_CHECKING:
    from dragoman.admin.usage import UsageLine, UsageQuery, UsageReport
    from dragoman.store.api import Store

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
)
"""The numbers of a group, by their names in the API."""

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would take for a formula."""


@click.command()
@click.option(
    "--by",
    default="principal,agent",
    show_default=True,
    metavar="NAMES",
    help="What tells groups apart: principal, agent, model, day, separated by commas.",
)
@click.option("--since", default="", metavar="DAY", help="The first day (UTC), such as 2026-11-01.  [default: 30 days]")
@click.option("--until", default="", metavar="DAY", help="The last day (UTC).  [default: today]")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "json", "csv")),
    default="table",
    show_default=True,
    help="The form.",
)
@with_server
def usage(place: TaskPlace, by: str, since: str, until: str, form: str) -> None:
    """Show what callers used: runs, tokens, time and costs.

    Costs need `[prices]` in the configuration file.
    """
    import msgspec

    from dragoman.admin.usage import UsageQuery

    check(by, since, until)
    report = _read(place, UsageQuery(by=by, since=since, until=until, limit=PAGE))
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    elif form == "csv":
        click.echo(_csv(report), nl=False)
    elif report.lines:
        click.echo(_table(report))
    else:
        click.echo(f"Nothing was used from {report.since} to {report.until}.", err=True)
    if form != "json" and report.silent_agents:
        agents = ", ".join(map(printable, report.silent_agents))
        click.echo(f"These agents report no tokens: {agents}.", err=True)


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


def _read(place: TaskPlace, query: "UsageQuery") -> "UsageReport":
    """All pages as one report."""
    from msgspec.structs import asdict, replace

    from dragoman.admin.usage import UsageReport

    if place.server is None and place.config.store != "memory:":
        return finish(lambda: at_store(place.config, lambda store: _read_store(store, place, query)))
    client = place.client()

    async def read() -> UsageReport:
        report = await client.get("/usage", asdict(query), UsageReport)
        while report.next_cursor is not None:
            page = await client.get("/usage", {**asdict(query), "cursor": report.next_cursor}, UsageReport)
            report = replace(report, lines=report.lines + page.lines, next_cursor=page.next_cursor)
        return report

    return run(read())


async def _read_store(store: "Store", place: TaskPlace, query: "UsageQuery") -> "UsageReport":
    from msgspec.structs import replace

    from dragoman.engine.admin.usage_report import UsageReporter
    from dragoman.store.audit import AuditEntry

    await store.audit.write([AuditEntry(at_ms=store.clock.now_ms(), principal=operator(), action="usage.show")])
    reporter = UsageReporter(store, store.clock, place.config.prices)
    report = await reporter.report(query)
    while report.next_cursor is not None:
        page = await reporter.report(replace(query, cursor=report.next_cursor))
        report = replace(report, lines=report.lines + page.lines, next_cursor=page.next_cursor)
    return report


def _table(report: "UsageReport") -> str:
    money = report.currency is not None
    head = [*(name.upper() for name in report.by), "RUNS", "MESSAGES", "TOKENS IN", "TOKENS OUT", "TIME", "NO TOKENS"]
    if money:
        head.append(f"COST {report.currency}")
    lines = [(_names(line, report), line) for line in report.lines]
    if len(lines) > 1:
        lines.append((["TOTAL", *[""] * (len(report.by) - 1)], report.total))
    return table(head, [[*names, *_numbers(line, money=money)] for names, line in lines])


def _names(line: "UsageLine", report: "UsageReport") -> list[str]:
    return [getattr(line, name) or "-" for name in report.by]


def _numbers(line: "UsageLine", *, money: bool) -> list[str]:
    cells = [
        str(line.runs),
        str(line.messages),
        _number(line.input_tokens),
        _number(line.output_tokens),
        f"{line.duration_s:.0f}s",
        str(line.unreported) if line.unreported else "-",
    ]
    if money:
        cells.append("-" if line.cost is None else line.cost if line.cost_complete else f"{line.cost} or more")
    return cells


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _csv(report: "UsageReport") -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*report.by, *COLUMNS, "currency"])
    for line in report.lines:
        numbers: Sequence[object] = [getattr(line, name) for name in COLUMNS]
        cells = ["" if number is None else str(number).lower() for number in numbers]
        writer.writerow([*(_cell(getattr(line, name) or "") for name in report.by), *cells, report.currency or ""])
    return out.getvalue()


def _cell(text: str) -> str:
    """The text of a caller or an agent, in one line, and never a formula."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(FORMULAS) else shown
