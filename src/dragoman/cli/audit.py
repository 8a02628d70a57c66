"""`dragoman audit`: show who did what and when, and what was refused.

Invariant: it only reads.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.records import PAGE, StoredRecords, at_records
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.arguments import WholeNumber, parse_key_id
from dragoman.cli.tables import json_flag, moment, table

if TYPE_CHECKING:
    from dragoman.store.audit import AuditEntry, AuditFilter

HEAD = ("AT", "PRINCIPAL", "KEY", "ACTION", "AGENT", "TASK", "SUBJECT", "FROM", "OUTCOME")


@click.command()
@click.option("--principal", metavar="P", help="Only actions of this principal, such as key:ann or operator:root.")
@click.option("--key", metavar="ID", help="Only actions with the key of this id, not with others of its name.")
@click.option(
    "--action", metavar="A", help="Only this action, such as SendMessage or keys.create, or keys for all of these."
)
@click.option("--agent", metavar="ID", help="Only actions on this agent.")
@click.option(
    "--text", metavar="T", help="Only entries with this text in any field, such as a task, an address or a key's id."
)
@click.option("--refused", is_flag=True, help="Only refused actions.")
@click.option(
    "--since", metavar="WHEN", help="Only since then: an age like 1h or 7d, or a time like 2026-11-20T07:00 (UTC)."
)
@click.option("--until", metavar="WHEN", help="Only before then.")
@click.option("--limit", type=WholeNumber(1, 1_000_000), default=100, show_default=True, help="Show the newest N.")
@click.option(
    "--cursor", type=WholeNumber(1), metavar="C", help="Show those before the ones that an earlier call showed."
)
@click.option("--all", "everything", is_flag=True, help="Show all, however many there are.")
@json_flag("JSON lines")
@with_server
def audit(
    place: TaskPlace,
    principal: str | None,
    key: str | None,
    action: str | None,
    agent: str | None,
    text: str | None,
    refused: bool,
    since: str | None,
    until: str | None,
    limit: int,
    cursor: int | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show who did what, oldest first, also while the server runs.

    The settings audit and audit_retention determine what is kept, and for how long. See docs/keys.md.
    """
    from dragoman.model.ids import SystemClock
    from dragoman.store.audit import AuditFilter

    if everything and cursor is not None:
        raise click.UsageError("--cursor: goes without --all, which begins with the oldest")
    now_ms = SystemClock().now_ms()
    wanted = AuditFilter(
        principal=principal,
        key=None if key is None else parse_key_id(key),
        action=action,
        agent=agent,
        text=text,
        refused=refused,
        since_ms=0 if since is None else _moment_ms("--since", since, now_ms),
        until_ms=None if until is None else _moment_ms("--until", until, now_ms),
    )
    shown = _Shown(as_json)
    if everything:
        at_records(place, lambda store: _show_all(store, wanted, shown))
        older = None
    else:
        older = at_records(place, lambda store: _show_newest(store, wanted, limit, cursor, shown))
    if not shown.count:
        click.echo("No entries." + _hint(place, principal), err=True)
    elif older is not None:
        click.echo(f"There are older ones: continue with --cursor {older}, or show --all.", err=True)


class _Shown:
    """Shows entries as they come, and counts them."""

    def __init__(self, as_json: bool) -> None:
        self.count = 0
        self._as_json = as_json

    def show(self, entries: "Sequence[AuditEntry]") -> None:
        """Show some. The head of the table is above the first."""
        import msgspec

        from dragoman.model.ids import timestamp

        if self._as_json:
            for entry in entries:
                click.echo(msgspec.json.encode({"at": timestamp(entry.at_ms), **_fields(entry)}).decode())
        elif entries:
            lines = table(HEAD, list(map(_row, entries)))
            click.echo(lines.partition("\n")[2] if self.count else lines)
        self.count += len(entries)


async def _show_all(store: "StoredRecords", wanted: "AuditFilter", shown: _Shown) -> None:
    """Show all entries that fit, page by page."""
    page = await store.audit.page(wanted, PAGE, forward=True)
    shown.show(page.entries)
    while page.next_cursor is not None:
        page = await store.audit.page(wanted, PAGE, page.next_cursor, forward=True)
        shown.show(page.entries)


async def _show_newest(
    store: "StoredRecords", wanted: "AuditFilter", limit: int, cursor: int | None, shown: _Shown
) -> int | None:
    """Show the newest entries that fit, or those before a cursor. Returns the cursor of older ones, if there are."""
    pages: list[Sequence[AuditEntry]] = []
    left = limit
    while left:
        page = await store.audit.page(wanted, min(PAGE, left), cursor)
        pages.append(page.entries)
        left -= len(page.entries)
        cursor = page.next_cursor
        if cursor is None:
            break
    shown.show([entry for entries in reversed(pages) for entry in entries])
    if cursor is None or not (await store.audit.page(wanted, 1, cursor)).entries:
        return None
    return cursor


def _row(entry: "AuditEntry") -> tuple[str, ...]:
    return (
        moment(entry.at_ms),
        entry.principal,
        entry.key,
        entry.action,
        entry.agent,
        entry.task_id,
        entry.subject,
        entry.peer,
        "allowed" if entry.allowed else f"refused: {entry.reason}",
    )


def _hint(place: TaskPlace, principal: str | None) -> str:
    """A hint, if the name of a principal lacks its prefix: `key:bob` for `bob`."""
    if principal is None or ":" in principal or principal == "anonymous":
        return ""
    meant = [f"{kind}:{principal}" for kind in ("key", "operator")]
    there = [name for name in meant if at_records(place, partial(_has_entries, name))]
    return f" A principal's name begins with its kind: did you mean {' or '.join(there or meant[:1])}?"


async def _has_entries(principal: str, store: "StoredRecords") -> bool:
    from dragoman.store.audit import AuditFilter

    return bool((await store.audit.page(AuditFilter(principal=principal), 1)).entries)


def _fields(entry: "AuditEntry") -> dict[str, object]:
    """The entry's fields for JSON, without empty ones."""
    import msgspec

    said: dict[str, object] = msgspec.to_builtins(entry)
    return {name: value for name, value in said.items() if name != "at_ms" and value != ""}


def _moment_ms(flag: str, text: str, now_ms: int) -> int:
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
            f"{flag} {text!r}: must be an age like 90s, 1h or 7d, or a time like 2026-11-20 or 2026-11-20T07:00"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
