"""The errors of 0.3: the name of each, and its HTTP status over HTTP+JSON. Codes are those of 1.0.

Invariant: codes -32001 to -32007 mean what A2A 0.3 §8.2 says, as they do in 1.0.
"""

from typing import Any, NamedTuple

import msgspec

from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.v1.errors import row as row_of_1
from dragoman.dialects.v1.errors import rpc_status
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams


class RestErrorRow(NamedTuple):
    name: str
    status: int


TABLE: dict[type[A2AError], RestErrorRow] = {
    errors.ParseError: RestErrorRow("JSONParseError", 400),
    errors.InvalidRequest: RestErrorRow("InvalidRequestError", 400),
    errors.MethodNotFound: RestErrorRow("MethodNotFoundError", 404),
    errors.InvalidParams: RestErrorRow("InvalidParamsError", 422),
    errors.LeaseLost: RestErrorRow("InvalidParamsError", 422),
    errors.InternalError: RestErrorRow("InternalError", 500),
    errors.TaskNotFound: RestErrorRow("TaskNotFoundError", 404),
    errors.TaskNotCancelable: RestErrorRow("TaskNotCancelableError", 409),
    errors.PushNotificationNotSupported: RestErrorRow("PushNotificationNotSupportedError", 501),
    errors.UnsupportedOperation: RestErrorRow("UnsupportedOperationError", 501),
    errors.ContentTypeNotSupported: RestErrorRow("ContentTypeNotSupportedError", 415),
    errors.InvalidAgentResponse: RestErrorRow("InvalidAgentResponseError", 502),
    errors.ExtendedAgentCardNotConfigured: RestErrorRow("AuthenticatedExtendedCardNotConfiguredError", 404),
    errors.ExtensionSupportRequired: RestErrorRow("ExtensionSupportRequiredError", 400),
    errors.VersionNotSupported: RestErrorRow("VersionNotSupportedError", 400),
    errors.AgentNotFound: RestErrorRow("InvalidParamsError", 404),
    errors.NotFound: RestErrorRow("MethodNotFoundError", 404),
    errors.MethodNotAllowed: RestErrorRow("InvalidRequestError", 405),
    errors.UnsupportedMediaType: RestErrorRow("InvalidRequestError", 415),
    errors.PayloadTooLarge: RestErrorRow("InvalidRequestError", 413),
    errors.RequestTimeout: RestErrorRow("InvalidRequestError", 408),
    errors.Unavailable: RestErrorRow("InternalError", 503),
    errors.AgentOffline: RestErrorRow("InternalError", 503),
    errors.TaskTimeout: RestErrorRow("InternalError", 504),
    errors.AgentFailed: RestErrorRow("InternalError", 500),
    errors.Unauthorized: RestErrorRow("InternalError", 401),
    errors.Forbidden: RestErrorRow("InternalError", 403),
    errors.TooManyRequests: RestErrorRow("InternalError", 429),
}
"""HTTP+JSON statuses of the official server (0.3.26): its client distinguishes errors by nothing else."""

OFFICIAL_NAMES: dict[type[A2AError], str] = {
    kind: name for name, kind in {row.name: kind for kind, row in reversed(TABLE.items())}.items()
}
"""The names of the errors that A2A has: the first with a name owns it."""


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of a JSON-RPC answer; `data` is an object, as @a2a-js/sdk 0.3 types it."""
    return msgspec.json.encode({"code": _code(error), "message": clean(error.message), "data": _data(error)})


def error_status(error: A2AError) -> int:
    """Return the HTTP status of a JSON-RPC answer: 200, because the error is in the body, unless the HTTP request
    itself failed.
    """
    return rpc_status(error)


def encode_rest_error(error: A2AError) -> bytes:
    """Encode the body of an HTTP+JSON error: @a2a-js/sdk 0.3 reads `code`, a2a-sdk 1.x speaking 0.3 reads `type`."""
    row = _row(error)
    return msgspec.json.encode(
        {"type": row.name, "code": _code(error), "message": clean(error.message), "data": _data(error)}
    )


def rest_error_status(error: A2AError) -> int:
    """Return the HTTP status of an HTTP+JSON error."""
    return _row(error).status


def _code(error: A2AError) -> int:
    """Return the code of JSON-RPC."""
    return row_of_1(error).code


def _row(error: A2AError) -> RestErrorRow:
    return next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), TABLE[errors.InternalError])


def _data(error: A2AError) -> dict[str, Any]:
    metadata = {name: clean(value) for name, value in error.metadata.items()}
    data: dict[str, Any] = {"reason": type(error).__name__, **metadata}
    if isinstance(error, InvalidParams):
        data["fieldViolations"] = [
            {"field": clean(field), "description": clean(text)} for field, text in error.violations
        ]
    return data
