"""`dragoman admin tasks answer|cancel|delete|send-again`: change tasks of any caller.

Invariant: nothing is changed without a task id or a filter. The server notes the operator's name.
"""

import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec import convert, to_builtins
from msgspec.structs import replace

from dragoman.cli.a2a.commands.send import flags_in_order, keep_order, read_parts
from dragoman.cli.a2a.settings import SettingsError
from dragoman.cli.admin.completion import complete_tasks
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.admin.task_choice import Filters, read_filters, task_table, with_filters
from dragoman.cli.arguments import WholeNumber, complete_files
from dragoman.cli.command import Command
from dragoman.cli.endings import Unusable
from dragoman.cli.tables import output, print_json, print_line

if TYPE_CHECKING:
    from dragoman.admin.tasks import CancelReport, ChangedTask, DeleteReport, DeleteRequest

with_reason = click.option("--reason", metavar="TEXT", default="", help="Reason, which the task's log keeps.")


class AnswerCommand(Command):
    """A command that keeps the order of flags for parts, which click forgets."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and keep the flags of parts with their values in their order."""
        keep_order(self, ctx, args)
        return super().parse_args(ctx, args)


@click.command(cls=AnswerCommand)
@click.argument("task_id", metavar="ID", shell_complete=complete_tasks)
@click.option(
    "--text", multiple=True, metavar="TEXT|-", help="Add a text part, - for stdin; repeatable. Parts keep their order."
)
@click.option(
    "--file",
    multiple=True,
    metavar="PATH|URL",
    shell_complete=complete_files,
    help="Add a file part: the bytes of PATH, or a reference to URL; repeatable.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH|-",
    shell_complete=complete_files,
    help="Add a data part from a JSON file, - for stdin; repeatable.",
)
@click.option("--media-type", multiple=True, metavar="TYPE", help="Media type of the part before this option.")
@click.option("--approve/--refuse", "approve", default=None, help="Approve or refuse what the task asks for.")
@click.option(
    "--question",
    metavar="ID",
    default="",
    help="Answer only this question, by the id that `dragoman admin inbox` shows.",
)
@with_reason
@output
@with_server
@click.pass_context
def answer(
    ctx: click.Context,
    /,
    place: TaskPlace,
    task_id: str,
    approve: bool | None,
    question: str,
    reason: str,
    form: str,
    **_: Any,
) -> None:
    """Answer the task ID, which waits for its caller.

    The agent gets the answer as if the caller had sent it. The task's log names you as the one who answered. With
    --question, whoever is too late is told who was quicker.

    Examples:
      dragoman admin tasks answer ID --text "Window seat, please"
      dragoman admin tasks answer ID --refuse --reason "not on a Friday"
    """
    from dragoman.admin.tasks import ANSWER_TASK, TaskAnswer

    try:
        parts = list(read_parts(flags_in_order(ctx)))
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    if bool(parts) == (approve is not None):
        raise click.UsageError("say what to answer: --text, --file or --data, or else --approve or --refuse")
    said: Filters = {"parts": parts} if parts else {"approve": approve}
    body = said | ({"reason": reason} if reason else {}) | ({"question": question} if question else {})
    _show_changed(place.ask(ANSWER_TASK, convert(to_builtins(body), TaskAnswer), task_id), form)


@click.command(cls=Command)
@click.argument("task_id", metavar="ID", shell_complete=complete_tasks)
@output
@with_server
def send_again(place: TaskPlace, task_id: str, form: str) -> None:
    """Send the first message of a task to its agent again.

    The message starts a new task of yours, in a conversation of its own, with the same files and without webhooks.

    Examples:
      dragoman admin tasks send-again ID
      dragoman admin tasks send-again ID -o json
    """
    from dragoman.admin.tasks import SEND_AGAIN

    sent = place.ask(SEND_AGAIN, None, task_id)
    _tell(sent, form, f"Sent again as {sent.id}.")


