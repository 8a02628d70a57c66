"""`/metrics`: what is counted, in the format that Prometheus scrapes.

Invariant: nothing is imported and nothing is built for it before the first scrape.
"""

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from dragoman.bindings.http import Answer, Request
from dragoman.telemetry.counts import Counts


class Exposition:
    """The page. `writes` is asked how many writes the store was given, and how many of them failed."""

    def __init__(self, counts: Counts, prefix: str, version: str, writes: Callable[[], tuple[int, int]]) -> None:
        self._counts = counts
        self._prefix = prefix
        self._version = version
        self._writes = writes
        self._page: Any = None

    async def answer(self, request: Request, streams: int) -> Answer:
        """The answer to a scrape; `streams` is how many are open."""
        if self._page is None:  # importing takes a while, and the loop has other things to do
            module = await asyncio.to_thread(importlib.import_module, "dragoman.telemetry.prometheus")
            self._page = module.Page(self._counts, self._prefix, self._version)
        accept = request.text(b"accept") or ""
        content_type, body = self._page.text(accept, streams=streams, writes=self._writes())
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        return Answer(200, [*headers, (b"cache-control", b"no-store")], body)
