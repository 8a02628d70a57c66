"""Encodes errors for Evo AI: -32000 for an agent that fails, `{"detail": …}` for a call that never reached one.

Invariant: JSON-RPC errors have HTTP status 200; a refused key and an unknown agent are errors of HTTP, not of JSON-RPC.
"""

from typing import Any

import msgspec

from dragoman.dialects import jsonrpc
from dragoman.dialects.evoai.decode import METHODS
from dragoman.dialects.jsonrpc import clean
from dragoman.model import errors
from dragoman.model.errors import (
    A2AError,
    AgentFailed,
    AgentOffline,
    Forbidden,
    InvalidParams,
    MethodNotFound,
    TaskNotFound,
    TaskTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

API_KEY_MISSING = "API key not provided"
"""The text of an Unauthorized for a call without `x-api-key`."""

API_KEY_WRONG = "Invalid API key"
"""The text of an Unauthorized for an invalid key."""

FAILED = "Agent processing failed"
LATE = "Timeout exceeded"

_CODES: dict[type[A2AError], int] = {
    **jsonrpc.CODES,
    errors.AgentFailed: -32000,
    errors.TaskTimeout: -32000,
    errors.AgentOffline: -32000,
    errors.Unavailable: -32000,
    errors.AgentNotFound: -32001,
}

_STATUSES: dict[type[A2AError], int] = {**jsonrpc.STATUSES, errors.AgentNotFound: 404}

_DETAILS: dict[type[A2AError], str] = {
    errors.AgentNotFound: "Agent not found",
    errors.NotFound: "Not Found",
    errors.MethodNotAllowed: "Method Not Allowed",
}


def encode_error(error: A2AError) -> bytes:
    """Encode the error object: `code`, `message`, and `data` if there is more to report."""
    failed = isinstance(error, TaskTimeout | AgentOffline)
    message = FAILED if failed else clean(error.message)
    body: dict[str, Any] = {"code": jsonrpc.error_code(error, _CODES), "message": message}
    data = _data(error)
    if data:
        body["data"] = data
    return msgspec.json.encode(body)


def error_status(error: A2AError) -> int:
    """Return the HTTP status of an error's answer."""
    return next((_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES), 200)


def http_error(error: A2AError) -> bytes | None:
    """Encode the whole HTTP body of an error that is answered outside JSON-RPC; None for any other."""
    match error:
        case Unauthorized():
            detail: str | None = API_KEY_MISSING if error.missing else API_KEY_WRONG
        case Forbidden():
            detail = clean(error.message)
        case _:
            detail = _DETAILS.get(type(error))
    return None if detail is None else msgspec.json.encode({"detail": detail})


def _data(error: A2AError) -> dict[str, Any]:
    match error:
        case AgentFailed():
            return {"taskId": error.task_id, "details": clean(error.details)}
        case TooManyRequests():
            return {"details": clean(error.message), **error.metadata}
        case AgentOffline() | Unavailable():
            return {"details": clean(error.message), **error.metadata}
        case TaskTimeout():
            return {"taskId": error.task_id, "details": LATE}
        case MethodNotFound():
            return {"method": clean(error.method[:100]), "supported_methods": sorted(METHODS)}
        case InvalidParams():
            return {"error": clean(error.message)}
        case TaskNotFound():
            return {"taskId": clean(error.task_id[:200])}
        case _:
            return {}
