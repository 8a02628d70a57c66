"""Gathers the tokens of a framework's run, since a chunk of an artifact costs the server more than the token in it.

Invariant: the first text is emitted at once, and none waits longer than a window. Order is kept, also between output
and reports.

Texts can be yielded like everything else; `text_sink` is the shorter way for a stream of tokens, where every step of
every token counts.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar

from dragoman.agents.text_windows import Windows

PIECES_MAX = 1024
"""The most pieces that wait to be emitted; then the framework waits."""


class Gathering:
    """The output on its way from the task in which the framework runs to the task that emits it.

    `_texts` come after `_pieces`, which never hold two texts in a row.
    """

    def __init__(self) -> None:
        self._window: asyncio.Future[None] | None = None
        self._hurries = False
        self._pieces: list[object] = []
        self._texts: list[str] = []
        self._giving = False
        self._news, self._dry = asyncio.Event(), asyncio.Event()

    def say(self, text: str) -> bool:
        """Add a text. Returns whether there is room for another piece."""
        texts = self._texts
        if not texts:
            self._news.set()
        texts.append(text)
        return len(texts) < PIECES_MAX

    def add(self, piece: object) -> bool:
        """Add a piece of any kind. Returns whether there is room for another."""
        if isinstance(piece, str):
            return self.say(piece)
        self._join()
        self._pieces.append(piece)
        self._news.set()
        return len(self._pieces) < PIECES_MAX

    def end(self) -> None:
        """Note that no more pieces come."""
        self._news.set()

    async def drain(self) -> None:
        """Have everything emitted at once, and return when that is done."""
        while self._texts or self._pieces or self._giving:
            self._dry.clear()
            self._hurries = True
            if self._window is not None and not self._window.done():
                self._window.set_result(None)
            await self._dry.wait()

    async def take(self) -> Sequence[object]:
        """Wait for pieces or the end, and take them. They count as emitted only when `mark_emitted` is called."""
        await self._news.wait()
        self._news.clear()
        self._join()
        pieces, self._pieces = self._pieces, []
        self._giving = True
        return pieces

    async def wait_window(self, windows: Windows, pulling: asyncio.Task[None]) -> None:
        """Wait for a window, or until the run ends or waits for its output to be emitted."""
        if not self._hurries:
            self._window = asyncio.get_running_loop().create_future()
            windows.begin(self._window)
            await asyncio.wait((self._window, pulling), return_when=asyncio.FIRST_COMPLETED)
        self._hurries = False

    def mark_emitted(self) -> None:
        """Note that the taken pieces have been emitted."""
        self._giving = False
        if not (self._texts or self._pieces):
            self._dry.set()

    def _join(self) -> None:
        if self._texts:
            self._pieces.append("".join(self._texts))
            self._texts.clear()


_current: ContextVar[Gathering | None] = ContextVar("gathering", default=None)
"""The Gathering of the run that the current task belongs to."""


async def flush_output() -> None:
    """Return when everything from the current run so far is emitted, so that a report made now comes after it."""
    if (gathering := _current.get()) is not None:
        await gathering.drain()


def text_sink() -> Callable[[str], bool]:
    """A function that takes texts of the current run like a yield, in a tenth of the steps, in the same order.

    Once it returns False, there is no room for more: await `flush_output`.
    """
    gathering = _current.get()
    if gathering is None:
        raise LookupError("saying() works only within a gathered run")
    return gathering.say


async def gather_texts(pieces: AsyncGenerator[object, None], windows: Windows) -> AsyncGenerator[object, None]:
    """The same pieces, with the texts of a window joined. The run has a task of its own, which ends here."""
    gathering = Gathering()

    async def pull() -> None:
        _current.set(gathering)
        async with aclosing(pieces):
            async for piece in pieces:
                if not gathering.add(piece):
                    await gathering.drain()

    pulling = asyncio.create_task(pull())
    pulling.add_done_callback(lambda _: gathering.end())
    try:
        while True:
            taken = await gathering.take()
            ended = pulling.done()
            for piece in taken:
                yield piece
            gathering.mark_emitted()
            if ended:
                break
            await gathering.wait_window(windows, pulling)
        await pulling
    finally:
        if not pulling.done():
            pulling.cancel()
            await asyncio.wait((pulling,))
