"""Plain sends, read the short way: the same operation as the long way gives, in every dialect."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects import beeos, evoai, kaos, protoagent, v03
from dragoman.dialects.api import Dialect
from dragoman.dialects.v03.decode import send_plain
from dragoman.model.errors import A2AError
from dragoman.model.operations import Operation, SendMessage, StreamMessage

DIALECTS = {
    "0.3": (v03.JSONRPC, "message/send", "message/stream"),
    "beeos": (beeos.JSONRPC, "SendMessage", "SendStreamingMessage"),
    "kaos": (kaos.JSONRPC, "SendMessage", "tasks/send"),
    "evoai": (evoai.JSONRPC, "message/send", "message/stream"),
    "protoagent": (protoagent.JSONRPC, "message/send", "message/stream"),
}
TEXTS = st.text(max_size=4) | st.none()
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "kind": st.sampled_from(["text", "data", None]),
        "type": st.sampled_from(["text", "file", None]),
        "metadata": st.sampled_from([None, {}, {"a": 1}]),
        "data": st.integers(),
    },
)
METADATA = st.sampled_from([None, {}, {"skill": "s"}, {"skill": ""}, {"skill": 1}, {"skillHint": "h"}, {"a": 1}, "no"])
IDS = st.sampled_from([None, "", "a", "0b0cdd0e-7a1b-4c54-8d5e-2a0b0f4f9a52", "\0", "x" * 1024, "x" * 1025, 7])
MESSAGES = st.fixed_dictionaries(
    {"parts": st.lists(PARTS, max_size=3)},
    optional={
        "role": st.sampled_from(["user", "agent", "ROLE_USER", None, "me"]),
        "messageId": IDS,
        "contextId": IDS,
        "taskId": IDS,
        "kind": st.sampled_from(["message", None, 3]),
        "metadata": METADATA,
        "context_id": IDS,
    },
)
CONFIGURATIONS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "blocking": st.sampled_from([True, False, None, "false"]),
        "acceptedOutputModes": st.sampled_from([None, [], ["text/plain"], [1]]),
        "skills": st.sampled_from([None, ["a"], "a"]),
        "historyLength": st.integers(-1, 3),
        "mode": st.sampled_from(["autonomous", "interactive"]),
    },
)
PARAMS = st.fixed_dictionaries(
    {"message": MESSAGES},
    optional={"contextId": IDS, "sessionId": IDS, "metadata": METADATA, "configuration": CONFIGURATIONS},
)


def outcome(decode: Callable[[], Operation]) -> Any:
    """The operation, with ids made up for it taken out, or the error."""
    try:
        operation = decode()
    except A2AError as error:
        return type(error), error.message
    assert isinstance(operation, SendMessage)
    if operation.message.message_id.startswith("msg-"):
        operation = replace(operation, message=replace(operation.message, message_id="msg"))
    return operation


def short_and_long(dialect: Dialect, method: str, params: dict[str, Any]) -> tuple[Any, Any]:
    """By both ways: a member that no dialect knows is not plain."""
    return (
        outcome(lambda: dialect.decode(method, json.dumps(params).encode())),
        outcome(lambda: dialect.decode(method, json.dumps({**params, "unheard-of": 1}).encode())),
    )


@pytest.mark.parametrize("name", DIALECTS)
@given(PARAMS)
def test_what_is_read_the_short_way_is_what_the_long_way_gives(name: str, params: dict[str, Any]) -> None:
    dialect, *methods = DIALECTS[name]
    for method in methods:
        short, long = short_and_long(dialect, method, params)
        assert short == long


@pytest.mark.parametrize("name", DIALECTS)
def test_what_each_systems_clients_send_is_plain(name: str) -> None:
    tag = {"0.3": {"kind": "text"}, "beeos": {"kind": "text"}, "protoagent": {}}.get(name, {"type": "text"})
    params: dict[str, Any] = {
        "message": {"role": "user", "parts": [{**tag, "text": "Hi"}], "messageId": "m", "contextId": "c"},
        "metadata": {"skill": "s"},
        "configuration": {"blocking": False, "skills": ["s"]},
    }
    dialect, *methods = DIALECTS[name]
    assert send_plain(json.dumps(params).encode(), SendMessage, fills=False) == outcome(
        lambda: dialect.decode(methods[0], json.dumps(params).encode())
    )
    assert send_plain(json.dumps({**params, "unheard-of": 1}).encode(), SendMessage, fills=False) is None


def test_a_message_without_an_id_gets_a_fresh_one_only_where_it_may_lack_it() -> None:
    body = b'{"message":{"role":"user","parts":[{"text":"Hi"}]}}'
    assert send_plain(body, StreamMessage, fills=False) is None
    first, second = (send_plain(body, StreamMessage, fills=True) for _ in range(2))
    assert isinstance(first, StreamMessage)
    assert isinstance(second, StreamMessage)
    assert first.message.message_id != second.message.message_id
