"""Questions of tools to the caller: how they are told, and how answers in words and in data are read."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.model.caller_questions import UnreadableAnswer, read_answer, tool_question
from dragoman.agents.tools import ToolAnswer, ToolQuestion
from dragoman.model.message import Message, Part, Role

ACCEPT = {"action": "accept"}


def asked(required: tuple[str, ...] = (), **properties: dict[str, Any]) -> ToolQuestion:
    form = {"type": "object", "properties": properties, "required": list(required)}
    return ToolQuestion(id="q", asker="hr", text="Who are you?", form=form)


def said(answer: Any) -> Message:
    part = Part(text=answer) if isinstance(answer, str) else Part(data=answer)
    return Message(message_id="m", role=Role.USER, parts=(part,))


NAME: dict[str, Any] = {"type": "string"}
AGE: dict[str, Any] = {"type": "integer", "minimum": 18, "maximum": 99}
COLOR = {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]}
COLORS = {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["red", "blue", "green"]}}


@pytest.mark.parametrize(
    ("properties", "answer", "content"),
    [
        ({"name": NAME}, "Ada Lovelace", {"name": "Ada Lovelace"}),
        ({"name": NAME}, "no", {"name": "no"}),
        ({"name": NAME}, "Name: Ada", {"name": "Ada"}),
        ({"name": NAME}, '{"name": "Ada"}', {"name": "Ada"}),
        ({"name": NAME}, {"name": "Ada"}, {"name": "Ada"}),
        ({"name": NAME}, {**ACCEPT, "content": {"name": "Ada"}}, {"name": "Ada"}),
        ({"name": NAME, "age": AGE}, "name: Ada\nage: 36", {"name": "Ada", "age": 36}),
        ({"name": NAME, "age": AGE}, {"name": "Ada", "age": 36.0}, {"name": "Ada", "age": 36}),
        ({"age": AGE}, " 36 ", {"age": 36}),
        ({"age": AGE}, 36, {"age": 36}),
        ({"price": {"type": "number"}}, "1.5", {"price": 1.5}),
        ({"sure": {"type": "boolean"}}, "No.", {"sure": False}),
        ({"sure": {"type": "boolean"}}, True, {"sure": True}),
        ({"color": COLOR}, "blue", {"color": "#00f"}),
        ({"color": COLOR}, "#F00", {"color": "#f00"}),
        ({"colors": COLORS}, "red, Green", {"colors": ["red", "green"]}),
        ({"colors": COLORS}, ["blue"], {"colors": ["blue"]}),
        ({"word": {"type": "string", "enum": ["cancel", "keep"]}}, "cancel", {"word": "cancel"}),
        ({"action": NAME}, {"action": "cancel"}, {"action": "cancel"}),
        ({"on": {"type": "string", "format": "date"}}, "2026-07-28", {"on": "2026-07-28"}),
        ({}, "yes", {}),
        ({}, {"approved": True}, {}),
        ({"sure": {"type": "boolean"}}, {"approved": True}, {"sure": True}),
    ],
)
def test_an_answer_fits_the_form(properties: dict[str, Any], answer: Any, content: dict[str, Any]) -> None:
    assert read_answer(asked(tuple(properties), **properties), said(answer)) == ToolAnswer("accept", content)


def test_what_is_optional_may_be_missing_and_a_default_takes_its_place() -> None:
    question = asked(("name",), name=NAME, age=AGE, color={**NAME, "default": "red"})
    assert read_answer(question, said("Ada")).content == {"name": "Ada", "color": "red"}


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("decline", "decline"),
        ("Cancel.", "cancel"),
        ("", "cancel"),
        ({"action": "decline"}, "decline"),
        ({"approved": False}, "decline"),
        ({"action": "cancel"}, "cancel"),
    ],
)
def test_an_answer_may_be_refused(answer: Any, action: str) -> None:
    assert read_answer(asked(("name",), name=NAME), said(answer)) == ToolAnswer(action)  # type: ignore[arg-type]  # the table has only actions


@pytest.mark.parametrize(
    ("properties", "answer", "told"),
    [
        ({"age": AGE}, "young", "age must be a whole number"),
        ({"age": AGE}, "36.5", "age must be a whole number"),
        ({"age": AGE}, "nan", "age must be a whole number"),
        ({"age": AGE}, "9" * 400, "age must be a whole number"),
        ({"age": AGE}, True, "age must be a whole number"),
        ({"age": AGE}, "17", "age must be a whole number of 18 to 99"),
        ({"price": {"type": "number", "minimum": 0}}, "-1", "price must be a number of at least 0"),
        ({"price": {"type": "number"}}, "inf", "price must be a number"),
        ({"name": {**NAME, "maxLength": 2}}, "Ada", "name must be a text of at most 2 characters"),
        ({"name": NAME}, {"name": 1}, "name must be text"),
        ({"mail": {**NAME, "format": "email"}}, "ada", "mail must be of the form email"),
        ({"on": {**NAME, "format": "date"}}, "tomorrow", "on must be of the form date"),
        ({"at": {**NAME, "format": "date-time"}}, "2026-07-28", "at must be of the form date-time"),
        ({"sure": {"type": "boolean"}}, "perhaps", "sure must be yes or no"),
        ({"color": COLOR}, "green", "color must be one of Red, Blue"),
        ({"colors": COLORS}, "red, blue, green", "colors must be at most 2 of red, blue, green"),
        ({"name": NAME, "age": AGE}, "Ada, 36", "Each of name, age needs a line of its own"),
        ({"name": NAME, "age": AGE}, {"name": "Ada"}, "age is missing"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_why(properties: dict[str, Any], answer: Any, told: str) -> None:
    with pytest.raises(UnreadableAnswer, match=told):
        read_answer(asked(tuple(properties), **properties), said(answer))


def test_people_are_told_who_asks_and_for_what() -> None:
    question = asked(("name",), name={**NAME, "description": "Your full name"}, age=AGE)
    part = tool_question("c1", "hire", question, "age must be a whole number")
    assert part.text == (
        "age must be a whole number.\nhr asks: Who are you?\n- name: Your full name\n- age (a whole number, optional)\n"
        "Answer with a line for each, such as `name: value`, or decline."
    )
    elicitation = {"mode": "form", "message": "Who are you?", "requestedSchema": question.form}
    assert part.metadata == {"toolCallId": "c1", "name": "hire", "server": "hr", "elicitation": elicitation}


@pytest.mark.parametrize(
    ("answer", "action"),
    [("yes", "accept"), ("no", "decline"), ("hm", "decline"), (ACCEPT, "accept"), (True, "accept")],
)
def test_an_address_is_shown_whole_and_opened_by_the_caller(answer: Any, action: str) -> None:
    question = ToolQuestion(id="q", asker="pay", text="Pay.", url="https://pay.example/t?x=1")
    text = tool_question("c1", "buy", question).text
    assert text is not None
    assert "Open https://pay.example/t?x=1 (at pay.example)?" in text
    assert read_answer(question, said(answer)) == ToolAnswer(action)  # type: ignore[arg-type]  # the table has only actions


SCHEMAS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["string", "number", "array"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["type", "enum", "items", "oneOf", "const", "minItems", "maximum"]), inner)
    ),
)


@given(st.dictionaries(st.text(max_size=3), SCHEMAS, max_size=3), SCHEMAS)
def test_any_form_is_asked_and_any_answer_read_or_refused(properties: dict[str, Any], answer: Any) -> None:
    question = asked(tuple(properties), **properties)
    assert tool_question("c", "t", question).text
    if isinstance(answer, float) and not math.isfinite(answer):
        return
    try:
        read_answer(question, said(answer))
    except UnreadableAnswer:
        pass
