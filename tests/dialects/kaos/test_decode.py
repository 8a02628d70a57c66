"""Decoding KAOS: any bytes give an operation or A2AError, and what is wrong is named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.kaos import JSONRPC, METHODS
from dragoman.model.errors import A2AError, InvalidParams, MethodNotFound, PushNotificationNotSupported

WORDS = [
    *("message", "messageId", "role", "parts", "kind", "type", "text", "file", "data", "bytes", "metadata", "id"),
    *("taskId", "contextId", "sessionId", "configuration", "mode", "blocking", "budgets", "historyLength", "skill"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["user", "agent", "text", "file", "data", "AA==", "autonomous", "\0"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=20,
)
TEXT = {"parts": [{"text": "x"}]}


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
def test_any_message_and_configuration_is_taken_or_refused(value: dict[str, Any]) -> None:
    params = {"id": "t", "message": {"role": "user", "parts": [value], **value}, "configuration": value}
    gives_or_refuses(json.dumps(params).encode())


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("SendMessage", {}, "message"),
        ("SendMessage", {"message": {}}, "message"),
        ("SendMessage", {"message": "hi"}, "message"),
        ("SendMessage", {"message": {"role": "user"}}, "message.parts"),
        ("SendMessage", {"message": {"role": "user", "text": ""}}, "message.parts"),
        ("SendMessage", {"message": {"role": "user", "text": 7}}, "message.text"),
        ("tasks/send", {"message": {"role": "user", "parts": []}}, "message.parts"),
        ("SendMessage", {"message": {"role": "system", "parts": [{"text": "x"}]}}, "message.role"),
        ("SendMessage", {"message": {"parts": [{"type": "text", "text": 7}]}}, "message.parts[0].text"),
        ("SendMessage", {"message": {"parts": [{"text": "x"}]}, "sessionId": 7}, "sessionId"),
        ("SendMessage", {"message": {"parts": [{"text": "x"}], "metadata": 7}}, "message.metadata"),
        ("SendMessage", {"message": {"parts": [{"text": "x"}]}, "configuration": 7}, "configuration"),
        ("SendMessage", {"message": {"parts": [{"text": "x"}]}, "configuration": {"mode": 7}}, "configuration.mode"),
        ("SendMessage", {"message": TEXT, "configuration": {"budgets": 7}}, "configuration.budgets"),
        ("SendMessage", {"message": {"parts": [{"text": "x", "data": {}}]}}, "message.parts[0]"),
        ("GetTask", {}, "id"),
        ("tasks/cancel", {"id": 7}, "id"),
    ],
)
def test_a_wrong_parameter_is_named(method: str, params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        call(method, params)
    assert refused.value.violations[0][0] == field


@pytest.mark.parametrize("webhook", [{"url": "https://example.com/h"}, {}, "https://example.com/h", 7])
def test_a_webhook_is_refused_in_whatever_form_it_comes(webhook: Any) -> None:
    for params in ({"pushNotificationConfig": webhook}, {"configuration": {"pushNotificationConfig": webhook}}):
        with pytest.raises(PushNotificationNotSupported):
            call("SendMessage", {"message": TEXT, **params})


@pytest.mark.parametrize(
    "method",
    ["SendStreamingMessage", "SubscribeToTask", "message/send", "tasks/sendSubscribe", "tasks/resubscribe", ""],
)
def test_a_method_that_kaos_lacks_is_not_found(method: str) -> None:
    with pytest.raises(MethodNotFound):
        call(method, {"id": "t"})
