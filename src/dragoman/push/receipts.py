"""Receipts: the outcomes of calls, until they are written to the outbox.

Invariant: a failed write is repeated, and in the end left to the claim, which expires: a delivery is sent twice rather
than lost.
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
"""How often a failed write is repeated: until the claim has expired."""


class Receipts:
    """The receipts of one outbox. A failed write is repeated `again_s` later, unless `stopping`.

    `retries` is called with the time of a retry, in milliseconds since the epoch; `waits` is called when there is
    something to write.
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
        """Add an outcome to write. `failed` is how often writing it has failed."""
        self._unwritten.append((settled, failed))

    def write(self) -> None:
        """Write what was added since the last call: in one batch, before the claims that depend on it."""
        done, self._unwritten = self._unwritten, []
        for settled, failed in done:
            written = self._outbox.settle(settled)
            self._settling.add(written)
            written.add_done_callback(partial(self._record_result, settled, failed))

    async def written(self) -> None:
        """Wait until all writes under way have ended."""
        if self._settling:
            await asyncio.wait(self._settling)

    def _record_result(self, settled: Settled, failed: int, written: "Future[None]") -> None:
        self._settling.discard(written)
        if written.cancelled():
            return
        if (error := written.exception()) is not None:
            if failed < WRITES_MAX and not self.stopping:
                asyncio.get_running_loop().call_later(self._again_s, self._write_again, settled, failed + 1)
            else:
                log.warning("the outcome of a webhook call could not be stored, so it is made again: %s", error)
            return
        if settled.outcome == "retry":
            self._retries(settled.due_ms)
        elif settled.outcome != "delivered":
            log.warning("webhook call %d is given up: %s", settled.number, settled.reason)
        if self._counts is not None:
            for _ in settled.before:
                self._counts.pushed("delivered")
            self._counts.pushed(settled.outcome)

    def _write_again(self, settled: Settled, failed: int) -> None:
        self.add(settled, failed)
        self._waits()
