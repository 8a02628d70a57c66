"""Calls and streams to one agent over gRPC, in one dialect. `transport` has the invariant.

A message or a status is decoded by the dialect, a failure of the connection by `net.grpc`.
"""

import re
from collections.abc import Coroutine, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.card import Interface
from dragoman.client.errors import CallBroken, HttpRefusal, no_answer
from dragoman.client.retries import Repetition
from dragoman.client.transport import (
    NO_HEADERS,
    CallHeaders,
    CallTerms,
    StreamPosition,
    UpdateBatch,
    address,
    check_stream,
    extensions_header,
    refusal,
    repeated_s,
)
from dragoman.dialects.api import Answer, GrpcCall, GrpcStatus, Tongue
from dragoman.dialects.cards import GRPC
from dragoman.dialects.client.refusals import made
from dragoman.dialects.extensions import EVENT_ID
from dragoman.dialects.registry import SYSTEMS
from dragoman.model.errors import (
    A2AError,
    InvalidAgentResponse,
    MethodNotFound,
    PayloadTooLarge,
    TaskNotCancelable,
)
from dragoman.model.operations import CancelTask, Operation, StreamMessage, Subscribe
from dragoman.model.updates import Update
from dragoman.net.errors import EgressError
from dragoman.net.grpc import GrpcEgress, GrpcFlow, GrpcReply

_CANCELLED, _DEADLINE_EXCEEDED, _RESOURCE_EXHAUSTED, _FAILED_PRECONDITION = 1, 4, 8, 9
_UNIMPLEMENTED, _UNAVAILABLE, _UNAUTHENTICATED = 12, 14, 16

_TRY_AGAIN = frozenset({_DEADLINE_EXCEEDED, _RESOURCE_EXHAUSTED, _UNAVAILABLE})
_TRY_AGAIN_HTTP = frozenset({429, 502, 503, 504})

_CUT = frozenset({_CANCELLED, _DEADLINE_EXCEEDED, _UNAVAILABLE})
"""Statuses that end a stream whose task may go on: a server that stops, or a proxy's limit."""

_UNROUTED = re.compile(r"(?i)method not found|unknown (service|method)|method not implemented")
"""The words of servers in Python, Java and Go for a service or a method that they do not have."""

_OVER_LIMIT = re.compile(r"(?i)message (larger than max|exceeds maximum)")
"""The words of servers in Python, JavaScript, Go and Java for a request that is larger than they take."""

_RETRY_INFO = b"google.rpc.RetryInfo"
"""The type of a detail that says when to come again."""

SPOKEN = ("1.0", "0.3")
"""The dialects that are spoken over gRPC."""


def grpc_tongue(dialect: str, *, double_base64: bool = False) -> Tongue:
    """Load the dialect of that name over gRPC, which imports protobuf. Raises ValueError if there is none.

    With `double_base64` the bytes of files are in base64, as official Python servers have them in 0.3.
    """
    if dialect not in SPOKEN:
        raise ValueError(f"the dialect {dialect} is not spoken over {GRPC}: use {' or '.join(SPOKEN)}")
    module = import_module(f"dragoman.dialects.{SYSTEMS[dialect].package}.protobuf")
    found = getattr(module, "TONGUE_BASE64", module.TONGUE) if double_base64 else module.TONGUE
    assert isinstance(found, Tongue)
    return found


class GrpcRequest(Struct, frozen=True):
    """A call that is about to be made. It may be repeated for `repeats_s`, even if it may have been carried out."""

    operation: Operation
    call: GrpcCall
    metadata: Mapping[str, str]
    repeats_s: float


