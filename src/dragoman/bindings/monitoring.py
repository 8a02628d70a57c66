"""Endpoints for monitoring: `/health`, `/ready`, and `/metrics` in Prometheus' format.

`/health`: the process answers. `/ready`: the server can take work: its store can write, and it is not stopping.

Invariant: neither waits longer than `PROBE_TIMEOUT_S`, and the store is probed at most once per `FRESH_MS`. Nothing is
imported or built for metrics before the first scrape.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from dragoman.bindings.callers import Callers
from dragoman.bindings.endpoints import Endpoints, HttpEndpoint
from dragoman.bindings.http import HttpRequest, HttpResponse, json_response
from dragoman.bindings.http1.bounds import ConnectionCounter
from dragoman.bindings.request import Header
from dragoman.bindings.streams import Streams
from dragoman.model.ids import Clock, timestamp
from dragoman.model.task import Phase
from dragoman.store.api import StoreError
from dragoman.store.figures import StoreFigures
from dragoman.store.outage import Outage, WriteRecord
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.figures import ClusterFigures, Gauges, OpenTaskFigures

FRESH_MS = 5_000
PROBE_TIMEOUT_S = 2.0
OPEN_PHASES = (Phase.QUEUED, Phase.RUNNING, Phase.SLEEPING, Phase.WAITING)
OTHER = "other"
NO_STORE: Header = (b"cache-control", b"no-store")


class Writable(Protocol):
    """The part of the store that is probed: what its writes have shown, and a trial write."""

    writing: WriteRecord

    async def probe(self) -> None: ...


FiguresOf = Callable[[], Awaitable[ClusterFigures | None]]
"""Returns the figures of the cluster, in at most a second; None for a server that is alone."""


async def alone() -> ClusterFigures | None:
    """The figures of a server that is alone."""
    return None


class Liveness(Struct, frozen=True):
    """The answer of `/health`."""

    status: Literal["ok"] = "ok"


ALIVE = msgspec.json.encode(Liveness())


class Readiness(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of `/ready`. `reason` says why the server takes no work.

    `degraded` has the agents that cannot do all of their work, with the reasons. `jobs` has the jobs of this server
    that have failed lately. A replica shows its `cluster` too.
    """

    status: Literal["ready", "unavailable"]
    reason: str | None = None
    degraded: Mapping[str, str] = {}
    jobs: Mapping[str, str] = {}
    cluster: ClusterFigures | None = None


