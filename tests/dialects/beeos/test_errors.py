"""Errors as BeeOS numbers them."""

import json

import pytest

from dragoman.dialects.beeos import JSONRPC
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
    (errors.Unavailable("x"), -32603, "unavailable", 503),
    (errors.Unauthorized("x"), -32600, "unauthorized", 401),
    (errors.Forbidden("x"), -32600, "forbidden", 403),
]


@pytest.mark.parametrize(("error", "code", "word", "status"), CASES, ids=lambda value: type(value).__name__)
def test_code_word_and_status_are_those_of_beeos(error: A2AError, code: int, word: str, status: int) -> None:
    written = json.loads(JSONRPC.encode_error(error))
    assert list(written) == ["code", "message", "data"]
    assert (written["code"], written["message"], written["data"]["code"]) == (code, error.message, word)
    assert JSONRPC.error_status(error) == status


def test_every_error_of_the_model_has_a_code() -> None:
    assert {type(error) for error, *_ in CASES} == set(CODES) == set(A2AError.__subclasses__())


def test_a_task_that_takes_too_long_is_named() -> None:
    assert json.loads(JSONRPC.encode_error(errors.TaskTimeout("t-1", 115.0)))["data"]["taskId"] == "t-1"


def test_wrong_parameters_are_named() -> None:
    error = errors.InvalidParams("message.role", "must be user or agent", ("id", "is required"))
    assert json.loads(JSONRPC.encode_error(error))["data"]["fieldViolations"] == [
        {"field": "message.role", "description": "must be user or agent"},
        {"field": "id", "description": "is required"},
    ]


def test_lone_surrogates_do_not_break_an_answer() -> None:
    for error in (errors.MethodNotFound("\udcff"), errors.InvalidParams("\udcff", "x"), errors.TaskNotFound("\udcff")):
        json.loads(JSONRPC.encode_error(error))
