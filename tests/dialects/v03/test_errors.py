"""Errors as 0.3 writes them (A2A 0.3 §8)."""

import json

import pytest

from dragoman.dialects import v03
from dragoman.model import errors
from dragoman.model.errors import A2AError

CASES: list[tuple[A2AError, int, int, str]] = [
    (errors.ParseError("x"), -32700, 400, "JSONParseError"),
    (errors.InvalidRequest("x"), -32600, 400, "InvalidRequestError"),
    (errors.MethodNotFound("x"), -32601, 404, "MethodNotFoundError"),
    (errors.InvalidParams("a", "b"), -32602, 422, "InvalidParamsError"),
    (errors.LeaseLost(), -32602, 422, "InvalidParamsError"),
    (errors.InternalError(), -32603, 500, "InternalError"),
    (errors.TaskNotFound("t"), -32001, 404, "TaskNotFoundError"),
    (errors.TaskNotCancelable("t", "completed"), -32002, 409, "TaskNotCancelableError"),
    (errors.PushNotificationNotSupported(), -32003, 501, "PushNotificationNotSupportedError"),
    (errors.UnsupportedOperation("x"), -32004, 501, "UnsupportedOperationError"),
    (errors.AgentOffline("a"), -32000, 503, "InternalError"),
    (errors.TaskTimeout("t", 1), -32000, 504, "InternalError"),
    (errors.AgentFailed("t", "x"), -32603, 500, "InternalError"),
    (errors.ContentTypeNotSupported("x"), -32005, 415, "ContentTypeNotSupportedError"),
    (errors.InvalidAgentResponse("x"), -32006, 502, "InvalidAgentResponseError"),
    (errors.ExtendedAgentCardNotConfigured("x"), -32007, 404, "AuthenticatedExtendedCardNotConfiguredError"),
    (errors.ExtensionSupportRequired("urn:x"), -32008, 400, "ExtensionSupportRequiredError"),
    (errors.VersionNotSupported("2.0"), -32009, 400, "VersionNotSupportedError"),
]
OF_HTTP: list[tuple[A2AError, int]] = [
    (errors.AgentNotFound("a"), 404),
    (errors.NotFound("x"), 404),
    (errors.MethodNotAllowed(("GET",)), 405),
    (errors.UnsupportedMediaType("text/html"), 415),
    (errors.PayloadTooLarge(10), 413),
    (errors.RequestTimeout(""), 408),
    (errors.Unavailable("x"), 503),
    (errors.Unauthorized("x"), 401),
    (errors.Forbidden("x"), 403),
    (errors.TooManyRequests("max_streams", "x", 3), 429),
]


@pytest.mark.parametrize(("error", "code", "status", "name"), CASES, ids=lambda value: type(value).__name__)
def test_code_name_and_status_are_those_of_0_3(error: A2AError, code: int, status: int, name: str) -> None:
    called = json.loads(v03.JSONRPC.encode_error(error))
    assert (called["code"], called["message"]) == (code, error.message)
    assert isinstance(called["data"], dict)
    assert v03.JSONRPC.error_status(error) == 200
    posted = json.loads(v03.REST.encode_error(error))
    assert (posted["code"], posted["type"], posted["message"]) == (code, name, error.message)
    assert v03.REST.error_status(error) == status


@pytest.mark.parametrize(("error", "status"), OF_HTTP, ids=lambda value: type(value).__name__)
def test_errors_of_the_http_request_keep_their_status_everywhere(error: A2AError, status: int) -> None:
    assert v03.JSONRPC.error_status(error) == v03.REST.error_status(error) == status
    assert json.loads(v03.JSONRPC.encode_error(error))["message"] == error.message


def test_every_error_of_the_model_has_a_row() -> None:
    known = {type(error) for error, *_ in [*CASES, *OF_HTTP]}
    assert known == {kind for kind in A2AError.__subclasses__() if kind.__module__ == errors.__name__}


def test_wrong_fields_are_named_in_the_data() -> None:
    error = errors.InvalidParams("message.role", "must be user or agent", ("id", "is required"))
    assert json.loads(v03.JSONRPC.encode_error(error))["data"] == {
        "reason": "InvalidParams",
        "fieldViolations": [
            {"field": "message.role", "description": "must be user or agent"},
            {"field": "id", "description": "is required"},
        ],
    }
