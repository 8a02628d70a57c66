"""Tells what a gRPC status is: the answer of the other side, or a failure of this one or of the way between.

Invariant: pure. A status that C-core made itself is an EgressError, and its text is never passed on.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dragoman.net.errors import Broken, CertificateWanted, EgressError, TimedOut, TooLarge, Unreachable

OK = 0
_CANCELLED, _UNKNOWN, _DEADLINE_EXCEEDED, _RESOURCE_EXHAUSTED, _INTERNAL, _UNAVAILABLE = 1, 2, 4, 8, 13, 14

DETAILS = "grpc-status-details-bin"
"""The metadata that holds a google.rpc.Status."""

_BROKEN = re.compile(
    r"Stream removed|Socket closed|Connection reset|Broken pipe|recvmsg:|sendmsg:|GOAWAY|RST_STREAM|ping timeout"
    r"|Cancelling all calls|Failed parsing HTTP/2|Endpoint closing|Transport closed|keepalive watchdog|Channel closed"
    r"|Compression algorithm"
)
"""C-core's words for a connection or a stream that ended without a status (grpc 1.60 to 1.85)."""

_NOT_CONNECTED = "failed to connect to all addresses"
_LARGE = "CLIENT: Received message larger than max"
"""C-core's words for an answer over the limit. Servers say of a request, too, that it is larger than their maximum."""

_HTTP_STATUS = re.compile(r"Received http2 header with status: ([0-9]{3})", re.ASCII)
"""An answer in HTTP that is not gRPC's: of a proxy, or of a server for something else."""


class GrpcReply(Struct, frozen=True, kw_only=True):
    """The answer to a call, with any status that the other side gave. Names of metadata are in lower case.

    `code` is 0 for success; else `message` and `details` say what happened, `details` as a google.rpc.Status, empty if
    there is none. `body` is None if no message came. `http_status` is 0 unless the answer was one in HTTP.
    """

    code: int = OK
    message: str = ""
    details: bytes = b""
    metadata: Mapping[str, str] = {}
    body: bytes | None = None
    http_status: int = 0

    @property
    def ok(self) -> bool:
        """Whether the status is OK."""
        return self.code == OK


def texts(metadata: Any) -> dict[str, str]:
    """Return the metadata whose values are texts."""
    return {str(name): value for name, value in metadata or () if isinstance(value, str)}


def read_status(error: Any, shown: str, *, max_bytes: int, timeout_s: float, late: bool) -> GrpcReply:
    """Return the status in an AioRpcError. `late`: the time for the call is over.

    Raises EgressError if the status was made on this side.
    """
    code, message = int(error.code().value[0]), error.details() or ""
    trailing = tuple(error.trailing_metadata() or ())
    details = next((value for name, value in trailing if name == DETAILS and isinstance(value, bytes)), b"")
    if (failure := _failure(code, message, shown, max_bytes, timeout_s, late=late)) is not None and not details:
        raise failure from error
    answered = _HTTP_STATUS.fullmatch(message)
    return GrpcReply(
        code=code,
        message=message,
        details=details,
        metadata=texts(error.initial_metadata()) | texts(trailing),
        http_status=int(answered[1]) if answered else 0,
    )


def _failure(
    code: int, message: str, shown: str, max_bytes: int, timeout_s: float, *, late: bool
) -> EgressError | None:
    """Return the failure that a status of C-core's own stands for, None if the other side sent it."""
    if code == _DEADLINE_EXCEEDED and late:
        return TimedOut(shown, timeout_s)
    if code == _RESOURCE_EXHAUSTED and _LARGE in message:
        return TooLarge(shown, max_bytes)
    if _is_unconnected(code, message):
        return not_connected(shown, message)
    if code in (_CANCELLED, _UNKNOWN, _RESOURCE_EXHAUSTED, _INTERNAL, _UNAVAILABLE) and _BROKEN.search(message):
        return broken(shown)
    return None


def was_not_sent(code: Any, message: str | None) -> bool:
    """Whether a status says that there was no connection, so that the other side cannot have seen the call."""
    return _is_unconnected(int(code.value[0]), message or "")


def _is_unconnected(code: int, message: str) -> bool:
    return code == _UNAVAILABLE and message.startswith(_NOT_CONNECTED)


def broken(shown: str) -> Broken:
    """Return the error for a connection or a stream that ended before the answer did."""
    return Broken(shown, "the connection ended before the answer did, or what came is not gRPC")


def not_connected(shown: str, reason: str = "") -> Unreachable:
    """Return the error for a connection that was not made; `reason` is what C-core says, which is only looked at."""
    if re.search(r"ssl|tls|certificate|handshake|alpn|hostname verification", reason, re.IGNORECASE):
        return Unreachable(shown, "no TLS connection: check its certificate, and whether it takes TLS there at all")
    if shown.startswith("grpcs:") and "Socket closed" in reason:
        # C-core does not say which alert came. Any other fault of TLS is found in the handshake.
        told = "it closed the connection once TLS was agreed on: does it take only clients with a certificate?"
        return CertificateWanted(shown, told)
    if "HTTP/2" in reason or "http1" in reason:
        return Unreachable(shown, "it takes connections, but not gRPC's: check its port, and whether it wants TLS")
    return Unreachable(shown, "no connection: is it listening there, with TLS or without as the address says?")
