"""Endpoints for monitoring: `/health`, `/ready`, and `/metrics` in Prometheus' format.

`/health`: the process answers. `/ready`: the server can take work: its store can write, and it is not stopping.

Invariant: neither waits longer than `PROBE_TIMEOUT_S`, and the store is probed at most once per `FRESH_MS`. Nothing is
imported or built for metrics before the first scrape.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from dragoman.bindings.http import HttpRequest, HttpResponse, json_response
from dragoman.bindings.request import Header
from dragoman.bindings.streams import Streams
from dragoman.model.ids import Clock, timestamp
from dragoman.store.api import StoreError
from dragoman.store.outage import Outage
from dragoman.telemetry.cluster import ClusterFigures
from dragoman.telemetry.counts import Counts

FRESH_MS = 5_000
PROBE_TIMEOUT_S = 2.0
NO_STORE: Header = (b"cache-control", b"no-store")


class Writable(Protocol):
    """The part of the store that is probed: whether writes fail, when it last wrote, and a trial write."""

    @property
    def outage(self) -> Outage | None: ...

    @property
    def written_ms(self) -> int: ...

    async def probe(self) -> None: ...


FiguresOf = Callable[[], Awaitable[ClusterFigures | None]]
"""Returns the figures of the cluster, in at most a second; None for a server that is alone."""


async def alone() -> ClusterFigures | None:
    """The figures of a server that is alone."""
    return None


class Health:
    """Whether the server is alive, and whether it is ready.

    `unready` returns a reason why the server itself cannot take work (it is stopping, all threads are taken), or None.
    `degraded` returns the agents that cannot do all of their work, with the reason; the server is ready nevertheless.
    A replica shows its `cluster` too.
    """

    def __init__(
        self,
        store: Writable,
        clock: Clock,
        unready: Callable[[], str | None],
        degraded: Callable[[], Mapping[str, str]] = dict,
        cluster: FiguresOf = alone,
    ) -> None:
        self._store = store
        self._clock = clock
        self._unready = unready
        self._degraded = degraded
        self._cluster = cluster
        self._probed_ms = 0
        self._fault: str | None = None
        self._probing = asyncio.Lock()

    async def alive(self) -> HttpResponse:
        """Answer `/health`."""
        return json_response(200, b'{"status":"ok"}', NO_STORE)

    async def ready(self) -> HttpResponse:
        """Answer `/ready`: 200, or 503 with the reason."""
        reason = await self.fault()
        told: dict[str, object] = {"status": "ready"} if reason is None else {"status": "unavailable", "reason": reason}
        if reason is None and (degraded := self._degraded()):
            told["degraded"] = degraded
        if (cluster := await self._cluster()) is not None:
            told["cluster"] = cluster
        if reason is None:
            return json_response(200, msgspec.json.encode(told), NO_STORE)
        return json_response(503, msgspec.json.encode(told), NO_STORE, (b"retry-after", b"5"))

    async def fault(self) -> str | None:
        """Why the server cannot take work; None if it is ready."""
        return self._unready() or await self._store_fault()

    async def _store_fault(self) -> str | None:
        if self._store.outage is None and self._fresh(self._store.written_ms):
            return None
        async with self._probing:
            if not self._fresh(self._probed_ms):
                self._fault = await self._probe(self._store.probe())
                self._probed_ms = self._clock.now_ms()
        outage = self._store.outage
        return self._fault if outage is None else _describe(outage)

    def _fresh(self, at_ms: int) -> bool:
        """Whether a time is at most `FRESH_MS` ago. A time in the future, after the clock was set back, is not."""
        return 0 <= self._clock.now_ms() - at_ms <= FRESH_MS

    async def _probe(self, probe: Awaitable[None]) -> str | None:
        try:
            await asyncio.wait_for(probe, PROBE_TIMEOUT_S)
        except TimeoutError:
            return f"the store did not write within {PROBE_TIMEOUT_S:g} s"
        except StoreError:
            return "the store cannot be written: see the server's log"
        return None


def _describe(outage: Outage) -> str:
    """Describe an outage for operators."""
    failed = "1 write" if outage.writes == 1 else f"{outage.writes} writes"
    return f"the store cannot be written: {outage.reason}; {failed} failed since {timestamp(outage.since_ms)}"


class Metrics:
    """The metrics page.

    `writes` returns how many writes the store was given, and how many of them failed; `streams` counts the open ones.
    A replica shows its `cluster` too.
    """

    def __init__(
        self,
        counts: Counts,
        prefix: str,
        version: str,
        writes: Callable[[], tuple[int, int]],
        streams: Streams,
        cluster: FiguresOf = alone,
    ) -> None:
        self._counts = counts
        self._prefix = prefix
        self._version = version
        self._writes = writes
        self._streams = streams
        self._cluster = cluster
        self._page: Any = None

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape."""
        if self._page is None:  # the import takes a while, so it runs beside the loop
            module = await asyncio.to_thread(importlib.import_module, "dragoman.telemetry.prometheus")
            self._page = module.MetricsPage(self._counts, self._prefix, self._version)
        accept = request.text(b"accept") or ""
        content_type, body = self._page.text(
            accept, streams=self._streams.open, writes=self._writes(), cluster=await self._cluster()
        )
        headers: list[Header] = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        return HttpResponse(200, [*headers, (b"cache-control", b"no-store")], body)
