"""`dragoman admin tasks`: find tasks of any caller, and see what happened to them.

Invariant: nothing here changes anything.
"""

from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.admin.completion import complete_tasks
from dragoman.cli.admin.receipts import describe_deliveries
from dragoman.cli.admin.server import TaskPlace, read_pages, with_server
from dragoman.cli.admin.task_choice import WORDS, describe_state, read_filters, with_filters
from dragoman.cli.admin.task_log import show_log
from dragoman.cli.admin.task_tree import describe_link
from dragoman.cli.command_table import CommandTable
from dragoman.cli.listing import Listing, list_rows, lists
from dragoman.cli.tables import age, output, print_json, printable

if TYPE_CHECKING:
    from dragoman.admin.tasks import TaskOrder, TaskReport

UNREADABLE = "its record is damaged: only what is shown here is known of it"
"""The line about a task that cannot be read."""

PAGE = 200
"""The largest page of tasks that is asked for at once."""

ORDERS = ("newest-changed", "oldest-changed", "newest-created", "oldest-created", "longest-running")
"""The words of `dragoman.admin.tasks.TaskOrder`, which the command does not load for its help."""


@click.group(
    cls=CommandTable,
    places={
        name: f"dragoman.cli.admin.task_changes:{name.replace('-', '_')}"
        for name in ("answer", "cancel", "delete", "send-again")
    }
    | {"record": "dragoman.cli.admin.task_recording:record"}
    | {name: f"dragoman.cli.admin.task_tree:{name.replace('-', '_')}" for name in ("ask-upstream", "tree")},
)
def tasks() -> None:
    """Find, read, answer, cancel and delete tasks of all callers.

    Examples:
      dragoman admin tasks list --state failed --newer-than 1h
      dragoman admin tasks show ID
    """


@tasks.command("list")
@with_filters
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    metavar="O",
    help=f"Order of the tasks, of which --limit shows the first: {', '.join(ORDERS)}.",
)
@lists(limit=50, most=100_000)
@with_server
def list_(place: TaskPlace, order: "TaskOrder | None", limit: int, cursor: str, **given: Any) -> Listing:
    """List tasks, the last changed first.

    Examples:
      dragoman admin tasks list --agent weather --state working
      dragoman admin tasks list --order longest-running --limit 10 -o json
    """
    from dragoman.admin.tasks import LIST_TASKS, TaskQuery

    wanted = TaskQuery(**read_filters(given), order=order, limit=PAGE, cursor=cursor)
    pages, after = place.read(lambda desk: read_pages(desk, LIST_TASKS, wanted, limit))
    found = [task for page in pages for task in page]
    more = "" if after is None else after.cursor
    document = {"tasks": found, "more": bool(more), "next_cursor": more}
    return list_rows(LIST_TASKS, found, words=WORDS, document=document, next_cursor=more)


@tasks.command()
@click.argument("task_id", metavar="ID", shell_complete=complete_tasks)
@output
@with_server
def show(place: TaskPlace, task_id: str, form: str) -> None:
    """Show the task ID, with its webhook deliveries.

    Examples:
      dragoman admin tasks show ID
      dragoman admin tasks show ID -o json
    """
    from dragoman.admin.tasks import SHOW_TASK

    report = place.read(lambda desk: desk.answer(SHOW_TASK, None, task_id))
    if form == "json":
        print_json(report)
    else:
        click.echo(_describe(report))
        if deliveries := describe_deliveries(place, task_id):
            click.echo(f"\n{deliveries}")


@tasks.command()
@click.argument("task_id", metavar="ID", shell_complete=complete_tasks)
@click.option("--follow", is_flag=True, help="Continue with new events until the task has ended.")
@output
@with_server
def log(place: TaskPlace, task_id: str, follow: bool, form: str) -> None:
    """Show the events of the task ID as a timeline.

    With -o json, each line is an event. --follow opens a connection that breaks again, and misses no event.

    Examples:
      dragoman admin tasks log ID
      dragoman admin tasks log ID --follow -o json
    """
    show_log(place, task_id, follow=follow, form=form)


def _describe(report: "TaskReport") -> str:
    """A task as lines of a name and a value."""
    task, progress, usage = report.task, report.progress, report.usage
    artifacts = [
        f"{each.name or each.id} ({each.parts} part{'s' * (each.parts != 1)}{', not finished' if each.open else ''})"
        for each in report.artifacts
    ]
    lines = {
        "task": task.id,
        "state": f"{describe_state(task)} for {age(task.age_s)}"
        + (", cancel requested" if task.cancel_requested else ""),
        "unreadable": UNREADABLE if task.unreadable else "",
        "status": report.status_text,
        "title": task.title,
        "agent": task.agent,
        "skill": report.skill or "",
        "principal": task.principal,
        "key": task.key or "",
        "context": task.context,
        "dialect": task.dialect + (f" at {report.mount}" if report.mount else ""),
        "created": task.created_at,
        "changed": task.status_at,
        "run by": task.holder or "",
        "wakes": report.wakes_at or "",
        "parent": task.parent or "",
        "acts": "; ".join(map(describe_link, report.acting)),
        "message": report.text,
        "messages": str(report.messages),
        "artifacts": ", ".join(artifacts),
        "progress": "" if progress is None else f"{progress.current} of {progress.total} {progress.message}".strip(),
        "usage": "" if usage is None else f"{usage.total_tokens} tokens",
        "duration": "" if report.duration_ms is None else f"{report.duration_ms / 1000:g} s",
        "webhooks": str(report.webhooks) if report.webhooks else "",
        "events": str(report.seq),
        "trace": report.trace or "",
    }
    return "\n".join(f"{name + ':':<11} {printable(value)}" for name, value in lines.items() if value)
