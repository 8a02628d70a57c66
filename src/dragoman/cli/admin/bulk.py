"""`dragoman admin bulk`: change all tasks that filters find, as a job of the server.

Invariant: nothing is changed without a filter. The server notes the operator's name once, with the filter.
"""

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.admin.task_choice import read_filters, with_filters
from dragoman.cli.arguments import WholeNumber
from dragoman.cli.command import Group
from dragoman.cli.endings import CommandFailed, Unusable
from dragoman.cli.listing import Listing, lists, rows_of
from dragoman.cli.tables import output, print_json

if TYPE_CHECKING:
    from dragoman.admin.bulk import BulkJob

TASKS_MAX = 10_000
"""That of `admin.bulk`, repeated here so that `--help` imports nothing."""

LOOK_EVERY_S = 0.5


@click.group(cls=Group)
def bulk() -> None:
    """Cancel, delete or send again all tasks that fit filters.

    The server changes the tasks in a job, which these commands follow; Ctrl-C stops it. `list` shows the jobs of the
    last day, and `stop` ends one.

    Examples:
      dragoman admin bulk cancel --agent sum --older-than 1h
      dragoman admin bulk send-again --state failed --newer-than 1d --dry-run
    """


with_limit = click.option(
    "--limit",
    type=WholeNumber(1, TASKS_MAX),
    default=TASKS_MAX,
    show_default=True,
    metavar="N",
    help="Change at most N tasks.",
)
with_dry_run = click.option("--dry-run", is_flag=True, help="Only count the tasks that fit.")


@bulk.command()
@with_filters
@with_limit
@with_dry_run
@click.option("--reason", metavar="TEXT", default="", help="Reason, which the logs of the tasks keep.")
@output
@with_server
def cancel(place: TaskPlace, limit: int, dry_run: bool, reason: str, form: str, **given: Any) -> None:
    """Cancel all open tasks that fit.

    Examples:
      dragoman admin bulk cancel --agent sum --older-than 1h --dry-run
      dragoman admin bulk cancel --principal key:ann --reason "left the company"
    """
    _run(place, form, given, action="cancel", limit=limit, dry_run=dry_run, reason=reason)


@bulk.command()
@with_filters
@with_limit
@with_dry_run
@click.option("--force", is_flag=True, help="Also delete tasks that have not ended: cancel them first.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output
@with_server
def delete(place: TaskPlace, limit: int, dry_run: bool, force: bool, yes: bool, form: str, **given: Any) -> None:
    """Delete all tasks that fit and have ended, for good.

    Examples:
      dragoman admin bulk delete --state failed --older-than 30d --dry-run
      dragoman admin bulk delete --principal key:test --force --yes
    """
    if not (dry_run or yes):
        if not sys.stdin.isatty():
            raise Unusable("nobody can be asked here: add --yes to delete, or --dry-run to count")
        counted = _follow(place, _start(place, given, action="delete", limit=limit, dry_run=True, force=force))
        click.confirm(f"Delete {counted.found} {'task' if counted.found == 1 else 'tasks'}?", abort=True)
    _run(place, form, given, action="delete", limit=limit, dry_run=dry_run, force=force)


@bulk.command()
@with_filters
@with_limit
@with_dry_run
@output
@with_server
def send_again(place: TaskPlace, limit: int, dry_run: bool, form: str, **given: Any) -> None:
    """Send the first messages of all ended tasks that fit again.

    Examples:
      dragoman admin bulk send-again --state failed --newer-than 1d --dry-run
      dragoman admin bulk send-again --agent sum --state failed --limit 100
    """
    _run(place, form, given, action="send-again", limit=limit, dry_run=dry_run)


@bulk.command("list")
@lists(limit=None, cut=True)
@with_server
def list_(place: TaskPlace) -> Listing:
    """List the jobs of the last day, the newest first.

    Examples:
      dragoman admin bulk list
      dragoman admin bulk list -o json
    """
    from dragoman.admin.bulk import LIST_BULK, BulkQuery

    return rows_of(LIST_BULK, place.ask(LIST_BULK, BulkQuery()), name="id")


@bulk.command()
@click.argument("job_id", metavar="ID")
@output
@with_server
def stop(place: TaskPlace, job_id: str, form: str) -> None:
    """Stop the job ID.

    Tasks that it has changed stay changed.

    Examples:
      dragoman admin bulk stop ID
      dragoman admin bulk stop ID -o json
    """
    from dragoman.admin.bulk import STOP_BULK

    place.ask(STOP_BULK, None, job_id)
    _show(_follow(place, job_id), form)


def _run(place: TaskPlace, form: str, given: dict[str, Any], **wanted: Any) -> None:
    """Start a job, and follow it to its end. Ctrl-C stops it."""
    job_id = _start(place, given, **wanted)
    try:
        _show(_follow(place, job_id), form)
    except KeyboardInterrupt:
        from dragoman.admin.bulk import STOP_BULK

        place.ask(STOP_BULK, None, job_id)
        _show(_follow(place, job_id), form)


def _start(place: TaskPlace, given: dict[str, Any], **wanted: Any) -> str:
    from dragoman.admin.bulk import START_BULK, BulkRequest

    filters = read_filters(given)
    if not filters:
        raise click.UsageError("choose the tasks by filters such as --agent or --older-than")
    return place.ask(START_BULK, BulkRequest(**filters, **wanted)).id


def _follow(place: TaskPlace, job_id: str) -> "BulkJob":
    """Wait for the end of a job, and tell a terminal how far it is."""
    from dragoman.admin.bulk import LIST_BULK, BulkQuery

    while True:
        jobs = place.ask(LIST_BULK, BulkQuery(id=job_id)).jobs
        if not jobs:
            raise CommandFailed(f"the server knows no job {job_id} any more")
        (job,) = jobs
        if sys.stderr.isatty():
            click.echo(f"\r{job.state}: {_seen(job)} of {job.found} ", nl=not job.open, err=True)
        if not job.open:
            return job
        time.sleep(LOOK_EVERY_S)


def _seen(job: "BulkJob") -> int:
    return job.done + job.skipped + job.failed


VERBS = {"cancel": "canceled", "delete": "deleted", "send-again": "sent again"}


def _show(job: "BulkJob", form: str) -> None:
    """Show what became of a job. Ends the command with status 1 unless all went well."""
    if form == "json":
        print_json(job)
    else:
        verb, more = VERBS[job.action], " (more fit)" if job.more else ""
        if job.dry_run:
            click.echo(f"{job.found}{more} would be {verb}.")
        else:
            click.echo(f"{job.done} of {job.found}{more} {verb}, {job.skipped} left out, {job.failed} failed.")
        for failure in job.failures:
            click.echo(f"{failure.id}: {failure.reason}", err=True)
    if job.failed or job.state != "ended":
        raise CommandFailed(f"the job {job.id} {'is' if job.state == 'stopped' else 'has'} {job.state}")
