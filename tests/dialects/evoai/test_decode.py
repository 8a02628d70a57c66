"""Decoding Evo AI: any JSON under any method parses or raises A2AError; webhooks in their many spellings."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.evoai import JSONRPC, METHODS
from dragoman.model.errors import A2AError, InvalidParams, MethodNotFound
from dragoman.model.operations import CreatePushConfig, Operation

WORDS = [
    *("message", "role", "parts", "type", "text", "file", "data", "bytes", "name", "metadata", "messageId", "history"),
    *("contextId", "sessionId", "taskId", "id", "configuration", "pushNotificationConfig", "config", "url"),
    *("webhookUrl", "webhookAuthenticationInfo", "authentication", "schemes", "token", "apiKey", "skill"),
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
MESSAGE = {"role": "user", "parts": [{"type": "text", "text": "hi"}]}


def parses_or_refuses(body: bytes) -> None:
    for method in METHODS:
        try:
            assert isinstance(JSONRPC.decode(method, body), Operation)
        except A2AError as error:
            json.loads(JSONRPC.encode_error(error))


@given(VALUES)
def test_any_json_parses_or_is_refused(value: Any) -> None:
    parses_or_refuses(json.dumps(value).encode())


@given(st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5))
def test_any_json_beside_a_message_parses_or_is_refused(value: dict[str, Any]) -> None:
    parses_or_refuses(json.dumps({**value, "message": MESSAGE}).encode())


@given(st.binary(max_size=30))
def test_any_bytes_parse_or_are_refused(body: bytes) -> None:
    parses_or_refuses(body)


@pytest.mark.parametrize("method", ["SendMessage", "tasks/list", "message/sendStream", ""])
def test_methods_of_others_are_not_found(method: str) -> None:
    with pytest.raises(MethodNotFound):
        JSONRPC.decode(method, b"{}")


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("message/send", {}, "message"),
        ("message/send", {"message": {"role": "user"}}, "message.parts"),
        ("message/send", {"message": MESSAGE, "sessionId": 7}, "sessionId"),
        ("message/send", {"message": MESSAGE, "pushNotificationConfig": 7}, "pushNotificationConfig"),
        ("message/send", {"message": MESSAGE, "history": [{"role": "user"}]}, "history[0].parts"),
        ("tasks/get", {}, "id"),
        ("tasks/subscribe", {}, "taskId"),
        ("tasks/pushNotificationConfig/set", {"taskId": "t1"}, "pushNotificationConfig"),
        ("tasks/pushNotificationConfig/set", {"pushNotificationConfig": {"url": "x"}}, "taskId"),
        ("tasks/pushNotificationConfig/set", {"taskId": "t1", "config": {}}, "url"),
    ],
)
def test_a_wrong_parameter_is_named(method: str, params: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        JSONRPC.decode(method, json.dumps(params).encode())
    assert refused.value.violations[0][0].endswith(field)


@pytest.mark.parametrize(
    ("authentication", "scheme", "credentials"),
    [
        ({"type": "none"}, None, None),
        ({"type": "None", "token": ""}, None, None),
        ({"type": "bearer", "token": "s"}, "bearer", "s"),
        ({"type": "apikey", "apiKey": "s"}, "ApiKey", "s"),
        ({"type": "apikey", "key": "s"}, "ApiKey", "s"),
        ({"type": "apikey", "key": "s", "headerName": "x-api-key"}, "ApiKey", "s"),
        ({"type": "apikey", "key": "s", "headerName": "X-Key"}, "ApiKey", '{"in":"header","name":"X-Key","value":"s"}'),
        (
            {"schemes": ["ApiKey"], "credentials": '{"in": "header", "name": "X-Key", "value": "s"}'},
            "ApiKey",
            '{"in":"header","name":"X-Key","value":"s"}',
        ),
        ({"schemes": ["Bearer", "Basic"], "credentials": "s"}, "Bearer", "s"),
    ],
)
@pytest.mark.parametrize("name", ["authentication", "webhookAuthenticationInfo"])
def test_a_webhook_authenticates_as_its_owner_says(
    name: str, authentication: dict[str, Any], scheme: str | None, credentials: str | None
) -> None:
    params = {"taskId": "t1", "pushNotificationConfig": {"url": "https://example.com/h", name: authentication}}
    operation = JSONRPC.decode("tasks/pushNotificationConfig/set", json.dumps(params).encode())
    assert isinstance(operation, CreatePushConfig)
    assert (operation.config.scheme, operation.config.credentials) == (scheme, credentials)
