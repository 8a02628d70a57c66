"""Title: what a task is called, as one line that is safe to show.

Invariant: pure. A title has at most `TITLE_CHARACTERS` characters that are seen, and none that is hidden, steers a
terminal or turns the direction of the text beside it.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from unicodedata import category

from dragoman.model.events import Event, Noted
from dragoman.model.task import Record

TITLE = "urn:dragoman:title:v1"
"""The key in the metadata of a request or its message under which a caller names the task that it makes."""

TITLE_NOTE = ".title"
"""The note under which an agent names its task. Callers never see it."""

TITLE_CHARACTERS = 120
"""Most characters of a title: what a list shows in one line."""

READ_CHARACTERS = 2_000
"""How much of a text is looked at for a title."""

MARKS_MAX = 3
"""Most marks on one letter. Scripts need three; more of them grow into the lines above and below."""

JOINERS = "\u200c\u200d"
"""Emoji and Persian are written with them."""

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are not seen: controls, signs that turn the direction, halves of surrogate pairs."""

SEEN_SIGNS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u0890\u0891\u08e2")
"""Signs of Arabic that count as format characters but are seen."""

FILLERS = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0")
"""Characters that count as letters, marks or symbols, and are blank."""


def title_line(text: str) -> str:
    """Return how `text` begins, as a title; empty if nothing in it is seen."""
    line = " ".join(text[:READ_CHARACTERS].split())
    if line.isascii() and line.isprintable():
        return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"
    seen: list[str] = []
    marks = 0
    for character in line:
        kind = category(character)
        if character in FILLERS or (kind in HIDDEN and character not in SEEN_SIGNS and character not in JOINERS):
            continue
        if kind in ("Mn", "Me") or character in JOINERS:
            marks += 1
            if seen and marks <= MARKS_MAX:
                seen[-1] += character
            continue
        marks = 0
        if character != " " or (seen and seen[-1] != " "):
            seen.append(character)
    if len(seen) > TITLE_CHARACTERS:
        seen = [*seen[: TITLE_CHARACTERS - 1], "…"]
    return "".join(seen).strip(" " + JOINERS)


def asked_title(*metadata: Mapping[str, Any] | None) -> str:
    """Return the title that a caller gives in the metadata of a request and its message; empty if there is none."""
    if not any(metadata):
        return ""
    for name in (TITLE, "title"):
        for each in metadata:
            said = each.get(name) if each else None
            if isinstance(said, str) and (line := title_line(said)):
                return line
    return ""


def noted_title(events: Iterable[Event]) -> str:
    """Return the last title that an agent gives in `events`; empty if there is none."""
    title = ""
    for event in events:
        if type(event) is Noted and TITLE_NOTE in event.note:  # costs less than `isinstance`, for every event
            title = event.note[TITLE_NOTE]
    return title_line(title) if title else ""


def given_title(record: Record) -> str:
    """Return the title that the agent or the caller gave the task; empty if neither did."""
    noted = title_line((record.note or {}).get(TITLE_NOTE, ""))
    return noted or asked_title(record.head.metadata, record.history[0].metadata if record.history else None)
