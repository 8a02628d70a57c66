"""Encodes errors with BeeOS's numbers.

Invariant: -32000 to -32003 mean what BeeOS's text says; the errors with these numbers in A2A are -32004 here,
"unsupported operation". Authentication and permission errors use the envelope of the REST paths, also over JSON-RPC.
"""

from typing import Any

import msgspec

from dragoman.dialects import jsonrpc
from dragoman.model import errors
from dragoman.model.errors import A2AError, Forbidden, InvalidParams, TaskTimeout, Unauthorized

CODES = {
    **jsonrpc.CODES,
    errors.TaskNotFound: -32000,
    errors.AgentNotFound: -32001,
    errors.AgentOffline: -32002,
    errors.TaskTimeout: -32003,
    errors.TaskNotCancelable: -32004,
    errors.PushNotificationNotSupported: -32004,
    # BeeOS has no number for it, and -32000 is taken: this one is in its range (JSON-RPC 2.0 §5.1), after HTTP's 429.
    errors.TooManyRequests: -32029,
}

WORDS: dict[type[A2AError], str] = {
    errors.ParseError: "invalid_json",
    errors.InvalidRequest: "invalid_body",
    errors.MethodNotFound: "method_not_found",
    errors.InvalidParams: "invalid_param",
    errors.LeaseLost: "invalid_param",
    errors.TaskNotFound: "task_not_found",
    errors.TaskNotCancelable: "conflict",
    errors.AgentNotFound: "agent_not_found",
    errors.AgentOffline: "agent_offline",
    errors.TaskTimeout: "service_timeout",
    errors.PayloadTooLarge: "payload_too_large",
    errors.RequestTimeout: "request_timeout",
    errors.Unauthorized: "unauthorized",
    errors.Forbidden: "forbidden",
    errors.TooManyRequests: "rate_limited",
    errors.PushNotificationNotSupported: "unsupported_operation",
    errors.UnsupportedOperation: "unsupported_operation",
    errors.ContentTypeNotSupported: "content_type_not_supported",
    errors.InvalidAgentResponse: "invalid_agent_response",
    errors.ExtendedAgentCardNotConfigured: "extended_card_not_configured",
    errors.ExtensionSupportRequired: "extension_required",
    errors.VersionNotSupported: "version_not_supported",
    errors.AgentFailed: "agent_failed",
    errors.NotFound: "not_found",
    errors.MethodNotAllowed: "method_not_allowed",
    errors.UnsupportedMediaType: "unsupported_media_type",
    errors.Unavailable: "unavailable",
}
"""The error words of `data.code` and of the envelope: those of BeeOS's error reference, and ours in the same style; any
other is `internal_error`.
"""

STATUSES: dict[type[A2AError], int] = {
    errors.TaskNotFound: 404,
    errors.AgentNotFound: 404,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.AgentOffline: 503,
    errors.Unavailable: 503,
    errors.TaskTimeout: 504,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.TooManyRequests: 429,
    errors.PayloadTooLarge: 413,
    errors.RequestTimeout: 408,
    errors.InternalError: 500,
}
"""HTTP statuses of its REST envelope; any other error is 400."""


def encode_error(error: A2AError) -> bytes:
    """Encode the `error` member of an answer; `data` has `code`, a word, and further facts: `taskId`, the fields."""
    data: dict[str, Any] = {"code": word(error)}
    data |= {name: jsonrpc.clean(value) for name, value in error.metadata.items()}
    if isinstance(error, TaskTimeout):
        data["taskId"] = error.task_id
    if isinstance(error, InvalidParams):
        data["fieldViolations"] = [
            {"field": jsonrpc.clean(field), "description": jsonrpc.clean(text)} for field, text in error.violations
        ]
    return jsonrpc.encode_error(jsonrpc.error_code(error, CODES), error.message, data)


def http_error(error: A2AError) -> bytes | None:
    """Encode the whole HTTP body of an error that is answered outside JSON-RPC; None for any other."""
    return envelope(error) if isinstance(error, Unauthorized | Forbidden) else None


def envelope(error: A2AError) -> bytes:
    """Encode `{"success": false, "error": {"code", "message"}}`, with the words of its error reference."""
    return msgspec.json.encode(
        {"success": False, "error": {"code": word(error), "message": jsonrpc.clean(error.message)}}
    )


def word(error: A2AError) -> str:
    """Return the word of BeeOS's error reference for the error."""
    if isinstance(error, Unauthorized) and error.missing:
        return "missing_token"
    return next((WORDS[kind] for kind in type(error).__mro__ if kind in WORDS), "internal_error")


def rest_error_status(error: A2AError) -> int:
    """Return the HTTP status of an error in that envelope."""
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 400)
