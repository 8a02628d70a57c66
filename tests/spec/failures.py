"""The shape of a refusal in every lane: code, HTTP status, reason, and nothing of an exception's text."""

import re
from collections.abc import Mapping
from typing import Any

from google.rpc import code_pb2
from msgspec import Struct

from tests.spec.lanes import Lane

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"

INNARDS = re.compile(
    r"Traceback|File \"|\.py\b|secret-exception-text|msgspec|asyncio|apsw|sqlite|0x[0-9a-f]{6,}|"
    r"\b[A-Za-z]*(?:Exception|ValidationError|KeyError|ValueError|TypeError|AttributeError|DecodeError|IndexError)\b"
)
"""The words that only the inside of a server has."""


class Row(Struct, frozen=True):
    """How an error is told: its code over JSON-RPC, and over HTTP+JSON status, gRPC status and reason (1.0)."""

    code: int
    http: int
    grpc: str
    reason: str
    http_03: int
    rpc_http: int = 200


TABLE: Mapping[str, Row] = {
    "TaskNotFound": Row(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND", 404),
    "TaskNotCancelable": Row(-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE", 409),
    "PushNotificationNotSupported": Row(-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED", 501),
    "UnsupportedOperation": Row(-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION", 501),
    "ContentTypeNotSupported": Row(-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED", 415),
    "InvalidAgentResponse": Row(-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE", 502),
    "ExtendedAgentCardNotConfigured": Row(
        -32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 404
    ),
    "ExtensionSupportRequired": Row(-32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED", 400),
    "VersionNotSupported": Row(-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED", 400),
    "ParseError": Row(-32700, 400, "INVALID_ARGUMENT", "INVALID_REQUEST", 400),
    "InvalidRequest": Row(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST", 400),
    "MethodNotFound": Row(-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND", 404),
    "InvalidParams": Row(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS", 422),
    "InternalError": Row(-32603, 500, "INTERNAL", "INTERNAL_ERROR", 500),
    "AgentNotFound": Row(-32602, 404, "NOT_FOUND", "AGENT_NOT_FOUND", 404, 404),
    "NotFound": Row(-32601, 404, "NOT_FOUND", "NOT_FOUND", 404, 404),
    "UnsupportedMediaType": Row(-32600, 415, "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE", 415, 415),
    "RequestTimeout": Row(-32600, 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", 408, 408),
    "PayloadTooLarge": Row(-32600, 413, "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE", 413, 413),
}
"""A2A 1.0 §5.4 and JSON-RPC 2.0 §5.1, statuses as a2a-sdk 1.3.0 and 0.3.26 have them; below, what HTTP refuses."""

GRPC_03: Mapping[str, str] = {
    "PushNotificationNotSupported": "UNIMPLEMENTED",
    "UnsupportedOperation": "UNIMPLEMENTED",
    "MethodNotFound": "UNIMPLEMENTED",
}
"""Where 0.3 over gRPC differs from 1.0, as @a2a-js/sdk 0.3.14 reads it."""


class Failure(Struct, frozen=True):
    """An error as a lane told it."""

    code: int | None
    status: int
    message: str
    reason: str
    metadata: Mapping[str, str]
    violations: Mapping[str, str]


def failure(lane: Lane, status: int, error: Any) -> Failure:
    """Read the `error` of a JSON-RPC answer, or the body of an HTTP answer, by the letter of the lane."""
    assert not INNARDS.search(str(error)), error
    if lane.version != "1.0":
        lane.schema.check("RpcError" if lane.rpc else "RestError", error)
        data = dict(error["data"])
        found = {each["field"]: each["description"] for each in data.pop("fieldViolations", [])}
        return Failure(error["code"], status, error["message"], data.pop("reason"), data, found)
    if lane.rpc:
        lane.schema.check("RpcError", error)
        code, message, details = error["code"], error["message"], error["data"]
    else:
        lane.schema.check("HttpError", error)
        told = error["error"]
        code, message, details = None, told["message"], told["details"]
        assert told["code"] == status
    info = details[0]
    assert info.keys() == {"@type", "reason", "domain", "metadata"}
    assert info["@type"] == ERROR_INFO
    assert info["domain"] == "a2a-protocol.org"
    assert all(isinstance(value, str) for value in info["metadata"].values())
    violations = {
        each["field"]: each["description"]
        for detail in details
        if detail["@type"] == BAD_REQUEST
        for each in detail["fieldViolations"]
    }
    return Failure(code, status, message, info["reason"], info["metadata"], violations)


def check(lane: Lane, failed: Failure, name: str) -> None:
    """Fail unless it is the error of that name, as the table has it."""
    row = TABLE[name]
    if lane.grpc:
        spelled = row.grpc if lane.version == "1.0" else GRPC_03.get(name, row.grpc)
        assert (code_pb2.Code.Name(failed.status), failed.reason) == (spelled, row.reason), failed
        return
    if lane.rpc:
        assert (failed.code, failed.status) == (row.code, row.rpc_http), failed
    else:
        assert failed.status == (row.http if lane.version == "1.0" else row.http_03), failed
    if lane.version == "1.0":
        assert failed.reason == row.reason, failed
    else:
        assert (failed.code, failed.reason) == (row.code, name), failed
