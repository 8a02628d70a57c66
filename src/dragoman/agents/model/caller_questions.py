"""The questions of a model's tools to the caller of the task, and their answers: approvals, forms, addresses to open.

People read the text of a question and answer in words; programs find the same in its metadata and answer with data.

Invariant: these are pure functions of what is recorded, so that a later run asks the same and reads the same. An answer
gives content that fits the form, or it is UnreadableAnswer, whose message says what does not fit.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct

from dragoman.agents.content import readable_json
from dragoman.agents.tools import ToolAnswer, ToolQuestion
from dragoman.model.message import Message, Part

YES = frozenset({"yes", "y", "ok", "okay", "true", "approve", "approved", "allow", "go ahead"})
"""The answers that approve a call, or agree to open an address; any other answer does not."""

NO = frozenset({"no", "n", "false"})

DECLINES, CANCELS = frozenset({"decline", "declined"}), frozenset({"cancel", "cancelled", "canceled"})
"""The words that refuse an answer to a tool, unless the form has them among its choices."""

SHOWN_CHARS = 2000
"""The longest text of a tool that a question repeats."""


class UnreadableAnswer(ValueError):
    """The answer does not fit the form; the message says which field, and what it must be."""


def approval_question(call_id: str, name: str, arguments: dict[str, Any]) -> Part:
    """The question whether a call may be made. Programs find the call in the metadata."""
    shown = msgspec.json.encode(arguments).decode()
    return Part(
        text=f"May I call {name} with {shown}? Answer yes or no.",
        metadata={"toolCallId": call_id, "name": name, "args": readable_json(arguments)},
    )


def approves(answer: Message) -> bool:
    """Whether the answer approves."""
    return _word(words_of(answer)) in YES


def words_of(answer: Message) -> str:
    """The caller's answer in words. Data like `{"approved": true}` counts as an answer, too."""
    for part in answer.parts:
        if isinstance(part.data, dict) and isinstance(approved := part.data.get("approved"), bool):
            return "yes" if approved else "no"
        if isinstance(part.data, bool):
            return "yes" if part.data else "no"
    return answer.text


def tool_question(call_id: str, name: str, question: ToolQuestion, unfit: str = "") -> Part:
    """The question of a tool. `unfit` says why an earlier answer to it did not fit.

    Its metadata has the parameters of MCP's elicitation, from which a program can make a form.
    """
    message = question.text[:SHOWN_CHARS] or "More input is needed."
    lines = [f"{unfit}."] if unfit else []
    lines.append(f"{question.asker} asks: {message}")
    asked: dict[str, Any] = {"mode": "url" if question.url else "form", "message": message}
    if question.url:
        asked["url"] = question.url
        lines += [f"Open {question.url} (at {urlsplit(question.url).hostname})?", "Answer yes once you have, or no."]
    else:
        asked["requestedSchema"] = question.form
        lines += _instructions(_fields_of(question.form))
    metadata = {"toolCallId": call_id, "name": name, "server": question.asker, "elicitation": readable_json(asked)}
    return Part(text="\n".join(lines), metadata=metadata)


def read_answer(question: ToolQuestion, answer: Message) -> ToolAnswer:
    """Read an answer to the question of a tool. Raises UnreadableAnswer."""
    fields = _fields_of(question.form)
    word = _word(words_of(answer))
    data = next((part.data for part in answer.parts if part.data is not UNSET), UNSET)
    if isinstance(data, dict) and not any(field.name in ("action", "approved") for field in fields):
        match data:
            case {"action": "decline" | "cancel" as action}:
                return ToolAnswer(action)
            case {"action": "accept"}:
                data, word = data.get("content") or {}, "yes"
            case {"approved": False}:
                return ToolAnswer("decline")
            case {"approved": True}:
                data = True
    if data is UNSET and not any(field.has_choice(word) for field in fields):
        if word in DECLINES:
            return ToolAnswer("decline")
        if word in CANCELS or not word:
            return ToolAnswer("cancel")
    if question.url:
        return ToolAnswer("accept" if word in YES else "decline")
    if not fields:
        return ToolAnswer("accept", {}) if word in YES else ToolAnswer("decline")
    return ToolAnswer("accept", _content(fields, answer.text if data is UNSET else data))


