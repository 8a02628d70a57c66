"""Reference tables: `dragoman help TOPIC` prints them, and the documentation's site shows them on its pages.

Invariant: a fact is in one place. A table is made from the code that it describes, or from a text file beside this
module that tests hold against the code. Cells are Markdown; their links are relative to the folder `docs`.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.resources import files
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from dragoman.cli.topics.table import Section, TopicTable

__all__ = ["TOPICS", "Section", "Topic", "TopicTable", "load_table", "search_table", "to_markdown", "to_text"]


class Topic(Struct, frozen=True):
    """A table. `columns` are those of a text file; without them the module of that name makes the table."""

    title: str
    columns: tuple[str, ...] = ()


TOPICS = {
    "admin-api": Topic("the requests of the admin API"),
    "admin-fields": Topic("the fields of answers of the admin API", ("Field", "Meaning")),
    "agent-keys": Topic("the keys of an [[agents]] table", ("Key", "Meaning")),
    "budget-keys": Topic("the keys of a [[budgets]] table", ("Key", "Default", "Meaning")),
    "chat-fields": Topic("the fields and headers of a chat completion", ("Field", "What becomes of it")),
    "client-calls": Topic("the calls, settings and errors of the Python client"),
    "commands": Topic("all commands"),
    "comparison": Topic("Dragoman beside other servers, gateways and workflow engines"),
    "context": Topic("what a skill can do with ctx"),
    "damaged-rows": Topic("what a damaged row of the store costs", ("Row", "What happens")),
    "dialects": Topic("the methods and error codes of the dialects", ("Method or code", "Dialect", "Meaning")),
    "doctor-checks": Topic("the checks of the doctor"),
    "doors": Topic("what clients can do through each protocol", ("Door", "What it can do")),
    "errors": Topic("the errors of A2A, with their codes"),
    "exit-statuses": Topic("the exit statuses of all commands"),
    "extensions": Topic("our extensions, which travel in metadata", ("URI", "Where it is, and its value")),
    "failures": Topic("what callers see when a part of a cluster fails", ("What happens", "What callers see")),
    "grpc": Topic("metadata and limits of gRPC", ("Name", "Meaning")),
    "kaos-calls": Topic("KAOS's calls in Python, and their errors"),
    "limits": Topic(
        "the limits of requests, callers and connections",
        ("Limit", "Default", "What is bounded, and what happens beyond it"),
    ),
    "log-lines": Topic("the lines of the server's log", ("Logger", "Line", "When")),
    "mcp": Topic("details of MCP, as a server and as a client", ("Case", "What happens")),
    "messages": Topic("the error messages of the server", ("Message", "Why, and what else helps")),
    "metrics": Topic("the metrics of /metrics", ("Metric", "Meaning")),
    "model-keys": Topic("the keys of an agent that is a model", ("Key", "Default", "Meaning")),
    "model-reasons": Topic("why a task of a model failed", ("Reason", "Meaning")),
    "openai-errors": Topic("the errors of chat completions and Responses"),
    "operations": Topic("the operations of A2A, with their names and paths"),
    "price-keys": Topic("the keys of the [prices] table", ("Key", "Meaning")),
    "profile-variables": Topic("the environment variables of profiles"),
    "program-keys": Topic("the keys of an agent that is a program, and how it runs", ("Key", "Default", "Meaning")),
    "responses-fields": Topic("the fields of a request of OpenAI's Responses", ("Field", "What becomes of it")),
    "settings": Topic("the settings of the server"),
    "spans": Topic("the spans and histograms of OpenTelemetry", ("Span or histogram", "Attributes", "What it is")),
    "store-options": Topic("the options in the URL of PostgreSQL", ("Option", "Default", "Meaning")),
    "task-reasons": Topic("why a task failed", ("Reason", "Meaning")),
    "team-keys": Topic("the keys of a [[teams]] table", ("Key", "Default", "Meaning")),
    "tool-keys": Topic("the keys of a model's [[agents.tools]]", ("Key", "Default", "Meaning")),
    "upstream-cases": Topic("what happens with an agent of another server", ("Case", "What happens")),
    "upstream-keys": Topic("the keys of an agent of another server", ("Key", "Default", "Meaning")),
    "upstream-reasons": Topic("why a task at another server failed", ("Reason", "Meaning")),
    "webhook-headers": Topic("the headers of a webhook delivery", ("Header", "Meaning")),
    "worker-api": Topic("the requests of workers"),
}
"""All topics by name."""

LINK = re.compile(r"\[([^\]]+)\]\([^)\s]+\)")
CODE = re.compile(r"(`+) ?(.+?) ?\1")
CLAUSE = re.compile(r"[:;,] ")
"""Where a part of a message ends that is often quoted alone."""

NARROW = 3
"""Names of at most so many characters stand before their meaning, on its line."""

LITERALS_MIN = 12
"""So many characters of a message have to be fixed for the message to be found by its form."""


def load_table(name: str) -> TopicTable:
    """Make the table of a topic. Raises KeyError if there is no such topic."""
    topic = TOPICS[name]
    if topic.columns:
        text = (files(__package__) / f"{name}.txt").read_text(encoding="utf-8")
        return TopicTable(topic.columns, tuple(_sections(text, len(topic.columns), literal=name == "messages")))
    made = import_module(f"{__package__}.{name.replace('-', '_')}").make_table()
    assert isinstance(made, TopicTable)
    return made


def search_table(table: TopicTable, text: str) -> TopicTable:
    """The rows that have `text` in them, in any case, and those of a section with `text` in its title.

    A section that sets a system called so beside others is shown with that system's column and the two first ones.
    A row of a message also fits if `text` has that message in it or, where nothing fits so, only its beginning.
    """
    for fits in (_fits, _fits_begun):
        found = (_search_section(section, text, fits) for section in table.sections)
        if sections := tuple(section for section in found if section.rows):
            return TopicTable(table.columns, sections)
    return TopicTable(table.columns, ())


def _search_section(section: Section, text: str, fits: Callable[[tuple[str, ...], str], bool]) -> Section:
    if text.casefold() in _plain(section.title).casefold():
        return section
    if others := [at for at, column in enumerate(section.columns) if at > 1 and text.casefold() in column.casefold()]:
        shown = (0, 1, *others)
        rows = tuple(tuple(row[at] for at in shown) for row in section.rows)
        return replace(section, rows=rows, columns=tuple(section.columns[at] for at in shown))
    return replace(section, rows=tuple(row for row in section.rows if fits(row, text)))


def to_markdown(table: TopicTable) -> str:
    """The table as Markdown, each section below its heading."""
    return "\n".join(
        (f"### {section.title}\n\n" if section.title else "")
        + _head(section.columns or table.columns)
        + "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n" for row in section.rows)
        for section in table.sections
    )


def to_text(table: TopicTable, width: int) -> str:
    """The table for a terminal of that width: the last column of each row is a paragraph below the others.

    In a section with columns of its own each cell is a paragraph that begins with its column's name.
    """
    return "\n\n".join(
        "\n\n".join(
            [
                *([section.title.upper()] if section.title else []),
                *(_side_by_side(section, width) if section.columns else _paragraphs(section.rows, width)),
            ]
        )
        for section in table.sections
    )


def _head(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"


def _side_by_side(section: Section, width: int) -> Iterator[str]:
    for title, *cells in section.rows:
        yield "\n".join(
            [
                textwrap.fill(_plain(title), width),
                *(
                    textwrap.fill(f"{column}: {_plain(cell)}", width, initial_indent="    ", subsequent_indent="      ")
                    for column, cell in zip(section.columns[1:], cells, strict=True)
                ),
            ]
        )


def _paragraphs(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    if all(len(row) == 2 and len(row[0]) <= NARROW for row in rows):
        yield "\n".join(f"{name:>{NARROW}}  {_plain(meaning)}" for name, meaning in rows)
        return
    for *names, meaning in rows:
        head = "  ".join(filter(None, map(_plain, names)))
        if len(names) > 1:  # a message or a call is one line, so that it can be searched for
            head = textwrap.fill(head, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        yield f"{head}\n{textwrap.fill(_plain(meaning), width, initial_indent='    ', subsequent_indent='    ')}"


def _plain(markdown: str) -> str:
    return CODE.sub(r"\2", LINK.sub(r"\1", markdown)).replace("**", "")


def _fits(row: tuple[str, ...], text: str) -> bool:
    if text.casefold() in _plain(" ".join(row)).casefold():
        return True
    return _is_in(_plain(row[0]), text)


def _fits_begun(row: tuple[str, ...], text: str) -> bool:
    message = _plain(row[0])
    return any(_is_in(message[: end.start()], text) for end in CLAUSE.finditer(message))


def _is_in(message: str, text: str) -> bool:
    """Whether a text has in it a message with something in each place of `…`."""
    literals = [part for part in message.split("…") if part]
    form = ".*".join(map(re.escape, message.split("…")))
    return "…" in message and sum(map(len, literals)) >= LITERALS_MIN and re.search(form, text) is not None


def _sections(text: str, columns: int, *, literal: bool) -> Iterator[Section]:
    """Read a text file: `# ` before the title of a section, each row's last cell indented below the others.

    The first cells of a row are parted by ` | `. A `literal` row has one first cell, which is shown as code.
    """
    title, rows = "", list[tuple[str, ...]]()
    for filled, lines in groupby(text.splitlines(), key=bool):
        if not filled:
            continue
        first, *rest = lines
        if first.startswith("# "):
            if rows:
                yield Section(title, tuple(rows))
            title, rows = first[2:], []
            continue
        if literal:
            mark = "``" if "`" in first else "`"
            space = " " if "`" in first else ""
            cells = [f"{mark}{space}{first}{space}{mark}"]
        else:
            cells = first.split(" | ")
            cells += [""] * (columns - 1 - len(cells))
        rows.append((*cells, " ".join(line.strip() for line in rest)))
    yield Section(title, tuple(rows))
