"""`dragoman admin`: an operator's commands on a running server.

`server` finds the server or the local store, also for the commands that stand alone. `tasks`, `task_changes`,
`task_tree`, `bulk`, `inbox`, `principals`, `agents`, `overview`, `stats` and `usage` are the commands, `task_choice`
the filters of tasks.
"""

import click

from dragoman.cli.command_table import CommandTable

COMMANDS = {
    "agents": "dragoman.cli.admin.agents:agents",
    "bulk": "dragoman.cli.admin.bulk:bulk",
    "budgets": "dragoman.cli.admin.usage:budgets",
    "inbox": "dragoman.cli.admin.inbox:inbox",
    "principals": "dragoman.cli.admin.principals:principals",
    "replicas": "dragoman.cli.admin.overview:replicas",
    "series": "dragoman.cli.admin.overview:series",
    "stats": "dragoman.cli.admin.stats:stats",
    "status": "dragoman.cli.admin.status:status",
    "tasks": "dragoman.cli.admin.tasks:tasks",
    "upstreams": "dragoman.cli.admin.overview:upstreams",
    "usage": "dragoman.cli.admin.usage:usage",
    "workers": "dragoman.cli.admin.overview:workers",
}


@click.group(cls=CommandTable, places=COMMANDS)
def admin() -> None:
    """See and change what a server does, across all callers.

    --server names the server (DRAGOMAN_SERVER), and DRAGOMAN_OPERATOR_KEY holds a key of the role operator. Without
    --server, the commands read the local store, and send changes to the server that has it open. Keys, webhooks, the
    audit trail and the store have commands of their own. See docs/admin.md.

    Examples:
      dragoman admin status
      dragoman admin tasks list --state failed --newer-than 1h
    """
