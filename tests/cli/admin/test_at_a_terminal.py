"""Each of the operator's commands as people meet it: on a running server, in a terminal and with its output kept."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.a2a.command import Shell
from tests.cli.a2a.terminal import at_terminal
from tests.docs.test_readme import ROOT, serving

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Served:
    """A server with a task that waits for its caller, `task`."""

    folder: Path
    store: str
    task: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    store = f"sqlite:///{folder}/dragoman.db"
    with serving("serve", str(ROOT / "examples" / "agents.py"), "--store", store, folder=folder) as url:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Book me a trip"}]}
        request = urllib.request.Request(
            f"{url}/agents/trip/message:send",
            data=json.dumps({"message": message}).encode(),
            headers={"A2A-Version": "1.0", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            yield Served(folder, store, json.load(answer)["task"]["id"])


COMMANDS = [
    ("admin tasks list", "Book me a trip"),
    ("admin tasks list --state input-required --agent trip --text trip --newer-than 1h", "trip"),
    ("admin tasks show TASK", "input-required"),
    ("admin tasks log TASK", "From where?"),
    ("admin inbox", "From where?"),
    ("admin tasks answer TASK --text Lyon --reason agreed", "TASK is working"),
    ("admin tasks send-again TASK", "Sent again as "),
    ("admin tasks cancel --agent reject --older-than 1h --dry-run", ""),
    ("admin tasks delete --state failed --older-than 1d --dry-run", ""),
    ("admin agents", "countdown"),
    ("admin workers", ""),
    ("admin upstreams", ""),
    ("admin replicas", "127.0.0.1"),
    ("webhooks list", ""),
    ("webhooks pause hooks.example", "hooks.example"),
    ("webhooks paused", "hooks.example"),
    ("webhooks resume hooks.example", "hooks.example"),
    ("keys list", ""),
    ("audit --limit 20", "webhooks.resume"),
    ("admin stats", "tasks completed"),
    ("admin usage --by principal,agent,day", ""),
    ("store check", "No faults"),
]
"""The commands in their order, and a text that each shows; "" where there may be nothing to show."""


def with_output_kept(shell: Shell, words: list[str]) -> str:
    ran = shell.run(*words)
    assert ran.status == 0, ran.err
    assert not ESCAPE.search(ran.out), "no terminal, plain text"
    return ran.out + ran.err


def in_terminal(shell: Shell, words: list[str]) -> str:
    with at_terminal(shell, *words) as terminal:
        assert terminal.end() == 0, terminal.screen
    return ESCAPE.sub("", terminal.screen)


@pytest.mark.slow
@pytest.mark.parametrize("run", [with_output_kept, in_terminal])
def test_every_command_works(run: Callable[[Shell, list[str]], str], served: Served, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.environment["DRAGOMAN_STORE"] = served.store
    for command, shown in COMMANDS:
        said = run(shell, command.replace("TASK", served.task).split())
        assert shown.replace("TASK", served.task) in said, f"{command}: {said}"
        assert "Traceback" not in said


@pytest.mark.slow
def test_a_backup_at_a_terminal_has_a_bar_and_can_be_restored(served: Served, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    archive = str(tmp_path / "b.tar")
    shell.environment["DRAGOMAN_STORE"] = served.store
    assert "verified" in in_terminal(shell, ["store", "backup", archive])
    shell.environment["DRAGOMAN_STORE"] = f"sqlite:///{tmp_path}/restored.db"
    assert "Restored" in with_output_kept(shell, ["store", "restore", archive])
    assert "Book me a trip" in with_output_kept(shell, ["admin", "tasks", "list"])
