"""Agents of `dragoman worker` that are open as long as they are served."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ENDS_WITH_US

DRAGOMAN = Path(sys.executable).parent / "dragoman"

LIVING = """
from pathlib import Path

from dragoman import Agent


class Living(Agent):
    async def open(self, group):
        Path("log").open("a").write("opened ")

    async def close(self):
        Path("log").open("a").write("closed ")


agent = Living("living")


@agent.skill
async def say(ctx):
    return "Hello"
"""


@pytest.mark.slow
def test_they_are_opened_before_its_first_task_and_closed_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "living.py").write_text(LIVING)
    command = [
        *ENDS_WITH_US,
        str(DRAGOMAN),
        "worker",
        "--agents",
        "elsewhere=living.py:agent",
        "--server",
        "http://127.0.0.1:9",
    ]
    worker = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert worker.stdout is not None
        assert " as elsewhere. " in worker.stdout.readline()  # although no server answers there
        assert (tmp_path / "log").read_text() == "opened "
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        assert (tmp_path / "log").read_text() == "opened closed "
    finally:
        worker.kill()
        worker.communicate()
