"""The text that Prometheus scrapes.

Invariant: metrics have the names that OpenTelemetry's own Prometheus exporter gives the same instruments, so that both
ways agree. Labels are agent ids, states and classes of errors, never anything that a caller sent.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dragoman.telemetry.cluster import ClusterFigures
from dragoman.telemetry.counts import BOUNDS_MS, Counts, UpstreamCalls

BREAKER_STATES = ("closed", "open", "half-open")


class MetricsPage:
    """The content of `/metrics`: the counts, gauges that are read on request, and metrics of the process."""

    def __init__(self, counts: Counts, prefix: str, version: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._families = Families(counts, prefix, version)
        self._registry.register(self._families)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def text(
        self, accept: str, *, streams: int, writes: tuple[int, int], cluster: ClusterFigures | None = None
    ) -> tuple[str, bytes]:
        """Return content type and body, in the format that the scraper asks for."""
        self._families.streams, self._families.writes, self._families.cluster = streams, writes, cluster
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)


class Families(Collector):
    """The counts as families of metrics."""

    def __init__(self, counts: Counts, prefix: str, version: str) -> None:
        self.streams = 0
        self.writes = (0, 0)
        """How many writes the store was asked for, and how many of them failed."""
        self.cluster: ClusterFigures | None = None
        self._counts = counts
        self._prefix = prefix
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """All families as they stand now."""
        prefix, counts = self._prefix, self._counts
        yield InfoMetricFamily(prefix, "The server that is scraped", {"version": self._version})
        tasks = CounterMetricFamily(f"{prefix}_tasks", "Tasks that reached a state", labels=["agent", "state"])
        for (agent, state), count in counts.tasks.items():
            tasks.add_metric([agent, state], count)
        yield tasks
        durations = HistogramMetricFamily(
            f"{prefix}_task_duration_milliseconds", "From the creation of a task to its end", labels=["agent"]
        )
        for agent, took in counts.durations.items():
            bounds = [*(f"{bound:.1f}" for bound in BOUNDS_MS), "+Inf"]
            buckets = list(zip(bounds, accumulate(took.counts), strict=True))
            durations.add_metric([agent], buckets, took.sum_ms)
        yield durations
        refused = CounterMetricFamily(f"{prefix}_refused", "Requests that were refused", labels=["reason"])
        for reason, count in counts.refusals.items():
            refused.add_metric([reason], count)
        yield refused
        pushes = CounterMetricFamily(f"{prefix}_push_calls", "Webhook calls by outcome", labels=["outcome"])
        for outcome, count in counts.pushes.items():
            pushes.add_metric([outcome], count)
        yield pushes
        if counts.upstreams:
            yield from self._of_upstreams(counts.upstreams)
        for name, what, value in (
            ("push_waiting", "Pending webhook calls, as counted in the last seconds", counts.pushes_waiting),
            ("push_dead", "Webhook calls that were given up and can be sent again", counts.pushes_dead),
            ("runs_active", "Runs of agents, those that wait for an answer in memory included", counts.runs),
            ("streams_open", "Streams that somebody reads", self.streams),
        ):
            yield GaugeMetricFamily(f"{prefix}_{name}", what, value)
        given, failed = self.writes
        yield CounterMetricFamily(f"{prefix}_store_writes", "Writes that the store was given", given)
        yield CounterMetricFamily(f"{prefix}_store_writes_failed", "Writes that the store could not take", failed)
        if self.cluster is not None:
            yield from self._of_cluster(self.cluster)

    def _of_cluster(self, cluster: ClusterFigures) -> Iterator[Metric]:
        prefix, bus = self._prefix, cluster.bus
        yield InfoMetricFamily(f"{prefix}_replica", "The replica that is scraped", {"id": cluster.id, "bus": bus.name})
        alive = None if cluster.replicas is None else len(cluster.replicas)
        for name, what, value in (
            ("replicas", "Replicas that are alive", alive),
            ("heartbeat_age_seconds", "Since the last heartbeat that the store has answered", cluster.heartbeat_age_s),
            ("bus_healthy", "1 if this replica's own hints come back to it", int(bus.healthy)),
            ("bus_others", "Other replicas that were heard on the bus in the last seconds", bus.others),
            ("bus_lag_seconds", "How long the last hint of this replica to itself took", bus.lag_s),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"{prefix}_{name}", what, value)
        for name, what, count in (
            ("tasks_taken_over", "Tasks of dead replicas that this one went on with", cluster.taken_over),
            ("bus_published", "Hints that this replica has sent", bus.published),
            ("bus_received", "Hints that have come from others", bus.received),
            ("bus_refused", "Messages on the bus that came from no replica of this store", bus.refused),
            ("bus_dropped", "Hints that found a queue full", bus.dropped),
        ):
            yield CounterMetricFamily(f"{prefix}_{name}", what, count)

    def _of_upstreams(self, upstreams: Mapping[str, UpstreamCalls]) -> Iterator[Metric]:
        prefix = self._prefix
        calls = CounterMetricFamily(
            f"{prefix}_upstream_calls", "Calls to agents of other servers", labels=["agent", "outcome"]
        )
        waits = HistogramMetricFamily(
            f"{prefix}_upstream_wait_milliseconds", "From a call to the first word of its answer", labels=["agent"]
        )
        states = GaugeMetricFamily(
            f"{prefix}_upstream_state", "1 for how things stand: closed, open, half-open", labels=["agent", "state"]
        )
        bounds = [*(f"{bound:.1f}" for bound in BOUNDS_MS), "+Inf"]
        for agent, upstream in upstreams.items():
            for outcome, count in upstream.outcomes.items():
                calls.add_metric([agent, outcome], count)
            buckets = list(zip(bounds, accumulate(upstream.waits.counts), strict=True))
            waits.add_metric([agent], buckets, upstream.waits.sum_ms)
            now = upstream.state()
            for state in BREAKER_STATES:
                states.add_metric([agent, state], 1 if state == now else 0)
        yield calls
        yield waits
        yield states
