"""Decoding BeeOS: what workers report, and ids that nobody gave."""

import json
from typing import Any

import pytest

from dragoman.dialects.beeos import JSONRPC
from dragoman.model.errors import InvalidParams
from dragoman.model.operations import CompleteTask, SendMessage


def call(method: str, params: Any) -> Any:
    return JSONRPC.decode(method, json.dumps(params).encode())


def test_a_status_message_that_says_nothing_is_refused_with_the_forms_that_are_taken() -> None:
    with pytest.raises(InvalidParams) as refused:
        call("UpdateStatus", {"id": "t", "status": {"state": "working", "message": {"a": 1}}})
    assert refused.value.message == 'status.message: must be a string, or a message with parts: {"parts": [...]}'


def test_messages_without_an_id_get_different_ones() -> None:
    params = {"message": {"role": "user", "parts": [{"kind": "text", "text": "x"}], "messageId": ""}}
    first, second = call("SendMessage", params), call("SendMessage", params)
    assert isinstance(first, SendMessage)
    assert first.message.message_id
    assert first.message.message_id != second.message.message_id


def test_the_same_completion_twice_is_the_same_operation() -> None:
    params = {"id": "t", "artifacts": [{"parts": [{"text": "a"}]}, {"parts": [{"text": "b"}]}]}
    first = call("CompleteTask", params)
    assert first == call("tasks/complete", params)
    assert isinstance(first, CompleteTask)
    assert [artifact.artifact_id for artifact in first.artifacts] == ["result", "result-2"]
