"""Any answer of an agent is read as an answer, or as an error that can be told."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.decode import AnswerDecoder, tongue
from dragoman.client.errors import HttpRefusal
from dragoman.dialects.registry import DIALECTS
from dragoman.dialects.sse import ServerSentEvent
from dragoman.model.errors import A2AError, InternalError, InvalidAgentResponse, Unauthorized
from dragoman.model.operations import DeletePushConfig, GetTask

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-40000, 5) | st.text(max_size=4) | st.sampled_from(["completed", "error"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "result", "error", "code", "message", "data", "task", "status", "state"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
BODIES = st.binary(max_size=40) | JSON.map(msgspec.json.encode)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(body=BODIES, call_id=st.sampled_from([0, 1]), status=st.sampled_from([0, 200, 302, 400, 404, 429, 500, 503]))
def test_any_bytes_are_an_answer_or_an_error_of_the_model(dialect: str, body: bytes, call_id: int, status: int) -> None:
    reading = AnswerDecoder(tongue(dialect), GetTask(id="t"), "http://agent.example/", call_id)
    event = ServerSentEvent(body.decode("utf-8", "replace"), "error" if status == 500 else "message")
    readings: tuple[Any, ...] = (
        lambda: reading.decode_answer(body),
        lambda: reading.decode_instead(body),
        lambda: reading.decode_event(event),
    )
    for read in readings:
        with suppress(A2AError):  # and nothing else
            read()
    assert isinstance(reading.decode_refusal(body, status), A2AError | HttpRefusal)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_line_of_text_with_status_500_is_a_refusal_that_names_the_status(dialect: str) -> None:
    reading = AnswerDecoder(tongue(dialect), GetTask(id="t"), "http://agent.example/", 1)
    refused = reading.decode_refusal(b"Internal Server Error", 500)
    assert isinstance(refused, HttpRefusal)
    assert refused.status == 500
    assert "expected 200, got b'Internal Server Error'" in str(refused)


UNTOLD = [b'{"weird":1}', b"[1]", b"{}", b'{"error":{}}', b'{"error":17}', b'{"error":{"code":-31999}}']


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("body", UNTOLD)
def test_an_error_that_says_nothing_is_shown(dialect: str, body: bytes) -> None:
    for call_id in (0, 1):
        reading = AnswerDecoder(tongue(dialect), GetTask(id="x"), "http://h/", call_id)
        for status in (400, 418, 500):
            refused = reading.decode_refusal(body, status)
            assert isinstance(refused, HttpRefusal)
            assert f"expected 200, got {body!r}" in str(refused)
        assert isinstance(reading.decode_refusal(body, 401), Unauthorized)  # the status says enough
        if b"error" in body:
            with pytest.raises(InvalidAgentResponse, match="expected") as caught:
                AnswerDecoder(tongue(dialect), GetTask(id="x"), "http://h/", 1).decode_answer(body)
            assert body[9:-1].decode() in str(caught.value)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("said", [b'{"code":-32603,"message":"Internal error"}', b'{"code":-32603}', b'"broke"'])
def test_an_error_that_says_anything_is_one_of_the_tree(dialect: str, said: bytes) -> None:
    reading = AnswerDecoder(tongue(dialect), GetTask(id="x"), "http://h/", 1)
    body = b'{"jsonrpc":"2.0","id":1,"error":%b}' % said
    assert isinstance(reading.decode_refusal(body, 500), InternalError)
    with pytest.raises(InternalError):
        reading.decode_answer(body)


@pytest.mark.parametrize("dialect", ["1.0", "0.3"])
def test_a_deletion_may_be_answered_without_a_result(dialect: str) -> None:
    deletion = DeletePushConfig(task_id="t", id="c")
    reading = AnswerDecoder(tongue(dialect), deletion, "http://agent.example/", 5)
    assert reading.decode_answer(b'{"id":5,"jsonrpc":"2.0"}') is None
    with pytest.raises(InvalidAgentResponse):
        reading.decode_answer(b"{}")
    other = AnswerDecoder(tongue(dialect), GetTask(id="t"), "http://agent.example/", 5)
    with pytest.raises(InvalidAgentResponse):
        other.decode_answer(b'{"id":5,"jsonrpc":"2.0"}')
