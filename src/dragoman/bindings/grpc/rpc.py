"""One RPC: its request as it is read and decoded, what it holds of the server's memory, and its end.

    READING ── decoded ──► CALLED ── answered ──► SENT ─────────────────────────────────────┐   (unary)
      │                      │  └── a stream is opened ──► STREAMING ── it ends ──► SENT ──┤   `streams`
      │ refused              │ refused                       │ its reader is too slow,     ▼
      └──────────────────────┴───────► ABORTED ◄─────────────┘ the server stops          ENDED, for gRPC:  `_ended`
                                          └───────────────────────────────────────────────▲
    LEFT, beside any of them before ENDED: the client is gone, so the stream closes and nothing more is written  `left`

A call that was made goes on when its client leaves, unless it only reads one task. HTTP/2 itself is gRPC's, and not
covered.

Invariant: a call that fails has a status of `Service.status`, so none is UNKNOWN. An RPC
releases all that it holds when it ends, however it ends.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from time import perf_counter
from typing import Any, NoReturn

import grpc
import grpc.aio

from dragoman.bindings.calls import Backend, active_extensions, decode_body, make_call
from dragoman.bindings.grpc.deadlines import Deadlines
from dragoman.bindings.grpc.metadata import HttpSide, check_repeats, read_request
from dragoman.bindings.grpc.services import Service
from dragoman.bindings.limits import LARGE_BYTES
from dragoman.bindings.request import Request, read_parameters
from dragoman.bindings.routes import Route
from dragoman.dialects.extensions import EVENT_ID
from dragoman.dialects.resolve import version_of
from dragoman.engine.handler import Stream
from dragoman.model.errors import A2AError, AgentNotFound, InvalidRequest, VersionNotSupported
from dragoman.model.operations import Call, Operation

Context = grpc.aio.ServicerContext[Any, Any]

DETAILS = "grpc-status-details-bin"
"""The trailer that holds a google.rpc.Status (A2A 1.0 §10.6)."""

WRITE_ERRORS = (grpc.aio.BaseError, asyncio.InvalidStateError)
"""The errors of a write whose client has left. It may fail before C-core cancels the RPC."""

CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


@lru_cache(maxsize=256)
def _route_to(service: str, name: str, mount: str, agent: str) -> Route:
    """The route of a procedure's calls to an agent."""
    return Route("grpc", {name: name}, mount, agent, {"service": service})


