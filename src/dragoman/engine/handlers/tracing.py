"""Tracing: the Handler that puts a span around callers' messages and cancels.

Invariant: tracing changes nothing: calls and answers are the same with and without it.
"""

from typing import Protocol

from msgspec.structs import replace

from dragoman.engine.handler import Answered, Handler, OpenStream
from dragoman.model.errors import A2AError
from dragoman.model.operations import Call, CancelTask, SendMessage
from dragoman.model.task import Record, TaskHead


class Answering(Protocol):
    """The span of a caller's operation. `traceparent` identifies it."""

    traceparent: str | None

    def about(self, task_id: str, context_id: str) -> None:
        """Name the task of the operation, once it is known."""
        ...

    def ended(self, error: str | None) -> None:
        """End the span: the operation was answered, or refused with an error of the class named `error`."""
        ...


class Tracer(Protocol):
    """Makes spans for callers' operations, below the `traceparent` they sent."""

    def submitting(self, agent: str, traceparent: str | None) -> Answering:
        """Begin the span of a caller's message."""
        ...

    def canceling(self, agent: str, traceparent: str | None) -> Answering:
        """Begin the span of a caller's cancel."""
        ...


class Traced:
    """A Handler that passes calls on, within a span for each message and each cancel.

    If the caller sent no trace, the task belongs to the trace of the message that made it.
    """

    def __init__(self, handler: Handler, tracer: Tracer) -> None:
        self._handler = handler
        self.dialect_of, self.agent_of, self.look = handler.dialect_of, handler.agent_of, handler.look  # nothing to add
        self._tracer = tracer

    async def call(self, call: Call) -> Answered:
        """See `engine.handler.Handler.call`."""
        span = self._span(call)
        if span is None:
            return await self._handler.call(call)
        error: str | None = "canceled"
        try:
            result = await self._handler.call(_within(call, span))
            if isinstance(result, Record):
                _about(span, result.head)
            error = None
            return result
        except A2AError as refused:
            error = type(refused).__name__
            raise
        finally:
            span.ended(error)

    async def stream(self, call: Call) -> OpenStream:
        """See `engine.handler.Handler.stream`; the span ends when the stream is open."""
        span = self._span(call)
        if span is None:
            return await self._handler.stream(call)
        error: str | None = "canceled"
        try:
            stream = await self._handler.stream(_within(call, span))
            if stream.head is not None:
                _about(span, stream.head)
            error = None
            return stream
        except A2AError as refused:
            error = type(refused).__name__
            raise
        finally:
            span.ended(error)

    def _span(self, call: Call) -> Answering | None:
        match call.operation:
            case SendMessage():
                return self._tracer.submitting(call.agent, call.traceparent)
            case CancelTask():
                return self._tracer.canceling(call.agent, call.traceparent)
            case _:
                return None


def _within(call: Call, span: Answering) -> Call:
    return call if call.traceparent is not None else replace(call, traceparent=span.traceparent)


def _about(span: Answering, head: TaskHead) -> None:
    span.about(head.id, head.context_id)
