"""The errors of 0.3: the code, name and HTTP status of each, for JSON-RPC and for HTTP+JSON.

Invariant: codes -32001 to -32007 mean what A2A 0.3 §8.2 says; an error without a code in 0.3 has that of 1.0, or
JSON-RPC's.
"""

from typing import Any, NamedTuple

import msgspec

from dragoman.dialects.jsonrpc import clean
from dragoman.model import errors
from dragoman.model.errors import A2AError, InvalidParams


class _Row(NamedTuple):
    code: int
    name: str
    status: int


_ROWS: dict[type[A2AError], _Row] = {
    errors.ParseError: _Row(-32700, "JSONParseError", 400),
    errors.InvalidRequest: _Row(-32600, "InvalidRequestError", 400),
    errors.MethodNotFound: _Row(-32601, "MethodNotFoundError", 404),
    errors.InvalidParams: _Row(-32602, "InvalidParamsError", 422),
    errors.LeaseLost: _Row(-32602, "InvalidParamsError", 422),
    errors.InternalError: _Row(-32603, "InternalError", 500),
    errors.TaskNotFound: _Row(-32001, "TaskNotFoundError", 404),
    errors.TaskNotCancelable: _Row(-32002, "TaskNotCancelableError", 409),
    errors.PushNotificationNotSupported: _Row(-32003, "PushNotificationNotSupportedError", 501),
    errors.UnsupportedOperation: _Row(-32004, "UnsupportedOperationError", 501),
    errors.ContentTypeNotSupported: _Row(-32005, "ContentTypeNotSupportedError", 415),
    errors.InvalidAgentResponse: _Row(-32006, "InvalidAgentResponseError", 502),
    errors.ExtendedAgentCardNotConfigured: _Row(-32007, "AuthenticatedExtendedCardNotConfiguredError", 404),
    errors.ExtensionSupportRequired: _Row(-32008, "ExtensionSupportRequiredError", 400),
    errors.VersionNotSupported: _Row(-32009, "VersionNotSupportedError", 400),
    errors.AgentNotFound: _Row(-32602, "InvalidParamsError", 404),
    errors.NotFound: _Row(-32601, "MethodNotFoundError", 404),
    errors.MethodNotAllowed: _Row(-32600, "InvalidRequestError", 405),
    errors.UnsupportedMediaType: _Row(-32600, "InvalidRequestError", 415),
    errors.PayloadTooLarge: _Row(-32600, "InvalidRequestError", 413),
    errors.RequestTimeout: _Row(-32600, "InvalidRequestError", 408),
    errors.Unavailable: _Row(-32000, "InternalError", 503),
    errors.AgentOffline: _Row(-32000, "InternalError", 503),
    errors.TaskTimeout: _Row(-32000, "InternalError", 504),
    errors.AgentFailed: _Row(-32603, "InternalError", 500),
    errors.Unauthorized: _Row(-32000, "InternalError", 401),
    errors.Forbidden: _Row(-32000, "InternalError", 403),
    errors.TooManyRequests: _Row(-32000, "InternalError", 429),
}
"""HTTP+JSON statuses of the official server (0.3.26): its client distinguishes errors by nothing else."""

_OUTSIDE_JSONRPC = frozenset(
    {
        errors.AgentNotFound,
        errors.NotFound,
        errors.MethodNotAllowed,
        errors.UnsupportedMediaType,
        errors.PayloadTooLarge,
        errors.RequestTimeout,
        errors.Unavailable,
        errors.Unauthorized,
        errors.Forbidden,
        errors.TooManyRequests,
    }
)
"""Errors of the HTTP request rather than of the call in it; only these have a status other than 200 over JSON-RPC."""


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of a JSON-RPC answer; `data` is an object, as @a2a-js/sdk 0.3 types it."""
    return msgspec.json.encode({"code": _row(error).code, "message": clean(error.message), "data": _data(error)})


def error_status(error: A2AError) -> int:
    """Return the HTTP status of a JSON-RPC answer: 200, because the error is in the body, unless the HTTP request
    itself failed.
    """
    return _row(error).status if type(error) in _OUTSIDE_JSONRPC else 200


def encode_rest_error(error: A2AError) -> bytes:
    """Encode the body of an HTTP+JSON error: @a2a-js/sdk 0.3 reads `code`, a2a-sdk 1.x speaking 0.3 reads `type`."""
    row = _row(error)
    return msgspec.json.encode(
        {"type": row.name, "code": row.code, "message": clean(error.message), "data": _data(error)}
    )


def rest_error_status(error: A2AError) -> int:
    """Return the HTTP status of an HTTP+JSON error."""
    return _row(error).status


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
