"""Outages: a store that cannot be written, from its first failed write until writes have worked for a while.

Invariant: an outage makes two log lines, one when it begins and one when it is over, however many writes fail.
"""

import asyncio
import logging

from msgspec import Struct

from dragoman.model.ids import Clock

log = logging.getLogger("dragoman.store")

OVER_S = 2.0
"""An outage is over when a write has worked and none has failed for this long. On a disk that is nearly full, small
writes succeed while large ones fail; that counts as one outage."""


class Outage(Struct, frozen=True):
    """A store that cannot be written. `reason` is fit for any reader; `writes` counts those that failed so far."""

    reason: str
    since_ms: int
    writes: int


class Outages:
    """Follows the writes of one store. Called on the loop."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.now: Outage | None = None
        self.failed_writes = 0
        """How many writes have failed since the store was opened."""
        self._url = url
        self._clock = clock
        self._failed_s = 0.0
        self._over: asyncio.TimerHandle | None = None

    def failed(self, writes: int, reason: str, error: Exception) -> None:
        """Count `writes` more failures, the last one with `error`. `reason` is the text that any reader may see."""
        loop = asyncio.get_running_loop()
        self._failed_s = loop.time()
        self.failed_writes += writes
        if self._over is not None:
            self._over.cancel()
            self._over = None
        if self.now is None:
            log.error(
                "the store cannot be written: %s. Callers get 503, agents wait and their writes are tried again: %s",
                reason,
                error,
            )
            self.now = Outage(reason, self._clock.now_ms(), writes)
        else:
            self.now = Outage(reason, self.now.since_ms, self.now.writes + writes)

    def worked(self) -> None:
        """Note that a write was committed."""
        if self.now is not None and self._over is None:
            loop = asyncio.get_running_loop()
            self._over = loop.call_at(self._failed_s + OVER_S, self._end)

    def close(self) -> None:
        """End an outage early in which writes have worked again, because the store closes."""
        if self._over is not None:
            self._end()

    def _end(self) -> None:
        outage, self.now = self.now, None
        if self._over is not None:
            self._over.cancel()
            self._over = None
        if outage is not None:
            lasted_s = (self._clock.now_ms() - outage.since_ms) / 1000
            log.info("store %s can be written again: %d writes failed in %.1f s", self._url, outage.writes, lasted_s)
