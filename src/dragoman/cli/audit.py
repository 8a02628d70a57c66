"""`dragoman audit`: show who did what and when, and what was refused.

Invariant: it only reads.
"""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.records import StoredRecords, at_records
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.store_commands import moment, table

if TYPE_CHECKING:
    from dragoman.store.audit import AuditEntry


@click.command()
@click.option("--principal", metavar="P", help="Only actions of this principal, such as key:ann or operator:root.")
@click.option("--refused", is_flag=True, help="Only refused actions.")
@click.option(
    "--since", metavar="WHEN", help="Only since then: an age like 1h or 7d, or a time like 2026-11-20T07:00 (UTC)."
)
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Show the newest N.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@with_server
def audit(place: TaskPlace, principal: str | None, refused: bool, since: str | None, limit: int, as_json: bool) -> None:
    """Show who did what, oldest first, also while the server runs.

    The settings audit and audit_retention determine what is kept, and for how long. See docs/keys.md.
    """
    import msgspec

    from dragoman.model.ids import SystemClock, timestamp

    since_ms = 0 if since is None else _since_ms(since, SystemClock().now_ms())
    found = at_records(
        place,
        lambda store: store.audit.read(principal=principal, refused_only=refused, since_ms=since_ms, limit=limit),
    )
    if as_json:
        for entry in found:
            click.echo(msgspec.json.encode({"at": timestamp(entry.at_ms), **_fields(entry)}).decode())
    elif found:
        head = ("AT", "PRINCIPAL", "ACTION", "AGENT", "TASK", "SUBJECT", "FROM", "OUTCOME")
        click.echo(
            table(
                head,
                [
                    (
                        moment(entry.at_ms),
                        entry.principal,
                        entry.action,
                        entry.agent,
                        entry.task_id,
                        entry.subject,
                        entry.peer,
                        "allowed" if entry.allowed else f"refused: {entry.reason}",
                    )
                    for entry in found
                ],
            )
        )
    else:
        click.echo("No entries." + _hint(place, principal), err=True)


def _hint(place: TaskPlace, principal: str | None) -> str:
    """A hint, if the name of a principal lacks its prefix: `key:bob` for `bob`."""
    if principal is None or ":" in principal or principal == "anonymous":
        return ""
    meant = [f"{kind}:{principal}" for kind in ("key", "operator")]
    there = [name for name in meant if at_records(place, partial(_has_entries, name))]
    return f" A principal's name begins with its kind: did you mean {' or '.join(there or meant[:1])}?"


async def _has_entries(principal: str, store: "StoredRecords") -> bool:
    return bool(await store.audit.read(principal=principal, limit=1))


def _fields(entry: "AuditEntry") -> dict[str, object]:
    """The entry's fields for JSON, without empty ones."""
    import msgspec

    said: dict[str, object] = msgspec.to_builtins(entry)
    return {name: value for name, value in said.items() if name != "at_ms" and value != ""}


def _since_ms(text: str, now_ms: int) -> int:
    from dragoman.config.settings import DURATION

    try:
        age = DURATION.parse(text)
        if age is not None:
            return now_ms - int(age.total_seconds() * 1000)
    except ValueError:
        pass  # no age, so it must be a time
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--since {text!r}: must be an age like 90s, 1h or 7d, or a time like 2026-11-20 or 2026-11-20T07:00"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
