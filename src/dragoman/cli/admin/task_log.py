"""The log of a task as a timeline: what there is, and, followed, what is to come until the task ends.

Invariant: every event is shown once, in order. A server's stream that breaks goes on behind the last event that came.
"""

import asyncio
from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.server import AdminClient, Desk, ServerRefusal, TaskPlace, describe_no_answer
from dragoman.cli.endings import Code, CommandFailed
from dragoman.cli.tables import print_line, printable

if TYPE_CHECKING:
    from dragoman.admin.logs import TimelineEntry

PAGE = 200
"""The largest page of events that is asked for at once."""

LOOK_S = 0.5
"""How often a store is asked for more events if no server can tell of them."""

AGAIN_S = (0.5, 1.0, 2.0, 5.0)
"""The pauses before a stream that broke is tried again; the last one is repeated."""

IDLE_S = 90.0
"""A stream without even a sign of life for so long has broken. Servers send one every 15 s unless set otherwise."""

PRUNED = (
    "Events are missing up to here: they have been deleted (log_retention), or are damaged, as `dragoman store check` "
    "would say."
)


def show_log(place: TaskPlace, task_id: str, *, follow: bool, form: str) -> None:
    """Show the log of a task. Followed, it comes from the server, if one can be reached that lets this user in."""
    client = place.server_client() if follow else None
    if client is None or not asyncio.run(_follow(client, task_id, form, must=place.server is not None)):
        place.read(lambda desk: _show(desk, task_id, follow=follow, form=form))


async def _show(desk: Desk, task_id: str, *, follow: bool, form: str) -> None:
    """Show the log as it stands, and, followed, look for more until the task has ended."""
    from dragoman.admin.logs import READ_LOG, LogQuery

    after = 0
    while True:
        page = await desk.answer(READ_LOG, LogQuery(after=after, limit=PAGE), task_id)
        if page.pruned:
            click.echo(PRUNED, err=True)
        for entry in page.events:
            _show_event(entry, form)
        after = page.events[-1].seq if page.events else max(after, page.seq)
        if page.next_after is not None:
            continue
        if not follow or page.ended:
            return
        await asyncio.sleep(LOOK_S)


async def _follow(client: AdminClient, task_id: str, form: str, *, must: bool) -> bool:
    """Show the stream of the log until the task has ended, and repair it when it breaks.

    Returns False, having shown nothing, if there is no such stream and none `must` be. Raises ClickException.
    """
    from dragoman.net.errors import EgressError

    reader = _LogReader(client, task_id, form)
    failures = 0
    while True:
        came = reader.came
        try:
            if await reader.read():
                return True
            reason = "it ended before the task did"
        except ServerRefusal as error:
            missing = error.status == 404
            if not (reader.came or must or missing):
                return False
            if not reader.came or (error.status < 500 and error.status != 429):
                raise
            reason = error.message
        except EgressError as error:
            if not (reader.came or must):
                return False
            if not reader.came:
                raise CommandFailed(describe_no_answer(error), Code.UNREACHABLE) from error
            reason = str(error)
        failures = 1 if reader.came > came else failures + 1
        if failures == 1:
            click.echo(f"The stream broke: {printable(reason)}. Trying to go on where it stopped.", err=True)
        await asyncio.sleep(AGAIN_S[min(failures, len(AGAIN_S)) - 1])


class _LogReader:
    """Reads the stream of a log, and shows it. `came` counts what has come, keeping its place over several streams."""

    def __init__(self, client: AdminClient, task_id: str, form: str) -> None:
        self.came = 0
        self._client = client
        self._task_id = task_id
        self._form = form
        self._last_id = ""

    async def read(self) -> bool:
        """Read one stream to its end. Returns whether the task has ended. Raises ServerRefusal or EgressError."""
        from dragoman.admin.logs import READ_LOG, LogEnded, LogPruned, TimelineEntry

        async for place, told in self._client.follow(READ_LOG, self._task_id, self._last_id, IDLE_S):
            self.came += 1
            self._last_id = place or self._last_id
            match told:
                case TimelineEntry():
                    _show_event(told, self._form)
                case LogPruned():
                    click.echo(PRUNED, err=True)
                case LogEnded(state):
                    if state is None:
                        click.echo("The task has been deleted.", err=True)
                    return True
        return False


def _show_event(entry: "TimelineEntry", form: str) -> None:
    if form == "json":
        print_line(entry)
    else:
        click.echo(_event_line(entry))


def _event_line(entry: "TimelineEntry") -> str:
    """`2026-11-20T07:00:00.123Z  3  status working  Looking it up`."""
    progress, begun = entry.progress, entry.kind == "step-begun"
    words = (
        "step" if begun else entry.kind,
        entry.state if entry.kind != "submitted" else None,
        entry.step,
        entry.key,
        "begun" if begun else None,
        _took(entry),
        "failed" if entry.failed else None,
        entry.artifact,
        entry.agent,
        entry.task,
        entry.operator,
        entry.action,
        None if progress is None else f"{progress.current}/{progress.total}",
        None if entry.wakes is None else f"sleeps until {entry.wakes}",
        "or a message" if entry.wakes_on_message else None,
    )
    what = " ".join(word for word in words if word)
    return printable(f"{entry.at or '':<24}  {entry.seq:>4}  {what:<24}  {entry.text}".rstrip())


def _took(entry: "TimelineEntry") -> str | None:
    """How long a step took, all attempts included: `(2 attempts, 1.3 s)`."""
    if entry.began is None or entry.at is None:
        return None
    from dragoman.model.ids import timestamp_ms

    took_ms = timestamp_ms(entry.at) - timestamp_ms(entry.began)
    attempts = "" if entry.attempts in (None, 1) else f"{entry.attempts} attempts, "
    took = f"{took_ms} ms" if took_ms < 1000 else f"{took_ms / 1000:.1f} s"
    return f"({attempts}{took})"
