"""`dragoman audit`: show who did what and when, and what was refused.

Invariant: it only reads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins
from msgspec.structs import replace

from dragoman.admin.question import Column
from dragoman.cli.admin.completion import complete_agents, complete_keys
from dragoman.cli.admin.server import Desk, TaskPlace, finish, read_pages, with_server
from dragoman.cli.arguments import parse_key_id
from dragoman.cli.command import Command
from dragoman.cli.listing import Listing, lists, read_cursor

if TYPE_CHECKING:
    from dragoman.admin.audit import AuditLine, AuditQuery

PAGE = 10_000
"""The most entries that are asked for at once."""

COLUMNS = (
    *(Column("AT", "at", "moment"), Column("PRINCIPAL", "principal"), Column("KEY", "key"), Column("ACTION", "action")),
    *(Column("AGENT", "agent"), Column("TASK", "task_id"), Column("SUBJECT", "subject"), Column("FROM", "peer")),
    Column("OUTCOME", "allowed"),
)

FIELDS = ("at", "principal", "action", "agent", "task_id", "allowed", "reason", "peer", "subject", "key")
"""The members of an entry in JSON. An entry leaves out those that are empty."""

WORDS: Mapping[str, Callable[[Any], str]] = {
    "allowed": lambda entry: "allowed" if entry["allowed"] else f"refused: {entry['reason']}",
}


@click.command(cls=Command)
@click.option("--principal", metavar="P", help="Only actions of this principal, such as key:ann or operator:root.")
@click.option(
    "--key",
    metavar="ID",
    shell_complete=complete_keys,
    help="Only actions with the key of this id, not with other keys of its name.",
)
@click.option(
    "--action", metavar="A", help="Only this action, such as SendMessage or keys.create; keys stands for all keys.*."
)
@click.option("--agent", metavar="ID", shell_complete=complete_agents, help="Only actions on this agent.")
@click.option(
    "--text", metavar="T", help="Only entries with this text in any field, such as a task, an address or a key's id."
)
@click.option("--refused", is_flag=True, help="Only refused actions.")
@click.option("--changes", is_flag=True, help="Only changes and refusals, not what was only read.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Only actions since then: an age like 1h or 7d, or a time like 2026-11-20T07:00 (UTC).",
)
@click.option("--until", metavar="WHEN", help="Only actions before then.")
@click.option("--all", "everything", is_flag=True, help="Show all actions, however many there are.")
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
    changes: bool,
    since: str | None,
    until: str | None,
    everything: bool,
    limit: int,
    cursor: str,
) -> Iterator[Listing]:
    """Show who did what, oldest first, also while the server runs.

    The newest entries are shown, and --cursor leads to older ones. The settings audit and audit_retention determine
    what is kept, and for how long. See docs/keys.md.

    Examples:
      dragoman audit --refused --since 1h
      dragoman audit --action keys -o json
    """
    from dragoman.admin.audit import AuditQuery
    from dragoman.model.ids import SystemClock

    if everything and cursor:
        raise click.UsageError("--cursor: goes without --all, which begins with the oldest")
    read_cursor(cursor, 1)
    now_ms = SystemClock().now_ms()
    wanted = AuditQuery(
        principal=principal,
        key=None if key is None else parse_key_id(key),
        action=action,
        agent=agent,
        text=text,
        refused=refused,
        reads=not changes,
        since_ms=0 if since is None else _moment_ms("--since", since, now_ms),
        until_ms=None if until is None else _moment_ms("--until", until, now_ms),
        limit=PAGE,
        cursor=cursor,
        forward=everything,
    )
    if everything:
        return _all(place, wanted)
    rows, older = finish(lambda: place.at_desk(lambda desk: _newest(desk, wanted, limit)))
    return iter([_listing(place, wanted, rows, older)])


def _listing(place: TaskPlace, wanted: "AuditQuery", rows: "Sequence[AuditLine]", older: str = "") -> Listing:
    empty = "" if rows else "No entries." + _hint(place, wanted.principal)
    fields = [_fields(entry) for entry in rows]
    return Listing(
        rows=fields,
        columns=COLUMNS,
        words=WORDS,
        name="at",
        lines=True,
        next_cursor=older,
        empty=empty,
        fields=FIELDS,
    )


def _all(place: TaskPlace, wanted: "AuditQuery") -> Iterator[Listing]:
    """All entries that fit, page by page."""
    from dragoman.admin.audit import LIST_AUDIT

    query: AuditQuery | None = wanted
    while query is not None:
        page = place.ask(LIST_AUDIT, query)
        if page.entries or query is wanted:
            yield _listing(place, wanted, page.entries)
        query = LIST_AUDIT.next_page(query, page)


async def _newest(desk: Desk, wanted: "AuditQuery", limit: int) -> "tuple[Sequence[AuditLine], str]":
    """The newest entries that fit, or those before a cursor, and the cursor of older ones; empty if there are none."""
    from dragoman.admin.audit import LIST_AUDIT

    pages, older = await read_pages(desk, LIST_AUDIT, wanted, limit)
    found = [entry for entries in reversed(pages) for entry in entries]
    if older is None or not (await desk.answer(LIST_AUDIT, replace(older, limit=1))).entries:
        return found, ""
    return found, older.cursor


def _hint(place: TaskPlace, principal: str | None) -> str:
    """A hint, if the name of a principal lacks its prefix: `key:bob` for `bob`."""
    if principal is None or ":" in principal or principal == "anonymous":
        return ""
    from dragoman.admin.audit import LIST_AUDIT, AuditQuery

    meant = [f"{kind}:{principal}" for kind in ("key", "operator")]
    there = [name for name in meant if place.ask(LIST_AUDIT, AuditQuery(principal=name, limit=1)).entries]
    return f" A principal's name begins with its kind: did you mean {' or '.join(there or meant[:1])}?"


def _fields(entry: "AuditLine") -> dict[str, Any]:
    """The entry's fields, without empty ones. The task is the member `task_id`, as ever."""
    said = {**to_builtins(entry), "task_id": entry.task}
    return {name: said[name] for name in FIELDS if said[name] != ""}


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
