"""A program's output, byte by byte: what of it is text and what are lines that say something.

Invariant: pure. However the bytes are cut, the same text and the same says come out, in the same order. Text waits for
nothing but the rest of a character; only a line that may say something waits for its end.
"""

import codecs
from collections.abc import Iterator
from typing import Literal

from dragoman.agents.program.wire import Said, SaysText, Unreadable, said

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

    def feed(self, piece: bytes) -> Iterator[Said]:
        """What has been said with `piece`, all of which is to be asked for. Neighbouring text is one.

        Raises Unreadable, after what was said before.
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
                    yield from self._flushed()
                    raise Unreadable(f"line {self._number} is longer than max_line_bytes ({self._max_line_bytes})")
                if self._begins:
                    yield from self._decided()
            self._number += self._begins
        yield from self._flushed()

    def end(self) -> Iterator[Said]:
        """What is left when no more comes: a last line without a newline is one. Raises Unreadable."""
        if self._line:
            yield from self._decided()
        yield from self._flushed(final=True)

    def _decided(self) -> Iterator[Said]:
        """What a line is, with the text before it unless it is text itself."""
        line = bytes(self._line)
        self._line.clear()
        try:
            says = said(line)
        except Unreadable as error:
            yield from self._flushed()
            raise Unreadable(f"line {self._number}: {error}") from error
        if isinstance(says, SaysText):
            self._text.append(says.text.encode(errors="replace"))
        elif says is not None:
            yield from self._flushed()
            yield says
        elif self._mode == "auto":
            self._text.append(line)
        elif line.strip():
            yield from self._flushed()
            raise Unreadable(f'line {self._number} is not a JSON object that says something: {{"text": "…"}} does')

    def _flushed(self, *, final: bool = False) -> Iterator[Said]:
        text = self._decoder.decode(b"".join(self._text), final)
        self._text.clear()
        if text:
            yield SaysText(text)
