"""`dragoman push`: list pending webhook deliveries and dead letters, and retry or delete dead letters.

Invariant: neither bodies nor secrets are shown. Only dead letters can be sent again or deleted.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.admin.records import StoredRecords, at_records
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.store_commands import at_store, moment, operator, table

if TYPE_CHECKING:
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
    """See pending webhook deliveries, and send dead letters again or delete them.

    A delivery is tried eight times in seven hours; then it becomes a dead letter. See docs/push.md.
    """


@push.command("list")
@click.option("--dead", "which", flag_value="dead", help="Only dead letters.")
@click.option("--waiting", "which", flag_value="waiting", help="Only deliveries that will still be tried.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Show the oldest N.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="NUMBER", help="Only those after this number.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@with_server
def list_(place: TaskPlace, which: str | None, limit: int, after: int, as_json: bool) -> None:
    """Show pending deliveries and dead letters, oldest first."""
    import msgspec

    from dragoman.engine.handlers.deliveries import shown_url

    dead = None if which is None else which == "dead"
    found = at_records(place, lambda store: store.outbox.owed(dead=dead, limit=limit, after=after))
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
                "dead" if owed.dead else "in turn" if owed.due_ms is None else moment(owed.due_ms),
                owed.reason,
            )
            for owed in found
        ]
        click.echo(table(head, rows))
        if len(found) == limit:
            click.echo(f"There may be more: continue with --after {found[-1].number}.", err=True)
    else:
        click.echo("No deliveries." if which is None else "None.", err=True)


@push.command()
@click.argument("numbers", nargs=-1, type=click.IntRange(1), metavar="NUMBER...")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@with_server
def retry(place: TaskPlace, numbers: tuple[int, ...], everything: bool) -> None:
    """Send dead letters again, by the NUMBERs that `list` shows; a running server does so within seconds.

    They keep their webhook-id, and are tried as often as new deliveries. A receiver may get them after later deliveries
    of the same task: X-Dragoman-Seq tells the order.
    """
    from dragoman.model.ids import SystemClock

    chosen = _parse_numbers(numbers, everything)
    now_ms = SystemClock().now_ms()
    count = _run_audited(place, "push.retry", chosen, lambda store: store.outbox.revive(chosen, now_ms))
    click.echo(f"{_letters(count)} to be sent again.")
    _report_missing(numbers, count)


@push.command()
@click.argument("numbers", nargs=-1, type=click.IntRange(1), metavar="NUMBER...")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_server
def drop(place: TaskPlace, numbers: tuple[int, ...], everything: bool, yes: bool) -> None:
    """Delete dead letters for good, by the NUMBERs that `list` shows."""
    chosen = _parse_numbers(numbers, everything)
    if not yes:
        there = at_records(place, lambda store: _count_dead(store, chosen))
        if there:
            click.confirm(f"Delete {'all ' if chosen is None else ''}{_letters(there)} for good?", abort=True)
    count = _run_audited(place, "push.drop", chosen, lambda store: store.outbox.drop(chosen))
    click.echo(f"{_letters(count)} deleted.")
    _report_missing(numbers, count)


def _parse_numbers(numbers: tuple[int, ...], everything: bool) -> Collection[int] | None:
    """Return the chosen numbers, each once; None for all."""
    if everything == bool(numbers):
        raise click.UsageError("say which: NUMBERs from `dragoman push list --dead`, or --all")
    return None if everything else sorted(set(numbers))


async def _count_dead(store: "StoredRecords", chosen: Collection[int] | None) -> int:
    """Count the dead letters among the chosen numbers."""
    if chosen is None:
        return (await store.outbox.owed_count())[1]
    numbers = sorted(chosen)
    found = [await store.outbox.owed(dead=True, limit=1, after=number - 1) for number in numbers]
    return sum(bool(each) and each[0].number == number for each, number in zip(found, numbers, strict=True))


def _run_audited(
    place: TaskPlace, action: str, chosen: Collection[int] | None, act: "Callable[[StoredRecords], Awaitable[int]]"
) -> int:
    """Run `act`, record it in the audit trail, and return how many dead letters it changed."""
    from dragoman.model.ids import SystemClock
    from dragoman.store.audit import AuditEntry

    if place.server is not None:
        return at_records(place, act)

    async def work(store: "Store") -> int:
        count = await act(store)
        at_ms = SystemClock().now_ms()
        entry = AuditEntry(at_ms=at_ms, principal=operator(), action=action, subject=_subject(chosen, count))
        await store.audit.write([entry])
        return count

    return at_store(place.config, work)


def _subject(chosen: Collection[int] | None, count: int) -> str:
    if chosen is None:
        return f"all, {count}"
    return ",".join(map(str, chosen)) if len(chosen) <= NUMBERS_SHOWN else f"{len(chosen)} chosen, {count}"


def _report_missing(numbers: tuple[int, ...], count: int) -> None:
    """Report numbers without a dead letter, and exit with 1."""
    missing = len(set(numbers)) - count
    if missing > 0:
        have = "has" if missing == 1 else "have"
        raise click.ClickException(f"{missing} of these numbers {have} no dead letter: see `dragoman push list --dead`")


def _letters(count: int) -> str:
    return f"{count} dead letter{'' if count == 1 else 's'}"


def _fields(owed: "Owed") -> dict[str, Any]:
    """A delivery's fields for JSON."""
    import msgspec

    from dragoman.engine.handlers.deliveries import delivery_line

    return msgspec.structs.asdict(delivery_line(owed))


for name, command in (("list", list_), ("redeliver", retry), ("delete", drop)):
    webhooks.add_command(command, name)
