"""The command `dragoman`, with one module for each subcommand.

Invariant: a command is imported when it runs, and imports what it needs then. So commands start at once, and a server
holds nothing of the others.
"""

import click

from dragoman.cli.command_table import CommandTable
from dragoman.cli.version import show_version

COMMANDS = {
    "admin": "dragoman.cli.admin:admin",
    "agents": "dragoman.cli.agents:agents",
    "audit": "dragoman.cli.audit:audit",
    "auth": "dragoman.cli.a2a.commands.auth:auth",
    "card": "dragoman.cli.a2a.commands.card:card",
    "chat": "dragoman.cli.a2a.commands.chat:chat",
    "completion": "dragoman.cli.a2a.commands.help:completion",
    "config": "dragoman.cli.a2a.commands.config:config",
    "conformance": "dragoman.cli.doctor.command:conformance",
    "demo": "dragoman.cli.demo.command:demo",
    "demo-server": "dragoman.cli.a2a.commands.demo_server:demo_server",
    "doctor": "dragoman.cli.doctor.command:doctor",
    "examples": "dragoman.cli.examples:examples",
    "help": "dragoman.cli.a2a.commands.help:help_",
    "keys": "dragoman.cli.keys:keys",
    "new": "dragoman.cli.new:new",
    "prices": "dragoman.cli.prices:prices",
    "receive": "dragoman.cli.a2a.commands.receive:receive",
    "send": "dragoman.cli.a2a.commands.send:send",
    "serve": "dragoman.cli.serve:serve",
    "skill": "dragoman.cli.a2a.commands.skill:skill",
    "store": "dragoman.cli.store:store",
    "task": "dragoman.cli.a2a.commands.task:task",
    "watch": "dragoman.cli.a2a.commands.task:watch",
    "webhooks": "dragoman.cli.webhooks:webhooks",
    "worker": "dragoman.cli.worker:worker",
}

HEADINGS = {
    "Serve agents": ("demo", "examples", "new", "serve", "worker", "agents", "prices"),
    "Call agents": ("card", "send", "chat", "watch", "task", "receive", "auth", "config"),
    "Examine agents": ("doctor", "conformance", "demo-server"),
    "Operate a server": ("admin", "keys", "webhooks", "audit", "store"),
    "This tool": ("help", "completion", "skill"),
}
"""The headings of the list of commands."""


@click.group(
    cls=CommandTable,
    places=COMMANDS,
    headings=HEADINGS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option(
    "-v",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version and the commit, and exit.",
)
def main() -> None:
    """Put any agent behind the Agent2Agent (A2A) protocol.

    `dragoman COMMAND --help` shows the options and examples of a command; `dragoman help exit-statuses` shows the exit
    statuses of all commands, and `dragoman help help` lists more tables.

    Examples:
      dragoman serve agent.py:agent
      dragoman send -a localhost:7870 "Hello!"
    """
