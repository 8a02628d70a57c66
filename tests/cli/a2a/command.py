"""The client commands as their users run them: a demo server in a process, and commands with their output."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.kit.commands import Ran, run_command
from tests.processes import ENDS_WITH_US

DEADLINE_S = 60.0
"""No command here takes so long, unless it hangs."""


_HEEDING_SIGINT = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from dragoman.cli import main
main(prog_name="dragoman")
"""
"""Runs the command. A shell that starts tests in the background has them ignore SIGINT, and so all that they start."""


class Shell:
    """A user's shell: an empty home and working directory, and no settings but those that a test gives."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}

    def run(self, *words: str, stdin: str | None = None, **environment: str) -> Ran:
        """Run a command inside this process, which is fast."""
        return run_command(self.work, *words, answer=stdin, **{**self.environment, **environment})

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command in a process of its own, which heeds SIGINT even where the tests run in the background."""
        return subprocess.Popen(
            [*ENDS_WITH_US, sys.executable, "-c", _HEEDING_SIGINT, *words],
            cwd=self.work,
            env={**self.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@contextmanager
def demo_server(*flags: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run `dragoman demo-server`, and yield its URL as it is printed."""
    server = subprocess.Popen(
        [*ENDS_WITH_US, sys.executable, "-m", "dragoman", "demo-server", *flags],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        first = server.stdout.readline()
        assert first.startswith("Demo agents at "), first
        yield first.removeprefix("Demo agents at ").strip()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0
        assert server.stdout is not None
        server.stdout.close()


@contextmanager
def demo_agents_with(settings: str) -> Iterator[str]:
    """Serve the demo agents with further settings, such as `api_key='k'`, and yield the server's URL."""
    code = (
        "from dragoman.cli.a2a.commands.demo_agents import demo_agents\n"
        "from dragoman.config import Config\n"
        "from dragoman.server import run\n"
        f"config = Config(port=0, store='memory:', {settings})\n"
        "run(config, demo_agents(), on_ready=lambda listening: print(listening.config.port, flush=True))\n"
    )
    server = subprocess.Popen([*ENDS_WITH_US, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    finally:
        server.terminate()
        server.wait(DEADLINE_S)
        server.stdout.close()
