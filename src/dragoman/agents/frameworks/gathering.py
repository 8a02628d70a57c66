"""Tokens of a framework's run, gathered: a chunk of an artifact costs the server more than the token in it.

Invariant: the first text comes at once, and none waits longer than a window; order is kept, also among what is given
out and what is reported.

Texts can be yielded like all else; `saying` is the shorter way for a stream of tokens, where every step of every
token counts.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar

from dragoman.agents.text_windows import Windows

PIECES_MAX = 1024
"""As many pieces wait to be given out; then the framework does."""


class Gathering:
    """What waits to be given out, between the task in which the framework runs and the one that gives out.

    `_texts` come after `_pieces`; in these there are no two texts in a row.
    """

    def __init__(self) -> None:
        self._window: asyncio.Future[None] | None = None
        self._hurries = False
        self._pieces: list[object] = []
        self._texts: list[str] = []
        self._giving = False
        self._news, self._dry = asyncio.Event(), asyncio.Event()

    def say(self, text: str) -> bool:
        """One more text; whether there is room for another piece."""
        texts = self._texts
        if not texts:
            self._news.set()
        texts.append(text)
        return len(texts) < PIECES_MAX

    def add(self, piece: object) -> bool:
        """One more of any kind; whether there is room for another."""
        if isinstance(piece, str):
            return self.say(piece)
        self._join()
        self._pieces.append(piece)
        self._news.set()
        return len(self._pieces) < PIECES_MAX

    def end(self) -> None:
        """No more will come."""
        self._news.set()

    async def drained(self) -> None:
        """Returns when all has been given out, which is at once."""
        while self._texts or self._pieces or self._giving:
            self._dry.clear()
            self._hurries = True
            if self._window is not None and not self._window.done():
                self._window.set_result(None)
            await self._dry.wait()

    async def taken(self) -> Sequence[object]:
        """What there is, as soon as there is something or the end; until `given` is called, it is not given out."""
        await self._news.wait()
        self._news.clear()
        self._join()
        pieces, self._pieces = self._pieces, []
        self._giving = True
        return pieces

    async def more(self, windows: Windows, pulling: asyncio.Task[None]) -> None:
        """Returns after a window, or earlier if the run ends or waits for what it gave to be given out."""
        if not self._hurries:
            self._window = asyncio.get_running_loop().create_future()
            windows.begin(self._window)
            await asyncio.wait((self._window, pulling), return_when=asyncio.FIRST_COMPLETED)
        self._hurries = False

    def given(self) -> None:
        """What was taken has been given out."""
        self._giving = False
        if not (self._texts or self._pieces):
            self._dry.set()

    def _join(self) -> None:
        if self._texts:
            self._pieces.append("".join(self._texts))
            self._texts.clear()


_current: ContextVar[Gathering | None] = ContextVar("gathering", default=None)
"""That of the run that the current task is in."""


async def all_given() -> None:
    """Returns when all that the current run has given so far is given out: what is reported now comes after it."""
    if (gathering := _current.get()) is not None:
        await gathering.drained()


def saying() -> Callable[[str], bool]:
    """Takes a text of the current run as a yield of it would, in a tenth of the steps; order is kept among both.

    Once the answer is False there is no room for more: `all_given` is to be awaited.
    """
    gathering = _current.get()
    if gathering is None:
        raise LookupError("only a run that is gathered says anything")
    return gathering.say


async def gathered(pieces: AsyncGenerator[object, None], windows: Windows) -> AsyncGenerator[object, None]:
    """The same, with texts that come within a window as one. The run goes on in a task of its own, which ends here."""
    gathering = Gathering()

    async def pull() -> None:
        _current.set(gathering)
        async with aclosing(pieces):
            async for piece in pieces:
                if not gathering.add(piece):
                    await gathering.drained()

    pulling = asyncio.create_task(pull())
    pulling.add_done_callback(lambda _: gathering.end())
    try:
        while True:
            taken = await gathering.taken()
            ended = pulling.done()
            for piece in taken:
                yield piece
            gathering.given()
            if ended:
                break
            await gathering.more(windows, pulling)
        await pulling
    finally:
        if not pulling.done():
            pulling.cancel()
            await asyncio.wait((pulling,))
