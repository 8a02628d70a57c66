"""A skill's view of its task, and the answers of its caller.

Invariant: nothing here waits, since all of it came with the task.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import UNSET

from dragoman.engine.api import Run
from dragoman.model.message import Message, Part
from dragoman.model.principal import Principal


class Answer(str):
    """The text of the caller's answer; `message` is the whole answer."""

    __slots__ = ("message",)
    message: Message

    def __new__(cls, message: Message) -> "Answer":
        """Wrap the answer that `message` gives."""
        answer = super().__new__(cls, message.text)
        answer.message = message
        return answer

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts of the answer, files and data included."""
        return self.message.parts

    @property
    def data(self) -> Any:
        """The first data part, None if there is none."""
        return _data(self.message)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts that are files: `raw` bytes, or a `url` to get them from."""
        return _files(self.message)


class Facts(Protocol):
    """The facts of a skill's task, the same in a Context and in a SyncContext."""

    _run: Run
    _skill: str

    @property
    def message(self) -> Message:
        """The message that created the task, even after answers to `ask` have arrived."""
        return self._run.message

    @property
    def text(self) -> str:
        """The text parts of the message, joined by newlines; empty when there are none."""
        return self._run.message.text

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts of the message."""
        return self._run.message.parts

    @property
    def data(self) -> Any:
        """The first data part of the message, None if there is none."""
        return _data(self._run.message)

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts of the message that are files: `raw` bytes, or a `url` to get them from."""
        return _files(self._run.message)

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._run.head.id

    @property
    def context_id(self) -> str:
        """The id of the conversation that the task belongs to."""
        return self._run.head.context_id

    @property
    def principal(self) -> Principal:
        """The authenticated caller."""
        return self._run.principal

    @property
    def skill(self) -> str:
        """The id of the skill that runs."""
        return self._skill

    @property
    def skills(self) -> tuple[str, ...]:
        """The skills to which the caller restricts the run; empty if it does not."""
        return self._run.skills

    @property
    def extensions(self) -> tuple[str, ...]:
        """The URIs of the protocol extensions that are active for this task."""
        return self._run.extensions

    @property
    def traceparent(self) -> str | None:
        """The trace context for outgoing calls, as the header of that name (W3C); None if nobody traces."""
        return self._run.traceparent

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the request; the message's own are in `message.metadata`."""
        return self._run.head.metadata or {}


def _data(message: Message) -> Any:
    return next((part.data for part in message.parts if part.data is not UNSET), None)


def _files(message: Message) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if part.raw is not None or part.url is not None)
