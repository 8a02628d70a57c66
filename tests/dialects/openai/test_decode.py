"""Any bytes are a chat or an A2AError."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.openai.decode import Chat, decode
from dragoman.dialects.openai.encode import encode_error, error_status
from dragoman.model.errors import A2AError, InvalidParams

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "task-delegation"]) | JSON
PARTS = st.dictionaries(
    st.sampled_from(["type", "text", "image_url", "url", "file", "file_data", "input_audio", "data", "format"]),
    st.sampled_from(["text", "image_url", "file", "input_audio", "data:image/png;base64,AAAA", "data:,"]) | JSON,
)
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES}, optional={"content": JSON | st.lists(PARTS, max_size=3), "tool_calls": JSON, "name": JSON}
)
BODIES = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES, max_size=4)},
    optional=dict.fromkeys(("model", "n", "stream", "stream_options", "metadata", "user", "temperature"), JSON),
)


def chat(*messages: Any, **more: Any) -> bytes:
    return json.dumps({"messages": messages, **more}).encode()


@given(st.binary() | BODIES.map(lambda body: json.dumps(body).encode()))
def test_any_bytes_are_a_chat_or_an_error_that_can_be_told(body: bytes) -> None:
    told = answered(body)
    assert isinstance(told, tuple) or told.send.message.parts
    if isinstance(told, tuple):
        status, error = told
        assert 400 <= status < 500
        assert set(error["error"]) == {"message", "type", "param", "code"}


def answered(body: bytes) -> Chat | tuple[int, Any]:
    """The request, or status and body of the answer that refuses it."""
    try:
        return decode(body, "m1")
    except A2AError as error:
        return error_status(error), json.loads(encode_error(error))


def test_the_last_message_of_the_user_is_the_one_to_answer() -> None:
    send = decode(
        chat(
            {"role": "user", "content": "one"},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "Well, "},
        ),
        "m1",
    ).send
    assert send.message.text == "two"
    assert [message.text for message in send.earlier] == ["one", "Well, "]


@pytest.mark.parametrize("role", ["system", "task-delegation"])
def test_a_lone_message_of_another_role_is_answered(role: str) -> None:
    assert decode(chat({"role": role, "content": "do it"}), "m1").send.message.text == "do it"


def test_a_conversation_of_the_assistant_alone_is_refused() -> None:
    with pytest.raises(InvalidParams, match="user"):
        decode(chat({"role": "assistant", "content": "hello"}), "m1")


def test_what_is_not_base64_is_refused_by_its_path() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}
    with pytest.raises(InvalidParams) as caught:
        decode(chat({"role": "user", "content": [picture]}), "m1")
    assert caught.value.violations[0][0] == "messages[0].content[0].image_url.url"


def test_a_file_that_the_server_would_have_to_keep_is_refused() -> None:
    with pytest.raises(InvalidParams, match="send the file itself"):
        decode(chat({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}), "m1")


def test_the_same_body_under_the_same_id_is_the_same_operation() -> None:
    body = chat({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    assert decode(body, "m1") == decode(body, "m1")
