"""The record of a store's writes, and its outages: from the first failed write until writes have worked for a while.

Invariant: an outage makes two log lines, one when it begins and one when it is over, however many writes fail.
"""

import asyncio
import logging

from msgspec import Struct

from dragoman.model.ids import Clock
from dragoman.telemetry.histogram import COMMIT_BOUNDS_S, Histogram

log = logging.getLogger("dragoman.store")

OVER_S = 2.0
"""An outage is over when a write has worked and none has failed for this long. On a disk that is nearly full, small
writes succeed while large ones fail; that counts as one outage."""


class Outage(Struct, frozen=True):
    """A store that cannot be written. `reason` is fit for any reader; `writes` counts those that failed so far."""

    reason: str
    since_ms: int
    writes: int


class WriteRecord:
    """The writes that one store object was asked for, and what they have shown of the store. Used on the loop."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.writes = 0
        """How many writes were asked for."""
        self.failed_writes = 0
        """How many of them failed with StoreError."""
        self.written_ms = 0
        """When the last write was committed, in milliseconds since the epoch; 0 before the first."""
        self.commits = Histogram(COMMIT_BOUNDS_S)
        """How long commits have taken: each of one or many writes."""
        self.outage: Outage | None = None
        """The outage that the latest writes have shown; None while the store can be written."""
        self._url = url
        self._clock = clock
        self._watcher: asyncio.Event | None = None
        self._failed_s = 0.0
        self._over: asyncio.TimerHandle | None = None

    def watch(self, committed: asyncio.Event | None) -> None:
        """Set `committed` after each commit of this process, soon after its writers learn of it.

        There is one such event; None ends it. The commits of other processes are not told.
        """
        self._watcher = committed

    def note_write(self) -> None:
        """Count a write that somebody asks for."""
        self.writes += 1

    def note_commit(self, now_ms: int) -> None:
        """Note when something was committed. May be called by the thread that writes."""
        self.written_ms = now_ms

    def failed(self, writes: int, reason: str, error: Exception) -> None:
        """Count `writes` more failures, the last one with `error`. `reason` is the text that any reader may see."""
        loop = asyncio.get_running_loop()
        self._failed_s = loop.time()
        self.failed_writes += writes
        if self._over is not None:
            self._over.cancel()
            self._over = None
        if self.outage is None:
            log.error(
                "the store cannot be written: %s. Callers get 503, agents wait and their writes are tried again: %s",
                reason,
                error,
            )
            self.outage = Outage(reason, self._clock.now_ms(), writes)
        else:
            self.outage = Outage(reason, self.outage.since_ms, self.outage.writes + writes)

    def committed(self) -> None:
        """Note that something was committed."""
        if self._watcher is not None:
            self._watcher.set()
        if self.outage is not None and self._over is None:
            loop = asyncio.get_running_loop()
            self._over = loop.call_at(self._failed_s + OVER_S, self._end)

    def close(self) -> None:
        """End an outage early in which writes have worked again, because the store closes."""
        if self._over is not None:
            self._end()

    def _end(self) -> None:
        outage, self.outage = self.outage, None
        if self._over is not None:
            self._over.cancel()
            self._over = None
        if outage is not None:
            lasted_s = (self._clock.now_ms() - outage.since_ms) / 1000
            log.info("store %s can be written again: %d writes failed in %.1f s", self._url, outage.writes, lasted_s)
