"""The text that Prometheus scrapes.

Invariant: metrics have the names that OpenTelemetry's own Prometheus exporter gives the same instruments, so that both
ways agree. Labels are agent ids, states and classes of errors, never anything that a caller sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dragoman.telemetry.counts import BOUNDS_MS, Counts, Durations, UpstreamCalls, WorkerPool
from dragoman.telemetry.figures import ClusterFigures, Gauges, OpenTaskFigures
from dragoman.telemetry.histogram import Histogram

QUEUED = "queued"
"""The phase of a task that waits to be taken on: see `model.task.Phase`."""

BREAKER_STATES = ("closed", "open", "half-open")
SWITCH_STATES = ("enabled", "draining", "disabled")


class MetricsPage:
    """The content of `/metrics`: the counts, gauges that are read on request, and metrics of the process."""

    def __init__(self, counts: Counts, prefix: str, version: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._families = Families(counts, prefix, version)
        self._registry.register(self._families)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def text(self, accept: str, gauges: Gauges) -> tuple[str, bytes]:
        """Return content type and body, in the format that the scraper asks for."""
        self._families.show(gauges)
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)


class Families(Collector):
    """The counts as families of metrics. `gauges` are the figures of the moment."""

    def __init__(self, counts: Counts, prefix: str, version: str) -> None:
        self.gauges: Gauges | None = None
        self._counts = counts
        self._prefix = prefix
        self._version = version

    def show(self, gauges: Gauges) -> None:
        """Take these figures as those of the moment."""
        self.gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """All families as they stand now."""
        counts, gauges = self._counts, self.gauges
        yield InfoMetricFamily(self._prefix, "The server that is scraped", {"version": self._version})
        yield from self._of_requests(counts)
        yield from self._of_tasks(counts)
        yield from self._of_webhooks(counts)
        if counts.upstreams:
            yield from self._of_upstreams(counts.upstreams, {} if gauges is None else gauges.breakers)
        if counts.workers:
            yield from self._of_workers(counts.workers, () if gauges is None else gauges.open_tasks)
        if gauges is not None:
            yield self._of_switches(gauges.switches)
            yield from self._of_gauges(gauges)
            if gauges.cluster is not None:
                yield from self._of_cluster(gauges.cluster)

    # -- shapes --------------------------------------------------------------------------------------------------------

    def _counter(self, name: str, what: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"{self._prefix}_{name}", what, labels=labels)

    def _gauge(self, name: str, what: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{self._prefix}_{name}", what, labels=labels)

    def _histogram(self, name: str, what: str, *labels: str) -> HistogramMetricFamily:
        return HistogramMetricFamily(f"{self._prefix}_{name}", what, labels=labels)

    # -- families ------------------------------------------------------------------------------------------------------

    def _of_requests(self, counts: Counts) -> Iterator[Metric]:
        kinds = ("operation", "binding")
        requests = self._counter("requests", "Requests that were answered, by outcome", *kinds, "outcome")
        took = self._histogram("request_duration_seconds", "From a request to the end of its answer", *kinds)
        first = self._histogram("first_event_seconds", "From a request to the first event of its stream", *kinds)
        for labels, found in sorted(counts.requests.items()):
            for outcome, count in found.outcomes.items():
                requests.add_metric([*labels, outcome], count)
            took.add_metric(labels, _buckets(found.durations), found.durations.sum_s)
            if any(found.first_events.counts):
                first.add_metric(labels, _buckets(found.first_events), found.first_events.sum_s)
        yield requests
        yield took
        yield first
        refused = self._counter("refused", "Requests that were refused", "reason")
        for reason, count in counts.refusals.items():
            refused.add_metric([reason], count)
        yield refused
        warned = self._counter(
            "budget_warnings", "Accounts of budgets that have passed a threshold in percent", "budget", "threshold"
        )
        for (budget, threshold), count in counts.budget_warnings.items():
            warned.add_metric([budget, str(threshold)], count)
        yield warned

    def _of_tasks(self, counts: Counts) -> Iterator[Metric]:
        tasks = self._counter("tasks", "Tasks that reached a state", "agent", "state")
        for (agent, state), count in counts.tasks.items():
            tasks.add_metric([agent, state], count)
        yield tasks
        durations = self._histogram("task_duration_milliseconds", "From the creation of a task to its end", "agent")
        for agent, took in counts.durations.items():
            durations.add_metric([agent], _buckets_ms(took), took.sum_ms)
        yield durations
        yield GaugeMetricFamily(
            f"{self._prefix}_runs_active",
            "Runs of agents, those that wait for an answer in memory included",
            sum(runs.active for runs in counts.runs.values()),
        )
        active = self._gauge("agent_runs_active", "Runs of each agent, as in runs_active", "agent")
        for agent, runs in counts.runs.items():
            active.add_metric([agent], runs.active)
        yield active
        steps = self._counter(
            "steps", "Steps of agents that were executed, or replayed from their record", "agent", "outcome"
        )
        for agent, runs in counts.runs.items():
            for outcome, count in runs.steps.items():
                steps.add_metric([agent, outcome], count)
        yield steps
        tokens = self._counter("tokens", "Tokens of ended tasks, as their agents reported them", "agent", "kind")
        for labels, count in counts.tokens.items():
            tokens.add_metric(labels, count)
        yield tokens
        lost = self._counter(
            "leases_lost", "Leases of running tasks that were lost, by who had them", "agent", "holder"
        )
        for agent, count in counts.leases_lost.items():
            lost.add_metric([agent, "server"], count)
        for agent, workers in counts.workers.items():
            lost.add_metric([agent, "worker"], workers.lost)
        yield lost

    def _of_webhooks(self, counts: Counts) -> Iterator[Metric]:
        pushes = self._counter("push_calls", "Webhook calls by outcome", "outcome")
        for outcome, count in counts.pushes.items():
            pushes.add_metric([outcome], count)
        yield pushes
        for name, what, value in (
            ("push_waiting", "Pending webhook calls, as counted in the last seconds", counts.pushes_waiting),
            ("push_paused", "Pending webhook calls to hosts that an operator has paused", counts.pushes_paused),
            ("push_dead", "Webhook calls that were given up and can be sent again", counts.pushes_dead),
        ):
            yield GaugeMetricFamily(f"{self._prefix}_{name}", what, value)

    def _of_workers(self, workers: Mapping[str, WorkerPool], open_tasks: Sequence[OpenTaskFigures]) -> Iterator[Metric]:
        connected = self._gauge("workers_connected", "Workers that have called lately, or wait for work", "agent")
        held = self._gauge("worker_tasks", "Tasks that workers have of this server", "agent")
        queued = self._gauge("worker_queue_tasks", "Tasks that wait for a worker, of all servers on the store", "agent")
        oldest = self._gauge("worker_queue_oldest_seconds", "How long the oldest of these has waited", "agent")
        for found in open_tasks:
            if found.agent in workers and found.state == QUEUED:
                queued.add_metric([found.agent], found.count)
                oldest.add_metric([found.agent], found.oldest_s)
        for agent, pool in workers.items():
            connected.add_metric([agent], pool.connected)
            held.add_metric([agent], pool.held)
        yield connected
        yield held
        yield queued
        yield oldest

    def _of_gauges(self, gauges: Gauges) -> Iterator[Metric]:
        prefix, (given, failed) = self._prefix, gauges.writes
        yield GaugeMetricFamily(f"{prefix}_streams_open", "Streams that somebody reads", gauges.streams)
        yield CounterMetricFamily(
            f"{prefix}_readers_cut", "Readers that were cut off because they took nothing", gauges.readers_cut
        )
        yield GaugeMetricFamily(f"{prefix}_connections_open", "Connections of clients over HTTP", gauges.connections)
        refused = self._counter("connections_refused", "Connections over HTTP that were not served", "reason")
        for reason, count in gauges.connections_refused.items():
            refused.add_metric([reason], count)
        yield refused
        yield CounterMetricFamily(f"{prefix}_store_writes", "Writes that the store was given", given)
        yield CounterMetricFamily(f"{prefix}_store_writes_failed", "Writes that the store could not take", failed)
        commits = self._histogram("store_commit_seconds", "How long commits took, of one or many writes each")
        commits.add_metric([], _buckets(gauges.commits), gauges.commits.sum_s)
        yield commits
        if gauges.store_bytes is not None:
            yield GaugeMetricFamily(f"{prefix}_store_size_bytes", "The size of the store", gauges.store_bytes)
        tasks = self._gauge("open_tasks", "Tasks in the store that have not ended", "agent", "state")
        oldest = self._gauge(
            "oldest_open_task_seconds", "Since the oldest status of such a task was set", "agent", "state"
        )
        for found in gauges.open_tasks:
            tasks.add_metric([found.agent, found.state], found.count)
            oldest.add_metric([found.agent, found.state], found.oldest_s)
        yield tasks
        yield oldest
        behind = self._gauge("sweep_behind_seconds", "How long what retention deletes has been overdue", "kind")
        for kind, behind_s in gauges.sweep_behind_s.items():
            behind.add_metric([kind], behind_s)
        yield behind
        failures = self._counter("job_failures", "Failures of work beside the requests; it is started again", "job")
        for job, count in gauges.job_failures.items():
            failures.add_metric([job], count)
        yield failures

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

    def _of_switches(self, switches: Mapping[str, str]) -> Metric:
        states = self._gauge("agent_switch", "1 for what an operator has set the agent to", "agent", "state")
        for agent, now in sorted(switches.items()):
            for state in SWITCH_STATES:
                states.add_metric([agent, state], 1 if state == now else 0)
        return states

    def _of_upstreams(self, upstreams: Mapping[str, UpstreamCalls], breakers: Mapping[str, str]) -> Iterator[Metric]:
        """Those of upstreams, by agent, or by agent and member: a sample has no label for which it has no value."""
        member = "member"
        calls = self._counter("upstream_calls", "Calls to agents of other servers", "agent", "outcome", member)
        waits = self._histogram(
            "upstream_wait_milliseconds", "From a call to the first word of its answer", "agent", member
        )
        states = self._gauge(
            "upstream_state", "1 for how things stand: closed, open, half-open", "agent", "state", member
        )
        for label, upstream in upstreams.items():
            agent, *members = label.split("/")
            for outcome, count in upstream.outcomes.items():
                calls.add_metric([agent, outcome, *members], count)
            waits.add_metric([agent, *members], _buckets_ms(upstream.waits), upstream.waits.sum_ms)
            now = breakers.get(label)
            for state in BREAKER_STATES:
                states.add_metric([agent, state, *members], 1 if state == now else 0)
        yield calls
        yield waits
        yield states


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """The buckets of a histogram as Prometheus has them: each counts all durations up to its bound."""
    bounds = [*map(str, histogram.bounds_s), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _buckets_ms(durations: Durations) -> list[tuple[str, float]]:
    """The same for durations in milliseconds."""
    bounds = [*(f"{bound:.1f}" for bound in BOUNDS_MS), "+Inf"]
    return list(zip(bounds, accumulate(durations.counts), strict=True))
