"""Compares the words of a file of deploy/ with the server."""

import re
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner

from dragoman.cli import main
from dragoman.config import Config, load, settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

FOREIGN = frozenset({"PGPASSWORD", "PGPASSFILE", "PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"})
"""Variables that are not settings of the server, and that have a meaning for it or for Python."""


def read(variables: Mapping[str, str]) -> Config:
    """The configuration that these variables give. Raises ConfigError; fails if one of them is none that counts."""
    known = {setting.env for setting in settings()} | FOREIGN | {"DRAGOMAN_CONFIG"}
    assert variables.keys() <= known, variables.keys() - known
    return load(None, {name: value for name, value in variables.items() if name.startswith("DRAGOMAN_")}, {})


def assert_command(words: list[str]) -> None:
    """Fail unless the command line, without the program, names a command and flags that exist."""
    path = [word for word in words if re.fullmatch(r"[a-z]+", word)][:2]
    while path:
        shown = CliRunner().invoke(main, [*path, "--help"])
        if shown.exit_code == 0:
            break
        path.pop()
    assert path, words
    for word in words:
        if word.startswith("--"):
            assert re.search(rf"{re.escape(word.partition('=')[0])}\b", shown.output), (words, word)
