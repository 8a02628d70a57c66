"""`dragoman task`: read, list, cancel and follow tasks, save their files, and manage their webhooks (a2a-cli §8.3).

`dragoman watch` looks at a task while it runs.

Invariant: every command that touches one task prints its id, its context and its state. `watch` draws it on a terminal;
in a pipe its output is that of `task subscribe --stream`.
"""

from typing import TYPE_CHECKING

import click

from dragoman.cli.a2a.commands.push_config import push_config
from dragoman.cli.a2a.completion import complete_agent_tasks
from dragoman.cli.a2a.options import POLLING, client_command
from dragoman.cli.a2a.settings import SettingsError
from dragoman.cli.arguments import WholeNumber, complete_folders
from dragoman.cli.command import Group
from dragoman.cli.old_names import old_option

if TYPE_CHECKING:
    from dragoman.cli.a2a.session import CommandSession

STATES = ("submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected")

_STATE = click.Choice(STATES, case_sensitive=False)
_PAGE_SIZE = WholeNumber(1, 100)

_on_one_line = click.option("--stream", is_flag=True, help="With -o json, print the task on one line.")


@click.group(cls=Group)
def task() -> None:
    """Work with your tasks at an agent.

    Examples:
      dragoman task list -a agent.example --state working
      dragoman task get TASK -a agent.example --wait
    """


@client_command(task)
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
@click.option("--history", metavar="N", help="Show the newest N messages, too.  [default: what the agent returns]")
@click.option(
    "--wait", "--watch", "wait", is_flag=True, help="Ask again and again until the task ends or waits for you."
)
@_on_one_line
async def get(session: "CommandSession", task_id: str) -> None:
    """Show a task: its state and its artifacts.

    Examples:
      dragoman task get TASK -a agent.example
      dragoman task get TASK -a agent.example --wait --timeout 5m -o json
    """
    from dragoman.cli.a2a.message import print_outcome
    from dragoman.cli.a2a.waiting import poll

    length = _history_length(session)
    if session.settings.flag("wait"):
        found = await poll(session, task_id, history_length=length)
    else:
        found = await session.connection.get(task_id, history_length=length)
    session.output.task(found)
    print_outcome(session, found)


def _history_length(session: "CommandSession") -> int | None:
    text = session.settings.text("history")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > 2**31 - 1:
        raise SettingsError(f"{session.settings.describe('history')} is {text!r}: use a number from 0 on")
    return int(text)


@client_command(task, idle=(POLLING,))
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
@click.option("--metadata", metavar="JSON", help="Metadata of the request, as a JSON object.")
@_on_one_line
async def cancel(session: "CommandSession", task_id: str) -> None:
    """Cancel a task, and show its state afterwards.

    The exit status is 1 if the agent refuses, for example because the task has ended.

    Examples:
      dragoman task cancel TASK -a agent.example
      dragoman task cancel TASK -a agent.example --metadata '{"reason": "duplicate"}'
    """
    from dragoman.cli.a2a.message import read_metadata

    session.output.task(await session.connection.cancel(task_id, metadata=read_metadata(session.settings)))


@client_command(task, "list", idle=(POLLING,))
@click.option("--context-id", metavar="ID", help="List only tasks of this context.")
@click.option("--state", type=_STATE, metavar="S", help=f"List only tasks in this state: {', '.join(STATES)}.")
@old_option("--status", "state", "--state", type=_STATE)
@click.option("--limit", type=_PAGE_SIZE, default=50, show_default=True, metavar="N", help="Number of tasks on a page.")
@old_option("--page-size", "limit", "--limit", type=_PAGE_SIZE)
@click.option("--cursor", default="", metavar="C", help="Continue after an earlier page, which printed C.")
@old_option("--page-token", "cursor", "--cursor")
@click.option("--artifacts", is_flag=True, help="Include the artifacts of each task.")
@click.option("--stream", is_flag=True, help="With -o json, print one task a line.")
async def list_(session: "CommandSession", state: str | None, limit: int, cursor: str, artifacts: bool) -> None:
    """List your tasks, the newest first, a page at a time.

    Examples:
      dragoman task list -a agent.example --state input-required
      dragoman task list -a agent.example --limit 10 -o json
    """
    from dragoman.model.task import TaskState

    wanted = None if state is None else TaskState["_".join(state.upper().split("-"))]
    page = await session.connection.list(
        context_id=session.settings.text("context-id") or None,
        state=wanted,
        page_size=limit,
        page_token=cursor,
        include_artifacts=artifacts,
    )
    session.output.tasks(page, limit)


@client_command(task)
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
@click.option("--stream", is_flag=True, help="Print each event as it arrives; with -o json as JSON lines.")
async def subscribe(session: "CommandSession", task_id: str, stream: bool) -> None:
    """Follow a task until it ends or waits for you.

    A connection that breaks is opened again, and no event is lost.

    Examples:
      dragoman task subscribe TASK -a agent.example --stream
      dragoman task subscribe TASK -a agent.example --timeout 10m -o json
    """
    from dragoman.cli.a2a.message import print_outcome
    from dragoman.cli.a2a.waiting import subscribe_and_wait

    found = await subscribe_and_wait(session, task_id, on_update=session.output.update if stream else None)
    if not stream:
        session.output.task(found)
    print_outcome(session, found, restate=stream)


@client_command(task, idle=(POLLING,))
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
@click.option(
    "--dir",
    "folder",
    default=".",
    show_default=True,
    metavar="DIR",
    shell_complete=complete_folders,
    help="Folder in which the files are saved.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
async def download(session: "CommandSession", task_id: str, folder: str, overwrite: bool) -> None:
    """Save the artifacts of a task as files.

    Structured data becomes a JSON file.

    Examples:
      dragoman task download TASK -a agent.example
      dragoman task download TASK -a agent.example --dir results --overwrite
    """
    from pathlib import Path

    from dragoman.cli.a2a.download import download_task

    found = await session.connection.get(task_id)
    await download_task(session, found, Path(folder), overwrite=overwrite)


task.add_command(push_config)


@client_command(lines=True)
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
async def watch(session: "CommandSession", task_id: str) -> None:
    """Watch a task until it ends or waits for you.

    A terminal shows its text as Markdown, its progress as a bar, and its files by name and size. A connection that
    breaks is opened again. Ctrl-C ends the command, and the task continues.

    Examples:
      dragoman watch TASK -a agent.example
      dragoman watch TASK -a agent.example -o json
    """
    from dragoman.cli.a2a.message import print_outcome
    from dragoman.cli.a2a.view import TaskScreen, at_terminal
    from dragoman.cli.a2a.waiting import subscribe_and_wait

    if session.output.form == "json" or not at_terminal():
        found = await subscribe_and_wait(session, task_id, on_update=session.output.update)
        print_outcome(session, found, restate=True)
        return
    session.task.announces = False
    with TaskScreen() as view:
        found = await subscribe_and_wait(session, task_id, on_update=view.add)
        view.add(found)
    print_outcome(session, found)
