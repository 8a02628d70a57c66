"""What a SendMessage was answered with, in every dialect, is read as the same text."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.answer import read_answer
from dragoman.model.errors import InvalidAgentResponse


def part(text: str, **tag: str) -> dict[str, str]:
    return {**tag, "text": text}


KAOS = {
    "id": "task-uuid",
    "sessionId": "session-uuid",
    "status": {"state": "completed", "message": "Done", "timestamp": "2026-01-01T00:00:00Z"},
    "history": [
        {"role": "user", "parts": [part("Analyze this data", type="text")]},
        {"role": "agent", "parts": [part("Analysis result...", type="text")]},
    ],
}
V1 = {
    "id": "t",
    "contextId": "c",
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z"},
    "artifacts": [{"artifactId": "a", "parts": [part("12"), part("3")]}, {"artifactId": "b", "parts": [part("4")]}],
}
V03 = {
    "kind": "task",
    "id": "t",
    "contextId": "c",
    "status": {
        "state": "completed",
        "message": {"kind": "message", "role": "agent", "messageId": "m", "parts": [part("All done", kind="text")]},
    },
}
MESSAGE = {"messageId": "m", "role": "ROLE_AGENT", "contextId": "c", "parts": [part("Hello"), part("there")]}


@pytest.mark.parametrize(
    ("result", "text", "state"),
    [
        pytest.param(KAOS, "Analysis result...", "completed", id="KAOS, flat"),
        pytest.param({"task": KAOS}, "Analysis result...", "completed", id="KAOS, wrapped"),
        pytest.param({"task": V1}, "123\n4", "completed", id="1.0"),
        pytest.param(V1, "123\n4", "completed", id="1.0, flat"),
        pytest.param(V03, "All done", "completed", id="0.3, answer in the status"),
        pytest.param({"message": MESSAGE}, "Hello\nthere", "", id="1.0 message"),
        pytest.param(MESSAGE, "Hello\nthere", "", id="flat message"),
        pytest.param({**KAOS, "output": "From output"}, "From output", "completed", id="output before history"),
        pytest.param(
            {**V1, "output": "From output", "history": KAOS["history"]}, "123\n4", "completed", id="artifacts first"
        ),
        pytest.param(
            {
                "id": "t",
                "status": {"state": "completed"},
                "artifacts": [{"parts": [{"kind": "data", "data": {"a": 1}}]}],
            },
            '{"a":1}',
            "completed",
            id="data without text",
        ),
        pytest.param(
            {"id": "t", "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": MESSAGE}},
            "Hello\nthere",
            "input-required",
            id="a question",
        ),
        pytest.param({"id": "t", "status": {"state": "completed"}, "output": ""}, "", "completed", id="says nothing"),
        pytest.param({"id": "t", "status": {"state": "completed", "message": "Done"}}, None, "completed", id="nothing"),
    ],
)
def test_the_answer_is_read_in_every_dialect(result: Any, text: str | None, state: str) -> None:
    answer = read_answer(result)
    assert (answer.text, answer.state) == (text, state)


def test_ids_are_read_under_either_name() -> None:
    assert read_answer(KAOS).context_id == "session-uuid"
    assert read_answer({"task": V1}).context_id == "c"
    assert read_answer(V03).task_id == "t"


@pytest.mark.parametrize("result", [None, 1, "text", [], {}, {"task": None}, {"id": "t"}, {"status": "completed"}])
def test_what_is_neither_task_nor_message_is_refused_with_what_was_expected(result: Any) -> None:
    with pytest.raises(InvalidAgentResponse, match="expected a task"):
        read_answer(result)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "task",
                    "message",
                    "status",
                    "state",
                    "parts",
                    "text",
                    "data",
                    "artifacts",
                    "history",
                    "role",
                    "output",
                    "id",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_an_answer_or_invalid(value: Any) -> None:
    try:
        answer = read_answer(value)
    except InvalidAgentResponse:
        return
    msgspec.json.encode(answer)
