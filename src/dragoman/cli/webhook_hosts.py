"""`dragoman webhooks show|pause|resume|paused`: one delivery, and the hosts to which nothing is sent.

Invariant: on the local store as from afar, the same functions answer. Neither bodies nor secrets are shown.
"""

from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.completion import complete_hosts
from dragoman.cli.admin.server import ServerRefusal, TaskPlace, with_server
from dragoman.cli.command import Command
from dragoman.cli.endings import Unusable
from dragoman.cli.listing import Listing, lists, rows_of
from dragoman.cli.tables import output, print_json, second

if TYPE_CHECKING:
    from dragoman.admin.question import Question
    from dragoman.admin.webhooks import DeliveryReport, HostChanged, HostName

LANES = {
    "answers": "which answers",
    "unknown": "which was not called yet",
    "failing": "which did not answer a call, and none has arrived since",
}
"""The lane of a host, in words."""


@click.command(cls=Command)
@click.argument("wanted", metavar="ID")
@output
@with_server
def show(place: TaskPlace, wanted: str, form: str) -> None:
    """Show one delivery: its attempts, and what it waits for.

    ID is the NUMBER that `list` shows, or the webhook-id.

    Examples:
      dragoman webhooks show 12
      dragoman webhooks show 12 -o json
    """
    from dragoman.admin.webhooks import SHOW_WEBHOOK
    from dragoman.model.errors import NotFound

    try:
        report = place.at_desk(lambda desk: desk.answer(SHOW_WEBHOOK, None, wanted))
    except (NotFound, ServerRefusal) as error:
        if isinstance(error, ServerRefusal) and error.status != 404:
            raise
        raise Unusable(f"{error.message}: see `dragoman webhooks list`") from error
    if not _show_json(report, form):
        click.echo("\n".join(f"{name:<8}  {value}" for name, value in _facts(report) if value))


@click.command(cls=Command)
@click.argument("host", shell_complete=complete_hosts)
@output
@with_server
def pause(place: TaskPlace, host: str, form: str) -> None:
    """Send nothing to HOST until `resume`.

    The pause holds on every replica. HOST is hooks.example.org, which covers all its ports, hooks.example.org:8443, or
    https://hooks.example.org. Its deliveries are kept in their order, and no attempt is counted.

    Examples:
      dragoman webhooks pause hooks.example.org
      dragoman webhooks pause hooks.example.org:8443
    """
    from dragoman.admin.webhooks import PAUSE_HOST

    changed = _change(place, PAUSE_HOST, host)
    if not _show_json(changed, form):
        already = "" if changed.changed else "already "
        click.echo(f"{changed.host} is {already}paused: {_deliveries(changed.waiting)} for it.")


@click.command(cls=Command)
@click.argument("host", shell_complete=complete_hosts)
@output
@with_server
def resume(place: TaskPlace, host: str, form: str) -> None:
    """Send to a paused HOST again.

    HOST is named as `paused` shows it. Its deliveries are sent in order, when they are due. A delivery that failed
    before the pause waits for its next attempt: `redeliver NUMBER --pending` sends it at once.

    Examples:
      dragoman webhooks resume hooks.example.org
      dragoman webhooks resume hooks.example.org:8443 -o json
    """
    from dragoman.admin.webhooks import RESUME_HOST

    changed = _change(place, RESUME_HOST, host)
    if not changed.changed:
        raise click.ClickException(f"{changed.host} is not paused: `dragoman webhooks paused` shows which are")
    if not _show_json(changed, form):
        click.echo(f"{changed.host} is no longer paused{_freed(changed)}.")


@click.command(cls=Command)
@lists(limit=None, cut=True)
@with_server
def paused(place: TaskPlace) -> Listing:
    """Show the paused hosts, and how many deliveries wait.

    The list also says since when they are paused, and by whom.

    Examples:
      dragoman webhooks paused
      dragoman webhooks paused -o name
    """
    from dragoman.admin.webhooks import LIST_PAUSED_HOSTS

    return rows_of(LIST_PAUSED_HOSTS, place.ask(LIST_PAUSED_HOSTS, None), name="host")


def _change(place: TaskPlace, question: "Question[HostName, HostChanged]", host: str) -> "HostChanged":
    from dragoman.admin.webhooks import HostName, read_host
    from dragoman.model.errors import InvalidParams

    try:
        name = read_host(host)
    except InvalidParams as error:
        raise click.UsageError(f"HOST {host!r}: {error.violations[0][1]}") from error
    return place.ask(question, HostName(host=name))


def _show_json(found: object, form: str) -> bool:
    if form == "json":
        print_json(found)
    return form == "json"


def _deliveries(count: int) -> str:
    return f"{count} deliver{'y waits' if count == 1 else 'ies wait'}"


def _facts(report: "DeliveryReport") -> list[tuple[str, str]]:
    """The facts of a delivery as people read them, by name."""
    words = {
        "delivered": f"arrived at {second(report.arrived)}",
        "dead": "dead: `dragoman webhooks redeliver` sends it again",
        "sending": f"under way, until {second(report.claimed_until)} at the latest",
        "paused": "waits for its host, which is paused",
        "in-turn": f"waits for {report.before} before it",
        "retrying": f"is tried again at {second(report.next)}",
        "due": "is about to be sent",
    }
    return [
        ("number", str(report.number)),
        ("id", report.id),
        ("status", words[report.status]),
        ("answer", "" if report.arrived is None else f"HTTP {report.http_status} after {report.took_ms} ms"),
        ("failed", f"{report.failed} attempts" if report.failed != 1 else "1 attempt"),
        ("reason", report.reason),
        ("url", report.url),
        ("host", f"{report.host}, {LANES[report.lane]}" if report.lane else report.host),
        *(("paused", f"{each.host} since {second(each.since)} by {each.by}") for each in report.pauses),
        ("task", f"{report.task} of {report.agent}"),
        ("event", f"{report.seq}" + (f".{report.part}" if report.part else "")),
        ("config", report.config),
        ("dialect", report.dialect),
        ("size", f"{report.size_bytes} bytes"),
        ("made", second(report.made)),
        ("behind", str(report.behind) if report.behind else ""),
        ("again", _again(report)),
    ]


def _freed(changed: "HostChanged") -> str:
    """Say when the deliveries that waited for a host go out."""
    now = changed.waiting - changed.held - changed.later
    fates = (
        (now, "now"),
        (changed.later, f"when due, from {second(changed.next)} on"),
    )
    told = [f"{count} deliver{'y goes' if count == 1 else 'ies go'} out {when}" for count, when in fates if count]
    if changed.held:
        told.append(
            f"{changed.held} still wait{'s' * (changed.held == 1)} for another pause (`dragoman webhooks paused`)"
        )
    return f": {', '.join(told)}" if told else ""


def _again(report: "DeliveryReport") -> str:
    """Whether a delivery that arrived can be sent again."""
    if report.status != "delivered":
        return ""
    if report.obstacle is not None:
        return f"not possible: {report.obstacle}"
    return f"`dragoman webhooks redeliver {report.number} --delivered`"