class GrpcTransport:
    """One endpoint of an agent, over gRPC."""

    def __init__(self, way: GrpcEgress, interface: Interface, spoken: Tongue, terms: CallTerms) -> None:
        self.interface = interface
        self.tongue = spoken
        self._to = interface.to
        self._way = way
        self._terms = terms
        self._wire = terms.wire
        self._declared = extensions_header(spoken).lower()
        self._metadata = {name.lower(): value for name, value in (*spoken.headers.items(), *terms.headers.items())}
        if terms.extensions:
            self._metadata[self._declared] = ", ".join(terms.extensions)

    async def call(self, operation: Operation, beside: CallHeaders = NO_HEADERS) -> Answer:
        """Return the answer to an operation that is not a stream."""
        request = self._encode(operation, beside)
        return await self._terms.call(partial(self._send, request), request.repeats_s, beside.repetition)

    def begin_stream(self, operation: StreamMessage, beside: CallHeaders) -> None:
        """Return None: a call over gRPC is never sent without a wait."""
        return None

    def stream(
        self, operation: StreamMessage | Subscribe, beside: CallHeaders, position: StreamPosition | None
    ) -> "GrpcUpdates":
        """Return the updates of a stream, as `HttpTransport.stream` does."""
        check_stream(operation, self.tongue)
        request = self._encode(operation, beside)
        return GrpcUpdates(self, request, beside.repetition, position)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _send(self, request: GrpcRequest) -> Answer:
        shown = await self._credential_metadata()
        reply = await self._ask(request, shown)
        if _refuses_caller(reply) and (others := await self._renewed(shown)) is not None:
            reply = await self._ask(request, others)
        if self._wire is not None:
            self._wire.answer(reply.code, reply.metadata, reply.body or b"")
        if not reply.ok:
            raise self._refused(request, reply)
        try:
            if reply.body is None:
                raise InvalidAgentResponse("expected a message, got none")
            return self.tongue.read_answer(request.operation, reply.body)
        except InvalidAgentResponse as error:
            raise self._add_url(error) from None

    async def _ask(self, request: GrpcRequest, shown: Mapping[str, str]) -> GrpcReply:
        self._log_request(request)
        try:
            return await self._way.call(
                self._to,
                request.call.method,
                request.call.message,
                timeout_s=self._terms.timeouts.answer_s,
                metadata=self._merge(request.metadata, shown),
            )
        except EgressError as error:
            raise no_answer(error, "answer_s") from error

    # -- streams -------------------------------------------------------------------------------------------------------

    def open(
        self, request: GrpcRequest, repetition: Repetition
    ) -> Coroutine[Any, Any, tuple[GrpcFlow, bytes | GrpcReply]]:
        """Open a stream, and wait for its first message, or its end if it has none."""
        return self._terms.call(partial(self._begin, request), request.repeats_s, repetition)

    async def _begin(self, request: GrpcRequest) -> tuple[GrpcFlow, bytes | GrpcReply]:
        """Do what `open` says, once. Raises as `_send` does."""
        shown = await self._credential_metadata()
        flow, came = await self._open(request, shown)
        if isinstance(came, GrpcReply) and not came.ok:
            flow.close()
            if _refuses_caller(came) and (others := await self._renewed(shown)) is not None:
                flow, came = await self._open(request, others)
        if self._wire is not None:
            self._wire.answer(came.code if isinstance(came, GrpcReply) else 0, flow.metadata, b"")
        if isinstance(came, GrpcReply) and not came.ok:
            flow.close()
            raise self._refused(request, came)
        return flow, came

    async def _open(self, request: GrpcRequest, shown: Mapping[str, str]) -> tuple[GrpcFlow, bytes | GrpcReply]:
        self._log_request(request)
        try:
            flow = await self._way.stream(
                self._to,
                request.call.method,
                request.call.message,
                head_timeout_s=self._terms.timeouts.answer_s,
                idle_timeout_s=self._terms.timeouts.idle_s,
                metadata=self._merge(request.metadata, shown),
            )
        except EgressError as error:
            raise no_answer(error, "answer_s") from error
        try:
            return flow, await self.read(flow)
        except BaseException:
            flow.close()
            raise

    async def read(self, flow: GrpcFlow) -> bytes | GrpcReply:
        """Wait for the next message of a stream, or its end. Raises NoAnswer."""
        try:
            return await flow.read()
        except EgressError as error:
            raise no_answer(error, "idle_s") from error

    def decode(self, data: bytes, position: StreamPosition | None) -> list[tuple[str, Update]]:
        """Decode a message of a stream: its updates, each with its id; none if it has come before."""
        if self._wire is not None:
            self._wire.piece(data)
        try:
            updates: tuple[Update, ...] = self.tongue.read_update(data)
        except InvalidAgentResponse as error:
            raise self._add_url(error) from None
        if not self.interface.event_ids:
            return [("", update) for update in updates]
        batch = [_take_event_id(update) for update in updates]
        event_id = batch[-1][0] if batch else ""
        return [] if position is not None and position.repeats(event_id, data) else batch

    def end(self, request: GrpcRequest, reply: GrpcReply, position: StreamPosition | None) -> Exception:
        """Return the error for a status that ended a stream which had begun."""
        error = self._error(request, reply)
        if position is not None and isinstance(error, A2AError) and error.retry_after_s is not None:
            position.note_end(error.retry_after_s * 1000)
        if reply.code in _CUT or isinstance(error, HttpRefusal):
            return CallBroken(self._to.shown, f"the stream ended with the gRPC status {reply.code}", sent=True)
        return error

    # -- both ----------------------------------------------------------------------------------------------------------

    def _encode(self, operation: Operation, beside: CallHeaders) -> GrpcRequest:
        """Encode an operation as a call. Raises UnsupportedOperation or InvalidParams."""
        operation = address(operation, self.interface)
        declared = {}
        if isinstance(operation, StreamMessage | Subscribe) and self.interface.event_ids:
            declared = {self._declared: EVENT_ID}
        metadata = self._merge(self._metadata, {**declared, **beside.by_name(operation)})
        assert self.tongue.grpc is not None
        repeats_s = repeated_s(operation, self._terms.sends_s(self.interface))
        return GrpcRequest(operation, self.tongue.grpc(operation), metadata, repeats_s)

    def _refused(self, request: GrpcRequest, reply: GrpcReply) -> Exception:
        """Return the error for a call that was refused: RetryLater if it may be made again."""
        error = self._error(request, reply)
        after_s: float | None = None
        if isinstance(error, A2AError) and _RETRY_INFO in reply.details:  # some errors have a time of their own
            after_s = error.retry_after_s
        for_now = reply.code in _TRY_AGAIN or reply.http_status in _TRY_AGAIN_HTTP
        large = isinstance(error, PayloadTooLarge)
        for_now = for_now and not large  # it will not be smaller later
        return refusal(
            error,
            after_s,
            for_now=for_now,
            repeatable=request.repeats_s > 0,
            full=(reply.code == _RESOURCE_EXHAUSTED and not large) or reply.http_status == 429,
            away=reply.code == _UNAVAILABLE or reply.http_status == 503,
        )

    def _error(self, request: GrpcRequest, reply: GrpcReply) -> A2AError | HttpRefusal:
        if reply.http_status:
            return HttpRefusal(self._to.shown, reply.http_status)
        if reply.code == _UNIMPLEMENTED and not reply.details and _UNROUTED.search(reply.message):
            return MethodNotFound(request.call.method)
        if reply.code == _RESOURCE_EXHAUSTED and not reply.details and _OVER_LIMIT.search(reply.message):
            return made(PayloadTooLarge, reply.message, {})
        try:
            error = self.tongue.read_status(GrpcStatus(reply.code, reply.message, reply.details))
        except InvalidAgentResponse as unread:
            return self._add_url(unread)
        if reply.code == _FAILED_PRECONDITION and isinstance(request.operation, CancelTask) and not reply.details:
            return TaskNotCancelable(request.operation.id, "")  # a2a-js 0.3 says so by the code alone
        return error

    async def _credential_metadata(self) -> Mapping[str, str]:
        credentials = self._terms.credentials
        return {} if credentials is None else await credentials.headers()

    async def _renewed(self, refused: Mapping[str, str]) -> Mapping[str, str] | None:
        credentials = self._terms.credentials
        return None if credentials is None else await credentials.renewed(refused)

    def _merge(self, metadata: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
        """Return the metadata with more; extensions that are declared on both sides are joined."""
        merged = dict(metadata)
        for name, value in more.items():
            both = name.lower() == self._declared and merged.get(self._declared)
            merged[name.lower()] = f"{both}, {value}" if both else value
        return merged

    def _add_url(self, error: InvalidAgentResponse) -> InvalidAgentResponse:
        return InvalidAgentResponse(f"{self._to.shown}: {error.message}")

    def _log_request(self, request: GrpcRequest) -> None:
        if self._wire is not None:
            self._wire.request("POST", self._to.shown + request.call.method, request.metadata, request.call.message)


class GrpcUpdates:
    """The updates of a stream over gRPC; see `UpdateReader`."""

    __slots__ = ("_came", "_flow", "_position", "_repetition", "_request", "_transport")

    def __init__(
        self,
        transport: GrpcTransport,
        request: GrpcRequest,
        repetition: Repetition,
        position: StreamPosition | None,
    ) -> None:
        self._transport = transport
        self._request = request
        self._repetition = repetition
        self._position = position
        self._flow: GrpcFlow | None = None
        self._came: bytes | GrpcReply | None = None
        """The pieces that have come and were not returned yet."""

    async def next(self) -> UpdateBatch | None:
        """See `UpdateReader`."""
        if self._flow is None:
            self._flow, self._came = await self._transport.open(self._request, self._repetition)
        while True:
            came = await self._transport.read(self._flow) if self._came is None else self._came
            if isinstance(came, GrpcReply):
                self._came = came
                if not came.ok:
                    raise self._transport.end(self._request, came, self._position)
                return None
            self._came = None
            if batch := self._transport.decode(came, self._position):
                return UpdateBatch([event_id for event_id, _ in batch], [update for _, update in batch])

    def close(self) -> None:
        """See `UpdateReader`."""
        if self._flow is not None:
            self._flow.close()


def _take_event_id(update: Update) -> tuple[str, Update]:
    """Return the id of an item and the item without it."""
    metadata = update.metadata
    if not metadata or not isinstance(event_id := metadata.get(EVENT_ID), str):
        return "", update
    rest = {name: value for name, value in metadata.items() if name != EVENT_ID}
    return event_id, replace(update, metadata=rest or None)


def _refuses_caller(reply: GrpcReply) -> bool:
    """Whether the call was not carried out because of its credentials."""
    return reply.code == _UNAUTHENTICATED or reply.http_status == 401