@click.command(cls=Command)
@click.argument("task_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_tasks)
@with_filters
@click.option(
    "--limit", type=WholeNumber(1, 1000), default=100, show_default=True, metavar="N", help="Cancel at most N tasks."
)
@click.option("--dry-run", is_flag=True, help="Only list the tasks that would be canceled.")
@with_reason
@output
@with_server
def cancel(
    place: TaskPlace, task_ids: tuple[str, ...], limit: int, dry_run: bool, reason: str, form: str, **given: Any
) -> None:
    """Cancel tasks by ID, or open tasks by filters.

    A server must be running. Each task's log, and the audit trail, name you as the one who canceled it.

    Examples:
      dragoman admin tasks cancel ID --reason "duplicate"
      dragoman admin tasks cancel --agent weather --older-than 2d --dry-run
    """
    from dragoman.admin.tasks import CANCEL_TASK, CANCEL_TASKS, CancelReason, CancelRequest

    filters = _choose(task_ids, given, dry_run=dry_run)
    for task_id in task_ids:
        _show_changed(place.ask(CANCEL_TASK, CancelReason(reason=reason), task_id), form)
    if filters:
        wanted = CancelRequest(**filters, limit=limit, dry_run=dry_run, reason=reason)
        report = place.ask(CANCEL_TASKS, wanted)
        _show_report(report, report.canceled, "canceled", form)


def _choose(task_ids: tuple[str, ...], given: dict[str, Any], *, dry_run: bool) -> Filters:
    """The filters that choose tasks, empty if these are named. Ends the command if neither is given, or both are."""
    filters = read_filters(given)
    if not (task_ids or filters):
        raise click.UsageError(
            "no task is given: name tasks by their ids, as `dragoman admin tasks list` shows them, or choose them by "
            "filters such as --agent or --older-than"
        )
    if task_ids and filters:
        raise click.UsageError("name tasks by their ids, or choose them by filters such as --agent, but not both")
    if task_ids and dry_run:
        raise click.UsageError("--dry-run: goes with filters; `dragoman admin tasks show ID` shows one task")
    return filters


@click.command(cls=Command)
@click.argument("task_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_tasks)
@with_filters
@click.option(
    "--limit", type=WholeNumber(1, 1000), default=100, show_default=True, metavar="N", help="Delete at most N tasks."
)
@click.option("--dry-run", is_flag=True, help="Only list the tasks that would be deleted.")
@click.option("--force", is_flag=True, help="Also delete tasks that have not ended: cancel them first.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output
@with_server
def delete(
    place: TaskPlace,
    task_ids: tuple[str, ...],
    limit: int,
    dry_run: bool,
    force: bool,
    yes: bool,
    form: str,
    **given: Any,
) -> None:
    """Delete tasks for good, by ID or by filters.

    Only tasks that have ended are deleted, unless --force cancels the others first. Their logs, artifacts, files and
    pending webhook deliveries are deleted with them. The audit trail names you as the one who deleted them. Deleting by
    ID needs no running server.

    Examples:
      dragoman admin tasks delete ID
      dragoman admin tasks delete --state failed --older-than 30d --dry-run
    """
    from dragoman.admin.tasks import DeleteRequest

    filters = _choose(task_ids, given, dry_run=dry_run)
    if task_ids:
        _delete_named(place, task_ids, form, force=force)
    else:
        wanted = DeleteRequest(**filters, limit=limit, force=force, dry_run=dry_run)
        _delete_fitting(place, wanted, form, yes=yes)


def _delete_named(place: TaskPlace, task_ids: tuple[str, ...], form: str, *, force: bool) -> None:
    from dragoman.admin.tasks import DELETE_TASK, DeleteQuery

    served = place.is_served()
    for task_id in task_ids:
        if served:
            done = place.ask(DELETE_TASK, DeleteQuery(force=force), task_id)
        else:
            done = place.delete(task_id, force=force)
        _tell(done, form, f"{done.id} is deleted.")


def _delete_fitting(place: TaskPlace, wanted: "DeleteRequest", form: str, *, yes: bool) -> None:
    from dragoman.admin.tasks import DELETE_TASKS

    if not (wanted.dry_run or yes):
        if not sys.stdin.isatty():
            raise Unusable("nobody can be asked here: add --yes to delete, or --dry-run to list")
        fitting = place.ask(DELETE_TASKS, replace(wanted, dry_run=True)).matched
        if fitting:
            click.echo(task_table(fitting))
            click.confirm(f"Delete {'this task' if len(fitting) == 1 else f'these {len(fitting)} tasks'}?", abort=True)
    report = place.ask(DELETE_TASKS, wanted)
    _show_report(report, report.deleted, "deleted", form)


def _show_report(report: "CancelReport | DeleteReport", done: tuple[str, ...], verb: str, form: str) -> None:
    """Show what became of the tasks that fit. Ends the command with status 1 if some could not be changed."""
    if form == "json":
        print_json(report)
    elif report.dry_run:
        if report.matched:
            click.echo(task_table(report.matched))
        click.echo(f"{len(report.matched)} would be {verb}.", err=True)
    else:
        for task_id in done:
            click.echo(f"{task_id} is {verb}.")
        for failure in report.failed:
            click.echo(f"{failure.id} is not {verb}: {failure.reason}", err=True)
        if not report.matched:
            click.echo("No tasks fit.", err=True)
    if report.more and form != "json":
        click.echo("More tasks fit: run it again, or with a larger --limit.", err=True)
    if report.failed:
        raise SystemExit(1)


def _show_changed(task: "ChangedTask", form: str) -> None:
    _tell(task, form, f"{task.id} is {task.state}.")


def _tell(done: object, form: str, words: str) -> None:
    if form == "json":
        print_line(done)
    else:
        click.echo(words)
