"""`dragoman push`: list webhook deliveries, send them again, and delete dead letters.

Invariant: neither bodies nor secrets are shown. Deliveries that are not dead are changed only with `--pending`
or `--delivered`.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.admin.receipts import show_receipts
from dragoman.cli.admin.records import StoredRecords, at_records
from dragoman.cli.admin.server import TaskPlace, run, with_server
from dragoman.cli.admin.webhooks import pause, paused, renderer, resume, show
from dragoman.cli.arguments import WholeNumber
from dragoman.cli.store_commands import at_store, operator
from dragoman.cli.tables import json_flag, moment, table

if TYPE_CHECKING:
    from dragoman.admin.webhooks import DeadLetters, DeadLettersChanged
    from dragoman.store.api import Store
    from dragoman.store.outbox import Owed

NUMBERS_SHOWN = 10
"""The audit trail lists up to this many numbers; beyond that, only their count."""


@click.group()
def push() -> None:
    """Manage pending webhook deliveries.

    These commands work while the server runs. A delivery is tried eight times in seven hours; then it becomes a dead
    letter, which can be sent again. See docs/push.md.
    """


@click.group()
def webhooks() -> None:
    """See, resend and delete webhook deliveries, and pause hosts.

    A delivery is tried eight times in seven hours; then it becomes a dead letter. See docs/push.md.
    """


STATES = ("pending", "dead", "delivered")


@push.command("list")
@click.option("--dead", "which", flag_value="dead", help="Only dead letters.")
@click.option("--waiting", "which", flag_value="waiting", help="Only deliveries that will still be tried.")
@click.option("--state", type=click.Choice(STATES), help="Only deliveries in this state: delivered ones newest first.")
@click.option("--task", "task_id", metavar="ID", help="Only deliveries about this task.")
@click.option("--limit", type=WholeNumber(1, 1_000_000), default=100, show_default=True, help="Show the first N.")
@click.option("--after", type=WholeNumber(0), default=0, metavar="NUMBER", help="Only those after this number.")
@click.option("--before", type=WholeNumber(1), metavar="NUMBER", help="Only delivered ones before this number.")
@json_flag("JSON lines")
@with_server
def list_(
    place: TaskPlace,
    which: str | None,
    state: str | None,
    task_id: str | None,
    limit: int,
    after: int,
    before: int | None,
    as_json: bool,
) -> None:
    """List pending and dead deliveries, or those that arrived."""
    _check_filters(which, state, after, before)
    if state == "delivered":
        show_receipts(place, task_id, limit, before, as_json=as_json)
        return
    which = {"dead": "dead", "pending": "waiting"}.get(state or "", which)
    _show_owed(place, which, task_id, limit, after, as_json=as_json)


def _check_filters(which: str | None, state: str | None, after: int, before: int | None) -> None:
    """Refuse filters that do not go together."""
    if which is not None and state is not None:
        raise click.UsageError(f"--{which}: goes without --state")
    if state == "delivered" and after:
        raise click.UsageError("--after: goes with pending and dead deliveries; use --before")
    if state != "delivered" and before is not None:
        raise click.UsageError("--before: goes with --state delivered; use --after")


def _show_owed(
    place: TaskPlace, which: str | None, task_id: str | None, limit: int, after: int, *, as_json: bool
) -> None:
    """Show pending deliveries and dead letters."""
    import msgspec

    from dragoman.net.target import shown_url

    dead = None if which is None else which == "dead"
    found = at_records(place, lambda store: store.outbox.owed(dead=dead, limit=limit, after=after, task_id=task_id))
    if as_json:
        for owed in found:
            click.echo(msgspec.json.encode(_fields(owed)).decode())
    elif found:
        head = ("NUMBER", "MADE", "AGENT", "TASK", "SEQ", "URL", "FAILED", "NEXT", "REASON")
        rows = [
            (
                str(owed.number),
                moment(owed.made_ms),
                owed.agent,
                owed.task_id,
                str(owed.seq),
                shown_url(owed.url),
                str(owed.attempts),
                _next(owed),
                owed.reason,
            )
            for owed in found
        ]
        click.echo(table(head, rows))
        if len(found) == limit:
            click.echo(f"There may be more: continue with --after {found[-1].number}.", err=True)
    else:
        click.echo("No deliveries." if which is None else "None.", err=True)


_as_one = json_flag("one JSON object")

with_pending = click.option("--pending", is_flag=True, help="Also those of the NUMBERs that are not dead yet.")


@push.command()
@click.argument("numbers", nargs=-1, type=WholeNumber(1), metavar="NUMBER...")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@with_pending
@click.option("--delivered", is_flag=True, help="Also those of the NUMBERs that have arrived.")
@_as_one
@with_server
def retry(
    place: TaskPlace, numbers: tuple[int, ...], everything: bool, pending: bool, delivered: bool, as_json: bool
) -> None:
    """Send dead letters again, by the NUMBERs that `list` shows.

    A running server does so within seconds. They keep their webhook-id, and are tried as often as new deliveries. A
    receiver may get them after later deliveries of the same task: X-Dragoman-Seq tells the order. With --pending,
    deliveries that wait for their next attempt are tried now; those before them go first. With --delivered, deliveries
    that arrived are sent once more, with the same webhook-id, if the log of their task still says what they held.
    """
    changed = _change(place, "webhooks.redeliver", _choose(numbers, everything, pending, delivered))
    if as_json:
        _show_json(changed)
    elif changed.count or changed.pending or changed.again or not changed.refused:
        click.echo(f"{_changed(changed)} to be sent {'again' if not changed.pending else 'now'}.")
    for each in changed.refused:
        click.echo(f"{each.number} is not sent again: {each.reason}", err=True)
    others = "--pending takes others too" if delivered else "--pending and --delivered take others too"
    _report_missing(numbers, changed, pending, others)


@push.command()
@click.argument("numbers", nargs=-1, type=WholeNumber(1), metavar="NUMBER...")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@with_pending
@click.option("--yes", is_flag=True, help="Do not ask.")
@_as_one
@with_server
def drop(place: TaskPlace, numbers: tuple[int, ...], everything: bool, pending: bool, yes: bool, as_json: bool) -> None:
    """Delete dead letters for good, by the NUMBERs that `list` shows. With --pending also others, if not under way."""
    chosen = _choose(numbers, everything, pending)
    if not yes:
        there = at_records(place, lambda store: _count(store, chosen))
        if there:
            what = _letters(there) if not pending else f"{there} deliver{'y' if there == 1 else 'ies'}"
            click.confirm(f"Delete {'all ' if everything else ''}{what} for good?", abort=True, err=as_json)
    changed = _change(place, "webhooks.delete", chosen)
    if as_json:
        _show_json(changed)
    else:
        click.echo(f"{_changed(changed)} deleted.")
    _report_missing(numbers, changed, pending, "--pending takes others too")


def _choose(numbers: tuple[int, ...], everything: bool, pending: bool, delivered: bool = False) -> "DeadLetters":
    """The deliveries that are named, each once."""
    from dragoman.admin.webhooks import DeadLetters

    if everything == bool(numbers):
        raise click.UsageError("say which: NUMBERs from `dragoman push list --dead`, or --all")
    if everything and pending:
        raise click.UsageError("--pending: goes with NUMBERs, not with --all")
    if everything and delivered:
        raise click.UsageError("--delivered: goes with NUMBERs, not with --all")
    return DeadLetters(numbers=tuple(sorted(set(numbers))), all=everything, pending=pending, delivered=delivered)


async def _count(store: "StoredRecords", chosen: "DeadLetters") -> int:
    """Count the deliveries that are chosen."""
    if chosen.all:
        return (await store.outbox.owed_count())[1]
    dead = None if chosen.pending else True
    found = [await store.outbox.owed(dead=dead, limit=1, after=number - 1) for number in chosen.numbers]
    return sum(bool(each) and each[0].number == number for each, number in zip(found, chosen.numbers, strict=True))


def _change(place: TaskPlace, action: str, chosen: "DeadLetters") -> "DeadLettersChanged":
    """Change deliveries, and record it in the audit trail."""
    from dragoman.admin.webhooks import DeadLettersChanged
    from dragoman.engine.admin import deliveries
    from dragoman.store.audit import AuditEntry

    if place.server is not None:
        path = "/webhooks:redeliver" if action == "webhooks.redeliver" else "/webhooks:delete"
        return run(place.client().post(path, chosen, DeadLettersChanged))

    async def work(store: "Store") -> DeadLettersChanged:
        now_ms = store.clock.now_ms()
        if action == "webhooks.redeliver":
            changed = await deliveries.redeliver(store, renderer(), chosen, now_ms)
        else:
            changed = await deliveries.drop(store, chosen, now_ms)
        numbers = None if chosen.all else chosen.numbers
        subject = _subject(numbers, changed.count + changed.pending + changed.again)
        await store.audit.write([AuditEntry(at_ms=now_ms, principal=operator(), action=action, subject=subject)])
        return changed

    return at_store(place.config, work)


def _subject(chosen: Collection[int] | None, count: int) -> str:
    if chosen is None:
        return f"all, {count}"
    return ",".join(map(str, chosen)) if len(chosen) <= NUMBERS_SHOWN else f"{len(chosen)} chosen, {count}"


def _report_missing(numbers: tuple[int, ...], changed: "DeadLettersChanged", pending: bool, others: str) -> None:
    """Report numbers of which nothing was changed, and exit with 1. `others` says how to take other deliveries."""
    missing = changed.missing or ()
    left = len(set(numbers)) - changed.count - changed.pending - changed.again - len(changed.refused) - len(missing)
    faults = [f"there is no delivery {_listed(missing)}"] if missing else []
    have = "has" if left == 1 else "have"
    if left > 0 and pending:
        faults.append(f"{left} of these numbers {have} one that arrived or is under way: see `dragoman push list`")
    elif left > 0:
        faults.append(f"{left} of these numbers {have} no dead letter: see `dragoman push list --dead`; {others}")
    elif missing:
        faults.append("see `dragoman push list`")
    if faults:
        raise click.ClickException("; ".join(faults))
    if changed.refused:
        raise SystemExit(1)


def _listed(numbers: Collection[int]) -> str:
    more = len(numbers) - NUMBERS_SHOWN
    return ", ".join(map(str, list(numbers)[:NUMBERS_SHOWN])) + (f" and {more} others" if more > 0 else "")


def _show_json(changed: "DeadLettersChanged") -> None:
    import msgspec

    click.echo(msgspec.json.encode(changed).decode())


def _changed(changed: "DeadLettersChanged") -> str:
    words = [_letters(changed.count)] if changed.count or not (changed.pending or changed.again) else []
    for count, kind in ((changed.pending, "pending"), (changed.again, "delivered")):
        if count:
            words.append(f"{count} {kind} deliver{'y' if count == 1 else 'ies'}")
    return " and ".join(words)


def _next(owed: "Owed") -> str:
    """When a delivery is tried next, or what it waits for."""
    if owed.dead:
        return "dead"
    if owed.paused:
        return "paused"
    return "in turn" if owed.due_ms is None else moment(owed.due_ms)


def _letters(count: int) -> str:
    return f"{count} dead letter{'' if count == 1 else 's'}"


def _fields(owed: "Owed") -> dict[str, Any]:
    """A delivery's fields for JSON."""
    import msgspec

    from dragoman.engine.admin.deliveries import delivery_line

    return msgspec.structs.asdict(delivery_line(owed))


for name, command in (("list", list_), ("redeliver", retry), ("delete", drop)):
    webhooks.add_command(command, name)

for each in (show, pause, resume, paused):
    webhooks.add_command(each)
