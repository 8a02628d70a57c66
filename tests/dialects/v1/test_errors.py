"""A2A 1.0 §5.4: every error in both bindings."""

import inspect
import json
from typing import Any

import pytest

from dragoman.dialects.v1 import JSONRPC, REST
from dragoman.dialects.v1.errors import TABLE, row
from dragoman.model import errors
from dragoman.model.errors import A2AError

EVERY: list[tuple[A2AError, int, int, int, str, str]] = [
    (errors.ParseError("not JSON"), -32700, 200, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    (errors.InvalidRequest("no"), -32600, 200, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    (errors.MethodNotFound("Foo"), -32601, 200, 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
    (errors.InvalidParams("id", "is required"), -32602, 200, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
    (errors.InternalError("r-1"), -32603, 200, 500, "INTERNAL", "INTERNAL_ERROR"),
    (errors.TaskNotFound("t-1"), -32001, 200, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    (errors.TaskNotCancelable("t-1", "completed"), -32002, 200, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    (errors.PushNotificationNotSupported(), -32003, 200, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    (errors.UnsupportedOperation("no"), -32004, 200, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    (errors.QuestionClosed("t-1"), -32004, 200, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    (errors.TaskNotEnded("t-1"), -32004, 200, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    (errors.ContentTypeNotSupported("no"), -32005, 200, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    (errors.InvalidAgentResponse("no"), -32006, 200, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    (errors.ExtendedAgentCardNotConfigured("no"), -32007, 200, 400, "FAILED_PRECONDITION",
     "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    (errors.ExtensionSupportRequired("urn:x"), -32008, 200, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
    (errors.VersionNotSupported("2.0"), -32009, 200, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    (errors.AgentNotFound("nobody"), -32602, 404, 404, "NOT_FOUND", "AGENT_NOT_FOUND"),
    (errors.NotFound("no such path"), -32601, 404, 404, "NOT_FOUND", "NOT_FOUND"),
    (errors.MethodNotAllowed(["POST"]), -32600, 405, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
    (errors.UnsupportedMediaType("text/plain"), -32600, 415, 415, "INVALID_ARGUMENT", "UNSUPPORTED_MEDIA_TYPE"),
    (errors.PayloadTooLarge(10), -32600, 413, 413, "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE"),
    (errors.RequestTimeout(""), -32600, 408, 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT"),
    (errors.Unavailable("stopping"), -32000, 503, 503, "UNAVAILABLE", "UNAVAILABLE"),
    (errors.LeaseLost(), -32602, 200, 409, "ABORTED", "LEASE_LOST"),
    (errors.AgentOffline("a"), -32000, 200, 503, "UNAVAILABLE", "AGENT_OFFLINE"),
    (errors.TaskTimeout("t-1", 1), -32000, 200, 504, "DEADLINE_EXCEEDED", "TASK_TIMEOUT"),
    (errors.AgentFailed("t-1", "why"), -32603, 200, 500, "INTERNAL", "AGENT_FAILED"),
    (errors.Unauthorized("who"), -32000, 401, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
    (errors.Forbidden("no"), -32000, 403, 403, "PERMISSION_DENIED", "PERMISSION_DENIED"),
    (errors.TooManyRequests("max_streams", "no", 3), -32000, 429, 429, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
    (errors.Conflict("id", "is taken"), -32602, 200, 409, "ALREADY_EXISTS", "CONFLICT"),
    (errors.VersionConflict(3), -32602, 200, 412, "ABORTED", "VERSION_CONFLICT"),
    (errors.BudgetExhausted("b", "no", 3, "later"), -32000, 429, 429, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
]  # fmt: skip


def test_every_error_of_the_model_has_a_case_and_a_row_or_that_of_a_narrower_base_class() -> None:
    classes = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, A2AError)}
    assert set(TABLE) <= classes
    for kind in classes - set(TABLE):
        assert {*kind.__mro__[1:]} & (TABLE.keys() - {A2AError}), kind
    assert classes - {A2AError} == {type(case[0]) for case in EVERY}


@pytest.mark.parametrize("case", EVERY, ids=lambda case: type(case[0]).__name__)
def test_an_error_looks_as_specified_in_both_bindings(case: tuple[A2AError, int, int, int, str, str]) -> None:
    error, code, rpc_status, http_status, grpc_status, reason = case
    rpc: dict[str, Any] = json.loads(JSONRPC.encode_error(error))
    http: dict[str, Any] = json.loads(REST.encode_error(error))
    assert (rpc["code"], rpc["message"]) == (code, error.message)
    assert (JSONRPC.error_status(error), REST.error_status(error)) == (rpc_status, http_status)
    assert list(http) == ["error"]
    assert (http["error"]["code"], http["error"]["status"]) == (http_status, grpc_status)
    assert http["error"]["message"] == error.message
    assert rpc["data"] == http["error"]["details"]
    assert rpc["data"][0] == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": error.metadata,
    }


def test_field_violations_are_a_bad_request() -> None:
    error = errors.InvalidParams("message.parts[0]", "is empty", ("id", "is required"))
    assert json.loads(JSONRPC.encode_error(error))["data"][1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [
            {"field": "message.parts[0]", "description": "is empty"},
            {"field": "id", "description": "is required"},
        ],
    }


def test_an_unknown_agent_is_a_violation_of_the_tenant() -> None:
    details = json.loads(JSONRPC.encode_error(errors.AgentNotFound("nobody")))["data"]
    assert [violation["field"] for violation in details[1]["fieldViolations"]] == ["tenant"]


@pytest.mark.parametrize("error", [errors.Unavailable("stopping", 7), errors.TooManyRequests("max_streams", "no", 7)])
def test_what_is_unavailable_says_when_to_come_back(error: errors.A2AError) -> None:
    details = json.loads(REST.encode_error(error))["error"]["details"]
    assert details[1] == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}


def test_an_error_without_a_row_is_an_internal_error() -> None:
    class New(A2AError):
        """An error that the table does not know yet."""

    assert row(New("x")).reason == "INTERNAL_ERROR"


def test_a_lone_surrogate_in_an_error_is_replaced() -> None:
    encoded = json.loads(JSONRPC.encode_error(errors.TaskNotFound("t\udcff")))
    assert encoded["data"][0]["metadata"] == {"taskId": "t?"}
