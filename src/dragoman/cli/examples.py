"""`dragoman examples`: writes the examples that the documentation runs.

Invariant: the folder is there whole, or not at all, and nothing that exists is touched. A wheel has the examples beside
the code (scripts/build_hook.py); an installation from a clone reads those of the clone.
"""

import shlex
import shutil
from fnmatch import fnmatchcase
from importlib.resources import as_file, files
from pathlib import Path

import click

from dragoman.cli.command import Command
from dragoman.cli.endings import Unusable
from dragoman.cli.folders import made_whole
from dragoman.cli.program import program

FOLDER = "examples"

LEFT_OUT = ("test_*.py", "__pycache__", "node_modules", ".*", "data", "*.key", "*.db*")
"""The tests of a clone, which need the rest of it, and what running the examples has left there."""


@click.command(cls=Command)
@click.argument("folder", default=FOLDER)
def examples(folder: str) -> None:
    """Write the examples of the documentation.

    They are in the new folder FOLDER, by default `examples`, as the documentation calls it: a small agent in each
    folder, with a README that shows how to run it.

    Examples:
      dragoman examples
      dragoman examples try
    """
    target = Path(folder)
    if target.exists() or target.is_symlink():
        raise Unusable(f"FOLDER {folder!r} exists: name another one, or move it away")
    try:
        packaged = files("dragoman") / FOLDER
        with (
            as_file(packaged if packaged.is_dir() else Path(__file__).parents[3] / FOLDER) as source,
            made_whole(target) as made,
        ):
            _copy(source, made)
    except OSError as error:
        raise Unusable(
            f"FOLDER {folder!r} cannot be made: {error.strerror}: name one in a folder that you may write to"
        ) from error
    click.echo(f"Made {target}. Next: {program()} serve {shlex.quote(f'{target}/agents.py')}")


def _copy(source: Path, target: Path) -> None:
    """Copy a folder. The copy can be written to, although an installation may be only to read."""
    target.mkdir()
    for entry in source.iterdir():
        if any(fnmatchcase(entry.name, pattern) for pattern in LEFT_OUT):
            continue
        if entry.is_dir():
            _copy(entry, target / entry.name)
        else:
            written = Path(shutil.copyfile(entry, target / entry.name))
            if entry.stat().st_mode & 0o100:
                written.chmod(written.stat().st_mode | 0o111)
