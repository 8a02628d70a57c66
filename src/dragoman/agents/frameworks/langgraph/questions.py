"""Interrupts of a graph as questions to the caller, and the answers as values for the graph.

Invariant: an answer that is data is given to the graph unchanged.
"""

from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.calls import approval_of, approved, denial
from dragoman.agents.frameworks.runs import RunQuestion
from dragoman.agents.python.context import Answer

TEXTS = ("question", "message", "query", "prompt", "description", "text", "task")
"""Keys that may hold the question in the value of an interrupt."""

ACTIONS = "action_requests"
"""The key of tool approvals by LangChain's HumanInTheLoopMiddleware."""


def question_of(value: Any) -> RunQuestion:
    """The question in the value of an interrupt. A text is a text; programs get any other value whole."""
    if isinstance(value, str):
        return RunQuestion(value)
    try:
        data = json_of(value)
    except (TypeError, ValueError):
        return RunQuestion(str(value))
    if not isinstance(data, dict):
        return RunQuestion(str(value), data)
    actions = data.get(ACTIONS)
    if isinstance(actions, list) and actions:
        named = (approval_of(str(action.get("name")), action.get("args")).text for action in actions)
        return RunQuestion("\n".join(named), data)
    text = next((data[key] for key in TEXTS if isinstance(data.get(key), str)), None)
    return RunQuestion(text or str(value), data)


def resumption(value: Any, answer: Answer) -> Any:
    """The value for the graph from an answer to the question with that data."""
    if answer.data is not None:
        return answer.data
    actions = value.get(ACTIONS) if isinstance(value, dict) else None
    if not isinstance(actions, list):
        return str(answer)
    decision = {"type": "approve"} if approved(answer) else {"type": "reject", "message": denial(answer)}
    return {"decisions": [decision] * len(actions)}
