"""Shared by the error tables of the vendors' dialects: A2A's codes where a vendor has none, and the encoding.

Invariant: an error has a row here or in the dialect's own table; an error without a row is an internal error.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.model import errors
from dragoman.model.errors import A2AError

INTERNAL = -32603

CODES: Mapping[type[A2AError], int] = {
    errors.ParseError: -32700,
    errors.InvalidRequest: -32600,
    errors.MethodNotFound: -32601,
    errors.InvalidParams: -32602,
    errors.LeaseLost: -32602,
    errors.InternalError: INTERNAL,
    errors.TaskNotFound: -32001,
    errors.TaskNotCancelable: -32002,
    errors.PushNotificationNotSupported: -32003,
    errors.UnsupportedOperation: -32004,
    errors.ContentTypeNotSupported: -32005,
    errors.InvalidAgentResponse: -32006,
    errors.ExtendedAgentCardNotConfigured: -32007,
    errors.ExtensionSupportRequired: -32008,
    errors.VersionNotSupported: -32009,
    errors.AgentNotFound: -32602,
    errors.NotFound: -32601,
    errors.MethodNotAllowed: -32600,
    errors.UnsupportedMediaType: -32600,
    errors.PayloadTooLarge: -32600,
    errors.RequestTimeout: -32600,
    errors.Unavailable: INTERNAL,
    errors.AgentOffline: INTERNAL,
    errors.TaskTimeout: INTERNAL,
    errors.AgentFailed: INTERNAL,
    errors.Unauthorized: -32600,
    errors.Forbidden: -32600,
    # As in 1.0: the one server error of JSON-RPC 2.0 §5.1 that A2A gives no meaning to.
    errors.TooManyRequests: -32000,
}
"""JSON-RPC's codes (JSON-RPC 2.0 §5.1) and A2A's (A2A 1.0 §9.5); a dialect overrides them with its own."""

STATUSES: Mapping[type[A2AError], int] = {
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.UnsupportedMediaType: 415,
    errors.PayloadTooLarge: 413,
    errors.RequestTimeout: 408,
    errors.Unavailable: 503,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TooManyRequests: 429,
}
"""Errors of the HTTP request rather than of the call in it: only these have an HTTP status other than 200."""


def code(error: A2AError, table: Mapping[type[A2AError], int]) -> int:
    """Return the error's code in `table`."""
    return table.get(type(error), INTERNAL)


def status(error: A2AError) -> int:
    """Return the HTTP status of a JSON-RPC answer with the error."""
    return STATUSES.get(type(error), 200)


def encode(number: int, message: str, data: dict[str, Any] | None) -> bytes:
    """Encode the `error` member of a JSON-RPC answer."""
    return msgspec.json.encode({"code": number, "message": clean(message), "data": data})


def clean(text: str) -> str:
    """Replace lone surrogates in `text`: paths and headers can contain them, but UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
