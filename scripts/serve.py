"""Runs the server of `make serve`: `python serve.py ENVIRONMENT [CONSOLE] -- COMMAND…`, both targets of make.

The environment is made first. Then the command replaces this process, so that it gets the signals of the terminal, and
the console is built behind it. That build says what it has to say in `build/console.log`, and ends with the server. The
console's pages know of it by a lock (`dragoman.bindings.console.pages`).

Invariant: of several servers that start at once, one makes the environment and one builds. The others wait for that,
and find nothing left to do.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from subprocess import DEVNULL

MAKE = ("make", "--no-print-directory")
SETUP_LOCK = ".venv.lock"
LOCK = "src/dragoman/bindings/console/built.lock"
LOG = Path("build/console.log")
LOOK_S = 0.2


def main() -> None:
    """Make the environment, and build behind the command, if there is something to build."""
    at = sys.argv.index("--")
    environment, *console = sys.argv[1:at]
    with open(SETUP_LOCK, "ab") as setup:
        flock(setup, LOCK_EX)
        if is_stale(environment) and (status := subprocess.run([*MAKE, environment]).returncode):
            sys.exit(status)
    if console and is_stale(*console):
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            flock(lock, LOCK_EX | LOCK_NB)  # before the server looks
        except BlockingIOError:
            pass  # another server's build
        life, server = os.pipe()
        os.set_inheritable(server, True)  # it is closed with the server
        child = os.fork()
        if child == 0:  # its child is nobody's, and leaves no zombie to the server
            os.close(server)
            os._exit(build(console, lock, life) if os.fork() == 0 else 0)
        os.waitpid(child, 0)
    os.execv(sys.argv[at + 1], sys.argv[at + 1 :])


def is_stale(*targets: str) -> bool:
    """Whether make has something to do for targets."""
    return subprocess.run([*MAKE, "--question", *targets], stdout=DEVNULL, stderr=DEVNULL).returncode != 0


def build(console: Sequence[str], lock: int, life: int) -> int:
    """Build as long as the server runs, in a group of its own, which Ctrl-C does not reach. `life` ends with it."""
    os.setsid()
    flock(lock, LOCK_EX)
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("wb") as output:
        process = subprocess.Popen(
            [*MAKE, *console], stdin=DEVNULL, stdout=output, stderr=output, pass_fds=(lock,), process_group=0
        )
    while process.poll() is None:
        if select.select([life], [], [], LOOK_S)[0]:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            return 1
    if process.returncode:
        print(f"The console could not be built: {LOG} says why. The server works without it.", file=sys.stderr)
    else:
        print("The console is built.", file=sys.stderr)
    return process.returncode


if __name__ == "__main__":
    main()
