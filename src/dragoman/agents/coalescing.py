"""Windows: for how long what comes in small pieces is gathered before it is given out.

Invariant: a window of a server that keeps up is never longer than it was said to be, and may end a little earlier,
together with those of others, so that thousands of streams need a few hundred timers a second. Where it does not keep
up, windows grow, up to three times: fewer and larger chunks cost less, and so come sooner.
"""

import asyncio

SHARES = 6
"""Ends of windows fall on a grid of so many points to a window: at 30 ms one every 5 ms."""

LATE_S = 0.002
"""As late as that a timer may be where nothing is wrong."""

GROWTH = 8.0
"""By how much windows grow for what timers are late beyond that."""

GROWN_MAX = 2.0
"""Of the window, at most so much is added."""

SMOOTHING = 0.1
"""The weight of one timer: what was late ten timers ago counts for a third."""


class Windows:
    """Windows of `length_s`, 0 for none. Belongs to one event loop at a time."""

    __slots__ = ("_due", "_grain_s", "_late_s", "_length_s")

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._grain_s = length_s / SHARES
        self._late_s = 0.0
        self._due: dict[int, list[asyncio.Future[None]]] = {}

    @property
    def length_s(self) -> float:
        """How long a window is that begins now."""
        grown_s = GROWTH * max(0.0, self._late_s - LATE_S)
        return self._length_s + min(grown_s, GROWN_MAX * self._length_s)

    def opened(self) -> asyncio.Future[None]:
        """A window that begins now: done when it ends. Whoever waits no longer may end it."""
        window: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begin(window)
        return window

    def begin(self, window: "asyncio.Future[None]") -> None:
        """A window begins now: `window` is done when it ends, unless it is before."""
        if self._length_s <= 0:
            if not window.done():
                window.set_result(None)
            return
        loop = window.get_loop()
        at = int((loop.time() + self.length_s) / self._grain_s)
        due = self._due.get(at)
        if due is None:
            due = self._due[at] = []
            loop.call_at(at * self._grain_s, self._ended, loop, at)
        due.append(window)

    def _ended(self, loop: asyncio.AbstractEventLoop, at: int) -> None:
        late_s = max(0.0, loop.time() - at * self._grain_s)
        self._late_s += SMOOTHING * (late_s - self._late_s)
        for window in self._due.pop(at):
            if not window.done():
                window.set_result(None)
