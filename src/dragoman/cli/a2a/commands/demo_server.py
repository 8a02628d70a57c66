"""`dragoman demo-server`: an agent server to try the client commands on (a2a-cli §5.1).

Invariant: nothing is written to disk, and only this machine can reach it.
"""

from typing import TYPE_CHECKING

import click

from dragoman.cli.arguments import EXPOSED, WholeNumber, complete_files, secret_of
from dragoman.cli.command import Command
from dragoman.cli.program import program

if TYPE_CHECKING:
    from dragoman.server import ListeningServer

KEY_ENV = "DRAGOMAN_API_KEY"
"""The variable of the server's setting."""

THIS_MACHINE = ("127.0.0.0/8", "::1/128")
"""Where the agents may call webhooks besides the public network, so that `dragoman receive` gets them."""


@click.command("demo-server", cls=Command)
@click.option("--port", type=WholeNumber(0, 65535), default=0, show_default="a free one", help="Port on 127.0.0.1.")
@click.option(
    "--api-key",
    metavar="KEY",
    envvar=KEY_ENV,
    help=f"Key that callers must send.  [{KEY_ENV}; default: no authentication] {EXPOSED}, or --api-key-file.",
)
@click.option(
    "--api-key-file",
    metavar="FILE",
    envvar=f"{KEY_ENV}_FILE",
    shell_complete=complete_files,
    help=f"File that holds the key.  [{KEY_ENV}_FILE]",
)
def demo_server(port: int, api_key: str | None, api_key_file: str | None) -> None:
    """Run demo agents, to practise the other commands on.

    The server keeps its tasks in memory and ends with Ctrl-C. Its agents stream, ask questions, receive and return
    files, require a login, answer without a task, reject and fail. They may call webhooks on this machine.

    Examples:
      dragoman demo-server --port 7999
      dragoman demo-server --port 7999 --api-key-file key.txt
    """
    import sys

    from dragoman.cli.a2a.commands.demo_agents import demo_agents
    from dragoman.config import Config
    from dragoman.server import run
    from dragoman.telemetry.logs import log_to

    agents, api_key = demo_agents(), secret_of("api-key", api_key, api_key_file)

    def ready(listening: "ListeningServer") -> None:
        base = f"http://127.0.0.1:{listening.config.port}"
        width = max(len(agent.profile.id) for agent in agents)
        lines = [f"Demo agents at {base}", ""]
        for agent in agents:
            lines.append(
                f"  {agent.profile.id:<{width}}  {base}/agents/{agent.profile.id}  {agent.profile.description}"
            )
        key, command = " --api-key KEY" if api_key else "", program()
        lines += [
            "",
            f"Card:    {command} card get -a {base}",
            f'Send:    {command} send -a {base}{key} "Hello!"',
            f'Stream:  {command} send -a {base}/agents/counter{key} --stream "5"',
            f"Chat:    {command} chat -a {base}/agents/booking{key}",
            "",
            "Ctrl-C stops it.",
        ]
        click.echo("\n".join(lines))

    log_to(sys.stderr, "warning", "text", "")
    config = Config(port=port, store="memory:", api_key=api_key, push_allowed_cidrs=THIS_MACHINE)
    run(config, agents, on_ready=ready)
