"""Converts an interrupt of LangGraph to a question, and the answer to the form that the graph waits for.

Invariant: an answer that is data is given to the graph unchanged.
"""

from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.approvals import approval_of, approved, denial
from dragoman.agents.frameworks.pauses import Question
from dragoman.agents.python.context import Answer

TEXTS = ("question", "message", "query", "prompt", "description", "text", "task")
"""Keys that may hold the question in the value of an interrupt."""

ACTIONS = "action_requests"
"""The key of tool approvals by LangChain's HumanInTheLoopMiddleware."""


def asked(value: Any) -> Question:
    """The question in the value of an interrupt. A text is a text; programs get any other value whole."""
    if isinstance(value, str):
        return Question(value)
    try:
        data = json_of(value)
    except (TypeError, ValueError):
        return Question(str(value))
    if not isinstance(data, dict):
        return Question(str(value), data)
    actions = data.get(ACTIONS)
    if isinstance(actions, list) and actions:
        named = (approval_of(str(action.get("name")), action.get("args")).text for action in actions)
        return Question("\n".join(named), data)
    text = next((data[key] for key in TEXTS if isinstance(data.get(key), str)), None)
    return Question(text or str(value), data)


def resumption(value: Any, answer: Answer) -> Any:
    """The value for the graph from an answer to the question with that data."""
    if answer.data is not None:
        return answer.data
    actions = value.get(ACTIONS) if isinstance(value, dict) else None
    if not isinstance(actions, list):
        return str(answer)
    decision = {"type": "approve"} if approved(answer) else {"type": "reject", "message": denial(answer)}
    return {"decisions": [decision] * len(actions)}
