"""Encodes errors for OpenAI's clients: `{"error": {"message", "type", "param", "code"}}` and an HTTP status.

Invariant: every error has a row; one without its own row has that of its nearest base class.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.model import errors
from dragoman.model.errors import A2AError, AgentFailed, AgentNotFound, InvalidParams, TaskTimeout, Unavailable


class ErrorEncoding(Struct, frozen=True):
    """The encoding of one error.

    `again`: whether a client may repeat the request by itself, as the official ones do at 408, 409, 429 and 5xx.
    """

    status: int
    type: str
    code: str | None
    again: bool = True


_WRONG = "invalid_request_error"
_OURS = "server_error"

TABLE: dict[type[A2AError], ErrorEncoding] = {
    A2AError: ErrorEncoding(500, _OURS, "internal_error"),
    errors.ParseError: ErrorEncoding(400, _WRONG, "invalid_json"),
    errors.InvalidRequest: ErrorEncoding(400, _WRONG, None),
    errors.InvalidParams: ErrorEncoding(400, _WRONG, None),
    errors.AgentNotFound: ErrorEncoding(404, _WRONG, "model_not_found"),
    errors.TaskNotFound: ErrorEncoding(404, _WRONG, "task_not_found"),
    errors.NotFound: ErrorEncoding(404, _WRONG, "not_found"),
    errors.MethodNotAllowed: ErrorEncoding(405, _WRONG, "method_not_allowed"),
    errors.UnsupportedMediaType: ErrorEncoding(415, _WRONG, "unsupported_media_type"),
    errors.PayloadTooLarge: ErrorEncoding(413, _WRONG, "payload_too_large"),
    errors.RequestTimeout: ErrorEncoding(408, _WRONG, "request_timeout"),
    errors.ContentTypeNotSupported: ErrorEncoding(400, _WRONG, "content_type_not_supported"),
    errors.UnsupportedOperation: ErrorEncoding(400, _WRONG, "unsupported_operation"),
    errors.ExtensionSupportRequired: ErrorEncoding(400, _WRONG, "extension_required"),
    errors.Unauthorized: ErrorEncoding(401, _WRONG, "invalid_api_key"),
    errors.Forbidden: ErrorEncoding(403, _WRONG, "permission_denied"),
    errors.TooManyRequests: ErrorEncoding(429, "requests", "rate_limit_exceeded"),
    errors.Unavailable: ErrorEncoding(503, _OURS, "unavailable"),
    errors.AgentOffline: ErrorEncoding(503, _OURS, "agent_offline"),
    # The agent has worked on it: a repeat would make another task.
    errors.AgentFailed: ErrorEncoding(500, _OURS, "agent_failed", again=False),
    errors.TaskTimeout: ErrorEncoding(504, _OURS, "timeout", again=False),
}


def row(error: A2AError) -> ErrorEncoding:
    """Return the row of the error's class, or of its nearest base class that has one."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def encode_error(error: A2AError) -> bytes:
    """Encode the body of an error answer, which is also the last chunk of a stream."""
    known = row(error)
    message, param = error.message, None
    match error:
        case AgentNotFound():
            message = f"The model `{error.agent[:100]}` does not exist: GET /v1/models lists those that do"
            param = "model"
        case InvalidParams():
            param = error.violations[0][0] or None
        case AgentFailed():
            message = error.details or message
        case _:
            pass
    told: dict[str, Any] = {"message": _clean(message), "type": known.type, "param": param and _clean(param)}
    return msgspec.json.encode({"error": {**told, "code": known.code}})


def error_status(error: A2AError) -> int:
    """Return the HTTP status of an error answer."""
    return row(error).status


def task_of(error: A2AError) -> str | None:
    """Return the task that the error is about, if there is one that the caller can look at."""
    named = error.task_id if isinstance(error, AgentFailed | TaskTimeout | Unavailable) else ""
    return named or None


def _clean(text: str) -> str:
    """Replace lone surrogates in `text`: headers can contain them, but UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
