"""The watch of requests to delete all data of a principal: see `engine.erasures`.

Invariant: a replica keeps the principal out within `WATCH_S` of the moment at which it can read the request, and
remembers nothing of it that it read before.
"""

import asyncio
import logging

from dragoman.engine.erasures import Erasures
from dragoman.store.api import StoreError
from dragoman.store.principals import PrincipalRows
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

WATCH_S = 1.0
"""How often the requests are read."""


class ErasureWatch:
    """Reads the requests, so that admission knows of them."""

    def __init__(self, rows: PrincipalRows, erasures: Erasures) -> None:
        self._rows = rows
        self._erasures = erasures

    async def look(self) -> None:
        """Read the requests once. A store that is away now is read by the next look."""
        try:
            if await self._erasures.refresh():
                self._rows.forget_cached()
        except StoreError as error:
            log.warning("requests to delete principals cannot be read: %s", error, extra=about("requests"))

    async def run(self) -> None:
        """Read the requests for ever."""
        while True:
            await asyncio.sleep(WATCH_S)
            await self.look()
