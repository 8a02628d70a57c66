"""The process that starts programs, by itself."""

import subprocess
import sys

CHILD_ENDS_LATE = """
import signal, socket
from dragoman.agents.program.spawner import Spawner

link, server = socket.socketpair()
spawner = Spawner(link, {})
server.close()
spawner.serve()
signal.raise_signal(signal.SIGCHLD)
spawner.end()
"""


def test_a_program_that_ends_after_its_server_is_no_fault() -> None:
    ended = subprocess.run([sys.executable, "-c", CHILD_ENDS_LATE], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
