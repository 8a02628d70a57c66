"""Writes the tables that pages of docs/ name, as Markdown, for the site: docs/ holds the prose and names the command.

A page names a table by the line that MARKER finds. A text after the topic chooses the rows that have it.
"""

import re
import sys
from pathlib import Path

from dragoman.cli.topics import load_table, search_table, to_markdown

MARKER = re.compile(r"^\*\*Table:\*\* `dragoman help ([a-z-]+)(?: ([^`]+))?`$", re.MULTILINE)


def table_of(topic: str, text: str) -> str:
    """The table as Markdown, or its rows that have the text."""
    return to_markdown(search_table(load_table(topic), text))


def main(target: Path) -> None:
    """Write each table that a page names to a file of that name below `target`."""
    target.mkdir(parents=True, exist_ok=True)
    for page in sorted((Path(__file__).resolve().parent.parent / "docs").rglob("*.md")):
        for topic, text in MARKER.findall(page.read_text(encoding="utf-8")):
            name = "-".join([topic, *text.split()])
            (target / f"{name}.md").write_text(table_of(topic, text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
