"""Which question a request answers, by the conversation that a chat interface repeats.

Invariant: pure. A task fits only if its question is what the conversation shows last; in doubt it does not fit.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from dragoman.dialects.openai.encode import text_of
from dragoman.dialects.openai.marks import open_question, strip_marks
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import Record


class Person(Struct, frozen=True):
    """The person behind a request, as its caller names them: OpenAI's `user` and `safety_identifier`."""

    user: str | None = None
    safety_identifier: str | None = None

    @property
    def named(self) -> bool:
        """Whether the caller names anybody."""
        return self.user is not None or self.safety_identifier is not None


def person_of(metadata: Mapping[str, Any] | None) -> Person:
    """Return the person that the metadata of a request or a task names."""
    known = metadata or {}
    openai = known.get("openai")
    user = known.get("user")
    safety = openai.get("safety_identifier") if isinstance(openai, dict) else None
    return Person(user if isinstance(user, str) else None, safety if isinstance(safety, str) else None)


NO_CONVERSATIONS = frozenset({"", "null", "none", "undefined", "new", "default", "0"})
"""Values that interfaces send before a conversation has an id. They are the same for everybody."""


def conversation_id_of(value: str) -> str | None:
    """Return the id in a conversation header; None for a value that says there is none, or a template not filled in."""
    value = value.strip()
    return None if value.lower() in NO_CONVERSATIONS or "{" in value else value


def answered_in(record: Record, asked: Message, before: tuple[Message, ...]) -> Message | None:
    """Return the question of a task of the same conversation that the message `asked` answers; None if it answers none.

    `before` are the turns before it. The last turn of the agent must be the question: the open one, or one that was
    answered in the same words before. If the interface repeats no turns, the open question is answered by any message
    that is not in the task already, because such a message comes from somebody who asks for another attempt.
    """
    shown = _last_turn(before)
    question = open_question(record)
    if shown is None:
        repeats = any(said.role is Role.AGENT for said in record.head.earlier) or bool(before)
        known = any(said.role is Role.USER and _same(said, asked) for said in record.history)
        return None if repeats or known else question
    if question is not None and _shows(shown, question):
        return question
    said = record.history
    for at in range(len(said) - 2, -1, -1):
        if said[at].role is Role.AGENT and _shows(shown, said[at]) and _same(said[at + 1], asked):
            return said[at]
    return None


class ShownTurn(Struct, frozen=True):
    """A turn as an interface shows it, by its words alone."""

    role: Role
    words: str


def read_turns(before: Iterable[Message]) -> tuple[ShownTurn, ...]:
    """Read the turns before a message once, however many tasks they are compared with."""
    return tuple(ShownTurn(said.role, _plain(said)) for said in before)


def fits_turns(record: Record, before: Sequence[ShownTurn]) -> bool:
    """Whether the turns before a message are those of the task, down to its open question.

    An interface may leave out the oldest turns, but neither the question nor the message before it.
    """
    question = open_question(record)
    if question is None or not before or not _ends_with(before[-1], question):
        return False
    task = [*(said for said in record.head.earlier if _is_turn(said)), *record.history, question]
    theirs = [said for said in before if said.words]
    if not 2 <= len(theirs) <= len(task):
        return False
    asked_in_task = len(record.history) + 1
    for back, (shown, said) in enumerate(zip(reversed(theirs), reversed(task), strict=False)):
        if shown.role is not said.role:
            return False
        within = back < asked_in_task and said.role is Role.AGENT
        if not (_ends_with(shown, said) if within else shown.words == _plain(said)):
            return False
    return True


def answer_id(task_id: str, question: Message, parts: tuple[Part, ...]) -> str:
    """Return the id of an answer: the same words to the same question are the same message, whenever they come."""
    digest = blake2b(f"{task_id}\0{question.message_id}\0".encode(), digest_size=16)
    digest.update(msgspec.json.encode(parts))
    return str(UUID(bytes=digest.digest(), version=5))


def turns(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages of the user and the assistant, without instructions, results of tools and empty ones."""
    return tuple(message for message in messages if _is_turn(message))


def _is_turn(message: Message) -> bool:
    return (message.metadata is None or "role" not in message.metadata) and bool(message.parts)


def shows_last(before: tuple[Message, ...], question: Message) -> bool:
    """Whether the question is the end of the last turn of the agent that says anything."""
    shown, asked = _last_turn(before), _plain(question)
    return not asked or (shown is not None and _shows(shown, question))


def _last_turn(before: tuple[Message, ...]) -> Message | None:
    """The last turn of the agent that says anything; an interface may keep an empty one of a failed request."""
    return next((said for said in reversed(before) if said.role is Role.AGENT and _plain(said)), None)


def _shows(shown: Message, question: Message) -> bool:
    return _ends_with(ShownTurn(shown.role, _plain(shown)), question)


def _ends_with(shown: ShownTurn, question: Message) -> bool:
    """Whether what an interface shows is the question, which may stand behind the task's output."""
    asked = _plain(question)
    return bool(asked) and shown.role is Role.AGENT and shown.words.endswith(asked)


def _same(one: Message, other: Message) -> bool:
    return _plain(one) == _plain(other)


def _plain(message: Message) -> str:
    """The words alone: interfaces trim texts and change their line ends."""
    return " ".join(strip_marks(text_of(message.parts)).split())
