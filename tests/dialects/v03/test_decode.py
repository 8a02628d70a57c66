"""Decoding 0.3 in both of its JSON forms; a message that was written reads back as it was."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects import v03
from dragoman.dialects.api import RestRequest
from dragoman.model.errors import A2AError, InvalidParams, InvalidRequest, MethodNotFound, ParseError
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import ListTasks, SendMessage

REST = [v03.REST, v03.REST_TWICE]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["user", "ROLE_AGENT", "text", "file", "data", "AA==", "input-required", "2026-01-01T00:00:00Z"])
)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", ParseError),
        (b'{"message": NaN}', ParseError),
        (b'{"message": "\xff"}', ParseError),
        (b'{"a":' * 100_000, InvalidRequest),
        (b"[]", InvalidParams),
        (b"7", InvalidParams),
    ],
)
def test_what_is_no_object_is_refused(body: bytes, error: type[A2AError]) -> None:
    with pytest.raises(error):
        v03.JSONRPC.decode("message/send", body)
    with pytest.raises(error):
        assert v03.REST.decode_rest is not None
        v03.REST.decode_rest(RestRequest("SendMessage", {}, {}, body))


def test_a_method_or_route_of_another_version_is_not_found() -> None:
    for method in ("SendMessage", "tasks/send", "", "message/send "):
        with pytest.raises(MethodNotFound) as refusal:
            v03.JSONRPC.decode(method, b"{}")
        assert ("send A2A-Version: 1.0" in str(refusal.value)) == ("/" not in method)
    assert v03.REST.decode_rest is not None
    with pytest.raises(MethodNotFound):
        v03.REST.decode_rest(RestRequest("message/send", {}, {}, b"{}"))


def test_of_duplicate_keys_the_last_counts() -> None:
    operation = v03.JSONRPC.decode("tasks/get", b'{"id":"a","id":"b"}')
    assert operation == v03.JSONRPC.decode("tasks/get", b'{"id":"b"}')


def test_lone_surrogates_in_a_path_are_refused() -> None:
    assert v03.REST.decode_rest is not None
    with pytest.raises(InvalidParams):
        v03.REST.decode_rest(RestRequest("GetTask", {"id": "\udcff"}, {}, b""))


def test_only_protobuf_json_wraps_data() -> None:
    message = {"messageId": "m", "role": "user", "parts": [{"data": {"data": {"a": 1}}}]}
    for dialect_message, data in (
        (message, {"data": {"a": 1}}),
        ({**message, "parts": None, "content": message["parts"]}, {"a": 1}),
    ):
        operation = v03.JSONRPC.decode("message/send", json.dumps({"message": dialect_message}).encode())
        assert isinstance(operation, SendMessage)
        assert operation.message.parts[0].data == data


@pytest.mark.parametrize("name", ["statusTimestampAfter", "lastUpdatedAfter"])
def test_a_time_in_milliseconds_must_be_a_number_that_a_store_can_hold(name: str) -> None:
    asked = v03.JSONRPC.decode("tasks/list", json.dumps({name: 1_700_000_000_000}).encode())
    assert isinstance(asked, ListTasks)
    assert asked.status_after_ms == 1_700_000_000_000
    for number in (1 << 53, 1 << 63, -(1 << 63) - 1, 10**30):
        with pytest.raises(InvalidParams) as refused:
            v03.JSONRPC.decode("tasks/list", json.dumps({name: number}).encode())
        assert refused.value.violations[0][0] == "statusTimestampAfter"


def test_the_skill_may_be_named_in_either_metadata() -> None:
    message = {"messageId": "m", "role": "user", "parts": [{"text": "x"}], "metadata": {"skill": "inner"}}
    for params, skill in (
        ({"message": message}, "inner"),
        ({"message": message, "metadata": {"skill": "outer"}}, "outer"),
        ({"message": message, "metadata": {"skill": 7}}, "inner"),
    ):
        operation = v03.JSONRPC.decode("message/send", json.dumps(params).encode())
        assert isinstance(operation, SendMessage)
        assert operation.skill == skill


PARTS = st.one_of(
    st.builds(lambda text: Part(text=text), st.text(max_size=5)),
    st.builds(lambda raw, name: Part(raw=raw, filename=name), st.binary(max_size=9), st.sampled_from([None, "a.bin"])),
    st.builds(lambda url: Part(url=url, media_type="a/b"), st.text(max_size=5)),
    st.builds(
        lambda data, metadata: Part(data=data, metadata=metadata),
        st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)),
        st.sampled_from([None, {"k": 1}]),
    ),
)


@pytest.mark.parametrize(
    "part",
    [{"text": "x", "data": {}}, {"text": "", "file": {"uri": "https://example.com"}}, {"raw": "AA==", "url": "x"}],
)
def test_a_part_without_a_tag_that_holds_several_things_is_refused(part: dict[str, Any]) -> None:
    message = {"messageId": "m", "role": "user", "parts": [{"text": "first"}, part]}
    with pytest.raises(InvalidParams, match=r"^message.parts\[1\]: must have one of text, file, data, not "):
        v03.JSONRPC.decode("message/send", json.dumps({"message": message}).encode())


BASE64_TEXT = b"AP8="


@pytest.mark.parametrize(
    ("part", "raw"),
    [
        ({"content": [{"file": {"fileWithBytes": "QVA4PQ=="}}]}, b"\x00\xff"),
        ({"content": [{"file": {"file_with_bytes": "AP8="}}]}, b"\x00\xff"),
        ({"parts": [{"kind": "file", "file": {"bytes": "QVA4PQ=="}}]}, BASE64_TEXT),
    ],
)
def test_only_protobuf_json_may_have_file_bytes_in_base64_twice(part: dict[str, Any], raw: bytes) -> None:
    body = json.dumps({"message": {"messageId": "m", "role": "ROLE_USER", **part}}).encode()
    assert v03.REST_TWICE.decode_rest is not None
    sent = v03.REST_TWICE.decode_rest(RestRequest("SendMessage", {}, {}, body))
    assert isinstance(sent, SendMessage)
    assert sent.message.parts[0].raw == raw


@given(st.lists(PARTS, min_size=1, max_size=3))
def test_a_message_that_was_written_reads_back_as_it_was(parts: list[Part]) -> None:
    message = Message(message_id="m", role=Role.AGENT, parts=tuple(parts), context_id="c", task_id="t")
    called = v03.JSONRPC.decode("message/send", b'{"message":' + v03.JSONRPC.encode_message(message) + b"}")
    assert isinstance(called, SendMessage)
    assert called.message == message
    for dialect in REST:
        assert dialect.decode_rest is not None
        posted = dialect.decode_rest(RestRequest("SendMessage", {}, {}, dialect.encode_message(message)))
        assert isinstance(posted, SendMessage)
        assert posted.message == message
