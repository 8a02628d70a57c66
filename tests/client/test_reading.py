"""Whatever an agent answers, what is read of it is an answer or an error that can be told."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.errors import HttpRefusal
from dragoman.client.reading import Reading
from dragoman.client.tongues import PACKAGES, tongue
from dragoman.dialects.sse import ServerSentEvent
from dragoman.model.errors import A2AError, InvalidAgentResponse
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


@pytest.mark.parametrize("dialect", PACKAGES)
@given(body=BODIES, call_id=st.sampled_from([0, 1]), status=st.sampled_from([0, 200, 302, 400, 404, 429, 500, 503]))
def test_any_bytes_are_an_answer_or_an_error_of_the_model(dialect: str, body: bytes, call_id: int, status: int) -> None:
    reading = Reading(tongue(dialect), GetTask(id="t"), "http://agent.example/", call_id)
    event = ServerSentEvent(body.decode("utf-8", "replace"), "error" if status == 500 else "message")
    readings: tuple[Any, ...] = (
        lambda: reading.answer(body),
        lambda: reading.only(body),
        lambda: reading.updates(event),
    )
    for read in readings:
        with suppress(A2AError):  # and nothing else
            read()
    assert isinstance(reading.refusal(body, status), A2AError | HttpRefusal)


@pytest.mark.parametrize("dialect", PACKAGES)
def test_a_line_of_text_with_status_500_is_a_refusal_that_names_the_status(dialect: str) -> None:
    reading = Reading(tongue(dialect), GetTask(id="t"), "http://agent.example/", 1)
    refused = reading.refusal(b"Internal Server Error", 500)
    assert isinstance(refused, HttpRefusal)
    assert refused.status == 500


@pytest.mark.parametrize("dialect", ["1.0", "0.3"])
def test_a_deletion_may_be_answered_without_a_result(dialect: str) -> None:
    deletion = DeletePushConfig(task_id="t", id="c")
    reading = Reading(tongue(dialect), deletion, "http://agent.example/", 5)
    assert reading.answer(b'{"id":5,"jsonrpc":"2.0"}') is None
    with pytest.raises(InvalidAgentResponse):
        reading.answer(b"{}")
    other = Reading(tongue(dialect), GetTask(id="t"), "http://agent.example/", 5)
    with pytest.raises(InvalidAgentResponse):
        other.answer(b'{"id":5,"jsonrpc":"2.0"}')
