"""Lists: rows of named columns, in every form of output, once or again and again.

Invariant: every list has `-o text|json|jsonl|csv|name`, `--fields`, `--limit`, `--cursor` and `--watch`, with the same
meaning. A field has one name in all of them: that of the member of a row in JSON. No text of callers or agents moves
the cursor of a terminal, or is a formula for a spreadsheet.
"""

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

import click
from msgspec import Struct, to_builtins

from dragoman.admin.question import Answer, AnyQuestion, Column, Question
from dragoman.cli.arguments import Seconds, WholeNumber
from dragoman.cli.command import shared_option
from dragoman.cli.old_names import tell_new_name
from dragoman.cli.tables import OUTPUT, age, print_json, print_line, printable, second, table

FORMS = ("text", "json", "jsonl", "csv", "name")

INTERVAL_S = 2.0
"""The seconds between two looks of `--watch`."""

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would take for a formula."""


class Listing(Struct, frozen=True, kw_only=True):
    """The rows that a command found: structs, or mappings with the same members.

    `columns` are those of the text, where `words` puts what a row has in a field into words. A `footer` is a last row
    of the text, and another table may stand `below` it. `name` is the field of `-o name`. `document` is what `-o json`
    prints, with the rows in its member `member`: an array of rows without a document, JSON lines with `lines`.
    `next_cursor` continues the list; empty at its end. `empty` is told on stderr instead of a table without rows, and
    `remarks` after the rows. `fields` are those of csv, unless the user chooses some; all without. `members` are the
    names that a row would have, for a list without rows.
    """

    rows: Sequence[Any]
    columns: Sequence[Column]
    words: Mapping[str, Callable[[Any], str]] = {}
    footer: Any = None
    below: str = ""
    name: str = "id"
    member: str = ""
    document: Any = None
    lines: bool = False
    next_cursor: str = ""
    empty: str = "There are none."
    remarks: Sequence[str] = ()
    fields: Sequence[str] = ()
    members: Sequence[str] = ()


def list_rows(question: AnyQuestion, rows: Sequence[Any], **more: Any) -> Listing:
    """Rows with the columns of their question; `more` are other fields of the listing."""
    members = () if rows else question.line_members()
    given = {"empty": question.none, "members": members} | more
    return Listing(rows=rows, columns=question.columns, member=question.lines, **given)


def rows_of(question: Question[Any, Answer], answer: Answer, **more: Any) -> Listing:
    """The lines of an answer that has all of them."""
    return list_rows(question, getattr(answer, question.lines), document=answer, **more)


Found = Listing | Iterator[Listing]
"""The result of a command: one listing, or several in order. If any has rows, the first has."""


def lists(
    *, limit: int | None, most: int = 1_000_000, cut: bool = False, json_too: bool = False, table_too: bool = False
) -> Callable[[Callable[..., Found]], Callable[..., None]]:
    """A decorator that adds the options of lists to a command, and prints the listing that it returns.

    The command is called with `limit`, at most `most`, and `cursor`, an empty text without one. With `cut` it returns
    all rows, and the list is cut here: its cursor counts the rows before. Options of earlier versions are `--json`
    (`json_too`) and `-o table` (`table_too`).
    """

    def add(command: Callable[..., Found]) -> Callable[..., None]:
        @wraps(command)
        def listed(
            form: str,
            fields: str | None,
            limit: int | None,
            cursor: str,
            watch: bool,
            interval_s: float | None,
            as_json: bool = False,
            **given: Any,
        ) -> None:
            if interval_s is not None and not watch:
                raise click.UsageError("--interval: goes with --watch")
            if form == "table":
                tell_new_name("-o table", "-o text")
            form = "json" if as_json else "text" if form == "table" else form
            chosen = [] if fields is None else [name for name in fields.split(",") if name]

            def look() -> Iterator[Listing]:
                found = command(**given) if cut else command(limit=limit, cursor=cursor, **given)
                for each in (found,) if isinstance(found, Listing) else found:
                    yield _cut(each, limit, cursor) if cut else each

            if not watch:
                _print_all(look(), form, chosen)
            elif form == "text" and sys.stdout.isatty():
                repeat_in_place(lambda: "\n".join(_screen(each, chosen) for each in look()), interval_s)
            else:
                repeat(lambda: _print_all(look(), form, chosen), interval_s)

        short = (
            [shared_option(OUTPUT, "--json", "as_json", is_flag=True, help="Print JSON, like -o json.")]
            if json_too
            else []
        )
        forms = (*FORMS, "table") if table_too else FORMS
        options = (
            shared_option(
                OUTPUT,
                *("-o", "--output", "form"),
                type=click.Choice(forms),
                default="text",
                show_default=True,
                metavar="FORMAT",
                help=f"Output format: {', '.join(FORMS)}. name prints only names, one a line.",
            ),
            *short,
            shared_option(
                OUTPUT,
                "--fields",
                metavar="NAMES",
                help="Show only these fields: their names in JSON, separated by commas.",
            ),
            shared_option(
                OUTPUT,
                "--limit",
                type=WholeNumber(1, most),
                default=limit,
                metavar="N",
                help=f"Show at most N rows.  [default: {limit or 'all'}]",
            ),
            shared_option(
                OUTPUT, "--cursor", default="", metavar="C", help="Continue after an earlier call, which printed C."
            ),
            watch_options,
        )
        result: Any = listed
        for option in reversed(options):
            result = option(result)
        done: Callable[..., None] = result
        return done

    return add


def watch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--watch` and `--interval`; the command is called with `watch` and `interval_s`."""
    interval = shared_option(
        OUTPUT,
        "--interval",
        "interval_s",
        type=Seconds(0.2, 3600),
        metavar="S",
        help=f"With --watch: seconds between two looks.  [default: {INTERVAL_S:g}]",
    )
    watch = shared_option(OUTPUT, "--watch", is_flag=True, help="Refresh until Ctrl-C, on a terminal in place.")
    return watch(interval(command))


