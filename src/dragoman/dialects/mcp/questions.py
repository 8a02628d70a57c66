"""Questions of agents as forms of MCP (`elicitation/create`), and what was filled in as the answer.

A question may have forms: data parts that are a JSON Schema, each with the text before it as its message. A question
without one is a form with a single text. Invariant: the forms of a question, their names and its mark follow from the
question alone, so that every replica, and every repeat, says the same.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from dragoman.dialects.jsonrpc import clean
from dragoman.dialects.mcp import names
from dragoman.dialects.v03.fields import Fields
from dragoman.model.errors import InvalidParams
from dragoman.model.message import FORM_MEDIA_TYPE, Message, Part, Role
from dragoman.model.task import Record

ANSWER = "answer"
"""The name of a form that has none, and the only field of a form that asks for a text."""

WITHOUT_WORDS = "The agent asks for an answer"

SCALARS = frozenset({"string", "number", "integer", "boolean"})
"""The types of the fields of a form; lists may hold choices (2025-11-25, Elicitation)."""

TEXT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {ANSWER: {"type": "string", "title": "Answer"}},
    "required": [ANSWER],
}


class QuestionForm(Struct, frozen=True):
    """One form: its name among those of the question, the words above it, and the schema of what is filled in."""

    name: str
    message: str
    schema: Mapping[str, Any]

    @property
    def only_text(self) -> bool:
        """Whether the form asks for a text and nothing else."""
        return set(self.schema["properties"]) == {ANSWER}

    @property
    def request(self) -> dict[str, Any]:
        """The request that shows the form to the user."""
        return {"method": names.ELICIT, "params": {"mode": "form", **self.params}}

    @property
    def params(self) -> dict[str, Any]:
        """The params of that request, as before 2025-11-25."""
        return {"message": self.message, "requestedSchema": self.schema}


def is_form(part: Part) -> bool:
    """Whether the part is a form that a client can show: an object whose fields are plain values or choices."""
    if part.media_type != FORM_MEDIA_TYPE or not isinstance(part.data, dict):
        return False
    fields, required = part.data.get("properties"), part.data.get("required", [])
    if part.data.get("type") != "object" or not isinstance(fields, dict) or not isinstance(required, list):
        return False
    return all(map(_is_plain, fields.values())) and all(isinstance(name, str) for name in required)


def _is_plain(field: Any) -> bool:
    if not isinstance(field, dict):
        return False
    kind, items = field.get("type"), field.get("items")
    if kind == "array":
        return isinstance(items, dict) and ("enum" in items or "anyOf" in items)
    return isinstance(kind, str) and kind in SCALARS


def forms_of(question: Message | None) -> tuple[QuestionForm, ...]:
    """Return the forms of a question: at least one."""
    found: dict[str, QuestionForm] = {}
    said: list[str] = []
    last = ""
    for part in () if question is None else question.parts:
        if not is_form(part) or not isinstance(part.data, dict):
            said.append(_words(part))
            continue
        name, number = part.filename or ANSWER, 1
        while name in found:
            number += 1
            name = f"{part.filename or ANSWER}_{number}"
        found[name], last, said = QuestionForm(name, _join(said), part.data), name, []
    if not found:
        return (QuestionForm(ANSWER, _join(said), TEXT_SCHEMA),)
    if any(said):
        found[last] = QuestionForm(last, _join([found[last].message, *said]), found[last].schema)
    return tuple(found.values())


def merge_forms(forms: tuple[QuestionForm, ...]) -> QuestionForm:
    """Return one form with the fields of all, for clients that are asked one thing at a time; `form.field` if several.

    Its content is read by `split_content`.
    """
    if len(forms) == 1:
        return forms[0]
    fields = {f"{form.name}.{name}": field for form in forms for name, field in form.schema["properties"].items()}
    required = [f"{form.name}.{name}" for form in forms for name in form.schema.get("required", ())]
    return QuestionForm(
        ANSWER, _join([form.message for form in forms]), {"type": "object", "properties": fields, "required": required}
    )


def split_content(content: Mapping[str, Any]) -> Any:
    """Return what was filled into a form of `merge_forms`: a text, the fields, or the fields of each form."""
    if set(content) == {ANSWER}:
        return content[ANSWER]
    if content and all("." in name for name in content):
        parted: dict[str, dict[str, Any]] = {}
        for name, value in content.items():
            form, _, field = name.partition(".")
            parted.setdefault(form, {})[field] = value
        return parted
    return dict(content)


def mark_of(record: Record) -> str:
    """Return the mark of the task's present question, which no other question of the task has."""
    said = f"{record.status.timestamp}\0{question_of(record)}"
    return blake2b(said.encode("utf-8", "replace"), digest_size=6).hexdigest()


def question_of(record: Record) -> str:
    """Return the id of the task's present question; empty if it waits without a word."""
    return "" if record.status.message is None else record.status.message.message_id


def decode_response(response: Fields) -> dict[str, Any] | None:
    """Decode the user's reaction to a form; None if it was dismissed. Raises InvalidParams."""
    action = response.required_text("action")
    if action not in ("accept", "decline", "cancel"):
        raise InvalidParams(response.at("action"), "must be accept, decline or cancel")
    if action != "accept":
        return None
    content = response.mapping("content")
    if content is None:
        raise InvalidParams(response.at("content"), "is required with accept")
    return content


def build_answer(
    forms: tuple[QuestionForm, ...], filled: Mapping[str, Mapping[str, Any]], task_id: str, key: str
) -> Message:
    """Build the answer to a question from what was filled into its forms, by their names. `key` is the message's id."""
    if len(forms) == 1:
        return build_message(_value(forms[0], filled[forms[0].name]), task_id, key)
    return build_message({form.name: _value(form, filled[form.name]) for form in forms}, task_id, key)


def build_message(answer: Any, task_id: str, message_id: str) -> Message:
    """Build the message of an answer: a text, or fields as a data part."""
    part = Part(text=answer) if isinstance(answer, str) else Part(data=answer)
    return Message(message_id=message_id, role=Role.USER, parts=(part,), task_id=task_id)


def _value(form: QuestionForm, content: Mapping[str, Any]) -> Any:
    answer = content.get(ANSWER)
    if form.only_text and answer is not None:
        return answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    return dict(content)


def _words(part: Part) -> str:
    if part.text is not None:
        return part.text
    if part.url is not None:
        return part.url
    return "" if part.data is UNSET else msgspec.json.encode(part.data).decode()


def _join(said: list[str]) -> str:
    return clean("\n".join(text for text in said if text)) or WITHOUT_WORDS
