"""The command `dragoman`, with one module for each subcommand.

Invariant: a command imports what it needs when it runs, so that `--help` answers at once.
"""

import click

from dragoman.cli.a2a import add_commands
from dragoman.cli.admin import admin
from dragoman.cli.agents import agents
from dragoman.cli.audit import audit
from dragoman.cli.doctor.command import conformance, doctor
from dragoman.cli.keys import keys
from dragoman.cli.new import new
from dragoman.cli.push import push, webhooks
from dragoman.cli.serve import serve
from dragoman.cli.store import store
from dragoman.cli.version import show_version
from dragoman.cli.worker import worker


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
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
    """Put any agent behind the Agent2Agent (A2A) protocol."""


main.add_command(serve)
main.add_command(worker)
main.add_command(new)
main.add_command(agents)
main.add_command(keys)
main.add_command(audit)
main.add_command(push)
for operators in (webhooks, keys, audit):
    admin.add_command(operators)
main.add_command(store)
main.add_command(admin)
add_commands(main)
main.add_command(doctor)
main.add_command(conformance)
