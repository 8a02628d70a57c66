"""Sdk: the installed release of the SDK, which turns our values into its types and its events back into ours.

Invariant: the release is chosen by its types, which are protobuf messages since 1.0. Here is what all releases have;
`v1` and `v03` convert values.
"""

import importlib
from functools import cache
from typing import Any, Protocol

from dragoman.agents.frameworks.a2a_sdk.caller import make_call_context
from dragoman.agents.frameworks.a2a_sdk.turn import ExecutorTurn
from dragoman.model.message import Message
from dragoman.model.task import Record
from dragoman.model.updates import Update


class Sdk(Protocol):
    """A release of the SDK. `replaces_tasks`: a Task in the queue replaces the one that is stored."""

    replaces_tasks: bool
    _types: Any
    """Its module of types."""

    def __init__(self) -> None:
        self._types = importlib.import_module("a2a.types")

    def make_context(self, turn: ExecutorTurn) -> Any:
        """Make the RequestContext of a call."""
        return importlib.import_module("a2a.server.agent_execution").RequestContext(
            request=None if turn.message is None else self._request(turn, turn.message),
            task_id=turn.task_id,
            context_id=turn.context_id,
            task=None if turn.task is None else self._task(turn.task),
            related_tasks=[self._task(record) for record in turn.related],
            call_context=make_call_context(turn),
        )

    def is_card(self, value: object) -> bool:
        """Whether the object is an AgentCard."""
        return isinstance(value, self._types.AgentCard)

    def read_event(self, event: Any) -> Update:
        """Read an event from the queue. Raises TypeError if it is none."""
        if (update := self._update(event)) is None:
            raise TypeError(f"{type(event).__name__} is no event: enqueue a Task, a Message or an update of a task")
        return update

    def card_members(self, card: Any) -> dict[str, Any]:
        """Return the members of an AgentCard by their names in JSON."""
        ...

    def stored_record(self, before: Record, question: Message | None, answer: Message) -> Record:
        """Return the task as this release shows it to `execute` after an answer.

        `before` has neither the answer nor the question, which is None if the executor asked nothing.
        """
        ...

    def _update(self, event: Any) -> Update | None:
        """An event in our types; None if it is none."""
        ...

    def _request(self, turn: ExecutorTurn, message: Message) -> Any: ...

    def _task(self, record: Record) -> Any: ...


@cache
def find_sdk() -> Sdk:
    """Return the release that is installed."""
    protobuf = hasattr(importlib.import_module("a2a.types").Message, "DESCRIPTOR")
    module = importlib.import_module(f"{__package__}.{'v1' if protobuf else 'v03'}")
    sdk: Sdk = module.SDK
    return sdk
