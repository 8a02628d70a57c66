"""`dragoman admin tasks`: find tasks of any caller, see what happened to them, and cancel them.

Invariant: only `cancel` changes anything, and never without a task id or a filter.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from dragoman.cli.admin.server import TaskPlace, TaskSource, run, with_server
from dragoman.cli.admin.text import age, output, printable
from dragoman.cli.store_commands import table

if TYPE_CHECKING:
    from dragoman.engine.inspection import TaskFilter, TaskLine, TaskReport, TimelineEntry

STATES = ("submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected")
"""The words of `engine.inspection`, repeated here so that `--help` imports nothing."""

PAGE = 200
"""The largest page of tasks, and of events, that is asked for at once."""

FOLLOW_S = 0.5
"""How often `log --follow` asks for more events."""

HEAD = ("ID", "STATE", "AGE", "AGENT", "PRINCIPAL", "CONTEXT", "DIALECT")

Filters = dict[str, Any]


@click.group()
def tasks() -> None:
    """Find, read and cancel the tasks of all callers."""


def with_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that choose tasks; the command gets them one by one, and `read_filters` reads them."""
    for flag in reversed(
        (
            click.option("--state", type=click.Choice(STATES), help="Only tasks in this state."),
            click.option("--agent", metavar="ID", help="Only tasks of this agent."),
            click.option("--principal", metavar="P", help="Only tasks of this caller, such as key:ann."),
            click.option("--context", metavar="ID", help="Only tasks of this context."),
            click.option("--dialect", metavar="NAME", help="Only tasks made in this dialect, such as 1.0 or 0.3."),
            click.option("--older-than", metavar="AGE", help="Only tasks whose status is older, such as 15m or 2d."),
            click.option("--newer-than", metavar="AGE", help="Only tasks whose status is newer."),
        )
    ):
        command = flag(command)
    return command


def read_filters(given: Filters) -> Filters:
    """The members of a filter that were given, by their names in the API. Raises UsageError."""
    filters = {
        "state": given["state"],
        "agent": given["agent"],
        "principal": given["principal"],
        "context": given["context"],
        "dialect": given["dialect"],
        "older_than_s": _age_s("--older-than", given["older_than"]),
        "newer_than_s": _age_s("--newer-than", given["newer_than"]),
    }
    return {name: value for name, value in filters.items() if value is not None}


@tasks.command("list")
@with_filters
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Show the newest N.")
@output
@with_server
def list_(place: TaskPlace, limit: int, form: str, **given: Any) -> None:
    """List tasks, newest status first."""
    import msgspec

    from dragoman.engine.inspection import TaskFilter

    wanted = TaskFilter(**read_filters(given))
    found, more = place.read("tasks.list", lambda source: _collect(source, wanted, limit))
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode({"tasks": found, "more": more})).decode())
    elif found:
        click.echo(table(HEAD, [_row(task) for task in found]))
        if more:
            click.echo(f"There are more: these are the newest {limit} (--limit).", err=True)
    else:
        click.echo("No tasks fit.", err=True)


@tasks.command()
@click.argument("task_id", metavar="ID")
@output
@with_server
def show(place: TaskPlace, task_id: str, form: str) -> None:
    """Show where the task with that ID stands."""
    import msgspec

    report = place.read("tasks.show", lambda source: source.show(task_id), task_id)
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        click.echo(_describe(report))


@tasks.command()
@click.argument("task_id", metavar="ID")
@click.option("--follow", is_flag=True, help="Go on with new events until the task has ended.")
@output
@with_server
def log(place: TaskPlace, task_id: str, follow: bool, form: str) -> None:
    """Show the events of the task with that ID as a timeline. As JSON, each line is an event."""
    place.read("tasks.log", lambda source: _print_log(source, task_id, follow=follow, form=form), task_id)


@tasks.command()
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@with_filters
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Cancel at most N that fit."
)
@click.option("--dry-run", is_flag=True, help="Only list the tasks that would be canceled.")
@output
@with_server
def cancel(place: TaskPlace, task_ids: tuple[str, ...], limit: int, dry_run: bool, form: str, **given: Any) -> None:
    """Cancel the tasks with these IDs, or the open tasks that fit the filters.

    It needs a running server. The audit trail names you as the one who canceled them.
    """
    filters = read_filters(given)
    if bool(task_ids) == bool(filters):
        raise click.UsageError("name tasks by their ids, or choose them by filters such as --agent, but not both")
    if task_ids and dry_run:
        raise click.UsageError("--dry-run: goes with filters; `dragoman admin tasks show ID` shows one task")
    if task_ids:
        _cancel_named(place, task_ids, form)
    else:
        _cancel_fitting(place, {**filters, "limit": limit, "dry_run": dry_run}, form)


