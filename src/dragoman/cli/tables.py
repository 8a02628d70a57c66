"""Tables for a terminal, with columns as wide as their contents.

Invariant: cells are shown without control characters, so that no text moves the cursor.
"""

from collections.abc import Sequence

from dragoman.model.ids import timestamp


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format `rows` below `head`, without trailing blanks."""
    lines = [head, *([_printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def moment(ms: int | None) -> str:
    """Format a time in UTC to the second; `-` for None."""
    return "-" if ms is None else timestamp(ms)[:19] + "Z"


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text) or "-"
