"""Windows: for how long what comes in small pieces is gathered before it is given out.

Invariant: a window of a server that keeps up is never longer than it was said to be, and may end a little earlier,
together with those of others, so that thousands of streams need a few hundred timers a second. Where commits take long,
windows grow: fewer and larger chunks cost less, and so come sooner. A window lasts at least until what its run gave out
before is committed: given out earlier it would only wait there, in more pieces.
"""

import asyncio
from functools import partial
from typing import Protocol

SHARES = 6
"""Ends of windows fall on a grid of so many points to a window: at 30 ms one every 5 ms."""

GROWN_MAX = 2.5
"""Of its length, a window is at most so long: 75 ms instead of 30."""

COMMITS = 4.0
"""A window is at least so many times as long as a commit takes: then the server has a part of its time left."""

SAMPLED = 8
"""Of so many windows, the commit at the beginning of one is timed."""

SMOOTHING = 0.2
"""The weight of one timing."""


class Landing(Protocol):
    """What is given out to: see `engine.api.Run`."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """`done` is done when what is being written now has been."""
        ...


class Windows:
    """Windows of `length_s`, 0 for none. Belongs to one event loop at a time."""

    __slots__ = ("_begun", "_commit_s", "_due", "_grain_s", "_length_s")

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._grain_s = length_s / SHARES
        self._commit_s = 0.0
        self._begun = 0
        self._due: dict[int, list[tuple[asyncio.Future[None], Landing | None]]] = {}

    @property
    def length_s(self) -> float:
        """How long a window is that begins now."""
        return max(self._length_s, min(COMMITS * self._commit_s, GROWN_MAX * self._length_s))

    def begin(self, window: "asyncio.Future[None]", run: Landing | None = None) -> None:
        """A window of `run`, which has given out what it had, begins: `window` is done when it ends, at the latest."""
        if self._length_s <= 0:
            _end(window, run)
            return
        loop = window.get_loop()
        now_s = loop.time()
        at = int((now_s + self.length_s) / self._grain_s)
        due = self._due.get(at)
        if due is None:
            due = self._due[at] = []
            loop.call_at(at * self._grain_s, self._ended, at)
        due.append((window, run))
        self._begun += 1
        if run is not None and self._begun % SAMPLED == 0:
            landed: asyncio.Future[None] = loop.create_future()
            landed.add_done_callback(partial(self._landed, loop, now_s))
            run.landing(landed)

    def _landed(self, loop: asyncio.AbstractEventLoop, began_s: float, _: "asyncio.Future[None]") -> None:
        self._commit_s += SMOOTHING * (loop.time() - began_s - self._commit_s)

    def _ended(self, at: int) -> None:
        for window, run in self._due.pop(at):
            _end(window, run)


def _end(window: "asyncio.Future[None]", run: Landing | None) -> None:
    if run is not None:
        run.landing(window)
    elif not window.done():
        window.set_result(None)
