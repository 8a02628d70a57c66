"""A program's output, byte by byte: what of it is text and what are lines that say something.

Invariant: pure. However the bytes are cut, the same text and the same says come out, in the same order. Text waits for
nothing but the rest of a character; only a line that may say something waits for its end.
"""

import codecs
from typing import Literal

from dragoman.agents.program_wire import Said, SaysText, Unreadable, said

Mode = Literal["auto", "lines", "text"]


class Output:
    """Reads what a program writes in `mode`.

    `auto`: a line that begins with `{` and is a JSON object with the keys of something that can be said, says that; all
    else is text. `lines`: every line says something, or is empty. `text`: all is text.
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

    def feed(self, piece: bytes) -> list[Said]:
        """What has been said with `piece`. Neighbouring text is one. Raises Unreadable."""
        out: list[Said] = []
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
                    raise Unreadable(f"line {self._number} is longer than max_line_bytes ({self._max_line_bytes})")
                if self._begins:
                    self._decide(out)
            self._number += self._begins
        self._flush(out)
        return out

    def end(self) -> list[Said]:
        """What is left when no more comes: a last line without a newline is one. Raises Unreadable."""
        out: list[Said] = []
        if self._line:
            self._decide(out)
        self._flush(out, final=True)
        return out

    def _decide(self, out: list[Said]) -> None:
        line = bytes(self._line)
        self._line.clear()
        try:
            says = said(line)
        except Unreadable as error:
            raise Unreadable(f"line {self._number}: {error}") from error
        if isinstance(says, SaysText):
            self._text.append(says.text.encode(errors="replace"))
        elif says is not None:
            self._flush(out)
            out.append(says)
        elif self._mode == "auto":
            self._text.append(line)
        elif line.strip():
            raise Unreadable(f'line {self._number} is not a JSON object that says something: {{"text": "…"}} does')

    def _flush(self, out: list[Said], *, final: bool = False) -> None:
        if text := self._decoder.decode(b"".join(self._text), final):
            out.append(SaysText(text))
        self._text.clear()
