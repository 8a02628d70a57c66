"""Any bytes are a request for a response or an A2AError; each field has its use."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.openai.encode import encode_error, error_status
from dragoman.dialects.responses.decode import (
    FIELDS,
    FieldUse,
    ItemPage,
    ResponseRequest,
    decode,
    decode_conversation,
    decode_page,
)
from dragoman.dialects.responses.decode import decode_look as look
from dragoman.dialects.responses.objects import ResponseId
from dragoman.model.errors import A2AError, InvalidParams
from dragoman.model.message import Part, Role

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
KINDS = st.sampled_from(["message", "reasoning", "image_generation_call", "input_text", "input_image", "input_file"])
PARTS = st.dictionaries(
    st.sampled_from(["type", "text", "image_url", "file_url", "file_data", "filename", "detail"]),
    KINDS | st.sampled_from(["data:image/png;base64,AAAA", "AAAA", "high"]) | JSON,
)
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "type": KINDS,
        "role": st.sampled_from(["user", "assistant", "system", "developer"]) | JSON,
        "content": JSON | st.lists(PARTS, max_size=3),
        "result": JSON,
    },
)
BODIES = st.fixed_dictionaries(
    {"input": st.text() | st.lists(ITEMS, max_size=4)}, optional=dict.fromkeys(sorted(FIELDS.keys() - {"input"}), JSON)
)


def asked(said: Any = "Go", /, **more: Any) -> Any:
    return decode(json.dumps({"input": said, **more}).encode(), "m")


@given(st.binary() | BODIES.map(lambda body: json.dumps(body).encode()))
def test_any_bytes_are_a_request_or_an_error_that_can_be_told(body: bytes) -> None:
    told = answered(body)
    if isinstance(told, tuple):
        status, error = told
        assert 400 <= status < 500
        assert set(error["error"]) == {"message", "type", "param", "code"}
    else:
        assert told.send.message.parts
        assert told.parts


def answered(body: bytes) -> ResponseRequest | tuple[int, Any]:
    """The request, or status and body of the answer that refuses it."""
    try:
        return decode(body, "m")
    except A2AError as error:
        return error_status(error), json.loads(encode_error(error))


def test_a_text_is_the_message() -> None:
    found = asked(model="echo", stream=True)
    assert found.streams
    assert (found.send.message.parts, found.send.message.message_id) == ((Part(text="Go"),), "m")
    assert (found.send.tenant, found.named, found.stored, found.background) == ("echo", True, True, False)
    assert not found.send.metadata


def test_of_a_conversation_the_last_message_of_the_user_is_answered() -> None:
    found = asked(
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "one"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two"}]},
            {"type": "reasoning", "summary": []},
            {"role": "user", "content": [{"type": "input_text", "text": "three"}]},
        ],
        instructions="Be brief.",
    )
    assert found.send.message.text == "three"
    said = [(message.role, message.text, (message.metadata or {}).get("role")) for message in found.send.earlier]
    assert said == [
        (Role.USER, "Be brief.", "system"),
        (Role.USER, "Be kind.", "developer"),
        (Role.USER, "one", None),
        (Role.AGENT, "two", None),
    ]
    assert found.send.continues
    assert [part.text for part in found.parts] == ["one", "three"]


def test_files_and_images_are_parts() -> None:
    content = [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"},
        {"type": "input_file", "file_url": "https://example.org/b.pdf"},
    ]
    assert asked([{"role": "user", "content": content}]).send.message.parts == (
        Part(raw=b"\0\0\0", media_type="image/png", metadata={"detail": "low"}),
        Part(url="https://example.org/a.png"),
        Part(raw=b"\0\0\0", media_type="application/pdf", filename="a.pdf"),
        Part(url="https://example.org/b.pdf"),
    )


def test_the_request_keeps_what_its_response_repeats_and_what_the_agent_decides_on() -> None:
    found = asked(
        instructions="Be brief.",
        user="me",
        metadata={"skill": "say", "colour": "blue"},
        temperature=0.5,
        seed=7,
        include=["message.output_text.logprobs"],
        store=False,
        stream=True,
    )
    sent = {"instructions": "Be brief.", "user": "me", "temperature": 0.5, "seed": 7, "store": False}
    assert found.send.metadata == {"skill": "say", "colour": "blue", "user": "me", "openai": sent}
    assert (found.send.skill, found.stored) == ("say", False)


def test_a_response_or_a_conversation_is_gone_on_with() -> None:
    assert asked(previous_response_id="resp_t_2").previous == ResponseId("t", 2)
    for spelled in ("conv_c", {"id": "conv_c"}):
        found = asked(conversation=spelled)
        assert found.context_id == "c"
        assert found.send.metadata == {"openai": {"conversation": "conv_c"}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": ""}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].file_data",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].image_url",
        ),
        ({"background": True, "store": False}, "store"),
        ({"previous_response_id": "resp_t_1", "conversation": "conv_c"}, "conversation"),
        ({"previous_response_id": "resp_other"}, "previous_response_id"),
        ({"conversation": "other"}, "conversation"),
        ({"metadata": {"n": 1}}, "metadata.n"),
        ({"metadata": {"n": "x" * 513}}, "metadata.n"),
        ({"metadata": {"n" * 65: "x"}}, "metadata." + "n" * 64),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {"openai": "x"}}, "metadata.openai"),
        ({"tools": [{"type": "function", "name": "f"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format.type"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"user": 1}, "user"),
        ({"stream": "perhaps"}, "stream"),
    ],
)
def test_what_is_refused_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        asked(**body)
    assert [place for place, _ in caught.value.violations] == [field]


def test_what_asks_for_nothing_is_not_refused() -> None:
    nothing = {"tools": [], "tool_choice": "auto", "text": {"format": {"type": "text"}}, "prompt": None}
    assert asked(**nothing, parallel_tool_calls=True, truncation="auto").send.metadata is None
    assert {name for name, use in FIELDS.items() if use is FieldUse.REFUSED} >= nothing.keys()


def test_a_conversation_keeps_nothing() -> None:
    for body in (b"", b"{}", b'{"items": [], "metadata": {}}'):
        decode_conversation(body)
    for name, body in (("items", b'{"items": [1]}'), ("metadata", b'{"metadata": {"a": "b"}}')):
        with pytest.raises(InvalidParams, match=name):
            decode_conversation(body)


def test_the_query_of_a_list_and_of_a_response() -> None:
    assert decode_page({}) == ItemPage(20, None, True)
    assert decode_page({"limit": "3", "after": "x", "order": "asc"}) == ItemPage(3, "x", False)
    assert (look({}), look({"stream": "true"}), look({"stream": "true", "starting_after": "7"})) == (
        (False, None),
        (True, None),
        (True, 7),
    )
    for query in ({"limit": "0"}, {"limit": "101"}, {"order": "up"}):
        with pytest.raises(InvalidParams):
            decode_page(query)
    for query in ({"starting_after": "1"}, {"stream": "true", "starting_after": "-1"}):
        with pytest.raises(InvalidParams, match="starting_after"):
            look(query)
