"""`/health` and `/ready`."""

import asyncio
import time

import msgspec
from msgspec.structs import replace

from dragoman.bindings.http import HttpRequest
from dragoman.bindings.http1.bounds import ConnectionCounter
from dragoman.bindings.monitoring import FRESH_MS, Health, Metrics, Scraped
from dragoman.bindings.streams import Streams
from dragoman.model.ids import SystemClock
from dragoman.store.api import StoreError
from dragoman.store.figures import OpenTasks, StoreFigures
from dragoman.store.outage import Outage, WriteRecord
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.figures import BusStatus, ClusterFigures, Gauges, ReplicaFigures
from dragoman.telemetry.histogram import COMMIT_BOUNDS_S, Histogram
from dragoman.telemetry.prometheus import MetricsPage
from tests.bindings.conftest import ScriptedStore, Site


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


async def test_alive_says_nothing_of_the_store(served: Site) -> None:
    served.store.fault = StoreError("gone")
    served.unready.append("stopping")
    async with served.http.get("/health") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        assert answer.headers["Cache-Control"] == "no-store"


async def test_not_ready_is_503_with_the_reason(served: Site) -> None:
    served.unready.append("the server is stopping")
    async with served.http.get("/ready") as answer:
        assert answer.status == 503
        assert (await answer.json())["reason"] == "the server is stopping"
        assert "Retry-After" in answer.headers


async def test_a_recent_write_is_proof_enough() -> None:
    store, clock = ScriptedStore(), Clock()
    store.writing.written_ms = clock.ms - FRESH_MS
    assert (await Health(store, clock, lambda: None).ready()).status == 200
    assert store.probes == 0


async def test_an_idle_store_is_probed_at_most_once_in_five_seconds() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    answers = await asyncio.gather(*(health.ready() for _ in range(10)))
    assert [answer.status for answer in answers] == [200] * 10
    assert store.probes == 1
    clock.ms += FRESH_MS
    await health.ready()
    assert store.probes == 1
    clock.ms += 1
    await health.ready()
    assert store.probes == 2


async def test_a_store_that_cannot_write_is_not_ready_until_it_can() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    store.fault = StoreError("disk full: /secret/path")
    answer = await health.ready()
    assert answer.status == 503
    assert b"secret" not in answer.body
    store.fault = None
    clock.ms += FRESH_MS + 1
    assert (await health.ready()).status == 200
    store.fault = StoreError("again")
    clock.ms += FRESH_MS + 1
    store.writing.written_ms = clock.ms
    assert (await health.ready()).status == 200


async def test_an_outage_is_told_in_words_although_small_writes_go_through() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    store.writing.written_ms = clock.ms
    store.writing.outage = Outage("its disk is full", clock.ms - 1_000, 12)
    answer = await health.ready()
    assert answer.status == 503
    assert msgspec.json.decode(answer.body)["reason"] == (
        "the store cannot be written: its disk is full; 12 writes failed since 1970-01-01T00:16:39.000Z"
    )
    store.writing.outage = None
    assert (await health.ready()).status == 200


async def test_a_clock_that_was_set_back_proves_nothing() -> None:
    store, clock = ScriptedStore(), Clock()
    health = Health(store, clock, lambda: None)
    store.writing.written_ms = clock.ms
    await health.ready()
    clock.ms -= 3_600_000
    store.fault = StoreError("gone")
    assert (await health.ready()).status == 503
    assert store.probes == 1
    store.fault = None
    clock.ms -= 3_600_000
    assert (await health.ready()).status == 200
    assert store.probes == 2


async def test_both_are_cheap() -> None:
    store, clock = ScriptedStore(), Clock()
    store.writing.written_ms = clock.ms
    health = Health(store, clock, lambda: None)
    start = time.process_time()  # of this process: how busy the machine is does not matter
    for _ in range(100):
        await health.alive()
        await health.ready()
    assert (time.process_time() - start) / 200 < 0.001


FIGURES = ClusterFigures(
    id="host/1/a",
    heartbeat_age_s=1.5,
    taken_over=2,
    bus=BusStatus(name="nats", healthy=True, others=1, lag_s=0.001, published=3, received=4, refused=5, dropped=6),
    replicas=(
        ReplicaFigures("host/1/a", "http://h:1", ("echo",), 1.5),
        ReplicaFigures("host/2/b", "", ("echo",), None),
    ),
)


GAUGES = Gauges(streams=0, readers_cut=0, writes=(0, 0), commits=Histogram(COMMIT_BOUNDS_S))


async def figures() -> ClusterFigures | None:
    return FIGURES


