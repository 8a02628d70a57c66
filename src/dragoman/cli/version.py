"""The version with the commit that it was built from.

Invariant: it never fails, and a commit that is shown is that of the code that runs: the file that the build wrote, or
git's if the code runs from a checkout.
"""

from pathlib import Path

import click

from dragoman import __version__

BUILT = "commit.txt"
"""The file in the package that holds the commit. Builds write it (`scripts/build_hook.py`); a checkout has none."""

GIT_TIMEOUT_S = 5.0

SHOWN = 12
"""How many digits of a commit are shown: git's abbreviation for large repositories."""


def describe_version() -> str:
    """`0.2.0 (commit 1a2b3c4d5e6f)`, without a commit where none is known. `, changed` follows if git sees changes."""
    from importlib.resources import files  # here, for every command imports this module

    package = files("dragoman")
    built = package / BUILT
    if built.is_file():
        return f"{__version__} (commit {built.read_text(encoding='utf-8').strip()[:SHOWN]})"
    source = Path(str(package))
    if not (source.parents[1] / ".git").exists():
        return __version__
    commit = _git(source, "rev-parse", "HEAD")
    if not commit:
        return __version__
    changed = ", changed" if _git(source, "status", "--porcelain", "--", ".") else ""
    return f"{__version__} (commit {commit[:SHOWN]}{changed})"


def show_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print the version and end, if the option was given."""
    if wanted and not context.resilient_parsing:
        click.echo(f"dragoman {describe_version()}")
        context.exit()


def _git(folder: Path, *arguments: str) -> str:
    """The output of git; empty if there is no git, or it does not answer."""
    import subprocess

    command = ["git", "-C", str(folder), *arguments]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.strip()
