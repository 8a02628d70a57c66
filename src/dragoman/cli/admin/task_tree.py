"""`dragoman admin tasks tree` and `ask-upstream`: the tasks that came of a task, here and at other servers.

Invariant: nothing here changes anything. Only a server knows its upstreams, so a server answers.
"""

from typing import TYPE_CHECKING

import click

from dragoman.cli.admin.completion import complete_tasks
from dragoman.cli.admin.server import TaskPlace, with_server
from dragoman.cli.command import Command
from dragoman.cli.tables import output, print_json, printable, table

if TYPE_CHECKING:
    from dragoman.admin.logs import Tree, TreeTask
    from dragoman.admin.tasks import ActingLine

HEAD = ("TASK", "AGENT", "STATE", "BEGAN", "ENDED", "AT", "REMARKS")

INDENT = "  "


@click.command(cls=Command)
@click.argument("task_id", metavar="ID", shell_complete=complete_tasks)
@output
@with_server
def tree(place: TaskPlace, task_id: str, form: str) -> None:
    """Show the task ID with all tasks that it led to.

    Tasks at other servers have the id and the state that this server heard last.

    Examples:
      dragoman admin tasks tree ID
      dragoman admin tasks tree ID -o json
    """
    from dragoman.admin.logs import READ_TREE

    found = place.ask(READ_TREE, None, task_id)
    if form == "json":
        print_json(found)
        return
    click.echo(table(HEAD, _rows(found)))
    if found.more:
        click.echo("There are more tasks below these.", err=True)


@click.command(cls=Command)
@click.argument("task_id", metavar="ID", shell_complete=complete_tasks)
@output
@with_server
def ask_upstream(place: TaskPlace, task_id: str, form: str) -> None:
    """Ask the other server for the state of its task for ours.

    The server asks with the credentials of the agent. The exit status is 1 if the other server does not answer.

    Examples:
      dragoman admin tasks ask-upstream ID
      dragoman admin tasks ask-upstream ID -o json
    """
    from dragoman.admin.tasks import ASK_UPSTREAM

    answer = place.ask(ASK_UPSTREAM, None, task_id)
    if form == "json":
        print_json(answer)
    elif answer.failure:
        raise click.ClickException(
            printable(f"{answer.agent} does not tell how its task {answer.id} stands: {answer.failure}")
        )
    else:
        differs = "ours is not" if answer.differs else ""
        since = "" if answer.status_at is None else f"since {answer.status_at} by its clock"
        words = "; ".join(filter(None, (since, answer.text, differs)))
        click.echo(printable(f"{answer.id} at {answer.agent} is {answer.state}" + (f": {words}" if words else "")))


def _rows(found: "Tree") -> list[tuple[str, ...]]:
    """A row for each task, below the task that it came from."""
    below: dict[str | None, list[TreeTask]] = {}
    for task in found.tasks:
        below.setdefault(task.parent, []).append(task)
    rows: list[tuple[str, ...]] = []
    ahead: list[tuple[TreeTask, int, str]] = [(task, 0, "") for task in reversed(below.get(None, []))]
    while ahead:
        task, depth, parent_state = ahead.pop()
        remarks = "; ".join(_remarks(task, parent_state))
        times = (_second(task.created_at), _second(task.ended_at))
        rows.append((INDENT * depth + task.id, task.agent, task.state, *times, task.url or "", remarks))
        ahead += [(child, depth + 1, task.state) for child in reversed(below.get(task.id, []))]
    return rows


def _remarks(task: "TreeTask", parent_state: str) -> list[str]:
    """Remarks on a task at another server. `parent_state` is the state of the task that was sent on."""
    upstream = task.upstream
    remarks = [f"acts {describe_link(link)}" for link in task.acting]
    remarks += [f"{each.member} at {_second(each.at)}: {each.why or each.reason}" for each in task.attempts]
    if task.member:
        remarks.append(f"member {task.member}")
    if task.history_at:
        remarks.append(f"the conversation before it is at {task.history_at}")
    if upstream is None:
        return remarks
    if not upstream.known:
        remarks.append("its own state is not known")
    if upstream.differs:
        remarks.append(f"ours is {parent_state}")
    if upstream.cancel is not None:
        answers = {"accepted": "accepted our cancel", "refused": "refused our cancel"}
        remarks.append(f"it {answers.get(upstream.cancel, 'did not answer our cancel')}")
    if upstream.lost_at is not None:
        remarks.append(f"connection lost at {_second(upstream.lost_at)}")
    elif upstream.followed_until is not None:
        remarks.append(f"not followed since {_second(upstream.followed_until)}")
    if upstream.last_status_at is not None:
        first = upstream.first_status_at or upstream.last_status_at
        remarks.append(f"its clock: {_second(first)} to {_second(upstream.last_status_at)}")
    if upstream.dragoman:
        remarks.append("a Dragoman: its own delegations are in its own tree")
    return remarks


def describe_link(link: "ActingLine") -> str:
    """Describe for whom a server acts, where, and who told it: `for alice at https://… as gateway, before: app`."""
    present, *before = link.actors or (link.client,)
    words = [f"for {link.subject or 'somebody'} at {link.audience} as {present}"]
    if before:
        words.append(f"before: {', '.join(before)}")
    if link.scope:
        words.append(f"scope {link.scope}")
    words.append(f"since {_second(link.at)}")
    if link.told:
        words.append("as the message tells")
    return ", ".join(words)


def _second(at: str | None) -> str:
    """A time to the second; empty for None."""
    return "" if at is None else f"{at[:19]}Z"
