"""Traffic: what became of each request, for the metrics, for OpenTelemetry and for the access log.

Invariant: each request is noted once, when it is answered or its stream has ended. Operations, bindings and outcomes
come from closed sets, so that no caller chooses the name of a metric.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from time import perf_counter
from types import MappingProxyType

from msgspec.structs import replace

from dragoman.bindings.request import TRACE, TRACEPARENT, Request
from dragoman.bindings.routes import WORKER_ACTIONS, EndpointName
from dragoman.engine.handlers.admission import KINDS
from dragoman.model.errors import (
    AgentFailed,
    AgentOffline,
    InternalError,
    InvalidAgentResponse,
    TaskTimeout,
    Unavailable,
)
from dragoman.model.ids import Clock
from dragoman.model.operations import Operation
from dragoman.telemetry.access_log import Access, AccessLog
from dragoman.telemetry.counts import Counts, RequestCounts
from dragoman.telemetry.request_meter import MeteredRequest, RequestMeter

BINDINGS: Mapping[EndpointName, str] = MappingProxyType(
    {
        "rpc": "jsonrpc",
        "grpc": "grpc",
        "chat": "chat",
        **dict.fromkeys(("responses", "response", "response-cancel", "response-items"), "responses"),
        **dict.fromkeys(("conversations", "conversation", "conversation-items"), "responses"),
        "mcp": "mcp",
        "workers": "workers",
        "admin": "admin",
    }
)
"""The bindings by endpoint; all others are `http`."""

FAILURES = (InternalError, Unavailable, AgentOffline, AgentFailed, TaskTimeout, InvalidAgentResponse)
"""The errors that are a fault of this server or of its agents."""

OTHER = "other"

PATH_MAX = 200
"""Most characters of a path in the log."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"})
OTHER_METHOD = "_OTHER"
"""The methods that OpenTelemetry's conventions name, and the word for all others."""

LEFT_ERROR = "left"
"""The `error.type` of a request whose caller did not wait."""


