"""A runner of the command line, a user's shell, and one demo server in a process for all tests of client commands."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.a2a.command import Shell, demo_server
from tests.kit.commands import Run, invoke


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands in an empty directory, which is the working directory of the test, with lines of 200 characters.

    The directory does not stay where modules are found, although commands put it there.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return partial(invoke, width=200)


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    with demo_server() as url:
        yield url


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
