"""`/metrics`: the counters in Prometheus' format.

Invariant: nothing is imported or built for it before the first scrape.
"""

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from dragoman.bindings.http import Answer, Request
from dragoman.telemetry.counts import Counts


class Exposition:
    """The metrics page. `writes` returns how many writes the store was given, and how many of them failed."""

    def __init__(self, counts: Counts, prefix: str, version: str, writes: Callable[[], tuple[int, int]]) -> None:
        self._counts = counts
        self._prefix = prefix
        self._version = version
        self._writes = writes
        self._page: Any = None

    async def answer(self, request: Request, streams: int) -> Answer:
        """Answer a scrape. `streams` is the number of open streams."""
        if self._page is None:  # the import takes a while, so it runs beside the loop
            module = await asyncio.to_thread(importlib.import_module, "dragoman.telemetry.prometheus")
            self._page = module.Page(self._counts, self._prefix, self._version)
        accept = request.text(b"accept") or ""
        content_type, body = self._page.text(accept, streams=streams, writes=self._writes())
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        return Answer(200, [*headers, (b"cache-control", b"no-store")], body)
