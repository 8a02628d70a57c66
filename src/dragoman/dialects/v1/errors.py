"""A2A 1.0 §5.4: the JSON-RPC code, HTTP statuses, gRPC status and reason of each error.

Invariant: every error of the model has a row; one without its own row has that of its nearest base class.
"""

from typing import Any

import msgspec
from msgspec import Struct

from dragoman.dialects.jsonrpc import clean
from dragoman.model import errors
from dragoman.model.errors import A2AError, AgentNotFound, InvalidParams, TooManyRequests, Unavailable

DOMAIN = "a2a-protocol.org"
"""ErrorInfo.domain (A2A 1.0 §9.5)."""

_TYPE = "type.googleapis.com/google.rpc."


class ErrorCodes(Struct, frozen=True):
    """The codes of one error.

    `rpc_status` is the HTTP status of a JSON-RPC answer: 200 unless the request was refused before the call.
    """

    code: int
    http_status: int
    grpc_status: str
    reason: str
    rpc_status: int = 200


TABLE: dict[type[A2AError], ErrorCodes] = {
    # -32603 also covers errors without a row: a new error must never look like success.
    A2AError: ErrorCodes(-32603, 500, "INTERNAL", "INTERNAL_ERROR"),
    # For an unparsable body official clients know only the reason of an invalid request.
    errors.ParseError: ErrorCodes(-32700, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    errors.InvalidRequest: ErrorCodes(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    errors.MethodNotFound: ErrorCodes(-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
    errors.InvalidParams: ErrorCodes(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    errors.Conflict: ErrorCodes(-32602, 409, "ALREADY_EXISTS", "CONFLICT"),
    errors.VersionConflict: ErrorCodes(-32602, 412, "ABORTED", "VERSION_CONFLICT"),
    errors.InternalError: ErrorCodes(-32603, 500, "INTERNAL", "INTERNAL_ERROR"),
    errors.TaskNotFound: ErrorCodes(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    errors.TaskNotCancelable: ErrorCodes(-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    errors.PushNotificationNotSupported: ErrorCodes(
        -32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"
    ),
    errors.UnsupportedOperation: ErrorCodes(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    errors.ContentTypeNotSupported: ErrorCodes(-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    errors.InvalidAgentResponse: ErrorCodes(-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    errors.ExtendedAgentCardNotConfigured: ErrorCodes(
        -32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    ),
    errors.ExtensionSupportRequired: ErrorCodes(-32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
    errors.VersionNotSupported: ErrorCodes(-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    # Our own errors from here on. The path or `tenant` chooses the agent: a wrong one is a wrong parameter.
    errors.AgentNotFound: ErrorCodes(-32602, 404, "NOT_FOUND", "AGENT_NOT_FOUND", 404),
    errors.NotFound: ErrorCodes(-32601, 404, "NOT_FOUND", "NOT_FOUND", 404),
    errors.MethodNotAllowed: ErrorCodes(-32600, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", 405),
    errors.UnsupportedMediaType: ErrorCodes(-32600, 415, "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE", 415),
    errors.PayloadTooLarge: ErrorCodes(-32600, 413, "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE", 413),
    errors.RequestTimeout: ErrorCodes(-32600, 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", 408),
    # -32000 is the one server error of JSON-RPC 2.0 §5.1 that A2A gives no meaning to.
    errors.Unavailable: ErrorCodes(-32000, 503, "UNAVAILABLE", "UNAVAILABLE", 503),
    errors.LeaseLost: ErrorCodes(-32602, 409, "ABORTED", "LEASE_LOST"),
    errors.AgentOffline: ErrorCodes(-32000, 503, "UNAVAILABLE", "AGENT_OFFLINE"),
    errors.TaskTimeout: ErrorCodes(-32000, 504, "DEADLINE_EXCEEDED", "TASK_TIMEOUT"),
    errors.AgentFailed: ErrorCodes(-32603, 500, "INTERNAL", "AGENT_FAILED"),
    errors.Unauthorized: ErrorCodes(-32000, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", 401),
    errors.Forbidden: ErrorCodes(-32000, 403, "PERMISSION_DENIED", "PERMISSION_DENIED", 403),
    errors.TooManyRequests: ErrorCodes(-32000, 429, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", 429),
}


def row(error: A2AError) -> ErrorCodes:
    """Return the row of the error's class, or of its nearest base class that has one."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def encode_rpc_error(error: A2AError) -> bytes:
    """Encode the `error` member of a JSON-RPC answer (A2A 1.0 §9.5)."""
    return msgspec.json.encode({"code": row(error).code, "message": clean(error.message), "data": _details(error)})


def encode_http_error(error: A2AError) -> bytes:
    """Encode the body of an HTTP answer, a google.rpc.Status (A2A 1.0 §11.6)."""
    known = row(error)
    status = {
        "code": known.http_status,
        "status": known.grpc_status,
        "message": clean(error.message),
        "details": _details(error),
    }
    return msgspec.json.encode({"error": status})


def rpc_status(error: A2AError) -> int:
    """Return the HTTP status of a JSON-RPC answer with the error."""
    return row(error).rpc_status


def http_status(error: A2AError) -> int:
    """Return the HTTP status of an HTTP+JSON answer with the error."""
    return row(error).http_status


def _details(error: A2AError) -> list[dict[str, Any]]:
    metadata = {clean(name): clean(value) for name, value in error.metadata.items()}
    details: list[dict[str, Any]] = [
        {"@type": f"{_TYPE}ErrorInfo", "reason": row(error).reason, "domain": DOMAIN, "metadata": metadata}
    ]
    match error:
        case InvalidParams():
            details.append(_bad_request(error.violations))
        case AgentNotFound():
            details.append(_bad_request([("tenant", error.message)]))
        case Unavailable(retry_after_s=int()) | TooManyRequests(retry_after_s=int()):
            details.append({"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{error.retry_after_s}s"})
    return details


def _bad_request(violations: Any) -> dict[str, Any]:
    fields = [{"field": clean(field), "description": clean(description)} for field, description in violations]
    return {"@type": f"{_TYPE}BadRequest", "fieldViolations": fields}
