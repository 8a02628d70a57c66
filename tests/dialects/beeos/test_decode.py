"""Decoding BeeOS: any bytes give an operation or A2AError, and what is wrong is named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.beeos import JSONRPC, METHODS
from dragoman.model.errors import A2AError, InvalidParams, MethodNotFound
from dragoman.model.operations import CompleteTask, SendMessage

WORDS = [
    *(
        "message",
        "messageId",
        "role",
        "parts",
        "kind",
        "type",
        "text",
        "file",
        "data",
        "bytes",
        "uri",
        "metadata",
        "id",
    ),
    *("taskId", "contextId", "sessionId", "configuration", "skills", "blocking", "limit", "offset", "artifacts", "url"),
    *("artifactId", "status", "state", "progress", "current", "total", "lease", "pushNotificationConfig", "name"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["user", "agent", "text", "file", "data", "AA==", "working", "input-required", "result", "\0"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=20,
)


def call(method: str, params: Any) -> Any:
    return JSONRPC.decode(method, json.dumps(params).encode())


def gives_or_refuses(body: bytes) -> None:
    for method in METHODS:
        try:
            JSONRPC.decode(method, body)
        except A2AError as error:
            JSONRPC.encode_error(error)


@given(VALUES)
def test_any_json_gives_an_operation_or_is_refused(value: Any) -> None:
    gives_or_refuses(json.dumps(value).encode())


@given(st.binary(max_size=30))
def test_any_bytes_give_an_operation_or_are_refused(body: bytes) -> None:
    gives_or_refuses(body)


@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6))
def test_any_message_artifact_or_status_is_taken_or_refused(value: dict[str, Any]) -> None:
    params = {"id": "t", "message": {"role": "user", "parts": [value], **value}, "status": value}
    gives_or_refuses(json.dumps({**params, "artifacts": [value, {**value, "parts": [value]}]}).encode())


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("SendMessage", {}, "message"),
        ("SendMessage", {"message": "hi"}, "message"),
        ("SendMessage", {"message": {"parts": [{"kind": "text", "text": "x"}]}}, "message.role"),
        ("SendMessage", {"message": {"role": "user"}}, "message.parts"),
        ("message/stream", {"message": {"role": "user", "parts": []}}, "message.parts"),
        ("SendMessage", {"message": {"role": "user", "messageId": 7, "parts": [{"text": "x"}]}}, "message.messageId"),
        ("SendMessage", {"message": {"role": "user", "parts": [{"kind": "text"}]}}, "message.parts[0].text"),
        ("SendMessage", {"message": {"role": "user", "parts": [{"kind": "x"}]}}, "message.parts[0].kind"),
        ("SendMessage", {"message": {"role": "user", "parts": [{"text": "x"}]}, "contextId": 7}, "contextId"),
        ("GetTask", {}, "id"),
        ("tasks/cancel", {"id": ""}, "id"),
        ("SubscribeToTask", {"id": 7}, "id"),
        ("ListTasks", {"limit": 0}, "limit"),
        ("ListTasks", {"limit": "many"}, "limit"),
        ("ListTasks", {"offset": -1}, "offset"),
        ("CompleteTask", {"artifacts": []}, "id"),
        ("CompleteTask", {"id": "t", "artifacts": {}}, "artifacts"),
        ("CompleteTask", {"id": "t", "artifacts": [{}]}, "artifacts[0].parts"),
        ("CompleteTask", {"id": "t", "lease": 7}, "lease"),
        ("CompleteTask", {"id": "t", "artifacts": [{"artifactId": "a\0", "parts": []}]}, "artifacts[0].artifactId"),
        ("CompleteTask", {"id": "t", "artifacts": [{"artifactId": "a"}, {"artifactId": "a"}]}, "artifacts"),
        ("UpdateStatus", {"id": "t"}, "status"),
        ("UpdateStatus", {"id": "t", "status": "working"}, "status"),
        ("UpdateStatus", {"id": "t", "status": {}}, "status.state"),
        ("UpdateStatus", {"id": "t", "status": {"state": "busy"}}, "status.state"),
        ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": 7}}, "status.message"),
        ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": {"a": 1}}}, "status.message"),
        ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": {"parts": []}}}, "status.message"),
        ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": {"parts": 7}}}, "status.message.parts"),
        ("UpdateStatus", {"id": "t", "status": {"state": "working", "message": ["hi"]}}, "status.message"),
        ("UpdateStatus", {"id": "t", "status": {"state": "working", "progress": 7}}, "status.progress"),
        ("UpdateStatus", {"id": "t", "status": {"state": "working", "progress": {"step": 1}}}, "status.progress"),
        ("SetPushNotificationConfig", {"taskId": "t"}, "pushNotificationConfig"),
        ("DeletePushNotificationConfig", {"id": "t"}, "pushNotificationConfigId"),
    ],
)
def test_a_wrong_parameter_is_named(method: str, params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        call(method, params)
    assert refused.value.violations[0][0] == field


def test_a_status_message_that_says_nothing_is_refused_with_the_forms_that_are_taken() -> None:
    with pytest.raises(InvalidParams) as refused:
        call("UpdateStatus", {"id": "t", "status": {"state": "working", "message": {"a": 1}}})
    assert refused.value.message == 'status.message: must be a string, or a message with parts: {"parts": [...]}'


@pytest.mark.parametrize("method", ["GetExtendedAgentCard", "tasks/send", "sendMessage", "", "tasks/get "])
def test_a_method_that_beeos_lacks_is_not_found(method: str) -> None:
    with pytest.raises(MethodNotFound):
        call(method, {"id": "t"})


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
