"""`dragoman webhooks`: list webhook deliveries, send them again, and delete dead ones.

Invariant: neither bodies nor secrets are shown. Deliveries that are not dead are changed only with `--pending`
or `--delivered`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

import click

from dragoman.cli.admin.completion import complete_tasks
from dragoman.cli.admin.receipts import answer
from dragoman.cli.admin.server import Desk, TaskPlace, finish, read_pages, with_server
from dragoman.cli.arguments import WholeNumber
from dragoman.cli.command import Group
from dragoman.cli.listing import Listing, list_rows, lists, read_cursor
from dragoman.cli.old_names import old_name_given, old_option
from dragoman.cli.tables import json_flag, print_line, second
from dragoman.cli.webhook_hosts import pause, paused, resume, show

if TYPE_CHECKING:
    from dragoman.admin.webhooks import DeadLetters, DeadLettersChanged, DeliveryLine, DeliveryState

PAGE = 10_000
"""The most deliveries that are asked for at once."""


@click.group(cls=Group)
def webhooks() -> None:
    """See, resend and delete webhook deliveries, and pause hosts.

    A delivery is tried eight times in seven hours; then it is dead. See docs/push.md.

    Examples:
      dragoman webhooks list --state dead
      dragoman webhooks redeliver --all
    """


STATES = ("pending", "dead", "delivered")


def _next(line: "DeliveryLine") -> str:
    """When a delivery is tried next, or what it waits for."""
    if line.dead:
        return "dead"
    if line.paused:
        return "paused"
    return "in turn" if line.next is None else second(line.next)


ARRIVED_WORDS: Mapping[str, Callable[[Any], str]] = {
    "failed": lambda line: str(line.failed + 1),
    "http_status": answer,
    "took_ms": lambda line: f"{line.took_ms} ms",
}


@webhooks.command("list")
@click.option(
    "--state", type=click.Choice(STATES), help="Only deliveries in this state; delivered ones are listed newest first."
)
@old_option("--dead", "state", "--state dead", flag_value="dead")
@old_option("--waiting", "state", "--state pending", flag_value="pending")
@click.option("--task", "task_id", metavar="ID", shell_complete=complete_tasks, help="Only deliveries about this task.")
@lists(limit=100, json_too=True)
@old_option("--after", "cursor", "--cursor", metavar="NUMBER")
@old_option("--before", "cursor", "--cursor", metavar="NUMBER")
@with_server
def list_(place: TaskPlace, state: str | None, task_id: str | None, limit: int, cursor: str) -> Listing:
    """List pending and dead deliveries, or those that arrived.

    Examples:
      dragoman webhooks list --state dead
      dragoman webhooks list --task ID -o json
    """
    from dragoman.admin.webhooks import LIST_DELIVERED, LIST_WEBHOOKS, DeliveryQuery

    arrived = state == "delivered"
    if old_name_given("cursor") == ("--after" if arrived else "--before"):
        where = "pending and dead deliveries" if arrived else "--state delivered"
        raise click.UsageError(f"{old_name_given('cursor')}: goes with {where}; use --cursor")
    number = read_cursor(cursor, 1 if arrived else 0)
    question = LIST_DELIVERED if arrived else LIST_WEBHOOKS
    query = DeliveryQuery(
        state=cast("DeliveryState | None", state),
        task=task_id,
        limit=PAGE,
        after=0 if arrived else number,
        before=number or None if arrived else None,
    )
    pages, more = finish(lambda: place.at_desk(lambda desk: read_pages(desk, question, query, limit)))
    return list_rows(
        question,
        [line for page in pages for line in page],
        words=ARRIVED_WORDS if arrived else {"next": _next},
        name="number",
        lines=True,
        next_cursor="" if more is None else str(more.before if arrived else more.after),
        empty=question.none if state is None else "None.",
    )


_as_one = json_flag("one JSON object")


def with_pending(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds `--pending`, with its help."""
    return click.option("--pending", is_flag=True, help=text)


@webhooks.command()
@click.argument("numbers", nargs=-1, type=WholeNumber(1), metavar="NUMBER...")
@click.option("--all", "everything", is_flag=True, help="Send all dead deliveries.")
@with_pending("Also send deliveries that wait for a retry, at once.")
@click.option("--delivered", is_flag=True, help="Also send deliveries that have arrived, once more.")
@_as_one
@with_server
def redeliver(
    place: TaskPlace, numbers: tuple[int, ...], everything: bool, pending: bool, delivered: bool, as_json: bool
) -> None:
    """Send dead deliveries again, by NUMBERs of `list`.

    A running server sends them within seconds. They keep their webhook-id, and are tried as often as new deliveries. A
    receiver may get them after later deliveries of the same task: X-Dragoman-Seq tells the order. With --pending,
    deliveries before the named ones go first. With --delivered, a delivery is sent only if the log of its task still
    says what it held.

    Examples:
      dragoman webhooks redeliver 12 13
      dragoman webhooks redeliver --all
    """
    from dragoman.admin.webhooks import REDELIVER_WEBHOOKS

    changed = place.ask(REDELIVER_WEBHOOKS, _choose(numbers, everything, pending, delivered))
    if as_json:
        print_line(changed)
    elif changed.count or changed.pending or changed.again or not changed.refused:
        click.echo(f"{_changed(changed)} to be sent {'again' if not changed.pending else 'now'}.")
    for each in changed.refused:
        click.echo(f"{each.number} is not sent again: {each.reason}", err=True)
    others = "--pending takes others too" if delivered else "--pending and --delivered take others too"
    _report_missing(numbers, changed, pending, others)


