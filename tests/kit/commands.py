"""The command line, run inside this process. A process of its own would cost 0.3 s of processor time.

Invariant: a command here sees none of the settings in the environment of the tests but those that it is given.
"""

import errno
import io
import json
import os
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner, Result

from dragoman.cli import main

Run = Callable[..., Result]
"""Runs `dragoman` with these words, `answer` as its input and further variables. Returns what Click says of it."""


class FullDisk(io.StringIO):
    """A file whose disk is full."""

    def write(self, text: str) -> int:
        """Write nothing."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Ran(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document that was printed."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents of JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def fields(self) -> dict[str, str]:
        """The fields of text; of a label that comes again, the last value."""
        found = {}
        for line in self.out.splitlines():
            label, colon, value = line.partition(": ")
            if colon:
                found[label] = value
        return found


def invoke(*words: str, answer: str | None = None, width: int | None = None, **environ: str) -> Result:
    """Run a command in the working directory. It must not fail but by its exit status."""
    unset = {name: None for name in os.environ if name.startswith(("A2ACLI_", "DRAGOMAN_"))}
    result = CliRunner().invoke(
        main, words, input=answer, env={**unset, **environ}, prog_name="dragoman", terminal_width=width
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def run_command(folder: Path, *words: str, answer: str | None = None, **environ: str) -> Ran:
    """Run a command in a folder."""
    with chdir(folder):
        result = invoke(*words, answer=answer, **environ)
    return Ran(result.exit_code, result.stdout, result.stderr)
