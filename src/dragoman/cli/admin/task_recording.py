"""`dragoman admin tasks record`: a task as its log has it, for a replay elsewhere.

Invariant: what is written is one JSON document, whose events are read a page at a time.
"""

from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.completion import complete_tasks
from dragoman.cli.admin.server import Desk, TaskPlace, with_server
from dragoman.cli.command import Command

if TYPE_CHECKING:
    from dragoman.admin.logs import RecordedTask

PAGE = 200
"""Events that are asked for at once."""


@click.command(cls=Command)
@click.argument("task_id", metavar="ID", shell_complete=complete_tasks)
@with_server
def record(place: TaskPlace, task_id: str) -> None:
    """Print the log of a task as JSON, to test its agent with it.

    Files, and answers to requests for credentials, are replaced by their digests. All other content is as it was
    written: read it before you share it. `dragoman.testing.replay` runs an agent against the recording.

    Examples:
      dragoman admin tasks record ID > task.json
      dragoman admin tasks record ID --server https://agents.example.org > task.json
    """
    place.read(lambda desk: _record(desk, task_id))


async def _record(desk: Desk, task_id: str) -> None:
    from dragoman.admin.logs import RECORD_TASK, LogQuery

    query: LogQuery | None = LogQuery(limit=PAGE)
    page, before = None, ""
    while query is not None:
        page = await desk.answer(RECORD_TASK, query, task_id)
        before = before or _begin(page)
        for event in page.events:
            click.echo(before + _spell(event), nl=False)
            before = ",\n  "
        query = RECORD_TASK.next_page(query, page)
    click.echo("\n]}")


def _begin(page: "RecordedTask") -> str:
    """The members before the events."""
    members = {"format": page.format, "dragoman": page.dragoman, "head": page.head, "seq": page.seq}
    return "{" + ",\n".join(f'"{name}": {_spell(value)}' for name, value in members.items()) + ',\n"events": [\n  '


def _spell(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
