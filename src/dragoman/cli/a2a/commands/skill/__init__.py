"""`dragoman skill`: the Agent Skill for coding agents, which tells them how to use the client commands (a2a-cli §12).

Invariant: there is one skill, in the files beside this module. Installing it changes no other file.
"""

from importlib.resources import files
from pathlib import Path

import click

from dragoman.cli.command import Command

NAME = "dragoman"

FOLDER = Path(".agents") / "skills" / NAME
"""Where coding agents look for the skill, below a project or the home directory."""

_FILES = ("SKILL.md", "references/examples.md")


@click.command(cls=Command)
@click.option(
    "--install",
    type=click.Choice(["project", "user"]),
    help="Install the skill for this project, or for your user account.",
)
def skill(install: str | None) -> None:
    """Print or install the skill for coding agents.

    The skill teaches coding agents to use this tool. --install writes it below .agents/skills.

    Examples:
      dragoman skill
      dragoman skill --install project
    """
    source = files(__name__)
    if install is None:
        click.echo(source.joinpath("SKILL.md").read_text(encoding="utf-8"), nl=False)
        return
    folder = (Path.cwd() if install == "project" else Path.home()) / FOLDER
    for name in _FILES:
        target = folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source.joinpath(name).read_text(encoding="utf-8"), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"{target}: {error.strerror}: check who owns the folder") from error
    click.echo(f"Installed: {folder}")
