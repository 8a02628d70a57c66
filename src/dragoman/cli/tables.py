"""The output of operators' commands: its form, tables, and values for people.

Invariant: no text of callers or agents moves the cursor of a terminal.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from dragoman.cli.command import shared_option

OUTPUT = "Output"
"""The section of the help for the options of the output."""

output = shared_option(
    OUTPUT,
    *("-o", "--output", "form"),
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Output format.",
)
"""The flag for the form of the output."""


def json_flag(shape: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds `-o json`, and `--json` for the same; the command is called with `as_json`.

    `shape` is what the command prints then.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def formed(*given: Any, form: str, as_json: bool, **rest: Any) -> Any:
            return command(*given, as_json=as_json or form == "json", **rest)

        short = shared_option(OUTPUT, "--json", "as_json", is_flag=True, help=f"Print {shape}, like -o json.")
        return output(short(formed))

    return add


def print_json(found: object) -> None:
    """Print a JSON document on several lines."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def print_line(found: object) -> None:
    """Print JSON on one line."""
    import msgspec

    click.echo(msgspec.json.encode(found).decode())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format `rows` below `head`, without trailing blanks."""
    lines = [head, *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def count(number: int, noun: str) -> str:
    """`1 task`, `1,200 tasks`, `2 entries of the trail`: of a phrase, the word before `of` changes."""
    if number == 1:
        return f"1 {noun}"
    one, of, rest = noun.partition(" of ")
    many = f"{one[:-1]}ies" if one.endswith("y") and one[-2] not in "aeiou" else f"{one}s"
    return f"{number:,} {many}{of}{rest}"


def print_faults(faults: Sequence[str]) -> None:
    """Print a line for each fault of a store, and on stderr where to read on about damaged tasks."""
    for fault in faults:
        click.echo(fault)
    if any(fault.startswith("damaged: task ") for fault in faults):
        click.echo(
            "`dragoman admin tasks show ID` shows how a damaged task stands; docs/operations.md says what to do.",
            err=True,
        )


def moment(ms: int | None) -> str:
    """Format a time in UTC to the second; `-` for None."""
    from dragoman.model.ids import timestamp

    return "-" if ms is None else timestamp(ms)[:19] + "Z"


def second(timestamp: str | None) -> str:
    """A timestamp to the second; `-` for None."""
    return "-" if timestamp is None else f"{timestamp[:19]}Z"


def age(age_s: float) -> str:
    """An age in its largest unit: `42s`, `15m`, `3h`, `2d`."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if age_s >= length_s:
            return f"{int(age_s // length_s)}{unit}"
    return f"{int(age_s)}s"


def printable(text: str) -> str:
    """The text in one line, without control characters."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _cell(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text) or "-"
