"""Windows: for how long what comes in small pieces is gathered before it is given out.

Invariant: a window is never shorter than it was said to be: what comes within that time is one chunk. In a server that
keeps up it is at most a third longer, to end together with those of others, so that thousands of streams need a few
hundred timers a second. Where the loop has little time left, windows grow: fewer and larger chunks cost less, and so
come sooner. A window lasts at least until what its run gave out before is committed: given out earlier it would only
wait there, in more pieces.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

SHARES = 3
"""Ends of windows fall on a grid of so many points to a window: at 30 ms one every 10 ms. What ends together shares a
commit, and what each commit costs."""

EARLY = 2 / 3
"""A window that has grown lasts at least this part of its length; in the rest of it, it ends when the fewest others do.
Windows that all end at once would have each token wait for the work on all streams."""

GROWN_MAX = 3.0
"""Of its length, a window is at most so long: 90 ms instead of 30."""

BUSY = 0.6
"""Windows grow until the thread of the loop is at work for no more than this part of the time. Beyond it, what comes
waits for more than one turn of the loop, and the thread that commits for the interpreter."""

LOOK_S = 0.1
"""How often it is looked at how busy the thread is, at most: what was changed last must have had its effect."""


class Landing(Protocol):
    """What is given out to: see `engine.api.Run`."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """`done` is done when what is being written now has been."""
        ...


class Windows:
    """Windows of `length_s`, 0 for none. Belongs to one event loop at a time. `used_s` is the time its thread worked.

    `length_s` is how long a window is that begins now.
    """

    __slots__ = ("_due", "_grain_s", "_looked_s", "_said_s", "_used", "_used_s", "length_s")

    def __init__(self, length_s: float, used_s: Callable[[], float] = time.thread_time) -> None:
        self.length_s = self._said_s = length_s
        self._grain_s = length_s / SHARES
        self._used = used_s
        self._used_s = 0.0
        self._looked_s = 0.0
        self._due: dict[int, list[tuple[asyncio.Future[None], Landing | None]]] = {}

    def begin(self, window: "asyncio.Future[None]", run: Landing | None = None) -> None:
        """A window of `run`, which has given out what it had, begins: `window` is done when it ends, at the latest."""
        if self._said_s <= 0:
            _end(window, run)
            return
        loop = window.get_loop()
        now_s = loop.time()
        if now_s - self._looked_s >= LOOK_S:
            self._look(now_s)
        at = self._point(now_s)
        due = self._due.get(at)
        if due is None:
            due = self._due[at] = []
            loop.call_at(at * self._grain_s, self._ended, at)
        due.append((window, run))

    def _look(self, now_s: float) -> None:
        """Grow if the thread has been busier than it should be, else shrink; half as much as would do."""
        used_s = self._used()
        busy = (used_s - self._used_s) / (now_s - self._looked_s)
        self._used_s, self._looked_s = used_s, now_s
        length_s = self.length_s * (1 + busy / BUSY) / 2
        self.length_s = min(max(self._said_s, length_s), GROWN_MAX * self._said_s)

    def _point(self, now_s: float) -> int:
        """The point of the grid at which a window that begins now ends."""
        first = int((now_s + self._said_s) / self._grain_s) + 1
        point = max(first, int((now_s + self.length_s) / self._grain_s))
        fewest = len(self._due.get(point, ()))
        if fewest:
            least = max(first, int((now_s + EARLY * self.length_s) / self._grain_s) + 1)
            for earlier in range(point - 1, least - 1, -1):
                if (number := len(self._due.get(earlier, ()))) < fewest:
                    point, fewest = earlier, number
        return point

    def _ended(self, at: int) -> None:
        for window, run in self._due.pop(at):
            _end(window, run)


def _end(window: "asyncio.Future[None]", run: Landing | None) -> None:
    if run is not None:
        run.landing(window)
    elif not window.done():
        window.set_result(None)