def repeat(look: Callable[[], Any], interval_s: float | None) -> None:
    """Call `look` until Ctrl-C."""
    from time import monotonic, sleep

    try:
        while True:
            began_s = monotonic()
            look()
            sleep(max(0.0, began_s + (interval_s or INTERVAL_S) - monotonic()))
    except KeyboardInterrupt:
        return


def repeat_in_place(look: Callable[[], str], interval_s: float | None) -> None:
    """Show the text that `look` returns in place on the terminal, until Ctrl-C. The terminal is left as it was."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False) as screen:
        repeat(lambda: screen.update(Text(look()), refresh=True), interval_s)


def read_cursor(cursor: str, least: int = 0) -> int:
    """A cursor that is a number, at least `least`; 0 without one. Raises UsageError."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 16 and int(cursor) >= least):
        raise click.UsageError(f"--cursor {cursor!r}: is none that an earlier call showed")
    return int(cursor)


def _cut(listing: Listing, limit: int | None, cursor: str) -> Listing:
    """The rows from the place that `cursor` counts, at most `limit`."""
    from msgspec.structs import replace

    first = read_cursor(cursor)
    end = len(listing.rows) if limit is None else first + limit
    shown = tuple(listing.rows[first:end])
    if len(shown) == len(listing.rows):
        return listing
    more = str(end) if end < len(listing.rows) else ""
    document = listing.document
    if document is not None:
        document = replace(document, **{listing.member: shown})
    empty = "There are no more." if first else listing.empty
    return replace(listing, rows=shown, next_cursor=more, document=document, footer=None, below="", empty=empty)


def _print_all(found: Iterator[Listing], form: str, chosen: Sequence[str]) -> None:
    for number, listing in enumerate(found):
        _print(listing, form, chosen, head=not number)


