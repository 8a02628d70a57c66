"""`dragoman admin`: an operator's commands. `server` finds the server or the store, `text` has their form in common.

`tasks`, `task_changes`, `overview` and `backup` are the commands, `task_choice` the filters of tasks.
"""

import click

from dragoman.cli.admin.backup import backup, check, restore
from dragoman.cli.admin.overview import agents, replicas, upstreams, workers
from dragoman.cli.admin.stats import stats
from dragoman.cli.admin.task_changes import answer, cancel, delete
from dragoman.cli.admin.tasks import tasks
from dragoman.cli.admin.usage import usage


@click.group()
def admin() -> None:
    """See and change what a server does, across all callers.

    --server names the server (DRAGOMAN_SERVER), and DRAGOMAN_API_KEY holds a key of the role operator. Without a
    server, the commands read the local store, and send changes to the server that has it open. See docs/admin.md.
    """


for command in (answer, cancel, delete):
    tasks.add_command(command)

for command in (tasks, agents, workers, upstreams, replicas, stats, usage, backup, restore, check):
    admin.add_command(command)
