"""A command in a pseudo-terminal, with somebody who types."""

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.a2a.command import DEADLINE_S, Shell


class Terminal:
    """The terminal of one command. `screen` is everything that it has shown so far."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.screen = ""
        self.pid = pid
        self._descriptor = descriptor

    def until(self, text: str, *, after: int = 0) -> int:
        """Wait until a text is on the screen behind a position, and return the position behind it."""
        deadline_s = time.monotonic() + DEADLINE_S
        while (found := self.screen.find(text, after)) < 0:
            assert time.monotonic() < deadline_s, f"no {text!r} in {self.screen[after:]!r}"
            assert self._read(), f"it ended without {text!r}: {self.screen[after:]!r}"
        return found + len(text)

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._descriptor, text.encode())

    def end(self) -> int:
        """Wait until the command ends, and return its exit status."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], DEADLINE_S)
        try:
            piece = os.read(self._descriptor, 65536) if ready else b""
        except OSError:  # the other side is closed
            return False
        self.screen += piece.decode("utf-8", "replace")
        return bool(piece)


@contextmanager
def at_terminal(shell: Shell, *words: str) -> Iterator[Terminal]:
    """Run a command in a terminal of 100 columns and 30 lines, unless the shell's environment says otherwise."""
    pid, descriptor = pty.fork()
    if pid == 0:  # the child, which heeds Ctrl-C even where the tests run in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        environment = {**shell.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TERM": "xterm-256color"}
        os.chdir(shell.work)
        os.execve(
            sys.executable,
            [sys.executable, "-m", "dragoman", *words],
            {"COLUMNS": "100", "LINES": "30", **environment},
        )
    terminal = Terminal(pid, descriptor)
    try:
        yield terminal
    finally:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # `end` has waited for it
        os.close(descriptor)