@webhooks.command()
@click.argument("numbers", nargs=-1, type=WholeNumber(1), metavar="NUMBER...")
@click.option("--all", "everything", is_flag=True, help="Delete all dead deliveries.")
@with_pending("Also delete deliveries that wait for a retry.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_as_one
@with_server
def delete(
    place: TaskPlace, numbers: tuple[int, ...], everything: bool, pending: bool, yes: bool, as_json: bool
) -> None:
    """Delete dead deliveries for good, by NUMBERs of `list`.

    A delivery that is being sent is not deleted.

    Examples:
      dragoman webhooks delete 12 13
      dragoman webhooks delete --all --yes
    """
    from dragoman.admin.webhooks import DELETE_WEBHOOKS

    chosen = _choose(numbers, everything, pending)
    if not yes:
        there = finish(lambda: place.at_desk(lambda desk: _count(desk, chosen)))
        if there:
            what = _letters(there) if not pending else f"{there} deliver{'y' if there == 1 else 'ies'}"
            click.confirm(f"Delete {'all ' if everything else ''}{what} for good?", abort=True, err=as_json)
    changed = place.ask(DELETE_WEBHOOKS, chosen)
    if as_json:
        print_line(changed)
    else:
        click.echo(f"{_changed(changed)} deleted.")
    _report_missing(numbers, changed, pending, "--pending takes others too")


def _choose(numbers: tuple[int, ...], everything: bool, pending: bool, delivered: bool = False) -> "DeadLetters":
    """The deliveries that are named, each once."""
    from dragoman.admin.webhooks import DeadLetters

    if everything == bool(numbers):
        raise click.UsageError("say which: NUMBERs from `dragoman webhooks list --state dead`, or --all")
    if everything and pending:
        raise click.UsageError("--pending: goes with NUMBERs, not with --all")
    if everything and delivered:
        raise click.UsageError("--delivered: goes with NUMBERs, not with --all")
    return DeadLetters(numbers=tuple(sorted(set(numbers))), all=everything, pending=pending, delivered=delivered)


async def _count(desk: Desk, chosen: "DeadLetters") -> int:
    """Count the deliveries that are chosen."""
    from dragoman.admin.webhooks import LIST_WEBHOOKS, DeliveryQuery

    if chosen.all:
        return (await desk.answer(LIST_WEBHOOKS, DeliveryQuery(limit=1))).dead
    found = 0
    for number in chosen.numbers:
        query = DeliveryQuery(state=None if chosen.pending else "dead", after=number - 1, limit=1)
        found += [line.number for line in (await desk.answer(LIST_WEBHOOKS, query)).deliveries] == [number]
    return found


def _report_missing(numbers: tuple[int, ...], changed: "DeadLettersChanged", pending: bool, others: str) -> None:
    """Report numbers of which nothing was changed, and exit with 1. `others` says how to take other deliveries."""
    missing = changed.missing or ()
    left = len(set(numbers)) - changed.count - changed.pending - changed.again - len(changed.refused) - len(missing)
    faults = [f"there is no delivery {_listed(missing)}"] if missing else []
    have = "has" if left == 1 else "have"
    if left > 0 and pending:
        faults.append(f"{left} of these numbers {have} one that arrived or is under way: see `dragoman webhooks list`")
    elif left > 0:
        faults.append(
            f"{left} of these numbers {have} no dead delivery: see `dragoman webhooks list --state dead`; {others}"
        )
    elif missing:
        faults.append("see `dragoman webhooks list`")
    if faults:
        raise click.ClickException("; ".join(faults))
    if changed.refused:
        raise SystemExit(1)


def _listed(numbers: Collection[int]) -> str:
    from dragoman.admin.webhooks import NUMBERS_SHOWN

    more = len(numbers) - NUMBERS_SHOWN
    return ", ".join(map(str, list(numbers)[:NUMBERS_SHOWN])) + (f" and {more} others" if more > 0 else "")


def _changed(changed: "DeadLettersChanged") -> str:
    words = [_letters(changed.count)] if changed.count or not (changed.pending or changed.again) else []
    for count, kind in ((changed.pending, "pending"), (changed.again, "delivered")):
        if count:
            words.append(f"{count} {kind} deliver{'y' if count == 1 else 'ies'}")
    return " and ".join(words)


def _letters(count: int) -> str:
    return f"{count} dead deliver{'y' if count == 1 else 'ies'}"


for command in (show, pause, resume, paused):
    webhooks.add_command(command)
