"""Parses a program's output, byte by byte, into text and into lines that are statements.

Invariant: pure. However the bytes are cut, the same text and statements come out, in the same order. Text waits only
for the rest of a character; only a line that may be a statement waits for its end.
"""

import codecs
from collections.abc import Iterator
from typing import Literal

from dragoman.agents.program.wire import Said, SaysText, Unreadable, said

Mode = Literal["auto", "lines", "text"]


class Output:
    """Parses what a program writes in `mode`.

    `auto`: a line that begins with `{` and is a JSON object with the keys of a statement is that statement; everything
    else is text. `lines`: every line is a statement, or empty. `text`: everything is text.
    """

    def __init__(self, mode: Mode, max_line_bytes: int) -> None:
        self._mode = mode
        self._max_line_bytes = max_line_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text: list[bytes] = []
        self._line = bytearray()
        self._begins = True
        self._holds = False
        self._number = 1

    def feed(self, piece: bytes) -> Iterator[Said]:
        """Parse the next piece. The caller must exhaust the iterator. Neighbouring text is joined.

        Raises Unreadable, after what came before the fault.
        """
        at = 0
        while at < len(piece):
            end = (piece.find(b"\n", at) + 1) if self._mode != "text" else 0
            bit = piece[at : end or len(piece)]
            at += len(bit)
            if self._begins:
                self._holds = self._mode == "lines" or (self._mode == "auto" and bit[:1] == b"{")
            self._begins = end > 0
            if not self._holds:
                self._text.append(bit)
            else:
                self._line += bit
                if len(self._line) > self._max_line_bytes:
                    yield from self._flush()
                    raise Unreadable(f"line {self._number} is longer than max_line_bytes ({self._max_line_bytes})")
                if self._begins:
                    yield from self._decide()
            self._number += self._begins
        yield from self._flush()

    def end(self) -> Iterator[Said]:
        """Parse what is left at the end: the last line may lack its newline. Raises Unreadable."""
        if self._line:
            yield from self._decide()
        yield from self._flush(final=True)

    def _decide(self) -> Iterator[Said]:
        """Parse a whole line. The text before it comes first, unless the line is text itself."""
        line = bytes(self._line)
        self._line.clear()
        try:
            says = said(line)
        except Unreadable as error:
            yield from self._flush()
            raise Unreadable(f"line {self._number}: {error}") from error
        if isinstance(says, SaysText):
            self._text.append(says.text.encode(errors="replace"))
        elif says is not None:
            yield from self._flush()
            yield says
        elif self._mode == "auto":
            self._text.append(line)
        elif line.strip():
            yield from self._flush()
            raise Unreadable(f'line {self._number} is not a JSON object that says something: {{"text": "…"}} does')

    def _flush(self, *, final: bool = False) -> Iterator[Said]:
        text = self._decoder.decode(b"".join(self._text), final)
        self._text.clear()
        if text:
            yield SaysText(text)
