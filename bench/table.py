"""The one table of the benchmark: what was measured, what is promised, and whether it is met.

Pure: rows and measured values in, Markdown out. The promises themselves are in `rows.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from plan import Promise, Row
from servers import AGAINST

# kind → figure → one value a round
Kinds = Mapping[str, Mapping[str, Sequence[float]]]
# by the name of the row
Results = Mapping[str, Kinds]

# Shares of its core above which the load generator, not the server, may be what the figure shows.
BUSY_LIMIT = 0.9

HEAD = ("what", "measured", "promised")


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    space = " " if unit[:1].isalpha() else ""
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}") + space + unit


def markdown(rows: Sequence[Row], results: Results) -> str:
    """A line for each row with a promise or a figure to show. A missed promise is bold, a row without values a dash."""
    lines = [HEAD, *(line(row, results.get(row.name, {})) for row in rows if row.promises)]
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(HEAD))]
    padded = (" | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in lines)
    head, *body = (f"| {cells} |" for cells in padded)
    return "\n".join((head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body))


def line(row: Row, kinds: Kinds) -> tuple[str, str, str]:
    """The cells of one row."""
    shown = [cell(promise, row, kinds) for promise in row.promises]
    bounds = [bound(promise) for promise in row.promises]
    return row.title, "; ".join(shown), bounds[0] if len(set(bounds)) == 1 else "; ".join(bounds)


def cell(promise: Promise, row: Row, kinds: Kinds) -> str:
    """What was measured for one promise: `8.6× (6,640/s)`, `24 KB (sdk 95 KB)`, or bold if that misses its bound."""
    own = ours(promise, row, kinds)
    theirs = median(kinds, promise.to or promise.beside, promise.figure)
    value = compared(promise, row, kinds)
    if own is None or value is None:
        return "–"
    text = number(value, "×" if promise.to else promise.unit)
    if not promise.met(value):
        text = f"**{text}**"
    if promise.to and promise.unit != "×":
        return f"{text} ({number(own, promise.unit)})"
    if promise.beside and theirs is not None:
        return f"{text} ({promise.beside} {number(theirs, promise.unit)})"
    return text


def bound(promise: Promise) -> str:
    if promise.bound is None:
        return "–"
    return ("≥ " if promise.least else "≤ ") + number(promise.bound, "×" if promise.to else promise.unit)


def ours(promise: Promise, row: Row, kinds: Kinds) -> float | None:
    return median(kinds, promise.kind or row.kinds[0], promise.figure)


def compared(promise: Promise, row: Row, kinds: Kinds) -> float | None:
    """The value that is bounded: our figure, or its ratio to that of the other kind. None if one was not measured."""
    own = ours(promise, row, kinds)
    if not promise.to:
        return own
    other = median(kinds, promise.to, promise.figure)
    return own / other if own is not None and other else None


def missed(rows: Sequence[Row], results: Results) -> list[str]:
    """The promises of measured rows that are not met, or for which a value is missing."""
    told = []
    for row in (row for row in rows if row.name in results):
        for promise in row.promises:
            value = compared(promise, row, results[row.name])
            if promise.bound is not None and (value is None or not promise.met(value)):
                told.append(f"{row.name}: {promise.figure} {cell(promise, row, results[row.name])}, {bound(promise)}")
    return told


def median(kinds: Kinds, kind: str, figure: str) -> float | None:
    values = kinds.get(kind, {}).get(figure, ())
    return statistics.median(values) if values else None


def changes(results: Results) -> str:
    """Each figure of Dragoman to that of the other tree: the medians, their ratio, and the ratio in each round."""
    lines = ["| row | server | figure | ours | other | ratio | each round |", "|---|---|---|---|---|---|---|"]
    for row, kinds in results.items():
        for kind, figures in kinds.items():
            others = kinds.get(kind + AGAINST, {})
            for figure in (name for name in figures if others.get(name)):
                pairs = zip(figures[figure], others[figure], strict=False)
                ratios = " ".join(number(ours / theirs) for ours, theirs in pairs if theirs)
                ours, theirs = statistics.median(figures[figure]), statistics.median(others[figure])
                ratio = number(ours / theirs if theirs else None, "×")
                lines.append(f"| {row} | {kind} | {figure} | {number(ours)} | {number(theirs)} | {ratio} | {ratios} |")
    return "\n".join(lines)


def details(results: Results) -> list[str]:
    """Every figure of every row with its spread, for reading behind the table."""
    told = []
    for row, kinds in results.items():
        for kind, figures in kinds.items():
            parts = []
            for figure, values in figures.items():
                spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
                parts.append(f"{figure} {number(statistics.median(values))}{spread}")
            warning = "  ← the generator was the limit" if max(figures.get("busy", (0,))) > BUSY_LIMIT else ""
            told.append(f"{row:8} {kind:16} " + ", ".join(parts) + warning)
    return told