class Outcome(StrEnum):
    """The outcome of a request. `LEFT`: its caller did not wait for the answer, or for the end of the stream."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    LEFT = "left"


class Traffic:
    """Notes requests in `counts`, in the access log and with the `meter`, as far as there are any."""

    def __init__(
        self, counts: Counts | None, access: AccessLog | None, clock: Clock, meter: RequestMeter | None = None
    ) -> None:
        self._counts = counts
        self._access = access
        self._clock = clock
        self._meter = meter
        self._known: dict[tuple[type[Operation] | None, EndpointName], RequestCounts] = {}
        """The counts of calls by operation and endpoint, for a quick look."""

    def answered(self, request: Request, began_s: float, status: int, bytes_out: int, *, left: bool = False) -> None:
        """Note a request that began at `began_s` of `time.perf_counter` and was answered just now.

        `left`: its caller has left before.
        """
        took_s = perf_counter() - began_s
        refusal = request.refusal
        if refusal is not None:
            outcome = Outcome.FAILED if issubclass(refusal, FAILURES) else Outcome.REFUSED
        else:
            outcome = Outcome.LEFT if left else Outcome.OK
        if self._counts is not None:
            requests = self._known.get((request.operation, request.route.endpoint))
            if requests is None:
                requests = self._requests(self._counts, request)
            requests.answered(took_s, outcome)
        if self._meter is not None:
            error = LEFT_ERROR if left else "" if refusal is None else refusal.__name__
            metered = _metered(request)
            sent = None if left and metered.binding != "grpc" else status
            self._meter.answered(metered, sent, error, took_s)
        if self._access is not None:
            self._access.note(
                self._clock.now_ms(),
                self._line(
                    self._access,
                    request,
                    status=status,
                    outcome=outcome.value,
                    duration_ms=_ms(took_s),
                    bytes_out=bytes_out,
                ),
            )

    def opened(self, request: Request, began_s: float) -> "StreamVisit":
        """Return what notes the stream that answers a request."""
        requests = None if self._counts is None else self._requests(self._counts, request)
        metered = None if self._meter is None else (self._meter, _metered(request))
        access = self._access
        if access is None:
            return StreamVisit(began_s, requests, metered)
        line = self._line(access, request)

        def note(outcome: Outcome, status: int, took_s: float, bytes_out: int) -> None:
            access.note(
                self._clock.now_ms(),
                replace(
                    line,
                    outcome=outcome.value,
                    status=status,
                    duration_ms=_ms(took_s),
                    bytes_out=bytes_out,
                ),
            )

        return StreamVisit(began_s, requests, metered, note)

    def _requests(self, counts: Counts, request: Request) -> RequestCounts:
        """The counts of the requests of this kind."""
        endpoint = request.route.endpoint
        names = name_operation(request), BINDINGS.get(endpoint, "http")
        found = counts.requests.get(names)
        if found is None:
            found = counts.requests[names] = RequestCounts()
        if request.operation is not None:
            self._known[request.operation, endpoint] = found
        return found

    def _line(
        self,
        access: AccessLog,
        request: Request,
        *,
        status: int = 0,
        outcome: str = "",
        duration_ms: float = 0,
        bytes_out: int = 0,
    ) -> Access:
        refusal, made_call = request.refusal, request.operation is not None
        trace = request.text(TRACE) if TRACE in request.headers else None
        return Access(
            remote=request.peer,
            principal=request.principal.id,
            binding=BINDINGS.get(request.route.endpoint, "http"),
            operation=name_operation(request),
            status=status,
            outcome=outcome,
            duration_ms=duration_ms,
            bytes_in=request.size,
            bytes_out=bytes_out,
            dialect=request.dialect_name,
            agent=request.agent or request.route.agent,
            task=request.task_id,
            error="" if refusal is None else refusal.__name__,
            method=request.method,
            path="" if made_call else request.shown_path[:PATH_MAX],
            trace=trace[3:35] if trace is not None and TRACEPARENT.fullmatch(trace) else "",
            replica=access.name,
        )


class StreamVisit:
    """Notes one stream: its first event, and its end. `bytes_out` counts the bytes that were sent."""

    __slots__ = ("_began_s", "_metered", "_note", "_requests", "bytes_out")

    def __init__(
        self,
        began_s: float,
        requests: RequestCounts | None,
        metered: tuple[RequestMeter, MeteredRequest] | None = None,
        note: Callable[[Outcome, int, float, int], None] | None = None,
    ) -> None:
        self.bytes_out = 0
        self._began_s = began_s
        self._requests = requests
        self._metered = metered
        self._note = note

    def sent(self, size: int) -> None:
        """Count bytes that were sent."""
        self.bytes_out += size

    def begun(self) -> None:
        """Note that the first event has been sent."""
        took_s = perf_counter() - self._began_s
        if self._requests is not None:
            self._requests.first_events.add(took_s)
        if self._metered is not None:
            meter, request = self._metered
            meter.begun(request, took_s)

    def ended(self, status: int, *, left: bool) -> None:
        """Note the end. `left`: the reader has left before."""
        took_s, outcome = perf_counter() - self._began_s, Outcome.LEFT if left else Outcome.OK
        if self._requests is not None:
            self._requests.answered(took_s, outcome)
        if self._metered is not None:
            meter, request = self._metered
            meter.answered(request, status, LEFT_ERROR if left else "", took_s)
        if self._note is not None:
            self._note(outcome, status, took_s, self.bytes_out)


def _metered(request: Request) -> MeteredRequest:
    """The kind of a request, for OpenTelemetry."""
    route, method = request.route, request.method
    if route.endpoint == "grpc":
        method = f"{route.ids['service']}/{method}"
    elif method not in METHODS:
        method = OTHER_METHOD
    return MeteredRequest(name_operation(request), BINDINGS.get(route.endpoint, "http"), method, request.scheme)


def name_operation(request: Request) -> str:
    """The name of what a request asks for: an operation as in A2A 1.0, an action of workers, or an endpoint."""
    return _name_by_path(request) if request.operation is None else KINDS[request.operation].action


def _name_by_path(request: Request) -> str:
    """The name of a request that has made no call: by its path alone, or `other`."""
    route = request.route
    match route.endpoint:
        case "rest" | "grpc":
            return route.methods.get(request.method) or OTHER
        case "workers":
            action = route.ids.get("action", "")
            return action if action in WORKER_ACTIONS else OTHER
        case "rpc" | "chat" | "mcp":
            return OTHER
        case endpoint:
            return endpoint


def _ms(took_s: float) -> float:
    return round(took_s * 1000, 2)
