"""ModelTool calls that the caller has to allow: builds the question, and reads the answer.

Invariant: only a clear yes allows a call. Any other answer is a no, and its words go to the model.
"""

import json
from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.pauses import Question
from dragoman.agents.python.context import Answer

YES = frozenset({"y", "yes", "ok", "okay", "approve", "approved", "allow", "allowed", "confirm", "confirmed", "true"})
"""Answers that allow, regardless of case and closing punctuation."""

ARGUMENTS_CHARS_MAX = 500
"""The longest text of arguments in a question; programs get them whole."""


def approval_of(name: str, arguments: Any, *, hint: str = "") -> Question:
    """The question whether a tool may be called with these arguments. `hint` is the framework's comment on it."""
    given = json_of(arguments_of(arguments))
    shown = "" if given in (None, {}, "") else json.dumps(given, ensure_ascii=False)
    if len(shown) > ARGUMENTS_CHARS_MAX:
        shown = shown[:ARGUMENTS_CHARS_MAX] + "…"
    text = f"May {name} be called{f' with {shown}' if shown else ''}? Answer yes or no."
    data = {"approval": {"tool": name, "arguments": given}}
    return Question(f"{hint}\n{text}" if hint else text, data)


def approved(answer: Answer) -> bool:
    """Whether the answer allows: a clear yes in its text, or `{"approved": true}` in its data."""
    data = answer.data
    if isinstance(data, dict) and "approved" in data:
        return data["approved"] is True
    if isinstance(data, bool):
        return data
    return answer.strip().rstrip(".!").lower() in YES


def denial(answer: Answer) -> str:
    """The text for the model when the answer does not allow the call."""
    words = answer.strip()
    if isinstance(answer.data, dict) and isinstance(reason := answer.data.get("message"), str):
        words = reason
    bare = words.rstrip(".!").lower() in ("", "n", "no", "deny", "denied", "reject", "rejected", "false")
    return "The user did not allow this call." if bare else f"The user did not allow this call: {words}"


def arguments_of(arguments: Any) -> Any:
    """The arguments of a call as values, even if a model wrote them as JSON text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments
