"""Receipts: what became of calls, until it is written down.

Invariant: what cannot be written is tried again, and then left to the claim, which runs out: a call is rather made
twice than forgotten.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable
from functools import partial

from dragoman.store.outbox import Outbox, Settled
from dragoman.telemetry.counts import Counts

log = logging.getLogger(__name__)

WRITES_MAX = 12
"""So often more it is tried to write down what became of a call: until its claim runs out."""


class Receipts:
    """Those of one outbox. A write that failed is made again `again_s` later, unless `stopping`.

    `retries` is told when a call is to be made again, in milliseconds since the epoch; `waits` that there is something
    to write.
    """

    def __init__(
        self,
        outbox: Outbox,
        counts: Counts | None,
        again_s: float,
        *,
        retries: Callable[[int], None],
        waits: Callable[[], None],
    ) -> None:
        self.stopping = False
        self._outbox = outbox
        self._counts = counts
        self._again_s = again_s
        self._retries = retries
        self._waits = waits
        self._unwritten: list[tuple[Settled, int]] = []
        self._settling: set[Future[None]] = set()

    def add(self, settled: Settled, failed: int = 0) -> None:
        """What became of calls; writing it has failed so often."""
        self._unwritten.append((settled, failed))

    def write(self) -> None:
        """Write down what was added since the last time: together, and before the claims that build on it."""
        done, self._unwritten = self._unwritten, []
        for settled, failed in done:
            written = self._outbox.settle(settled)
            self._settling.add(written)
            written.add_done_callback(partial(self._settled, settled, failed))

    async def written(self) -> None:
        """Wait until what is under way is written."""
        if self._settling:
            await asyncio.wait(self._settling)

    def _settled(self, settled: Settled, failed: int, written: "Future[None]") -> None:
        self._settling.discard(written)
        if written.cancelled():
            return
        if (error := written.exception()) is not None:
            if failed < WRITES_MAX and not self.stopping:
                asyncio.get_running_loop().call_later(self._again_s, self._again, settled, failed + 1)
            else:
                log.warning("a webhook call was made, and could not be written down; it is made again: %s", error)
            return
        if settled.outcome == "retry":
            self._retries(settled.due_ms)
        elif settled.outcome != "delivered":
            log.warning("webhook call %d is given up: %s", settled.number, settled.reason)
        if self._counts is not None:
            for _ in settled.before:
                self._counts.pushed("delivered")
            self._counts.pushed(settled.outcome)

    def _again(self, settled: Settled, failed: int) -> None:
        self.add(settled, failed)
        self._waits()
