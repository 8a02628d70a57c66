"""Makes the transports to the endpoints of an agent.

Invariant: only an origin that the caller named gets the caller's headers and credentials.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from dragoman.client.card import Interface
from dragoman.client.credentials import Credentials
from dragoman.client.decode import double_base64 as in_double_base64
from dragoman.client.decode import tongue
from dragoman.client.doors import Doors
from dragoman.client.grpc_transport import GrpcTransport, grpc_tongue
from dragoman.client.http_transport import HttpTransport
from dragoman.client.retries import Retrier, Timeouts
from dragoman.client.transport import Transport, WireLog
from dragoman.dialects.api import Tongue
from dragoman.dialects.cards import GRPC, HTTP_JSON


class Transports(Struct, frozen=True, kw_only=True):
    """Makes the transports to the endpoints of one agent, with the arguments of `connect`."""

    doors: Doors
    spoken: Tongue | None
    timeouts: Timeouts
    retrier: Retrier
    headers: Mapping[str, str]
    credentials: Credentials | None
    extensions: Sequence[str]
    wire: WireLog | None
    double_base64: bool

    def make(self, interface: Interface) -> Transport:
        """Make the transport to an endpoint. Only a known origin gets the headers and the credentials."""
        doors = self.doors
        known = doors.knows(interface.url)
        if interface.binding == GRPC:
            return GrpcTransport(
                doors.grpc(interface.url),
                interface,
                grpc_tongue(interface.dialect, double_base64=self.double_base64),
                timeouts=self.timeouts,
                retrier=self.retrier,
                headers=self.headers if known else {},
                credentials=self.credentials if known else None,
                extensions=self.extensions,
                wire=self.wire,
            )
        spoken = tongue(interface.dialect) if self.spoken is None else self.spoken
        if self.double_base64 and interface.binding == HTTP_JSON:
            spoken = in_double_base64(spoken)
        return HttpTransport(
            doors.way(interface.url),
            interface,
            timeouts=self.timeouts,
            retrier=self.retrier,
            headers=self.headers if known else {},
            extensions=self.extensions,
            spoken=spoken,
            wire=self.wire,
        )
