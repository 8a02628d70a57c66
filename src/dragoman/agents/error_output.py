"""Logs the standard error of a program, line by line.

Invariant: pure but for the log. However much the program writes, the part that is logged and held is bounded, and
little time is spent on the rest. No line can pass for another log line or send control characters to a terminal.
"""

import time
from collections.abc import Callable
from logging import Logger

LINE_CHARS = 2_000
"""The longest part of a line that is logged."""

LINE_BYTES = 4 * LINE_CHARS
"""The longest part of a line that is held: a character has at most four bytes (RFC 3629 §3)."""

LINES_MAX, LINES_PER_S = 200, 20
"""The most lines logged in a burst, and the most per second on average."""


class Complaints:
    """The lines of one program, logged under `title`. Blank ones are left out."""

    __slots__ = ("_budget", "_clock", "_left_out", "_line", "_log", "_since", "_title")

    def __init__(self, log: Logger, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._title = title
        self._clock = clock
        self._line = b""
        self._budget, self._since = float(LINES_MAX), clock()
        self._left_out = 0

    def feed(self, piece: bytes) -> None:
        """Take the next output of the program."""
        now = self._clock()
        self._budget = min(float(LINES_MAX), self._budget + (now - self._since) * LINES_PER_S)
        self._since = now
        may = 0 if self._left_out and self._budget < LINES_PER_S else int(self._budget)  # reported once a second
        *lines, rest = (self._line + piece).split(b"\n", may)
        for line in lines:
            self._say(line)
        if unsaid := rest.count(b"\n"):
            self._left_out += unsaid
            rest = rest[rest.rindex(b"\n") + 1 :]
        self._line = rest[:LINE_BYTES]

    def end(self) -> None:
        """Log what is left: the last line may lack its newline."""
        line, self._line = self._line, b""
        self._say(line)
        self._say_left_out()

    def _say(self, line: bytes) -> None:
        text = line[:LINE_BYTES].decode(errors="replace").rstrip()
        if not text:
            return
        self._say_left_out()
        self._budget -= 1
        cut = text[:LINE_CHARS] + ("…" if len(text) > LINE_CHARS else "")
        self._log.info("%s: %s", self._title, "".join(c if c.isprintable() or c == "\t" else "�" for c in cut))

    def _say_left_out(self) -> None:
        if self._left_out:
            self._log.warning("%s: %d lines of stderr were left out", self._title, self._left_out)
            self._left_out = 0
