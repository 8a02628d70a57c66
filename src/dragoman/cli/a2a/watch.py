"""`dragoman watch`: look at a task while it runs.

Invariant: on a terminal the task is drawn; in a pipe the output is that of `task subscribe --stream`.
"""

from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.a2a.options import ClientCommand, agent_options, waiting_options

if TYPE_CHECKING:
    from dragoman.cli.a2a.session import CommandSession


@click.command(cls=ClientCommand)
@click.argument("task_id", metavar="TASK")
@waiting_options
@agent_options
def watch(task_id: str, **options: Any) -> None:
    """Look at a task until it ends or waits for you.

    Its text is drawn as Markdown, its progress as a bar, its files by name and size. The connection is made again when
    it breaks. Ctrl-C stops looking; the task goes on.
    """
    from dragoman.cli.a2a.session import run_session

    async def work(session: "CommandSession") -> None:
        from dragoman.cli.a2a.send import print_outcome
        from dragoman.cli.a2a.view import TaskView, at_terminal
        from dragoman.cli.a2a.waiting import subscribe_and_wait

        if session.output.form == "json" or not at_terminal():
            found = await subscribe_and_wait(session, task_id, on_update=session.output.update)
            print_outcome(session, found, restate=True)
            return
        session.task.announces = False
        with TaskView() as view:
            found = await subscribe_and_wait(session, task_id, on_update=view.add)
            view.add(found)
        print_outcome(session, found)

    run_session({**options, "task_id": None}, work, lines=True)
