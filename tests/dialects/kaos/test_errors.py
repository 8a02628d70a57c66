"""Errors as KAOS writes them: `data` is there and null."""

import json

import pytest

from dragoman.dialects.kaos import JSONRPC
from dragoman.model import errors
from dragoman.model.errors import A2AError

CASES: list[tuple[A2AError, int, str]] = [
    (errors.ParseError("the body is not JSON"), -32700, "Parse error: the body is not JSON"),
    (errors.InvalidRequest("x"), -32600, "x"),
    (errors.MethodNotFound("SendStreamingMessage"), -32601, "Method not found: SendStreamingMessage"),
    (errors.InvalidParams("a", "b"), -32602, "a: b"),
    (errors.InternalError(), -32603, "Internal error"),
    (errors.TaskNotFound("t"), -32001, "Task not found"),
    (errors.UnsupportedOperation("x"), -32004, "x"),
]


@pytest.mark.parametrize(("error", "code", "message"), CASES, ids=lambda value: type(value).__name__)
def test_an_error_is_a_code_a_message_and_null(error: A2AError, code: int, message: str) -> None:
    expected = {"code": code, "message": message, "data": None}
    assert list(json.loads(JSONRPC.encode_error(error)).items()) == list(expected.items())
    assert JSONRPC.error_status(error) == 200