async def test_a_replica_shows_its_cluster_ready_or_not() -> None:
    reasons: list[str] = []
    health = Health(ScriptedStore(), Clock(), lambda: reasons[0] if reasons else None, cluster=figures)
    for status in (200, 503):
        answer = await health.ready()
        assert answer.status == status
        told = msgspec.json.decode(answer.body)["cluster"]
        assert (told["id"], told["heartbeat_age_s"], told["taken_over"]) == ("host/1/a", 1.5, 2)
        assert (told["bus"]["healthy"], told["bus"]["others"]) == (True, 1)
        assert [replica["id"] for replica in told["replicas"]] == ["host/1/a", "host/2/b"]
        reasons.append("the server is stopping")


def test_a_page_of_metrics_has_the_figures_of_the_cluster() -> None:
    page = MetricsPage(Counts(), "dragoman", "1")
    _, body = page.text("", replace(GAUGES, cluster=FIGURES))
    lines = body.decode().splitlines()
    for line in (
        'dragoman_replica_info{bus="nats",id="host/1/a"} 1.0',
        "dragoman_replicas 2.0",
        "dragoman_heartbeat_age_seconds 1.5",
        "dragoman_bus_healthy 1.0",
        "dragoman_bus_others 1.0",
        "dragoman_bus_lag_seconds 0.001",
        "dragoman_tasks_taken_over_total 2.0",
        "dragoman_bus_refused_total 5.0",
    ):
        assert line in lines


def test_a_server_that_is_alone_shows_no_cluster() -> None:
    _, body = MetricsPage(Counts(), "dragoman", "1").text("", GAUGES)
    assert b"replica" not in body


class ScrapedStore:
    """As much of a store as `/metrics` shows."""

    def __init__(self, now_ms: int) -> None:
        self.writing = WriteRecord("", SystemClock())
        self.writing.writes, self.writing.failed_writes = 3, 1
        self.reads = 0
        self.fault: Exception | None = None
        gone = OpenTasks(agent="gone", queued=2, queued_since_ms=now_ms - 3000)
        lost = OpenTasks(agent="lost", queued=1, queued_since_ms=now_ms - 7000)
        echo = OpenTasks(agent="echo", running=1, running_since_ms=now_ms - 1500)
        self.found = StoreFigures(size_bytes=4096, open_tasks=(echo, gone, lost))

    async def figures(self) -> StoreFigures:
        self.reads += 1
        if self.fault is not None:
            raise self.fault
        return self.found


def scraped_parts(store: ScrapedStore) -> Scraped:
    return Scraped(
        writing=store.writing,
        streams=Streams(),
        connections=ConnectionCounter(),
        figures=store.figures,
        agents=lambda: {"echo"},
    )


async def scraped(metrics: Metrics) -> list[str]:
    request = HttpRequest(method="GET", headers={}, header_list=[], path="/metrics", receive=nothing)
    return (await metrics.answer(request)).body.decode().splitlines()


async def nothing() -> dict[str, object]:
    return {}


async def test_open_tasks_of_agents_that_are_not_served_are_shown_together() -> None:
    clock = Clock()
    store = ScrapedStore(clock.now_ms())
    metrics = Metrics(Counts(), "dragoman", "1", clock, scraped_parts(store))
    lines = await scraped(metrics)
    for line in (
        'dragoman_open_tasks{agent="echo",state="running"} 1.0',
        'dragoman_open_tasks{agent="echo",state="queued"} 0.0',
        'dragoman_open_tasks{agent="other",state="queued"} 3.0',
        'dragoman_oldest_open_task_seconds{agent="echo",state="running"} 1.5',
        'dragoman_oldest_open_task_seconds{agent="echo",state="queued"} 0.0',
        'dragoman_oldest_open_task_seconds{agent="other",state="queued"} 7.0',
        "dragoman_store_size_bytes 4096.0",
        "dragoman_store_writes_failed_total 1.0",
    ):
        assert line in lines
    assert not any("gone" in line or "lost" in line for line in lines if line.startswith("dragoman_open"))


async def test_scrapes_read_the_store_once_in_a_while_and_do_without_it() -> None:
    clock = Clock()
    store = ScrapedStore(clock.now_ms())
    metrics = Metrics(Counts(), "dragoman", "1", clock, scraped_parts(store))
    for _ in range(3):
        assert "dragoman_store_size_bytes 4096.0" in await scraped(metrics)
    assert store.reads == 1
    store.fault = StoreError("the disk is gone")
    clock.ms += 5001
    lines = await scraped(metrics)
    assert not any(line.startswith("dragoman_store_size_bytes") for line in lines)
    assert "dragoman_store_writes_total 3.0" in lines
    assert store.reads == 2
