"""Gathering: the usage of direct answers that are stored nowhere, on its way to the store.

Invariant: what was added is written once, at the latest when this is closed, unless the store cannot take it then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from dragoman.store.api import OutcomeUnknown, StoreError
from dragoman.store.usage import AnswerUsage

log = logging.getLogger("dragoman.store")

GATHERING_S = 0.5
"""How long usage is gathered before it is written."""


class UsageGathering:
    """Gathers the usage of answers, and writes it with `write` from time to time. Used on the loop."""

    def __init__(self, write: Callable[[Sequence[AnswerUsage]], Awaitable[None]]) -> None:
        self._write = write
        self._gathered: list[AnswerUsage] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[None]] = set()

    def add(self, usage: AnswerUsage) -> None:
        """Take the usage of one answer."""
        self._gathered.append(usage)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHERING_S, self._flush)

    async def close(self) -> None:
        """Write what has been gathered."""
        self._flush()
        if self._writes:
            await asyncio.wait(self._writes)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        if gathered:
            writing = asyncio.get_running_loop().create_task(self._write_all(gathered))
            self._writes.add(writing)
            writing.add_done_callback(self._writes.discard)

    async def _write_all(self, gathered: Sequence[AnswerUsage]) -> None:
        try:
            await self._write(gathered)
        except (StoreError, OutcomeUnknown) as error:
            log.warning("the usage of %d direct answers may not be counted: %s", len(gathered), error)
