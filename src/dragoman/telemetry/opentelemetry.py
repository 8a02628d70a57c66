"""Spans and metrics through OpenTelemetry, which must be installed (`dragoman[otel]`).

Invariant: every span continues the trace of its caller. No span contains any part of a message.
"""

import os
import threading
import time
from collections.abc import Sequence
from contextvars import Context, Token, copy_context

from opentelemetry import context as current
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from dragoman.telemetry.genai import InvokedHead, InvokedRunner, ToolCall, observe_chats
from dragoman.telemetry.genai_spans import GenAi, InvocationSpan
from dragoman.telemetry.histogram import REQUEST_BOUNDS_S
from dragoman.telemetry.request_meter import MeteredRequest
from dragoman.telemetry.trace_context import parent_of, traceparent_of

FLUSH_S = 3.0
"""How long the end of the server may wait for unsent spans and metrics. The SDK (1.45) has no such limit: while the
collector does not answer it keeps trying, even at the end of the process, hence `shutdown_on_exit` False."""

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
    return traceparent_of(trace.get_current_span())


class OpenTelemetry:
    """An Observer and a Tracer of the engine, and a RequestMeter of the bindings.

    Names begin with `prefix`; attributes are those of KAOS, and `agent`. Requests are measured under the names of
    OpenTelemetry's semantic conventions (1.43), with the buckets of `/metrics`. With `genai` there are spans by the
    conventions for generative AI, too; these hold content if it `captures` that.
    """

    def __init__(
        self,
        tracers: TracerProvider,
        meters: MeterProvider,
        prefix: str,
        version: str,
        *,
        genai: bool = False,
        captures: bool = False,
    ) -> None:
        self._tracers = tracers
        self._meters = meters
        self._prefix = prefix
        self._tracer = tracers.get_tracer("dragoman", version)
        self._genai = GenAi(self._tracer, captures=captures) if genai else None
        meter = meters.get_meter("dragoman", version)
        self._tasks = meter.create_counter(f"{prefix}.tasks", "1", "Tasks that reached a state")
        self._leases_lost = meter.create_counter(
            f"{prefix}.leases.lost", "1", "Leases of running tasks that this server lost"
        )
        self._steps = meter.create_counter(
            f"{prefix}.steps", "1", "Steps of agents that were executed, or replayed from their record"
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

    def executing(self, head: InvokedHead, runner: InvokedRunner | None) -> "ExecutionSpan":
        """Begin the span of a run. It is current in the context in which the agent runs.

        With spans of generative AI, that of the agent's invocation is a child of it, and the current one.
        """
        span = self._tracer.start_span(
            f"{self._prefix}.task.execute",
            parent_of(head.traceparent),
            attributes={"task.id": head.id, "agent": head.agent},
        )
        invocation: InvocationSpan | None = None
        if self._genai is not None:
            below = trace.set_span_in_context(span, current.Context())
            invocation = self._genai.invoke(head, runner, below)
        return ExecutionSpan(span, head.agent, self._tracer, self._steps, invocation)

    # -- Tracer ------------------------------------------------------------------------------------------------------

    def submitting(self, agent: str, traceparent: str | None) -> "AnsweringSpan":
        """Begin the span of a caller's message, which lasts until it is answered."""
        return self._answering("submit", agent, traceparent)

    def canceling(self, agent: str, traceparent: str | None) -> "AnsweringSpan":
        """Begin the span of a caller's cancel, which lasts until it is answered."""
        return self._answering("cancel", agent, traceparent)

    def _answering(self, verb: str, agent: str, traceparent: str | None) -> "AnsweringSpan":
        name = f"{self._prefix}.task.{verb}"
        span = self._tracer.start_span(name, parent_of(traceparent), trace.SpanKind.SERVER, attributes={"agent": agent})
        return AnsweringSpan(span)


class ExecutionSpan:
    """The span of a run, with its steps as children. It is current in `context`; `traceparent` identifies it to others.

    With an `invocation`, that takes its place for both. `steps` counts the steps of the `agent`.
    """

    __slots__ = ("_agent", "_inner", "_invocation", "_span", "_steps", "_tracer", "context", "traceparent")

    def __init__(
        self,
        span: trace.Span,
        agent: str,
        tracer: trace.Tracer,
        steps: metrics.Counter,
        invocation: InvocationSpan | None = None,
    ) -> None:
        self._span = span
        self._inner = span if invocation is None else invocation.span
        self._invocation = invocation
        self._agent = agent
        self._tracer = tracer
        self._steps = steps
        self.traceparent = traceparent_of(self._inner)
        self.context: Context | None = copy_context()
        self.context.run(current.attach, trace.set_span_in_context(self._inner, current.Context()))
        if invocation is not None:
            self.context.run(observe_chats, invocation)

    def step_begins(self, name: str, key: str) -> "StepSpan":
        """Begin the span of a step. It is current in the calling coroutine until it ends."""
        span = self._begin_step(name, key)
        return StepSpan(span, self, current.attach(trace.set_span_in_context(span)))

    def step_told(self, name: str, key: str, began_ms: int, ended_ms: int, attempts: int, failure: str | None) -> None:
        """Make the span of a step that a worker has executed."""
        StepSpan(self._begin_step(name, key, began_ms), self).executed(attempts, failure, ended_ms)

    def _begin_step(self, name: str, key: str, began_ms: int | None = None) -> trace.Span:
        attributes = {"agent": self._agent, "step.name": name, **({"step.key": key} if key else {})}
        parent = trace.set_span_in_context(self._inner, current.Context())
        return self._tracer.start_span(f"step {name}", parent, attributes=attributes, start_time=_nanoseconds(began_ms))

    def step_replayed(self) -> None:
        """A step is recorded. It has a span in the run that executed it."""
        self.count_step("replayed")

    def count_step(self, outcome: str) -> None:
        """Count a step by its outcome."""
        self._steps.add(1, {"agent": self._agent, "outcome": outcome})

    def sleeps(self, until: str) -> None:
        """The task sleeps: an event of the span, which ends soon unless the sleep is short."""
        self._span.add_event("sleep", {"sleep.until": until})

    def tool_called(self, call: ToolCall) -> None:
        """A tool is called, or its call has ended."""
        if self._invocation is not None:
            self._invocation.tool_called(call)

    def exchanged(self, subject: str, actors: Sequence[str], audience: str, issuer: str) -> None:
        """A token was exchanged: an event of the span, with who acts for whom and where."""
        names = {"acting.subject": subject, "acting.actors": tuple(actors)}
        self._span.add_event("token.exchanged", {**names, "acting.audience": audience, "acting.issuer": issuer})

    def finished(self, state: str) -> None:
        """The run is over, and the task is in `state`."""
        if self._invocation is not None:
            self._invocation.finished(state)
        self._span.set_attribute("task.state", state)
        if state == "failed":
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()


class StepSpan:
    """The span of a step of the run `execution`. With a `token` it is the current one until it ends."""

    __slots__ = ("_execution", "_span", "_token")

    def __init__(self, span: trace.Span, execution: ExecutionSpan, token: Token[current.Context] | None = None) -> None:
        self._span = span
        self._execution = execution
        self._token = token

    def executed(self, attempts: int, failure: str | None, ended_ms: int | None = None) -> None:
        """End the span of a step whose outcome is known, or had it end then. `failure` is the name of an exception."""
        self._span.set_attribute("step.attempts", attempts)
        self._span.set_attribute("step.failed", failure is not None)
        if failure is not None:
            self._span.set_attribute("error.type", failure)
            self._span.set_status(trace.StatusCode.ERROR)
        self._execution.count_step("succeeded" if failure is None else "failed")
        self._end(ended_ms)

    def interrupted(self) -> None:
        """End the span of a step that has no outcome: its run was stopped, or the step did not want one recorded."""
        self._span.set_attribute("step.interrupted", True)
        self._end()

    def _end(self, ended_ms: int | None = None) -> None:
        if self._token is not None:
            current.detach(self._token)
        self._span.end(_nanoseconds(ended_ms))


class AnsweringSpan:
    """The span of a caller's operation."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self.traceparent = traceparent_of(span)

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


def _nanoseconds(time_ms: int | None) -> int | None:
    """A time as OpenTelemetry has it; None for the present one."""
    return None if time_ms is None else time_ms * 1_000_000
