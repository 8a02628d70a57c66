"""Spans and metrics through OpenTelemetry, which must be installed (`dragoman[otel]`).

Invariant: every span continues the trace of its caller. No span contains any part of a message.
"""

import os
import threading
import time
from contextvars import Context, copy_context

from opentelemetry import context as current
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dragoman.telemetry.histogram import REQUEST_BOUNDS_S
from dragoman.telemetry.request_meter import MeteredRequest

FLUSH_S = 3.0
"""How long the end of the server may wait for unsent spans and metrics. The SDK (1.45) has no such limit: while the
collector does not answer it keeps trying, even at the end of the process, hence `shutdown_on_exit` False."""

W3C = TraceContextTextMapPropagator()

GRPC = "grpc"

GRPC_STATUS = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
"""The names of gRPC's statuses by number."""


def installed(version: str) -> tuple[TracerProvider, MeterProvider]:
    """The providers of this process: those that are already set, else new ones, which are then set.

    They are set for the process, so that spans of agents and their libraries go the same way. The `OTEL_*` variables
    name the destination (OpenTelemetry specification, environment variables).
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: "dragoman"}
    resource = Resource.create({**named, SERVICE_VERSION: version})
    tracers = trace.get_tracer_provider()
    if not isinstance(tracers, TracerProvider):
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
    meters = metrics.get_meter_provider()
    if not isinstance(meters, MeterProvider):
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meters)
    return tracers, meters


def initialized() -> tuple[TracerProvider, MeterProvider] | None:
    """The providers set for this process; None if none was. If only one was set, the other discards its data."""
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    traces, measures = isinstance(tracers, TracerProvider), isinstance(meters, MeterProvider)
    if not (traces or measures):
        return None
    return (
        tracers if isinstance(tracers, TracerProvider) else TracerProvider(shutdown_on_exit=False),
        meters if isinstance(meters, MeterProvider) else MeterProvider(shutdown_on_exit=False),
    )


def current_traceparent() -> str | None:
    """The traceparent of the current span; None if there is none."""
    return _traceparent(trace.get_current_span())


class OpenTelemetry:
    """An Observer and a Tracer of the engine, and a RequestMeter of the bindings.

    Names begin with `prefix`; attributes are those of KAOS, and `agent`. Requests are measured under the names of
    OpenTelemetry's semantic conventions (1.43), with the buckets of `/metrics`.
    """

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, prefix: str, version: str) -> None:
        self._tracers = tracers
        self._meters = meters
        self._prefix = prefix
        self._tracer = tracers.get_tracer("dragoman", version)
        meter = meters.get_meter("dragoman", version)
        self._tasks = meter.create_counter(f"{prefix}.tasks", "1", "Tasks that reached a state")
        self._leases_lost = meter.create_counter(
            f"{prefix}.leases.lost", "1", "Leases of running tasks that this server lost"
        )
        self._tokens = meter.create_counter(f"{prefix}.tokens", "1", "Tokens that ended tasks have used")
        self._duration = meter.create_histogram(
            f"{prefix}.task.duration", "ms", "From the creation of a task to its end"
        )
        requests = {
            name: meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=REQUEST_BOUNDS_S)
            for name, text in (
                ("http.server.request.duration", "Duration of HTTP server requests."),
                ("rpc.server.call.duration", "Measures the duration of an incoming Remote Procedure Call (RPC)."),
                (f"{prefix}.first_event", "From a request to the first event of its stream"),
            )
        }
        self._http, self._rpc, self._first_event = requests.values()

    def flush(self) -> None:
        """Send everything unsent within `FLUSH_S`. Blocks on the network, so it must not run on the loop."""
        flushes = (self._tracers.force_flush, self._meters.force_flush)
        threads = [threading.Thread(target=flush, daemon=True) for flush in flushes]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + FLUSH_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # -- Observer ----------------------------------------------------------------------------------------------------

    def submitted(self, agent: str) -> None:
        """A task was written."""
        self._tasks.add(1, {"state": "submitted", "agent": agent})

    def cancel_requested(self, agent: str) -> None:
        """Somebody asked for a task to be canceled."""
        self._tasks.add(1, {"state": "cancel_requested", "agent": agent})

    def ended(self, agent: str, state: str, duration_ms: int) -> None:
        """A task ended, in any terminal state."""
        self._tasks.add(1, {"state": state, "agent": agent})
        self._duration.record(duration_ms, {"agent": agent})

    def taken_over(self, agent: str) -> None:
        """A task that nobody alive worked on was claimed."""
        self._tasks.add(1, {"state": "taken_over", "agent": agent})

    def lease_lost(self, agent: str) -> None:
        """Another server has leased a task that was run here."""
        self._leases_lost.add(1, {"agent": agent})

    def used(self, agent: str, input_tokens: int, output_tokens: int) -> None:
        """A task that ended has used so many tokens, as its agent reported them."""
        self._tokens.add(input_tokens, {"agent": agent, "kind": "input"})
        self._tokens.add(output_tokens, {"agent": agent, "kind": "output"})

    # -- RequestMeter ------------------------------------------------------------------------------------------------

    def answered(self, request: MeteredRequest, status: int | None, error: str, took_s: float) -> None:
        """A request was answered, or its stream has ended."""
        attributes = {"operation": request.operation, "binding": request.binding}
        if request.binding == GRPC:
            attributes |= {"rpc.system.name": GRPC, "rpc.method": request.method}
            if status is not None:
                attributes["rpc.response.status_code"] = GRPC_STATUS[status]
            if error:
                attributes["error.type"] = error
            self._rpc.record(took_s, attributes)
            return
        measured: dict[str, str | int] = {
            **attributes,
            "http.request.method": request.method,
            "url.scheme": request.scheme,
        }
        if status is not None:
            measured["http.response.status_code"] = status
        if error or (status or 0) >= 500:
            measured["error.type"] = error or str(status)
        self._http.record(took_s, measured)

    def begun(self, request: MeteredRequest, took_s: float) -> None:
        """The first event of a stream was sent."""
        self._first_event.record(took_s, {"operation": request.operation, "binding": request.binding})

    # -- Observer, of runs -------------------------------------------------------------------------------------------

    def executing(self, agent: str, task_id: str, traceparent: str | None) -> "ExecutionSpan":
        """Begin the span of a run. It is current in the context in which the agent runs."""
        span = self._tracer.start_span(
            f"{self._prefix}.task.execute",
            _parent(traceparent),
            attributes={"task.id": task_id, "agent": agent},
        )
        return ExecutionSpan(span)

    # -- Tracer ------------------------------------------------------------------------------------------------------

    def submitting(self, agent: str, traceparent: str | None) -> "AnsweringSpan":
        """Begin the span of a caller's message, which lasts until it is answered."""
        return self._answering("submit", agent, traceparent)

    def canceling(self, agent: str, traceparent: str | None) -> "AnsweringSpan":
        """Begin the span of a caller's cancel, which lasts until it is answered."""
        return self._answering("cancel", agent, traceparent)

    def _answering(self, verb: str, agent: str, traceparent: str | None) -> "AnsweringSpan":
        name = f"{self._prefix}.task.{verb}"
        span = self._tracer.start_span(name, _parent(traceparent), trace.SpanKind.SERVER, attributes={"agent": agent})
        return AnsweringSpan(span)


