"""Decoding protoAgent: any JSON under any method or alias parses or raises A2AError."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.api import RestRequest
from dragoman.dialects.protoagent import JSONRPC, METHODS, REST
from dragoman.model.errors import A2AError, InvalidParams, MethodNotFound
from dragoman.model.operations import CreatePushConfig, GetTask, ListPushConfigs, Operation, PushConfig, SendMessage

WORDS = [
    *("message", "role", "parts", "kind", "type", "text", "file", "data", "bytes", "metadata", "messageId", "taskId"),
    *("contextId", "id", "configuration", "blocking", "pushNotificationConfig", "taskPushNotificationConfig", "url"),
    *("authentication", "schemes", "credentials", "token", "skill", "skillHint", "pushNotificationConfigId"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["user", "agent", "text", "file", "AA==", "https://example.com/h"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=20,
)
MESSAGE = {"role": "user", "parts": [{"text": "hi"}]}
ROUTES = ("GetTask", "CreateTaskPushNotificationConfig", "ListTaskPushNotificationConfigs")


def rest(route: str, task_id: str, body: bytes = b"") -> Operation:
    assert REST.decode_rest is not None
    return REST.decode_rest(RestRequest(route, {"id": task_id}, {}, body))


def parses_or_refuses(body: bytes) -> None:
    for method in METHODS:
        try:
            assert isinstance(JSONRPC.decode(method, body), Operation)
        except A2AError as error:
            json.loads(JSONRPC.encode_error(error))
    for route in ROUTES:
        try:
            assert isinstance(rest(route, "t1", body), Operation)
        except A2AError as error:
            json.loads(REST.encode_error(error))


@given(VALUES)
def test_any_json_parses_or_is_refused(value: Any) -> None:
    parses_or_refuses(json.dumps(value).encode())


@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5))
def test_any_json_beside_a_message_parses_or_is_refused(value: dict[str, Any]) -> None:
    parses_or_refuses(json.dumps({**value, "message": MESSAGE}).encode())


@given(st.binary(max_size=30))
def test_any_bytes_parse_or_are_refused(body: bytes) -> None:
    parses_or_refuses(body)


@given(st.text(st.characters(), max_size=4))
def test_any_task_in_the_path_parses_or_is_refused(task_id: str) -> None:
    for route in ROUTES:
        try:
            rest(route, task_id)
        except A2AError as error:
            REST.encode_error(error)


@pytest.mark.parametrize("method", ["SendMessage", "tasks/list", "tasks/send", ""])
def test_methods_of_others_are_not_found(method: str) -> None:
    with pytest.raises(MethodNotFound):
        JSONRPC.decode(method, b"{}")


@pytest.mark.parametrize(
    ("metadata", "skill"),
    [
        ({"skill": "a"}, "a"),
        ({"skillHint": "b"}, "b"),
        ({"skill": "a", "skillHint": "b"}, "a"),
        ({"skill": "", "skillHint": 7}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("where", ["params", "message"])
def test_the_skill_is_named_or_hinted_at(where: str, metadata: dict[str, Any], skill: str | None) -> None:
    said: dict[str, Any] = {**MESSAGE, "metadata": metadata} if where == "message" else MESSAGE
    params = {"message": said} if where == "message" else {"message": said, "metadata": metadata}
    operation = JSONRPC.decode("message/send", json.dumps(params).encode())
    assert isinstance(operation, SendMessage)
    assert operation.skill == skill


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("message/send", {}, "message"),
        ("message/send", {"message": {"role": "user"}}, "message.parts"),
        ("message/send", {"message": {"parts": [{"text": "x"}]}}, "message.role"),
        ("message/send", {"message": MESSAGE, "contextId": 7}, "contextId"),
        ("tasks/resubscribe", {}, "id"),
        ("tasks/pushNotificationConfig/set", {"taskId": "t1", "pushNotificationConfig": {}}, "url"),
    ],
)
def test_a_wrong_parameter_is_named(method: str, params: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        JSONRPC.decode(method, json.dumps(params).encode())
    assert refused.value.violations[0][0].endswith(field)


def test_the_aliases_name_the_task_in_their_path() -> None:
    assert rest("GetTask", "t1") == GetTask(id="t1")
    assert rest("ListTaskPushNotificationConfigs", "t1") == ListPushConfigs(task_id="t1")
    config = CreatePushConfig(config=PushConfig(url="https://example.com/h", task_id="t1", token="s"))
    bare = b'{"url":"https://example.com/h","token":"s"}'
    assert rest("CreateTaskPushNotificationConfig", "t1", bare) == config
    wrapped = b'{"pushNotificationConfig":' + bare + b"}"
    assert rest("CreateTaskPushNotificationConfig", "t1", wrapped) == config
    with pytest.raises(MethodNotFound):
        rest("SendMessage", "t1")
    with pytest.raises(InvalidParams):
        rest("GetTask", "")
