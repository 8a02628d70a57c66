"""Runs a command, the server, while `make console` builds the console behind it: `python serve.py LOG COMMAND…`.

The command replaces this process, so that it gets the signals of the terminal. The build says what it has to say in the
file LOG, and ends with the server. The console's pages know of it by a lock (`dragoman.bindings.console.pages`).

Invariant: one build at a time. A second server waits for the first one's build, and finds nothing left to do.
"""

import os
import select
import signal
import subprocess
import sys
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

LOCK = Path("src/dragoman/bindings/console/built.lock")
BUILD = ("make", "--no-print-directory", "console")
LOOK_S = 0.2


def main() -> None:
    """Build behind the command, if there is something to build."""
    log, *command = sys.argv[1:]
    if subprocess.run([*BUILD, "--question"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
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
            os._exit(build(Path(log), lock, life) if os.fork() == 0 else 0)
        os.waitpid(child, 0)
    os.execv(command[0], command)


def build(log: Path, lock: int, life: int) -> int:
    """Build as long as the server runs, in a group of its own, which Ctrl-C does not reach. `life` ends with it."""
    os.setsid()
    flock(lock, LOCK_EX)
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            BUILD, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(lock,), process_group=0
        )
    while process.poll() is None:
        if select.select([life], [], [], LOOK_S)[0]:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            return 1
    if process.returncode:
        print(f"The console could not be built: {log} says why. The server works without it.", file=sys.stderr)
    else:
        print("The console is built.", file=sys.stderr)
    return process.returncode


if __name__ == "__main__":
    main()
