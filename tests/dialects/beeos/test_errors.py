"""Errors as BeeOS numbers them."""

import json

import pytest

from dragoman.dialects.beeos import JSONRPC, REST
from dragoman.dialects.beeos.errors import CODES
from dragoman.model import errors
from dragoman.model.errors import A2AError

CASES: list[tuple[A2AError, int, str, int]] = [
    (errors.ParseError("x"), -32700, "invalid_json", 200),
    (errors.InvalidRequest("x"), -32600, "invalid_body", 200),
    (errors.MethodNotFound("x"), -32601, "method_not_found", 200),
    (errors.InvalidParams("a", "b"), -32602, "invalid_param", 200),
    (errors.LeaseLost(), -32602, "invalid_param", 200),
    (errors.InternalError(), -32603, "internal_error", 200),
    (errors.TaskNotFound("t"), -32000, "task_not_found", 200),
    (errors.AgentNotFound("a"), -32001, "agent_not_found", 200),
    (errors.AgentOffline("a"), -32002, "agent_offline", 200),
    (errors.TaskTimeout("t", 1.0), -32003, "service_timeout", 200),
    (errors.TaskNotCancelable("t", "completed"), -32004, "conflict", 200),
    (errors.PushNotificationNotSupported(), -32004, "unsupported_operation", 200),
    (errors.UnsupportedOperation("x"), -32004, "unsupported_operation", 200),
    (errors.ContentTypeNotSupported("x"), -32005, "content_type_not_supported", 200),
    (errors.InvalidAgentResponse("x"), -32006, "invalid_agent_response", 200),
    (errors.ExtendedAgentCardNotConfigured("x"), -32007, "extended_card_not_configured", 200),
    (errors.ExtensionSupportRequired("urn:x"), -32008, "extension_required", 200),
    (errors.VersionNotSupported("2.0"), -32009, "version_not_supported", 200),
    (errors.AgentFailed("t", "d"), -32603, "agent_failed", 200),
    (errors.NotFound("x"), -32601, "not_found", 404),
    (errors.MethodNotAllowed(("GET",)), -32600, "method_not_allowed", 405),
    (errors.UnsupportedMediaType("text/html"), -32600, "unsupported_media_type", 415),
    (errors.PayloadTooLarge(10), -32600, "payload_too_large", 413),
    (errors.RequestTimeout(""), -32600, "request_timeout", 408),
    (errors.Unavailable("x"), -32603, "unavailable", 503),
    (errors.Unauthorized("x"), -32600, "unauthorized", 401),
    (errors.Unauthorized("x", missing=True), -32600, "missing_token", 401),
    (errors.Forbidden("x"), -32600, "forbidden", 403),
    (errors.TooManyRequests("max_requests_per_s", "slow down", 3), -32029, "rate_limited", 429),
]


@pytest.mark.parametrize(("error", "code", "word", "status"), CASES, ids=lambda value: type(value).__name__)
def test_code_word_and_status_are_those_of_beeos(error: A2AError, code: int, word: str, status: int) -> None:
    written = json.loads(JSONRPC.encode_error(error))
    assert list(written) == ["code", "message", "data"]
    assert (written["code"], written["message"], written["data"]["code"]) == (code, error.message, word)
    assert JSONRPC.error_status(error) == status


def test_every_error_of_the_model_has_a_code() -> None:
    assert {type(error) for error, *_ in CASES} == set(CODES) == set(A2AError.__subclasses__())


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (errors.Unauthorized("send a key", missing=True), 401, "missing_token"),
        (errors.Unauthorized("no such key"), 401, "unauthorized"),
        (errors.Forbidden("not this agent"), 403, "forbidden"),
    ],
)
def test_who_the_caller_is_is_told_by_the_envelope_of_rest(error: A2AError, status: int, word: str) -> None:
    expected = {"success": False, "error": {"code": word, "message": error.message}}
    assert JSONRPC.http_error is not None
    assert json.loads(JSONRPC.http_error(error) or b"") == json.loads(REST.encode_error(error)) == expected
    assert JSONRPC.error_status(error) == REST.error_status(error) == status


def test_a_limit_is_an_error_of_json_rpc_and_of_rest() -> None:
    error = errors.TooManyRequests("max_requests_per_s", "slow down", 3)
    assert JSONRPC.http_error is not None
    assert JSONRPC.http_error(error) is None
    written = json.loads(JSONRPC.encode_error(error))
    assert written["data"] == {"code": "rate_limited", "limit": "max_requests_per_s", "retryAfterS": "3"}
    assert REST.error_status(error) == 429
    assert json.loads(REST.encode_error(error))["error"]["code"] == "rate_limited"


def test_a_task_that_takes_too_long_is_named() -> None:
    assert json.loads(JSONRPC.encode_error(errors.TaskTimeout("t-1", 115.0)))["data"]["taskId"] == "t-1"


def test_wrong_parameters_are_named() -> None:
    error = errors.InvalidParams("message.role", "must be user or agent", ("id", "is required"))
    assert json.loads(JSONRPC.encode_error(error))["data"]["fieldViolations"] == [
        {"field": "message.role", "description": "must be user or agent"},
        {"field": "id", "description": "is required"},
    ]
