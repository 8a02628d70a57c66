"""`dragoman task push-config`: the webhooks of a task (a2a-cli §5.1, A2A 1.0 §3.1.7 to §3.1.10).

Invariant: an agent whose card says that it calls no webhooks is not asked.
"""

from typing import TYPE_CHECKING

import click

from dragoman.cli.a2a.completion import complete_agent_tasks
from dragoman.cli.a2a.options import POLLING, client_command
from dragoman.cli.arguments import with_scheme
from dragoman.cli.command import Group

if TYPE_CHECKING:
    from dragoman.cli.a2a.session import CommandSession


@click.group("push-config", cls=Group)
def push_config() -> None:
    """Manage the webhooks that an agent calls about a task.

    Examples:
      dragoman task push-config create TASK -a agent.example --url https://me.example/hook
      dragoman task push-config list TASK -a agent.example
    """


@client_command(push_config, idle=(POLLING,))
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
@click.option("--url", required=True, metavar="URL", help="URL that the agent calls.")
@click.option("--id", "config_id", default="", metavar="ID", help="Id of the webhook.  [default: the agent's choice]")
@click.option("--token", metavar="TOKEN", help="Token that the agent sends with each call.")
@click.option(
    "--auth-scheme",
    metavar="SCHEME",
    help="Scheme by which the agent authenticates itself to the webhook, such as Bearer.",
)
@click.option("--auth-credentials", metavar="SECRET", help="Credentials that the agent sends by that scheme.")
async def create(
    session: "CommandSession",
    task_id: str,
    url: str,
    config_id: str,
    token: str | None,
    auth_scheme: str | None,
    auth_credentials: str | None,
) -> None:
    """Register a webhook that the agent calls about a task.

    Examples:
      dragoman task push-config create TASK -a agent.example --url https://me.example/ --token secret
      dragoman task push-config create TASK -a localhost:7870 --url localhost:8080
    """
    await _begin(session, task_id)
    session.hide(token, auth_credentials)
    made = await session.connection.webhooks.set(
        task_id, with_scheme(url), id=config_id, token=token, scheme=auth_scheme, credentials=auth_credentials
    )
    session.output.push_config(made)


@client_command(push_config, idle=(POLLING,))
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
@click.argument("config_id", metavar="ID")
async def get(session: "CommandSession", task_id: str, config_id: str) -> None:
    """Show a webhook of a task.

    Examples:
      dragoman task push-config get TASK ID -a agent.example
      dragoman task push-config get TASK ID -a agent.example -o json
    """
    await _begin(session, task_id)
    session.output.push_config(await session.connection.webhooks.get(task_id, config_id))


@client_command(push_config, "list", idle=(POLLING,))
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
async def list_(session: "CommandSession", task_id: str) -> None:
    """List the webhooks of a task.

    Examples:
      dragoman task push-config list TASK -a agent.example
      dragoman task push-config list TASK -a agent.example -o json
    """
    await _begin(session, task_id)
    session.output.push_configs(await session.connection.webhooks.list(task_id))


@client_command(push_config, idle=(POLLING,))
@click.argument("task_id", metavar="TASK", shell_complete=complete_agent_tasks)
@click.argument("config_id", metavar="ID")
async def delete(session: "CommandSession", task_id: str, config_id: str) -> None:
    """Delete a webhook of a task.

    Examples:
      dragoman task push-config delete TASK ID -a agent.example
      dragoman task push-config delete TASK ID -a agent.example -o json
    """
    await _begin(session, task_id)
    from dragoman.cli.a2a.text import field

    await session.connection.webhooks.delete(task_id, config_id)
    session.output.value({}, [field("Deleted", config_id)])  # google.protobuf.Empty


async def _begin(session: "CommandSession", task_id: str) -> None:
    """Check that the agent calls webhooks. Text begins with the ids and the state of the task (a2a-cli §9.2)."""
    from dragoman.cli.a2a.output import print_lines
    from dragoman.cli.a2a.text import identity_lines

    card = session.card
    session.require("push", card is not None and card.capabilities.push_notifications)
    if session.output.form == "text":
        task = await session.connection.get(task_id)
        print_lines(identity_lines(task.id, task.context_id, task.status.state))
