"""Makes the transports to the endpoints of an agent.

Invariant: only an origin that the caller named gets the caller's headers and credentials.
"""

from typing import Protocol

from msgspec import Struct

from dragoman.client.card import Interface
from dragoman.client.decode import double_base64 as in_double_base64
from dragoman.client.decode import tongue
from dragoman.client.doors import Doors
from dragoman.client.http_transport import BegunStream, HttpTransport
from dragoman.client.transport import NO_HEADERS, CallHeaders, CallTerms, StreamPosition, UpdateReader
from dragoman.dialects.api import Answer, Tongue
from dragoman.dialects.cards import GRPC, HTTP_JSON
from dragoman.model.operations import Operation, StreamMessage, Subscribe


class Transport(Protocol):
    """One endpoint of an agent, over any binding."""

    interface: Interface
    tongue: Tongue

    async def call(self, operation: Operation, beside: CallHeaders = NO_HEADERS) -> Answer:
        """Return the answer to an operation that is not a stream. Raises A2AError or PeerError."""
        ...

    def begin_stream(self, operation: StreamMessage, beside: CallHeaders) -> BegunStream | None:
        """See `HttpTransport.begin_stream`."""
        ...

    def stream(
        self, operation: StreamMessage | Subscribe, beside: CallHeaders, position: StreamPosition | None
    ) -> UpdateReader:
        """Return the updates of a stream. Raises UnsupportedOperation if the dialect has no such stream."""
        ...


class Transports(Struct, frozen=True, kw_only=True):
    """Makes the transports to the endpoints of one agent. `spoken` is a dialect that the caller named."""

    doors: Doors
    terms: CallTerms
    spoken: Tongue | None
    double_base64: bool

    def make(self, interface: Interface) -> Transport:
        """Make the transport to an endpoint. Only a known origin gets the headers and the credentials."""
        doors = self.doors
        terms = self.terms if doors.knows(interface.url) else self.terms.anonymous()
        if interface.binding == GRPC:
            from dragoman.client.grpc_transport import GrpcTransport, grpc_tongue

            spoken = grpc_tongue(interface.dialect, double_base64=self.double_base64)
            return GrpcTransport(doors.grpc(interface.url), interface, spoken, terms)
        spoken = tongue(interface.dialect) if self.spoken is None else self.spoken
        if self.double_base64 and interface.binding == HTTP_JSON:
            spoken = in_double_base64(spoken)
        return HttpTransport(doors.way(interface.url), interface, spoken, terms)
