"""`dragoman admin`: an operator's commands. `server` finds the server or the store, `text` has their form in common.

`tasks`, `task_changes`, `overview` and `backup` are the commands, `task_choice` the filters of tasks.
"""

import click

from dragoman.cli.command_table import CommandTable

COMMANDS = {
    "agents": "dragoman.cli.admin.overview:agents",
    "replicas": "dragoman.cli.admin.overview:replicas",
    "stats": "dragoman.cli.admin.stats:stats",
    "tasks": "dragoman.cli.admin.tasks:tasks",
    "upstreams": "dragoman.cli.admin.overview:upstreams",
    "usage": "dragoman.cli.admin.usage:usage",
    "workers": "dragoman.cli.admin.overview:workers",
}


@click.group(cls=CommandTable, places=COMMANDS)
def admin() -> None:
    """See and change what a server does, across all callers.

    --server names the server (DRAGOMAN_SERVER), and DRAGOMAN_OPERATOR_KEY holds a key of the role operator. Without a
    server, the commands read the local store, and send changes to the server that has it open. See docs/admin.md.
    """
