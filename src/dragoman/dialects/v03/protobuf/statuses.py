"""The errors of 0.3 over gRPC: the status code of each, the message `Name: text`, and the details of 1.0.

A2A 0.3 leaves the codes open. These are those of @a2a-js/sdk 0.3.14, which tells errors by code and method. Speaking
0.3, a2a-sdk 1.3.0 tells them by the name, @a2a-js/sdk 1.3.0 by the ErrorInfo in the details; a2a-sdk 0.3.26 does not
tell them apart.

Invariant: every error has a code, which is never UNKNOWN, and a text that fits into the trailers that clients accept.
"""

from collections.abc import Mapping

from google.rpc.status_pb2 import Status

from dragoman.dialects.api import GrpcStatus
from dragoman.dialects.client import refusals
from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.v03.errors import OFFICIAL_NAMES
from dragoman.dialects.v1.errors import TABLE
from dragoman.dialects.v1.protobuf import read_status as read_details
from dragoman.dialects.v1.protobuf.statuses import CODES, MAX_TEXT
from dragoman.dialects.v1.protobuf.statuses import encode_status as encode_details
from dragoman.dialects.v1.protobuf.statuses import grpc_code as code_of_1
from dragoman.model import errors
from dragoman.model.errors import A2AError

_UNIMPLEMENTED = CODES["UNIMPLEMENTED"]

_OWN_CODES: Mapping[type[A2AError], int] = {
    errors.MethodNotFound: _UNIMPLEMENTED,
    errors.PushNotificationNotSupported: _UNIMPLEMENTED,
    errors.UnsupportedOperation: _UNIMPLEMENTED,
}
"""The codes that differ from those of 1.0."""

_OFFICIAL: Mapping[type[A2AError], str] = {
    **OFFICIAL_NAMES,
    # 0.3 calls it AuthenticatedExtendedCardNotConfiguredError, but no client reads that name over gRPC.
    errors.ExtendedAgentCardNotConfigured: "ExtendedAgentCardNotConfiguredError",
}
"""The names of A2A's errors, as the official SDKs spell them. Any other error has the name of its class."""


def encode_status(error: A2AError) -> bytes:
    """Encode the google.rpc.Status, with the details that 1.0 has."""
    status = Status.FromString(encode_details(error))
    status.code = grpc_code(error)
    status.message = status_text(error)
    encoded: bytes = status.SerializeToString()
    return encoded


def status_text(error: A2AError) -> str:
    """Return the message of the status: `Name: text`."""
    kind = type(error)
    return f"{_OFFICIAL.get(kind, kind.__name__)}: {clean(error.message)[:MAX_TEXT]}"


def grpc_code(error: A2AError) -> int:
    """Return the status code."""
    return _OWN_CODES.get(type(error)) or code_of_1(error)


_NAMES: Mapping[str, type[A2AError]] = {
    **{kind.__name__: kind for kind in TABLE if kind is not A2AError and kind not in _OFFICIAL},
    **{name: kind for names in (OFFICIAL_NAMES, _OFFICIAL) for kind, name in names.items()},
}

_MEANINGS: Mapping[int, type[A2AError]] = {
    CODES["INVALID_ARGUMENT"]: errors.InvalidParams,
    CODES["DEADLINE_EXCEEDED"]: errors.TaskTimeout,
    CODES["NOT_FOUND"]: errors.TaskNotFound,
    CODES["PERMISSION_DENIED"]: errors.Forbidden,
    CODES["RESOURCE_EXHAUSTED"]: errors.TooManyRequests,
    CODES["FAILED_PRECONDITION"]: errors.UnsupportedOperation,
    CODES["UNIMPLEMENTED"]: errors.UnsupportedOperation,
    CODES["UNAVAILABLE"]: errors.Unavailable,
    CODES["UNAUTHENTICATED"]: errors.Unauthorized,
}
"""The meaning of a code if nothing else says better; any other is an internal error."""


def read_status(status: GrpcStatus) -> A2AError:
    """Decode the status of a failed call to the nearest error.

    A name that is known decides, then the details, then the code: the official Python server of 0.3.26 has
    UNIMPLEMENTED for most errors.
    """
    text = status.message[: refusals.MAX_TEXT]
    name, _, rest = text.partition(": ")
    kind = _NAMES.get(name)
    if kind is not None:
        text = rest
    if status.details:
        error = read_details(GrpcStatus(status.code, text, status.details))
        if kind in (None, type(error)):
            return error
    return refusals.made(kind or _MEANINGS.get(status.code, errors.InternalError), text or refusals.UNTOLD, {})
