"""What an interrupt of LangGraph asks, and an answer in the form that the graph waits for.

Invariant: an answer that is data is given to the graph as it is.
"""

from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.approvals import approval_of, approved, denial
from dragoman.agents.frameworks.pauses import Question
from dragoman.agents.python.facts import Answer

TEXTS = ("question", "message", "query", "prompt", "description", "text", "task")
"""Keys under which the value of an interrupt says its question."""

ACTIONS = "action_requests"
"""The key by which LangChain's HumanInTheLoopMiddleware asks whether tools may be called."""


def asked(value: Any) -> Question:
    """The question that the value of an interrupt puts: text is text; of anything else programs get all."""
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
    """What the graph is given for an answer to the question with that data."""
    if answer.data is not None:
        return answer.data
    actions = value.get(ACTIONS) if isinstance(value, dict) else None
    if not isinstance(actions, list):
        return str(answer)
    decision = {"type": "approve"} if approved(answer) else {"type": "reject", "message": denial(answer)}
    return {"decisions": [decision] * len(actions)}
