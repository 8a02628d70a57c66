"""Our ends of a program's pipes: its input, the statements in its output, and the log of its errors.

Invariant: none of them blocks, each is served independently of the others, and everything held is bounded: output waits
in the pipe for its reader, or is dropped. Statements before a fault are returned before the fault is raised, and no
text waits longer than `coalesce_ms`. No line of the log can pass for another or send control characters to a terminal.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from logging import Logger

from msgspec import Struct

from dragoman.agents.program.wire import SaysText, Statement, StatementParser, UnreadableLine
from dragoman.config import Program

log = logging.getLogger("dragoman.programs")

CHUNK_BYTES = 65_536
"""The usual capacity of a pipe (pipe(7))."""

LEFT_BYTES = 1024 * 1024
"""The largest capacity of a pipe (pipe(7): pipe-max-size): the most output that a program can leave when it exits."""

DRAIN_S = 0.5
"""How long other processes may keep writing after the program has exited: enough for a shell's `tee`."""

LINE_CHARS = 2_000
"""The longest part of a line that is logged."""

LINE_BYTES = 4 * LINE_CHARS
"""The longest part of a line that is held: a character has at most four bytes (RFC 3629 §3)."""

LINES_MAX, LINES_PER_S = 200, 20
"""The most lines logged in a burst, and the most per second on average."""


class InputPipe:
    """The program's input. A program that does not read it, or has closed it, is left alone."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._unsent = b""
        self._at = 0
        self._last = False

    def put(self, data: bytes, *, last: bool) -> None:
        """Write `data` as fast as the program reads. After the `last` data, the program sees the end."""
        self._unsent = self._unsent[self._at :] + data
        self._at, self._last = 0, last
        self._flow()

    def close(self) -> None:
        """Stop writing."""
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._unsent = b""

    def _flow(self) -> None:
        if self._fd < 0:
            return
        view = memoryview(self._unsent)
        try:
            while self._at < len(view):
                self._at += os.write(self._fd, view[self._at : self._at + CHUNK_BYTES])
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._flow)
            return
        except OSError:  # nobody reads
            self.close()
            return
        self._unsent, self._at = b"", 0
        self._loop.remove_writer(self._fd)
        if self._last:
            self.close()


class OutputPipe:
    """The program's stdout. It ends with the program, or a little later if other processes still write to it."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[int]") -> None:
        self._fd = fd
        self._loop = loop
        self._ended = ended
        self._until: float | None = None
        self._left = LEFT_BYTES

    async def read(self, by_s: float | None = None) -> bytes | None:
        """Return the next output; empty at the end, None if nothing came by the loop's time `by_s`."""
        while self._fd >= 0:
            if self._ended.done() and self._until is None:
                self._until = self._loop.time() + DRAIN_S
            late = self._until is not None and self._loop.time() >= self._until
            try:
                piece = os.read(self._fd, CHUNK_BYTES)
            except BlockingIOError:
                if late:
                    break
                if by_s is not None and self._loop.time() >= by_s:
                    return None
                await self._await_change(by_s)
                continue
            if not piece:
                break
            if late:
                self._left -= len(piece)
                if self._left < 0:
                    break
            return piece
        self.close()
        return b""

    def close(self) -> None:
        """Stop reading."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    async def _await_change(self, by_s: float | None) -> None:
        """Wait until there is output, the program has ended, or one of the deadlines has passed."""
        news: asyncio.Future[None] = self._loop.create_future()

        def tell(_: object = None) -> None:
            if not news.done():
                news.set_result(None)

        late = [self._loop.call_at(at_s, tell) for at_s in (self._until, by_s) if at_s is not None]
        if self._until is None:
            self._ended.add_done_callback(tell)
        self._loop.add_reader(self._fd, tell)
        try:
            await news
        finally:
            self._loop.remove_reader(self._fd)
            self._ended.remove_done_callback(tell)
            for timer in late:
                timer.cancel()


class OutputBudget(Struct):
    """How many bytes the programs of a task may still write."""

    left_bytes: int

    def take(self, size: int) -> None:
        """Count bytes that were written."""
        self.left_bytes -= size


class TooMuch(Exception):
    """The program wrote more than its task may."""


class ProgramStatements:
    """The statements that arrive through the `stdout` of a `program`."""

    def __init__(
        self, stdout: OutputPipe, program: Program, budget: OutputBudget, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._stdout = stdout
        self._output = StatementParser(program.output, program.max_line_bytes)
        self._budget = budget
        self._coalesce_s = program.coalesce_ms / 1000
        self._loop = loop
        self._texts: list[str] = []
        self._until_s: float | None = None
        self._fault: UnreadableLine | TooMuch | None = None

    async def read(self) -> list[Statement]:
        """Wait for the next statements; empty at the end. Raises UnreadableLine or TooMuch."""
        while self._fault is None:
            piece = await self._stdout.read(self._until_s)
            said = [] if piece is None else self._read(piece)
            if said and isinstance(first := said[0], SaysText):  # neighbouring text is joined: no other text follows
                self._gather(first.text)
                del said[0]
            if piece and not said and self._fault is None and self._gathers:
                continue
            if (said := self.waiting() + said) or piece == b"":
                return said
        raise self._fault

    def waiting(self) -> list[Statement]:
        """Take the gathered text that has not been returned yet."""
        text = "".join(self._texts)
        self._texts.clear()
        self._until_s = None
        return [SaysText(text)] if text else []

    def _read(self, piece: bytes) -> list[Statement]:
        """Parse a piece, or the end. A fault is kept for later."""
        said: list[Statement] = []
        self._budget.take(len(piece))
        if self._budget.left_bytes < 0:
            self._fault = TooMuch()
            return said
        try:
            for each in self._output.feed(piece) if piece else self._output.end():
                said.append(each)
        except UnreadableLine as error:
            self._fault = error
        return said

    def _gather(self, text: str) -> None:
        self._texts.append(text)
        if self._until_s is None:
            self._until_s = self._loop.time() + self._coalesce_s

    @property
    def _gathers(self) -> bool:
        """Whether the gathered text waits for more."""
        return not self._texts or (self._coalesce_s > 0 and sum(map(len, self._texts)) < CHUNK_BYTES)


class ErrorLog:
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


class ErrorPipe:
    """The program's stderr, fed to `complaints`."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, complaints: ErrorLog) -> None:
        self._fd = fd
        self._loop = loop
        self._complaints = complaints
        loop.add_reader(fd, self._hear)

    def close(self) -> None:
        """Read what is still there, and stop reading."""
        for _ in range(LEFT_BYTES // CHUNK_BYTES):
            if not self._hear():
                break
        self._shut()

    def _hear(self) -> bool:
        """Read what is there. Returns whether there may be more."""
        if self._fd < 0:
            return False
        try:
            piece = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not piece:
            self._shut()
            return False
        self._complaints.feed(piece)
        return True

    def _shut(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._complaints.end()