class ExecutionSpan:
    """The span of a run. It is current in `context`; `traceparent` identifies it to others."""

    __slots__ = ("_span", "context", "traceparent")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.traceparent = _traceparent(span)
        self.context: Context | None = copy_context()
        self.context.run(current.attach, trace.set_span_in_context(span, current.Context()))

    def finished(self, state: str) -> None:
        """The run is over, and the task is in `state`."""
        self._span.set_attribute("task.state", state)
        if state == "failed":
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()


class AnsweringSpan:
    """The span of a caller's operation."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.traceparent = _traceparent(span)

    def about(self, task_id: str, context_id: str) -> None:
        """Name the task of the operation, once it is known."""
        self._span.set_attribute("task.id", task_id)
        self._span.set_attribute("task.session_id", context_id)

    def ended(self, error: str | None) -> None:
        """End the span: the operation was answered, or refused with an error of the class named `error`."""
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()


def _parent(traceparent: str | None) -> current.Context:
    """The context named by `traceparent`, never the one that happens to be current here."""
    return W3C.extract({"traceparent": traceparent} if traceparent else {}, current.Context())


def _traceparent(span: trace.Span) -> str | None:
    carrier: dict[str, str] = {}
    W3C.inject(carrier, trace.set_span_in_context(span, current.Context()))
    return carrier.get("traceparent")
