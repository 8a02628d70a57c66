"""`dragoman audit`: show who did what and when, and what was refused.

Invariant: it only reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dragoman.admin.question import Column
from dragoman.cli.admin.records import PAGE, StoredRecords, at_records
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.arguments import parse_key_id
from dragoman.cli.listing import Listing, lists, read_cursor

if TYPE_CHECKING:
    from dragoman.store.audit import AuditEntry, AuditFilter, AuditPage

COLUMNS = (
    *(Column("AT", "at", "moment"), Column("PRINCIPAL", "principal"), Column("KEY", "key"), Column("ACTION", "action")),
    *(Column("AGENT", "agent"), Column("TASK", "task_id"), Column("SUBJECT", "subject"), Column("FROM", "peer")),
    Column("OUTCOME", "allowed"),
)

FIELDS = ("at", "principal", "key", "action", "agent", "task_id", "subject", "peer", "allowed", "reason")
"""The members of an entry in JSON. An entry leaves out those that are empty."""

WORDS: Mapping[str, Callable[[Any], str]] = {
    "allowed": lambda entry: "allowed" if entry["allowed"] else f"refused: {entry['reason']}",
}


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
@click.option("--all", "everything", is_flag=True, help="Show all, however many there are.")
@lists(limit=100, json_too=True)
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
    everything: bool,
    limit: int,
    cursor: str,
) -> Iterator[Listing]:
    """Show who did what, oldest first, also while the server runs.

    The newest are shown, and --cursor leads to older ones. The settings audit and audit_retention determine what is
    kept, and for how long. See docs/keys.md.
    """
    from dragoman.model.ids import SystemClock
    from dragoman.store.audit import AuditFilter

    if everything and cursor:
        raise click.UsageError("--cursor: goes without --all, which begins with the oldest")
    before = read_cursor(cursor) or None
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
    if everything:
        return _all(place, wanted)
    rows, older = at_records(place, lambda store: _newest(store, wanted, limit, before))
    more = "" if older is None else str(older)
    return iter([_listing(place, wanted, rows, more)])


def _listing(place: TaskPlace, wanted: "AuditFilter", rows: "Sequence[AuditEntry]", older: str = "") -> Listing:
    empty = "" if rows else "No entries." + _hint(place, wanted.principal)
    fields = [_fields(entry) for entry in rows]
    return Listing(
        rows=fields, columns=COLUMNS, words=WORDS, name="at", lines=True, next_cursor=older, empty=empty, fields=FIELDS
    )


def _all(place: TaskPlace, wanted: "AuditFilter") -> Iterator[Listing]:
    """All entries that fit, page by page."""
    cursor: int | None = None
    while True:
        page = at_records(place, partial(_page_after, wanted, cursor))
        if page.entries or cursor is None:
            yield _listing(place, wanted, page.entries)
        cursor = page.next_cursor
        if cursor is None:
            return


async def _page_after(wanted: "AuditFilter", cursor: int | None, store: "StoredRecords") -> "AuditPage":
    return await store.audit.page(wanted, PAGE, cursor, forward=True)


async def _newest(
    store: "StoredRecords", wanted: "AuditFilter", limit: int, cursor: int | None
) -> "tuple[Sequence[AuditEntry], int | None]":
    """The newest entries that fit, or those before a cursor, and the cursor of older ones, if there are."""
    pages: list[Sequence[AuditEntry]] = []
    left = limit
    while left:
        page = await store.audit.page(wanted, min(PAGE, left), cursor)
        pages.append(page.entries)
        left -= len(page.entries)
        cursor = page.next_cursor
        if cursor is None:
            break
    found = [entry for entries in reversed(pages) for entry in entries]
    if cursor is None or not (await store.audit.page(wanted, 1, cursor)).entries:
        return found, None
    return found, cursor


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


def _fields(entry: "AuditEntry") -> dict[str, Any]:
    """The entry's fields, without empty ones."""
    import msgspec

    from dragoman.model.ids import timestamp

    said: dict[str, Any] = {"at": timestamp(entry.at_ms), **msgspec.to_builtins(entry)}
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