def _cancel_named(place: TaskPlace, task_ids: tuple[str, ...], form: str) -> None:
    import msgspec

    from dragoman.engine.handlers.administration import Canceled

    client = place.client()
    for task_id in task_ids:
        path = f"/tasks/{quote(task_id, safe='')}:cancel"
        done = run(client.post(path, None, Canceled))
        click.echo(msgspec.json.encode(done).decode() if form == "json" else f"{done.id} is {done.state}.")


def _cancel_fitting(place: TaskPlace, body: Filters, form: str) -> None:
    import msgspec

    from dragoman.engine.handlers.administration import CancelReport

    client = place.client()
    report = run(client.post("/tasks:cancel", body, CancelReport))
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    elif report.dry_run:
        if report.matched:
            click.echo(table(HEAD, [_row(task) for task in report.matched]))
        click.echo(f"{len(report.matched)} would be canceled.", err=True)
    else:
        for task_id in report.canceled:
            click.echo(f"{task_id} is canceled.")
        for failure in report.failed:
            click.echo(f"{failure.id} is not canceled: {failure.reason}", err=True)
        if not report.matched:
            click.echo("No open tasks fit.", err=True)
    if report.more and form != "json":
        click.echo("More tasks fit: run it again, or with a larger --limit.", err=True)
    if report.failed:
        raise SystemExit(1)


async def _collect(source: TaskSource, wanted: "TaskFilter", limit: int) -> "tuple[list[TaskLine], bool]":
    """The newest `limit` tasks that fit, and whether there are more."""
    found: list[TaskLine] = []
    cursor = ""
    while len(found) < limit:
        page = await source.list(wanted, min(PAGE, limit - len(found)), cursor)
        found += page.tasks
        cursor = page.next_cursor
        if not cursor:
            break
    return found, bool(cursor)


async def _print_log(source: TaskSource, task_id: str, *, follow: bool, form: str) -> None:
    import asyncio

    import msgspec

    after = 0
    while True:
        page = await source.log(task_id, after, PAGE)
        if page.pruned:
            click.echo("The log has been deleted up to here (log_retention).", err=True)
        for entry in page.events:
            click.echo(msgspec.json.encode(entry).decode() if form == "json" else _event_line(entry))
        after = page.events[-1].seq if page.events else max(after, page.seq)
        if page.next_after is not None:
            continue
        if not follow or page.ended:
            return
        await asyncio.sleep(FOLLOW_S)


def _row(task: "TaskLine") -> tuple[str, ...]:
    return (task.id, task.state, age(task.age_s), task.agent, task.principal, task.context, task.dialect)


def _describe(report: "TaskReport") -> str:
    """A task as lines of a name and a value."""
    task, progress, usage = report.task, report.progress, report.usage
    artifacts = [
        f"{each.name or each.id} ({each.parts} part{'s' * (each.parts != 1)}{', not finished' if each.open else ''})"
        for each in report.artifacts
    ]
    lines = {
        "task": task.id,
        "state": f"{task.state} for {age(task.age_s)}" + (", cancel requested" if task.cancel_requested else ""),
        "status": report.status_text,
        "agent": task.agent,
        "skill": report.skill or "",
        "principal": task.principal,
        "context": task.context,
        "dialect": f"{task.dialect} at {report.mount}",
        "created": task.created_at,
        "changed": task.status_at,
        "run by": task.holder or "",
        "parent": task.parent or "",
        "message": report.text,
        "messages": str(report.messages),
        "artifacts": ", ".join(artifacts),
        "progress": "" if progress is None else f"{progress.current} of {progress.total} {progress.message}".strip(),
        "usage": "" if usage is None else f"{usage.total_tokens} tokens",
        "duration": "" if report.duration_ms is None else f"{report.duration_ms / 1000:g} s",
        "webhooks": str(report.webhooks) if report.webhooks else "",
        "events": str(report.seq),
    }
    return "\n".join(f"{name + ':':<11} {printable(value)}" for name, value in lines.items() if value)


def _event_line(entry: "TimelineEntry") -> str:
    """`2026-11-20T07:00:00.123Z  3  status working  Looking it up`."""
    progress = entry.progress
    words = (
        entry.kind,
        entry.state if entry.kind != "submitted" else None,
        entry.artifact,
        entry.agent,
        entry.task,
        None if progress is None else f"{progress.current}/{progress.total}",
    )
    what = " ".join(word for word in words if word)
    return printable(f"{entry.at or '':<24}  {entry.seq:>4}  {what:<24}  {entry.text}".rstrip())


def _age_s(flag: str, text: str | None) -> float | None:
    if text is None:
        return None
    from dragoman.config.settings import DURATION

    try:
        parsed: timedelta | None = DURATION.parse(text)
    except ValueError:
        parsed = None
    if parsed is None:
        raise click.UsageError(f"{flag} {text!r}: must be a whole number with a unit, like 90s, 15m, 12h or 30d")
    return parsed.total_seconds()
