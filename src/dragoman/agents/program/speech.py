"""A program's statements, in order, to the end. Text that comes in small pieces is gathered for a moment.

Invariant: what came before a fault is returned before the fault is raised. No text waits longer than `coalesce_ms`, or
for anything but more text.
"""

import asyncio

from msgspec import Struct

from dragoman.agents.program.output import Output
from dragoman.agents.program.pipes import CHUNK_BYTES, Yield
from dragoman.agents.program.wire import Said, SaysText, Unreadable
from dragoman.config import Program


class Budget(Struct):
    """How many bytes the programs of a task may still write."""

    left_bytes: int


class TooMuch(Exception):
    """The program wrote more than its task may."""


class Speech:
    """The statements that arrive through the `stdout` of a `program`."""

    def __init__(self, stdout: Yield, program: Program, budget: Budget, loop: asyncio.AbstractEventLoop) -> None:
        self._stdout = stdout
        self._output = Output(program.output, program.max_line_bytes)
        self._budget = budget
        self._coalesce_s = program.coalesce_ms / 1000
        self._loop = loop
        self._texts: list[str] = []
        self._until_s: float | None = None
        self._fault: Unreadable | TooMuch | None = None

    async def heard(self) -> list[Said]:
        """Wait for the next statements; empty at the end. Raises Unreadable or TooMuch."""
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

    def waiting(self) -> list[Said]:
        """Take the gathered text that has not been returned yet."""
        text = "".join(self._texts)
        self._texts.clear()
        self._until_s = None
        return [SaysText(text)] if text else []

    def _read(self, piece: bytes) -> list[Said]:
        """Parse a piece, or the end. A fault is kept for later."""
        said: list[Said] = []
        self._budget.left_bytes -= len(piece)
        if self._budget.left_bytes < 0:
            self._fault = TooMuch()
            return said
        try:
            for each in self._output.feed(piece) if piece else self._output.end():
                said.append(each)
        except Unreadable as error:
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
