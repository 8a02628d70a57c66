"""Commands to paste: they run where they are printed, also in a clone, whose program no `PATH` has."""

import re
import sys
from pathlib import Path

import pytest

from dragoman.cli.program import program
from tests.cli.a2a.command import Shell
from tests.kit.commands import invoke


@pytest.fixture(autouse=True)
def started_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program, started by its path as `make serve` does."""
    monkeypatch.chdir(tmp_path)
    here = Path("my venv/bin/dragoman")
    here.parent.mkdir(parents=True)
    here.write_text("#!/bin/sh\n")
    here.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(here.absolute())])
    monkeypatch.setenv("PATH", "/nowhere")
    return here.absolute()


def test_the_word_is_the_name_where_a_shell_finds_it(started_by_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert program() == f"'{started_by_path}'"
    monkeypatch.setattr(sys, "argv", ["my venv/bin/dragoman"])
    assert program() == "'my venv/bin/dragoman'"
    monkeypatch.setenv("PATH", str(started_by_path.parent))
    assert program() == "dragoman"
    monkeypatch.setattr(sys, "argv", ["/usr/lib/dragoman/__main__.py"])
    assert program() == "dragoman"


def test_commands_of_operators_begin_with_it(started_by_path: Path) -> None:
    assert invoke("examples").stdout == f"Made examples. Next: '{started_by_path}' serve examples/agents.py\n"
    for role, command in (("operator", "admin tasks list"), ("agent", "worker MODULE:AGENT")):
        assert re.search(
            rf"^    .*'{started_by_path}' {command} --server",
            invoke("keys", "create", role, "--role", role).stdout,
            re.MULTILINE,
        )


def test_the_next_command_of_a_caller_begins_with_it(started_by_path: Path, tmp_path: Path, demo: str) -> None:
    shell = Shell(tmp_path)
    sent = shell.run("send", "-a", demo, "hello")
    assert sent.fields["Next"].startswith(f"'{started_by_path}' send --agent-card {demo} --context-id ")
