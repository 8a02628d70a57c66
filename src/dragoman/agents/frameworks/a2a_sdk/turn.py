"""Turn: everything that one call of an executor is told, in our types, and Sdk: its form in those of a release.

Invariant: values only; nothing here knows a release of the SDK.
"""

from typing import Any, Protocol

from msgspec import Struct

from dragoman.model.message import Message
from dragoman.model.task import Record
from dragoman.model.updates import Update


class Turn(Struct, frozen=True, kw_only=True):
    """One call of `execute`, or of `cancel`, which has no message.

    `task` is the task as the last call left it; None in the first one. `caller` is the id of an authenticated caller,
    None on a server that asks nobody.
    """

    task_id: str
    context_id: str
    message: Message | None
    task: Record | None
    related: tuple[Record, ...] = ()
    metadata: dict[str, Any] | None = None
    accepted_output_modes: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    caller: str | None = None


class Sdk(Protocol):
    """A release of the SDK. `replaces_tasks`: a Task in the queue replaces the one that is stored."""

    replaces_tasks: bool

    def make_context(self, turn: Turn) -> Any:
        """Make the RequestContext of a call."""
        ...

    def read_event(self, event: Any) -> Update:
        """Read an event from the queue. Raises TypeError if it is none."""
        ...

    def is_card(self, value: object) -> bool:
        """Whether the object is an AgentCard."""
        ...

    def card_members(self, card: Any) -> dict[str, Any]:
        """Return the members of an AgentCard by their names in JSON."""
        ...

    def stored_record(self, before: Record, question: Message | None, answer: Message) -> Record:
        """Return the task as this release shows it to `execute` after an answer.

        `before` has neither the answer nor the question, which is None if the executor asked nothing.
        """
        ...
