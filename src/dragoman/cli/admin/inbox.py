"""`dragoman admin inbox`: what waits for a person.

Invariant: it asks the server, which alone knows what is open, and changes nothing.
"""

from typing import TYPE_CHECKING, Any

import click

from dragoman.admin.question import Column
from dragoman.cli.admin.server import TaskPlace, finish, read_pages, with_server
from dragoman.cli.command import Command
from dragoman.cli.listing import Listing, lists

if TYPE_CHECKING:
    from dragoman.admin.tasks import InboxLine

PAGE = 100
"""The largest page that is asked for at once."""

WORDS_SHOWN = 60
"""Most characters of a question in a table."""

COLUMNS = (
    *(Column("ID", "id"), Column("ASKS", "asks"), Column("AGE", "age_s", "age"), Column("AGENT", "agent")),
    *(Column("TITLE", "title"), Column("WORDS", "words"), Column("QUESTION", "question")),
)


@click.command(cls=Command)
@lists(limit=50, most=100_000)
@with_server
def inbox(place: TaskPlace, limit: int, cursor: str) -> Listing:
    """List what waits for a person, the longest waiting first.

    QUESTION is the id for `dragoman admin tasks answer ID --question`, which makes sure that the first of two answers
    counts.

    Examples:
      dragoman admin inbox
      dragoman admin inbox --watch --interval 10
    """
    from dragoman.admin.tasks import LIST_INBOX, InboxQuery

    wanted = InboxQuery(limit=PAGE, cursor=cursor)
    pages, after = finish(lambda: place.at_desk(lambda desk: read_pages(desk, LIST_INBOX, wanted, limit), stored=False))
    rows = [_row(line) for page in pages for line in page]
    more = "" if after is None else after.cursor
    return Listing(
        rows=rows,
        columns=COLUMNS,
        words={"words": lambda row: row["words"][:WORDS_SHOWN], "title": lambda row: row["title"][:WORDS_SHOWN]},
        member=LIST_INBOX.lines,
        document={LIST_INBOX.lines: rows, "more": bool(more), "next_cursor": more},
        next_cursor=more,
        empty=LIST_INBOX.none,
        members=tuple(column.field for column in COLUMNS),
    )


def _row(line: "InboxLine") -> dict[str, Any]:
    task, question = line.task, line.question
    said = () if question is None else question.parts
    return {
        "id": task.id,
        "asks": line.asks,
        "age_s": task.age_s,
        "agent": task.agent,
        "title": task.title,
        "words": " ".join(part.text for part in said if part.text),
        "question": "" if question is None else question.message_id,
    }
