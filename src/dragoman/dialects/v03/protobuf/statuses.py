"""The errors of 0.3 over gRPC: the status code of each, the message `Name: text`, and the details of 1.0.

A2A 0.3 leaves the codes open. These are those of @a2a-js/sdk 0.3.14, which tells errors by code and method. Speaking
0.3, a2a-sdk 1.3.0 tells them by the name, @a2a-js/sdk 1.3.0 by the ErrorInfo in the details; a2a-sdk 0.3.26 does not
tell them apart.

Invariant: every error has a code, which is never UNKNOWN, and a text that fits into the trailers that clients accept.
"""

from google.rpc.status_pb2 import Status

from dragoman.dialects.api import GrpcStatus
from dragoman.dialects.client import refusals
from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.v1.protobuf import read_status as read_details
from dragoman.dialects.v1.protobuf.statuses import MAX_TEXT
from dragoman.dialects.v1.protobuf.statuses import encode_status as encode_details
from dragoman.model import errors
from dragoman.model.errors import A2AError

_INVALID_ARGUMENT = 3
_DEADLINE_EXCEEDED = 4
_NOT_FOUND = 5
_PERMISSION_DENIED = 7
_RESOURCE_EXHAUSTED = 8
_FAILED_PRECONDITION = 9
_UNIMPLEMENTED = 12
_INTERNAL = 13
_UNAVAILABLE = 14
_UNAUTHENTICATED = 16

_ROWS: dict[type[A2AError], tuple[int, str]] = {
    errors.ParseError: (_INVALID_ARGUMENT, "JSONParseError"),
    errors.InvalidRequest: (_INVALID_ARGUMENT, "InvalidRequestError"),
    errors.MethodNotFound: (_UNIMPLEMENTED, "MethodNotFoundError"),
    errors.InvalidParams: (_INVALID_ARGUMENT, "InvalidParamsError"),
    errors.InternalError: (_INTERNAL, "InternalError"),
    errors.TaskNotFound: (_NOT_FOUND, "TaskNotFoundError"),
    errors.TaskNotCancelable: (_FAILED_PRECONDITION, "TaskNotCancelableError"),
    errors.PushNotificationNotSupported: (_UNIMPLEMENTED, "PushNotificationNotSupportedError"),
    errors.UnsupportedOperation: (_UNIMPLEMENTED, "UnsupportedOperationError"),
    errors.ContentTypeNotSupported: (_INVALID_ARGUMENT, "ContentTypeNotSupportedError"),
    errors.InvalidAgentResponse: (_INTERNAL, "InvalidAgentResponseError"),
    # 0.3 calls it AuthenticatedExtendedCardNotConfiguredError, but no client reads that name over gRPC.
    errors.ExtendedAgentCardNotConfigured: (_FAILED_PRECONDITION, "ExtendedAgentCardNotConfiguredError"),
    errors.ExtensionSupportRequired: (_FAILED_PRECONDITION, "ExtensionSupportRequiredError"),
    errors.VersionNotSupported: (_UNIMPLEMENTED, "VersionNotSupportedError"),
    errors.AgentNotFound: (_NOT_FOUND, "AgentNotFound"),
    errors.NotFound: (_UNIMPLEMENTED, "NotFound"),
    errors.MethodNotAllowed: (_UNIMPLEMENTED, "MethodNotAllowed"),
    errors.UnsupportedMediaType: (_INVALID_ARGUMENT, "UnsupportedMediaType"),
    errors.PayloadTooLarge: (_RESOURCE_EXHAUSTED, "PayloadTooLarge"),
    errors.RequestTimeout: (_DEADLINE_EXCEEDED, "RequestTimeout"),
    errors.LeaseLost: (_FAILED_PRECONDITION, "LeaseLost"),
    errors.Unavailable: (_UNAVAILABLE, "Unavailable"),
    errors.AgentOffline: (_UNAVAILABLE, "AgentOffline"),
    errors.TaskTimeout: (_DEADLINE_EXCEEDED, "TaskTimeout"),
    errors.AgentFailed: (_INTERNAL, "AgentFailed"),
    errors.Unauthorized: (_UNAUTHENTICATED, "Unauthorized"),
    errors.Forbidden: (_PERMISSION_DENIED, "Forbidden"),
    errors.TooManyRequests: (_RESOURCE_EXHAUSTED, "TooManyRequests"),
}
"""Names of A2A's errors end in `Error`, as the official SDKs spell them; the others are ours."""


def encode_status(error: A2AError) -> bytes:
    """Encode the google.rpc.Status, with the details that 1.0 has."""
    status = Status.FromString(encode_details(error))
    status.code = grpc_code(error)
    status.message = status_text(error)
    encoded: bytes = status.SerializeToString()
    return encoded


def status_text(error: A2AError) -> str:
    """Return the message of the status: `Name: text`."""
    return f"{_row(error)[1]}: {clean(error.message)[:MAX_TEXT]}"


def grpc_code(error: A2AError) -> int:
    """Return the status code."""
    return _row(error)[0]


def _row(error: A2AError) -> tuple[int, str]:
    return _ROWS.get(type(error)) or _ROWS[errors.InternalError]


_NAMES: dict[str, type[A2AError]] = {name: kind for kind, (_, name) in _ROWS.items()} | {
    "AuthenticatedExtendedCardNotConfiguredError": errors.ExtendedAgentCardNotConfigured,
}

_CODES: dict[int, type[A2AError]] = {
    _INVALID_ARGUMENT: errors.InvalidParams,
    _DEADLINE_EXCEEDED: errors.TaskTimeout,
    _NOT_FOUND: errors.TaskNotFound,
    _PERMISSION_DENIED: errors.Forbidden,
    _RESOURCE_EXHAUSTED: errors.TooManyRequests,
    _FAILED_PRECONDITION: errors.UnsupportedOperation,
    _UNIMPLEMENTED: errors.UnsupportedOperation,
    _UNAVAILABLE: errors.Unavailable,
    _UNAUTHENTICATED: errors.Unauthorized,
}


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
    return refusals.made(kind or _CODES.get(status.code, errors.InternalError), text or refusals.UNTOLD, {})