class Health:
    """Whether the server is alive, and whether it is ready.

    `unready` returns a reason why the server itself cannot take work (it is stopping, all threads are taken), or None.
    `degraded` returns the agents that cannot do all of their work, with the reason; the server is ready nevertheless.
    `jobs` returns the jobs that have failed lately, with how often. A replica shows its `cluster` too.
    """

    def __init__(
        self,
        store: Writable,
        clock: Clock,
        unready: Callable[[], str | None],
        degraded: Callable[[], Mapping[str, str]] = dict,
        cluster: FiguresOf = alone,
        jobs: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs
        self._unready = unready
        self._degraded = degraded
        self._cluster = cluster
        self._probed_ms = 0
        self._fault: str | None = None
        self._probing = asyncio.Lock()

    async def alive(self) -> HttpResponse:
        """Answer `/health`."""
        return json_response(200, ALIVE, NO_STORE)

    async def ready(self) -> HttpResponse:
        """Answer `/ready`: 200, or 503 with the reason."""
        reason = await self.fault()
        degraded = self._degraded() if reason is None else {}
        cluster = await self._cluster()
        if reason is None:
            told = Readiness(status="ready", degraded=degraded, jobs=self._jobs(), cluster=cluster)
            return json_response(200, msgspec.json.encode(told), NO_STORE)
        told = Readiness(status="unavailable", reason=reason, jobs=self._jobs(), cluster=cluster)
        return json_response(503, msgspec.json.encode(told), NO_STORE, (b"retry-after", b"5"))

    async def fault(self) -> str | None:
        """Why the server cannot take work; None if it is ready."""
        return self._unready() or await self._store_fault()

    async def _store_fault(self) -> str | None:
        if self._store.writing.outage is None and self._fresh(self._store.writing.written_ms):
            return None
        async with self._probing:
            if not self._fresh(self._probed_ms):
                self._fault = await self._probe(self._store.probe())
                self._probed_ms = self._clock.now_ms()
        outage = self._store.writing.outage
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


class Scraped(Struct, frozen=True, kw_only=True):
    """The parts of a server that a scrape looks at, beside the counts.

    `agents` returns the agents that are served; all others are shown as `other`. `job_failures` counts by job,
    `connections` those of HTTP. `breakers` returns the states of circuit breakers, `switches` those of operators'
    switches, by agent. A replica shows its `cluster` too.
    """

    writing: WriteRecord
    streams: Streams
    connections: ConnectionCounter
    figures: Callable[[], Awaitable[StoreFigures]]
    agents: Callable[[], Collection[str]]
    cluster: FiguresOf = alone
    job_failures: Mapping[str, int] = {}
    sweep_behind_s: Mapping[str, float] = {}
    breakers: Callable[[], Mapping[str, str]] = dict
    switches: Callable[[], Mapping[str, str]] = dict


class Metrics:
    """The metrics page. The figures of the store are read at most once per `FRESH_MS`."""

    def __init__(self, counts: Counts, prefix: str, version: str, clock: Clock, scraped: Scraped) -> None:
        self._counts = counts
        self._prefix = prefix
        self._version = version
        self._clock = clock
        self._scraped = scraped
        self._page: Any = None
        self._read_ms = 0
        self._figures: StoreFigures | None = None
        self._reading = asyncio.Lock()

    def endpoints(self, callers: Callers) -> Endpoints:
        """Its endpoint, for the scrapers among the callers."""
        return {"metrics": HttpEndpoint(self.answer, admit=callers.admit_scraper)}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a scrape."""
        if self._page is None:  # the import takes a while, so it runs beside the loop
            module = await asyncio.to_thread(importlib.import_module, "dragoman.telemetry.prometheus")
            self._page = module.MetricsPage(self._counts, self._prefix, self._version)
        figures, scraped = await self._read_store(), self._scraped
        writing, streams, connections = scraped.writing, scraped.streams, scraped.connections
        gauges = Gauges(
            streams=streams.open,
            readers_cut=streams.readers_cut,
            writes=(writing.writes, writing.failed_writes),
            commits=writing.commits,
            store_bytes=None if figures is None else figures.size_bytes,
            open_tasks=() if figures is None else self._open_tasks(figures),
            cluster=await scraped.cluster(),
            job_failures=scraped.job_failures,
            connections=connections.open + connections.reserved,
            connections_refused=connections.refused,
            sweep_behind_s=scraped.sweep_behind_s,
            breakers=scraped.breakers(),
            switches=scraped.switches(),
        )
        content_type, body = self._page.text(request.text(b"accept") or "", gauges)
        headers: list[Header] = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        return HttpResponse(200, [*headers, (b"cache-control", b"no-store")], body)

    async def _read_store(self) -> StoreFigures | None:
        """The figures of the store; None if it does not answer in time."""
        async with self._reading:
            if not 0 <= self._clock.now_ms() - self._read_ms <= FRESH_MS:
                try:
                    async with asyncio.timeout(PROBE_TIMEOUT_S):
                        self._figures = await self._scraped.figures()
                except (TimeoutError, StoreError):
                    self._figures = None
                self._read_ms = self._clock.now_ms()
            return self._figures

    def _open_tasks(self, figures: StoreFigures) -> tuple[OpenTaskFigures, ...]:
        """The open tasks by agent and state: zeros for agents without any, and all that are not served as `other`."""
        served, now_ms = self._scraped.agents(), self._clock.now_ms()
        found = {(agent, state): (0, now_ms) for agent in served for state in OPEN_PHASES}
        for tasks in figures.open_tasks:
            agent = tasks.agent if tasks.agent in served else OTHER
            for state, count, since_ms in (
                (Phase.QUEUED, tasks.queued, tasks.queued_since_ms),
                (Phase.RUNNING, tasks.running, tasks.running_since_ms),
                (Phase.SLEEPING, tasks.sleeping, tasks.sleeping_since_ms),
                (Phase.WAITING, tasks.waiting, tasks.waiting_since_ms),
            ):
                before, oldest_ms = found.get((agent, state), (0, now_ms))
                found[agent, state] = before + count, min(oldest_ms, now_ms if since_ms is None else since_ms)
        return tuple(
            OpenTaskFigures(agent, state, count, (now_ms - oldest_ms) / 1000)
            for (agent, state), (count, oldest_ms) in found.items()
        )
