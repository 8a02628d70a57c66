"""Windows: how long small pieces of output are gathered before they are emitted together.

Invariant: a window is never shorter than configured; everything that arrives within it is one chunk. In a server that
keeps up, a window is at most a third longer, so that it ends together with others and thousands of streams need only a
few hundred timers a second. When the event loop is busy, windows grow: fewer, larger chunks cost less and so arrive
sooner. A window lasts at least until the run's previous output is committed: text emitted earlier would only wait
there, in more pieces.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

SHARES = 3
"""Windows end on a grid with this many points to a window: every 10 ms for a window of 30 ms. Chunks that end together
share a commit and its cost."""

EARLY = 2 / 3
"""A window that has grown lasts at least this fraction of its length. After that, it ends at the grid point where the
fewest others end. If all windows ended at once, each token would wait for the work on all streams."""

GROWN_MAX = 3.0
"""The longest window, as a multiple of the configured length: 90 ms instead of 30."""

BUSY = 0.6
"""Windows grow until the event loop's thread works for at most this fraction of the time. Above it, input waits for
more than one turn of the loop, and the thread that commits waits for the interpreter."""

LOOK_S = 0.1
"""Shortest time between two measurements of the load, so that the last change can take effect first."""


class Landing(Protocol):
    """The receiver of the output: see `engine.api.Run`."""

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Complete `done` as soon as the write in progress is committed."""
        ...


class Windows:
    """Windows of `length_s` seconds, 0 for none. Belongs to one event loop at a time.

    `used_s` returns the time that the loop's thread has worked. `length_s` is the length of a window that begins now.
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
        """Begin a window for `run`, which has emitted all it had. `window` is done when the window ends, or earlier."""
        if self._said_s <= 0:
            _end(window, run)
            return
        loop = window.get_loop()
        now_s = loop.time()
        if now_s - self._looked_s >= LOOK_S:
            self._measure(now_s)
        at = self._point(now_s)
        due = self._due.get(at)
        if due is None:
            due = self._due[at] = []
            loop.call_at(at * self._grain_s, self._end_due, at)
        due.append((window, run))

    def _measure(self, now_s: float) -> None:
        """Grow if the thread is busier than it should be, else shrink; go half of the way to the ideal length."""
        used_s = self._used()
        busy = (used_s - self._used_s) / (now_s - self._looked_s)
        self._used_s, self._looked_s = used_s, now_s
        length_s = self.length_s * (1 + busy / BUSY) / 2
        self.length_s = min(max(self._said_s, length_s), GROWN_MAX * self._said_s)

    def _point(self, now_s: float) -> int:
        """The grid point at which a window that begins now ends."""
        first = int((now_s + self._said_s) / self._grain_s) + 1
        point = max(first, int((now_s + self.length_s) / self._grain_s))
        fewest = len(self._due.get(point, ()))
        if fewest:
            least = max(first, int((now_s + EARLY * self.length_s) / self._grain_s) + 1)
            for earlier in range(point - 1, least - 1, -1):
                if (number := len(self._due.get(earlier, ()))) < fewest:
                    point, fewest = earlier, number
        return point

    def _end_due(self, at: int) -> None:
        for window, run in self._due.pop(at):
            _end(window, run)


def _end(window: "asyncio.Future[None]", run: Landing | None) -> None:
    if run is not None:
        run.landing(window)
    elif not window.done():
        window.set_result(None)
