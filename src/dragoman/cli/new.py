"""`dragoman new`: makes a project from a template: an agent, the server's file, tests, a README.

Invariant: a project is there whole, or not at all, and nothing that exists is touched. A template is a folder of
`cli/templates`, with files `<name>.tmpl` in which `{{name}}` stands for the project's name and `{{dragoman}}` for the
versions of Dragoman that it runs on. Every project also has the files of `common`.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from dragoman import __version__
from dragoman.cli.command import Command
from dragoman.cli.endings import Unusable
from dragoman.cli.folders import made_whole

TEMPLATES = ("python", "langgraph", "openai", "worker")

SUFFIX = ".tmpl"
"""Tools that look for Python or TOML leave templates alone."""

COMMON = "common"
"""The folder of the files of every project."""

HIDDEN = {"dockerignore": ".dockerignore", "gitignore": ".gitignore"}
"""Files of a project whose templates have visible names."""


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="python",
    show_default=True,
    help="Kind of project: an agent in Python, a graph of LangGraph, a model behind chat completions, or an agent that "
    "workers run.",
)
def new(name: str, template: str) -> None:
    """Make a project for an agent, with tests that pass.

    The project is the new folder NAME: an agent, the server's file, tests, a Containerfile and a README.

    Examples:
      dragoman new weather
      dragoman new support --template langgraph
    """
    _check_name(name)
    target = Path(name)
    if target.exists() or target.is_symlink():
        raise Unusable(f"NAME {name!r}: {target} exists: choose another name, or move it away")
    try:
        with made_whole(target) as made:
            values = {"name": name, "dragoman": _requirement(__version__)}
            for each in (COMMON, template):
                _write(files("dragoman.cli") / "templates" / each, made, values)
    except OSError as error:
        raise Unusable(
            f"NAME {name!r} cannot be made here: {error.strerror}: run this in a folder that you may write to"
        ) from error
    click.echo(f"Made {name}. Next: cd {name}, and see README.md: it says how to serve it and run its tests.")


def _check_name(name: str) -> None:
    """Refuse a name that is no id of an agent, or that packages of Python cannot have."""
    from dragoman.config import agent_id_fault

    fault = agent_id_fault(name)
    if fault is None and not re.fullmatch(r".*[A-Za-z0-9]", name):
        fault = "must end with a letter or digit"
    if fault is not None:
        raise click.UsageError(f"NAME {name!r}: {fault}")


def _requirement(version: str) -> str:
    """This version of Dragoman or a later one, up to the next that may take away what is public."""
    public = version.partition("+")[0]
    major, minor = map(int, public.split(".")[:2])
    return f"dragoman>={public},<{f'{major}.{minor + 1}' if major == 0 else major + 1}"


def _write(template: Traversable, target: Path, values: Mapping[str, str]) -> None:
    """Write the files of a template to the folder `target`, with these values for their placeholders."""
    target.mkdir(exist_ok=True)
    for entry in template.iterdir():
        if entry.is_dir():
            _write(entry, target / entry.name, values)
        elif entry.name.endswith(SUFFIX):
            written, text = entry.name.removesuffix(SUFFIX), entry.read_text(encoding="utf-8")
            for placeholder, value in values.items():
                text = text.replace(f"{{{{{placeholder}}}}}", value)
            (target / HIDDEN.get(written, written)).write_text(text, encoding="utf-8")
