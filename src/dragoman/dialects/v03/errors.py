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


class _Row(NamedTuple):
    name: str
    status: int


_ROWS: dict[type[A2AError], _Row] = {
    errors.ParseError: _Row("JSONParseError", 400),
    errors.InvalidRequest: _Row("InvalidRequestError", 400),
    errors.MethodNotFound: _Row("MethodNotFoundError", 404),
    errors.InvalidParams: _Row("InvalidParamsError", 422),
    errors.LeaseLost: _Row("InvalidParamsError", 422),
    errors.InternalError: _Row("InternalError", 500),
    errors.TaskNotFound: _Row("TaskNotFoundError", 404),
    errors.TaskNotCancelable: _Row("TaskNotCancelableError", 409),
    errors.PushNotificationNotSupported: _Row("PushNotificationNotSupportedError", 501),
    errors.UnsupportedOperation: _Row("UnsupportedOperationError", 501),
    errors.ContentTypeNotSupported: _Row("ContentTypeNotSupportedError", 415),
    errors.InvalidAgentResponse: _Row("InvalidAgentResponseError", 502),
    errors.ExtendedAgentCardNotConfigured: _Row("AuthenticatedExtendedCardNotConfiguredError", 404),
    errors.ExtensionSupportRequired: _Row("ExtensionSupportRequiredError", 400),
    errors.VersionNotSupported: _Row("VersionNotSupportedError", 400),
    errors.AgentNotFound: _Row("InvalidParamsError", 404),
    errors.NotFound: _Row("MethodNotFoundError", 404),
    errors.MethodNotAllowed: _Row("InvalidRequestError", 405),
    errors.UnsupportedMediaType: _Row("InvalidRequestError", 415),
    errors.PayloadTooLarge: _Row("InvalidRequestError", 413),
    errors.RequestTimeout: _Row("InvalidRequestError", 408),
    errors.Unavailable: _Row("InternalError", 503),
    errors.AgentOffline: _Row("InternalError", 503),
    errors.TaskTimeout: _Row("InternalError", 504),
    errors.AgentFailed: _Row("InternalError", 500),
    errors.Unauthorized: _Row("InternalError", 401),
    errors.Forbidden: _Row("InternalError", 403),
    errors.TooManyRequests: _Row("InternalError", 429),
}
"""HTTP+JSON statuses of the official server (0.3.26): its client distinguishes errors by nothing else."""

OFFICIAL_NAMES: dict[type[A2AError], str] = {
    kind: name for name, kind in {row.name: kind for kind, row in reversed(_ROWS.items())}.items()
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


def _row(error: A2AError) -> _Row:
    return _ROWS.get(type(error)) or _ROWS[errors.InternalError]


def _data(error: A2AError) -> dict[str, Any]:
    metadata = {name: clean(value) for name, value in error.metadata.items()}
    data: dict[str, Any] = {"reason": type(error).__name__, **metadata}
    if isinstance(error, InvalidParams):
        data["fieldViolations"] = [
            {"field": clean(field), "description": clean(text)} for field, text in error.violations
        ]
    return data
