"""The page of promises: `docs/performance.md` with the table of the figures in `bench/figures.json`.

The figures are kept by row, each with where and how it was measured, so that a run of some rows replaces just these.

`python bench/page.py` writes the table again after a change of a promise or a title; with `--check` it only says
whether the page is as it would be written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import table
from rows import ROWS

HERE = Path(__file__).parent
FIGURES = HERE / "figures.json"
PAGE = HERE.parent / "docs/performance.md"
BEGIN, END = "<!-- written by make bench -->\n", "<!-- end -->\n"


def keep(results: table.Results, measured: Mapping[str, str]) -> None:
    """Keep the figures of these rows, with where and how they were `measured`, and write the page."""
    kept = load() | {row: {**measured, "kinds": kinds} for row, kinds in results.items()}
    known = [row.name for row in ROWS if row.name in kept]
    # A row is a line, so that two runs of different rows merge.
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(_rounded(kept[name]))}" for name in known)
    FIGURES.write_text(f"{{\n{lines}\n}}\n")
    PAGE.write_text(page())


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return found


def page() -> str:
    """The page as it has to be: its own text around the table of the kept figures."""
    kept = load()
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    written = table.markdown(ROWS, {row: one["kinds"] for row, one in kept.items()})
    return f"{head}{BEGIN}{written}\n\n{said(kept)}\n{END}{tail}"


def said(kept: Mapping[str, Any]) -> str:
    """When and how the figures were measured, one sentence for each way; all but the commonest name their rows."""
    ways: dict[str, dict[str, list[str]]] = {}
    for row, one in kept.items():
        way = f"{one['seconds']:g} s a measurement, rounds: {one['rounds']}, on {one['machine']}."
        ways.setdefault(way, {}).setdefault(one["on"], []).append(f"`{row}`")
    sentences: list[str] = []
    for way, days in sorted(ways.items(), key=lambda pair: -sum(map(len, pair[1].values()))):
        (day, rows), *others = sorted(days.items(), key=lambda pair: -len(pair[1]))
        first = f"{', '.join(rows)}: {day}" if sentences else f"Measured {day}"
        dated = [first, *(f"{', '.join(rows)}: {day}" for day, rows in others)]
        sentences.append(f"{'; '.join(dated)}, {way}")
    return " ".join(sentences)


def _rounded(value: Any) -> Any:
    """Five digits of every figure: more are noise."""
    match value:
        case float():
            return float(f"{value:.5g}")
        case dict():
            return {name: _rounded(inner) for name, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
        case _:
            return value


def main() -> int:
    if sys.argv[1:] != ["--check"]:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() == page():
        return 0
    print("the table in docs/performance.md is not that of bench/figures.json and bench/rows.py: run bench/page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