class Rpc:
    """One RPC in progress: its request, and what becomes of it when its client leaves."""

    __slots__ = (
        "_ended",
        "_held",
        "_stream",
        "_watched",
        "backend",
        "began_s",
        "context",
        "dialect",
        "left",
        "name",
        "request",
        "service",
        "streams",
    )

    def __init__(self, service: Service, name: str, context: Context, backend: Backend, server: HttpSide) -> None:
        self.service = service
        self.name = name
        self.context = context
        self.backend = backend
        self.left = False
        self.began_s = perf_counter()
        self.streams = False
        """Whether a stream answers it, which has begun."""
        self._stream: Stream | None = None
        self._held = 0
        self._watched = self._ended = False
        route = _route_to(service.name, name, "/", backend.default)
        metadata: Any = context.invocation_metadata()
        unread = backend.reception.limits.unread
        self.request: Request = read_request(name, metadata, context.peer(), route, server, unread)
        if backend.reception.proxies is not None:
            self.request.take_forwarded(backend.reception.proxies)
        self.dialect = service.dialect_for(self.request.text(b"user-agent") or "")

    def begin_stream(self) -> None:
        """A stream answers the call from now on."""
        self.streams = True

    def route(self) -> None:
        """Find the agent that the metadata names, and check the version. Raises A2AError."""
        service, request = self.service, self.request
        check_repeats(request)
        named = None if service.agent_header is None else request.text(service.agent_header)
        if named:
            request.route = _route_to(service.name, self.name, f"/agents/{named}", named)
            if named not in self.backend.reception.agents:
                raise AgentNotFound(named)
        sent = request.text(b"a2a-version")
        if sent != service.version and (version := version_of(sent)) not in (service.version, ""):
            raise VersionNotSupported(version, (service.version,))

    async def read(self, deadlines: Deadlines) -> bytes:
        """Read the request. Raises RequestTimeout or Unavailable if it does not arrive in time."""
        wait_s, task = self.backend.reception.limits.body_pause_s, asyncio.current_task()
        assert task is not None
        deadlines.begin(task, wait_s)
        try:
            body = await self.context.read()
        except asyncio.CancelledError:
            if (refusal := deadlines.refusal(task)) is None:
                raise
            raise refusal from None
        finally:
            deadlines.end(task)
        if not isinstance(body, bytes):
            raise InvalidRequest("the request is missing: send one message")
        self.request.size = len(body)
        return body

    async def decode(self, body: bytes) -> tuple[Call, Operation]:
        """Decode the request to the call that it makes. Raises A2AError."""
        dialect, request, reception = self.dialect, self.request, self.backend.reception
        if len(body) < LARGE_BYTES:
            operation = dialect.decode(self.name, body)
        else:
            operation = await decode_body(request, reception.limits, partial(self._decode_large, body))
        call = await make_call(
            reception,
            self.backend.handler,
            request,
            read_parameters(request),
            operation,
            dialect=dialect.name,
            manners=dialect.manners,
            folds=bool(dialect.folds),
        )
        return call, operation

    def _decode_large(self, body: bytes) -> Operation:
        self.service.check_bounds(self.name, body, self.backend.reception.limits.max_values)
        return self.dialect.decode(self.name, body)

    async def send_extensions(self, call: Call) -> None:
        """Say which of the extensions that the caller declared are active, if any (A2A 1.0 §3.2.6).

        Not before the call is accepted: an error names none, because nothing was activated.
        """
        if self.left or not call.extensions or not (active := active_extensions(self.backend.reception, call)):
            return
        try:
            await self.context.send_initial_metadata(((self.dialect.extensions_header.decode(), active),))
        except WRITE_ERRORS:
            self.leave()

    def event_ids(self, call: Call) -> Callable[[bytes, str], bytes] | None:
        """The function that adds ids to the items of a stream, if the caller has declared that it wants them."""
        return self.service.add_event_id if EVENT_ID in call.extensions else None

    def take_bytes(self, size: int) -> None:
        """Count a large message until `release_bytes` or the end of the RPC: gRPC keeps a copy until it is read.

        Raises TooManyRequests or Unavailable.
        """
        unread = self.request.unread
        if unread is None or self._ended:
            return
        self.request.release()  # the room that its making took
        unread.take(self.request.principal.id, size)
        if not self._watched:
            self._watched = True
            context: Any = self.context  # types-grpcio 1.85 lets no method be a callback
            context.add_done_callback(self._end)
        self._held += size

    def release_bytes(self, size: int) -> None:
        """Stop counting a message that was sent."""
        if self._held:
            self._held -= size
            assert self.request.unread is not None
            self.request.unread.release(self.request.principal.id, size)

    def _end(self, context: Context) -> None:
        self._ended = True
        self.release_bytes(self._held)

    def attach(self, stream: Stream) -> None:
        """Close the stream when the client leaves."""
        self._stream = stream
        if self.left:
            stream.close()

    def leave(self) -> None:
        """The client has left."""
        self.left = True
        if self._stream is not None:
            self._stream.close()

    async def abort(self, error: A2AError) -> NoReturn:
        """End the RPC with the status of an error. Always raises."""
        status = self.service.status(error)
        trailers = ((DETAILS, status.details),) if status.details else ()
        await self.context.abort(CODES[status.code], status.message, trailers)
        raise AssertionError("abort raises")