def _print(listing: Listing, form: str, chosen: Sequence[str], *, head: bool) -> None:
    """Print the rows in a form, with the head above them if that has one, and on stderr how the list goes on."""
    rows = [_members(row) for row in listing.rows]
    known = _known_fields(listing, rows)
    for name in chosen if rows or listing.members else ():
        if name not in known:
            raise click.UsageError(f"--fields {name!r}: there are {', '.join(known)}")
    if form == "text":
        if listing.rows:
            text = rows_text(listing, chosen)
            click.echo(text if head else text.partition("\n")[2])
        else:
            click.echo(listing.empty, err=True)
    elif form == "csv":
        text = _csv(rows, chosen or listing.fields or known)
        click.echo(text if head else text.partition("\n")[2], nl=False)
    elif form == "name":
        for row in rows:
            click.echo(printable(str(row[listing.name])))
    else:
        _print_json(listing, [_only(row, chosen) for row in rows], chosen, lines=form == "jsonl" or listing.lines)
    for remark in listing.remarks if form in ("text", "csv") else ():
        click.echo(remark, err=True)
    in_document = form == "json" and listing.document is not None and _members(listing.document).get("next_cursor")
    if listing.next_cursor and in_document != listing.next_cursor:
        click.echo(f"There are more: continue with --cursor {listing.next_cursor}.", err=True)


def _print_json(listing: Listing, rows: Sequence[Any], chosen: Sequence[str], *, lines: bool) -> None:
    if lines:
        for row in rows:
            print_line(row)
        return
    document: Any = rows
    if listing.document is not None:
        document = to_builtins(listing.document)
        if chosen:
            document[listing.member] = rows
    print_json(document)


def rows_text(listing: Listing, chosen: Sequence[str] = ()) -> str:
    """The rows as a table; empty without rows."""
    by_field = {column.field: column for column in listing.columns}
    columns = [by_field.get(name, Column(name.upper(), name)) for name in chosen] if chosen else listing.columns
    rows = list(listing.rows) if listing.footer is None else [*listing.rows, listing.footer]
    cells = []
    for row in rows:
        members = _members(row)
        cells.append([_in_words(listing, row, members, column) for column in columns])
    text = table([column.head for column in columns], cells) if rows else ""
    return f"{text}\n\n{listing.below}" if rows and listing.below and not chosen else text


def _screen(listing: Listing, chosen: Sequence[str]) -> str:
    """The rows, or that there are none, and the remarks."""
    return "\n".join([rows_text(listing, chosen) or listing.empty, *listing.remarks])


def _in_words(listing: Listing, row: Any, members: Mapping[str, Any], column: Column) -> str:
    if column.field in listing.words:
        return listing.words[column.field](row)
    value = members.get(column.field)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is not None and column.spelling == "age":
        return age(value)
    return second(value) if column.spelling == "moment" else _plain(value)


def _csv(rows: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(fields)
    for row in rows:
        writer.writerow([_csv_cell(row.get(name)) for name in fields])
    return out.getvalue()


def _csv_cell(value: Any) -> str:
    """A value in one line. A text is never a formula, for a caller or an agent may have written it."""
    shown = printable(_plain(value))
    return f"'{shown}" if isinstance(value, str) and shown.startswith(FORMULAS) else shown


def _plain(value: Any) -> str:
    """A value of JSON as text: `a,b` for an array of texts, nothing for null."""
    import msgspec

    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return msgspec.json.encode(value).decode()


def _members(row: Any) -> Mapping[str, Any]:
    return row if isinstance(row, Mapping) else to_builtins(row)


def _only(row: Mapping[str, Any], chosen: Sequence[str]) -> Mapping[str, Any]:
    return {name: row.get(name) for name in chosen} if chosen else row


def _known_fields(listing: Listing, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The names that rows have or would have, and those of the columns."""
    of_rows = [name for row in rows[:1] for name in row]
    return list(dict.fromkeys([*of_rows, *listing.members, *listing.fields, *(each.field for each in listing.columns)]))
