"""Trace contexts of W3C as texts, and as OpenTelemetry has them.

Invariant: a context is the one that was named, never the one that happens to be current here.
"""

from opentelemetry import context as current
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

W3C = TraceContextTextMapPropagator()


def parent_of(traceparent: str | None) -> current.Context:
    """The context named by `traceparent`."""
    return W3C.extract({"traceparent": traceparent} if traceparent else {}, current.Context())


def traceparent_of(span: trace.Span) -> str | None:
    """The traceparent of a span; None if it has none."""
    carrier: dict[str, str] = {}
    W3C.inject(carrier, trace.set_span_in_context(span, current.Context()))
    return carrier.get("traceparent")