class FormField(Struct, frozen=True):
    """A field of a form: one of the primitive schemas of MCP (2026-07-28, Elicitation, Requested Schema)."""

    name: str
    schema: dict[str, Any]
    required: bool

    @property
    def choices(self) -> dict[str, str]:
        """The values that may be chosen, by value, each with its title; empty if any value may be given."""
        schema: Any = self.schema.get("items") if self.schema.get("type") == "array" else self.schema
        if not isinstance(schema, dict):
            return {}
        if isinstance(values := schema.get("enum"), list):
            return {value: value for value in values if isinstance(value, str)}
        titled = schema.get("oneOf") or schema.get("anyOf")
        return {
            each["const"]: str(each.get("title") or each["const"])
            for each in (titled if isinstance(titled, list) else ())
            if isinstance(each, dict) and isinstance(each.get("const"), str)
        }

    @property
    def shown(self) -> str:
        """The field as a line for people."""
        about = self.schema.get("description") or self.schema.get("title") or ""
        said = [f"one of {', '.join(self.choices.values())}"] if self.choices else []
        if self.schema.get("type") in ("integer", "number", "boolean"):
            said.append(
                {"integer": "a whole number", "number": "a number", "boolean": "yes or no"}[self.schema["type"]]
            )
        if not self.required:
            said.append("optional")
        more = f" ({', '.join(said)})" if said else ""
        return f"- {self.name}{more}" + (f": {str(about)[:SHOWN_CHARS]}" if about else "")

    def has_choice(self, word: str) -> bool:
        """Whether a word is among the values that may be chosen."""
        return any(word in (value.lower(), title.lower()) for value, title in self.choices.items())

    def read(self, value: Any) -> Any:
        """The value as the form wants it; text stands for any kind of value. Raises UnreadableAnswer."""
        kind = self.schema.get("type")
        if kind == "array":
            return self._read_list(value)
        if self.choices:
            return self._choose(value)
        match kind:
            case "string":
                return self._read_text(value)
            case "boolean":
                return self._read_flag(value)
            case "integer" | "number":
                return self._read_number(value, whole=kind == "integer")
            case _:
                return value

    def _read_list(self, value: Any) -> list[str]:
        given = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
        if not isinstance(given, list):
            raise self._unfit("a list")
        chosen = [self._choose(each) for each in given if each != ""]
        least, most = self.schema.get("minItems"), self.schema.get("maxItems")
        if (isinstance(least, int) and len(chosen) < least) or (isinstance(most, int) and len(chosen) > most):
            raise self._unfit(f"{_range(least, most)} of {', '.join(self.choices.values())}")
        return chosen

    def _choose(self, value: Any) -> str:
        said = value.strip().lower() if isinstance(value, str) else None
        for choice, title in self.choices.items():
            if said in (choice.lower(), title.lower()):
                return choice
        raise self._unfit(f"one of {', '.join(self.choices.values())}")

    def _read_text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._unfit("text")
        least, most = self.schema.get("minLength"), self.schema.get("maxLength")
        if (isinstance(least, int) and len(value) < least) or (isinstance(most, int) and len(value) > most):
            raise self._unfit(f"a text of {_range(least, most)} characters")
        form = self.schema.get("format")
        if isinstance(form, str) and (check := FORMATS.get(form)) is not None:
            try:
                fits = check(value)
            except ValueError:
                fits = False
            if not fits:
                raise self._unfit(f"of the form {form}")
        return value

    def _read_flag(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        word = _word(value) if isinstance(value, str) else ""
        if word in YES or word in NO:
            return word in YES
        raise self._unfit("yes or no")

    def _read_number(self, value: Any, *, whole: bool) -> Any:
        said = "a whole number" if whole else "a number"
        if isinstance(value, str):
            try:
                value = float(value.strip()) if not value.strip().lstrip("+-").isdecimal() else int(value)
            except ValueError:
                raise self._unfit(said) from None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise self._unfit(said)
        if not -sys.float_info.max <= value <= sys.float_info.max:
            raise self._unfit(said)
        least, most = self.schema.get("minimum"), self.schema.get("maximum")
        low = isinstance(least, int | float) and value < least
        if low or (isinstance(most, int | float) and value > most):
            raise self._unfit(f"{said} of {_range(least, most)}")
        return value

    def _unfit(self, must_be: str) -> UnreadableAnswer:
        return UnreadableAnswer(f"{self.name} must be {must_be}")


FORMATS: Mapping[str, Callable[[str], object]] = {
    "email": lambda text: "@" in text.strip("@"),
    "uri": lambda text: urlsplit(text).scheme,
    "date": date.fromisoformat,
    "date-time": lambda text: "T" in text.upper() and datetime.fromisoformat(text),
}
"""The checks of formats. One that is not here is not checked."""


def _fields_of(form: Mapping[str, Any]) -> tuple[FormField, ...]:
    properties, required = form.get("properties"), form.get("required")
    if not isinstance(properties, dict):
        return ()
    needed = required if isinstance(required, list) else []
    return tuple(
        FormField(name, schema, name in needed) for name, schema in properties.items() if isinstance(schema, dict)
    )


def _instructions(fields: tuple[FormField, ...]) -> list[str]:
    """How to answer in words, after a line for each field."""
    if not fields:
        return ["Answer yes, or decline."]
    lines = [field.shown for field in fields]
    if len(fields) == 1:
        return [*lines, "Answer with its value, or decline."]
    return [*lines, "Answer with a line for each, such as `name: value`, or decline."]


def _content(fields: tuple[FormField, ...], given: Any) -> dict[str, Any]:
    """The content that an answer gives for the fields. Raises UnreadableAnswer."""
    values = _values(fields, given)
    content: dict[str, Any] = {}
    for field in fields:
        if field.name in values and values[field.name] is not None:
            content[field.name] = field.read(values[field.name])
        elif "default" in field.schema:
            content[field.name] = field.schema["default"]
        elif field.required:
            raise UnreadableAnswer(f"{field.name} is missing")
    return content


def _values(fields: tuple[FormField, ...], given: Any) -> dict[str, Any]:
    """The values of an answer by the names of the fields, as they were given. Raises UnreadableAnswer."""
    names = {field.name.lower(): field.name for field in fields}
    if isinstance(given, str):
        given = _object(given, names)
    if isinstance(given, dict):
        return {names.get(str(name).lower(), str(name)): value for name, value in given.items()}
    needed = [field for field in fields if field.required] or list(fields)
    if len(needed) == 1:
        return {needed[0].name: given}
    raise UnreadableAnswer(
        f"Each of {', '.join(names.values())} needs a line of its own, such as `{fields[0].name}: …`"
    )


def _object(text: str, names: Mapping[str, str]) -> Any:
    """A text that is an object of JSON, or has lines for fields alone, as an object; any other text as it is."""
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        decoded = None
    if isinstance(decoded, dict):
        return decoded
    lines = [line.lstrip("- ").partition(":") for line in text.splitlines() if line.strip()]
    if lines and all(name.strip().lower() in names and colon for name, colon, _ in lines):
        return {name.strip(): value.strip() for name, _, value in lines}
    return text.strip()


def _range(least: Any, most: Any) -> str:
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"{least} to {most}"


def _word(text: str) -> str:
    return text.strip().strip(".!").lower()
