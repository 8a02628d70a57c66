"""The comparison: other systems by their own words, beside Dragoman. The rows are those of `comparison.txt`.

`@ NAME DATE URL` names a source and the date of the copy that was read. `# ` begins a section; a line without
indentation is the title of a row; below it stands `COLUMN: cell` for each column. `[text](NAME:path)` is a link to a
source, and its date is put behind the cell.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import groupby

from dragoman.cli.topics.table import Section, TopicTable

SOURCE = re.compile(r"\]\(([a-z0-9-]+):(?!//)")
CELL = re.compile(r"^ {4}([^:]+): (.+)$")


def make_table() -> TopicTable:
    """Make the table: a section has its own columns, and each cell is prose."""
    text = (files(__package__) / "comparison.txt").read_text(encoding="utf-8")
    sources: dict[str, tuple[str, str]] = {}
    title, sections = "", dict[str, list[dict[str, str]]]()
    for filled, lines in groupby(text.splitlines(), key=bool):
        if not filled:
            continue
        first, *rest = lines
        if first.startswith("@ "):
            for line in (first, *rest):
                _, name, date, url = line.split(" ")
                sources[name] = (date, url)
        elif first.startswith("# "):
            title = first[2:]
        else:
            sections.setdefault(title, []).append({"": first, **dict(_cells(rest, sources))})
    return TopicTable((), tuple(_section(title, rows) for title, rows in sections.items()))


def _section(title: str, rows: list[dict[str, str]]) -> Section:
    """Raises KeyError if a row lacks a column of the first row."""
    columns = tuple(rows[0])
    return Section(title, tuple(tuple(row[column] for column in columns) for row in rows), columns)


def _cells(lines: list[str], sources: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The cells of a row by column; a line that is indented further continues the one before."""
    for line in "\n".join(lines).replace("\n      ", " ").splitlines():
        found = CELL.fullmatch(line)
        assert found is not None, line
        column, cell = found.groups()
        dates = sorted({sources[name][0] for name in SOURCE.findall(cell)})
        shown = SOURCE.sub(lambda link: f"]({sources[link[1]][1]}", cell)
        yield column, f"{shown} ({' to '.join(dates[:1] + dates[1:][-1:])})" if dates else shown
