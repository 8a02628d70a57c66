"""The word that runs this program, for commands that people paste.

Invariant: a command that is printed to be pasted begins with it. Prose names the program `dragoman`.
"""

import os
import shlex
import sys

from dragoman.cli.endings import PROGRAM


def program() -> str:
    """Return the word with which a shell in this folder runs this program: its path unless `PATH` has it."""
    from shutil import which

    called, found = sys.argv[0], which(PROGRAM)
    if os.path.basename(called) != PROGRAM or not os.path.exists(called):
        return PROGRAM  # `python -m dragoman`
    return PROGRAM if found is not None and os.path.samefile(called, found) else shlex.quote(called)
