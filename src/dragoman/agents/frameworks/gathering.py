"""Tokens of a framework's run, gathered: a chunk of an artifact costs the server more than the token in it.

Invariant: the first text comes at once, and none waits longer than a window; order is kept, also among what is given
out and what is reported.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from contextvars import ContextVar

from dragoman.agents.coalescing import Windows

PIECES_MAX = 1024
"""As many pieces wait to be given out; then the framework does."""


class Gathering:
    """What waits to be given out, between the task in which the framework runs and the one that gives out."""

    def __init__(self) -> None:
        self._window: asyncio.Future[None] | None = None
        self._hurries = False
        self._waiting: list[object] = []
        self._giving = False
        self._news, self._dry = asyncio.Event(), asyncio.Event()

    def add(self, piece: object) -> bool:
        """One more; whether there is room for another."""
        if not self._waiting:
            self._news.set()
        self._waiting.append(piece)
        return len(self._waiting) < PIECES_MAX

    def end(self) -> None:
        """No more will come."""
        self._news.set()

    async def drained(self) -> None:
        """Returns when all has been given out, which is at once."""
        while self._waiting or self._giving:
            self._dry.clear()
            self._hurries = True
            if self._window is not None and not self._window.done():
                self._window.set_result(None)
            await self._dry.wait()

    async def taken(self) -> Iterator[object]:
        """What there is, as soon as there is something or the end; until `given` is called, it is not given out."""
        await self._news.wait()
        self._news.clear()
        pieces, self._waiting = self._waiting, []
        self._giving = True
        return _merged(pieces)

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
        if not self._waiting:
            self._dry.set()


_current: ContextVar[Gathering | None] = ContextVar("gathering", default=None)
"""That of the run that the current task is in."""


async def all_given() -> None:
    """Returns when all that the current run has given so far is given out: what is reported now comes after it."""
    if (gathering := _current.get()) is not None:
        await gathering.drained()


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


def _merged(pieces: list[object]) -> Iterator[object]:
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if texts:
            yield "".join(texts)
            texts = []
        yield piece
    if texts:
        yield "".join(texts)
