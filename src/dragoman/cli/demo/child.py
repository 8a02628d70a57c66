"""Runs a module as the program, and ends with the process that started it, as does all that it has started itself.

`python -m dragoman.cli.demo.child MODULE [ARGUMENT]…`. The other process holds the other end of the standard input,
which closes when it ends, however it ends.
"""

import os
import runpy
import signal
import sys
import threading


def main() -> None:
    """Watch the standard input, and run the module."""
    threading.Thread(target=_end_with_parent, args=(os.dup(0),), daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_parent(pipe: int) -> None:
    while os.read(pipe, 1024):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
