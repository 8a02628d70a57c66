"""The words that are a yes, and the words for a no."""

from typing import Any

import pytest
from msgspec import UNSET

from dragoman.agents.frameworks.calls import ARGUMENTS_CHARS_MAX, approval_of, approved, denial
from dragoman.agents.python.context import Answer
from dragoman.model.message import Message, Part, Role


def answer(text: str | None = None, data: Any = UNSET) -> Answer:
    part = Part(text=text) if text is not None else Part(data=data)
    return Answer(Message(message_id="m", role=Role.USER, parts=(part,)))


@pytest.mark.parametrize("text", ["yes", "Yes.", " OK! ", "approve", "Allowed", "y"])
def test_a_clear_yes_allows(text: str) -> None:
    assert approved(answer(text))


@pytest.mark.parametrize("text", ["no", "", "yes, but later", "yesterday", "do it tomorrow", "not ok"])
def test_all_else_does_not(text: str) -> None:
    assert not approved(answer(text))


@pytest.mark.parametrize(
    ("data", "allows"),
    [
        ({"approved": True}, True),
        ({"approved": False}, False),
        ({"approved": "yes"}, False),
        (True, True),
        (False, False),
    ],
)
def test_programs_answer_with_data(data: Any, allows: bool) -> None:
    assert approved(answer(data=data)) is allows


def test_the_words_of_a_no_are_told() -> None:
    assert denial(answer("No.")) == "The user did not allow this call."
    assert denial(answer("keep it")) == "The user did not allow this call: keep it"
    assert denial(answer(data={"approved": False, "message": "too late"})).endswith(": too late")


def test_the_question_shows_the_arguments_and_not_too_much_of_them() -> None:
    question = approval_of("write", '{"text": "é"}')
    assert question.text == 'May write be called with {"text": "é"}? Answer yes or no.'
    assert question.data == {"approval": {"tool": "write", "arguments": {"text": "é"}}}
    long = approval_of("write", {"text": "x" * 10_000})
    assert len(long.text) < ARGUMENTS_CHARS_MAX + 100
    assert len(long.data["approval"]["arguments"]["text"]) == 10_000
    assert approval_of("go", "").text == "May go be called? Answer yes or no."
