"""Marks: the end of a question's content, by which its task is found when a chat interface repeats the conversation.

A mark is a link reference definition of Markdown, as in `[//]: # (dragoman-question …)`: every renderer of CommonMark
shows nothing for it (CommonMark 0.31 §4.7), while an HTML comment is shown as text where HTML is escaped.

An agent may quote a mark, because a text that it was given holds one: then somebody else's question would seem to be
open. So an answer with a quoted mark ends with a second definition, which says that nothing was asked.

Invariant: a mark belongs to one question of one task. Nobody can make one without the id of the question's message,
which is random and which callers learn from the task alone. The last definition of a text was made by this server.
"""

import re
from base64 import urlsafe_b64encode
from hashlib import blake2b

from msgspec import Struct

from dragoman.model.message import Message, Role
from dragoman.model.task import INTERRUPTED, Record

DIGEST_BYTES = 12
"""96 bits, which are 16 characters."""

QUESTION = "dragoman-question"
"""The word that every mark has."""

NOTHING_ASKED = "\n\n[//]: # (dragoman-no-question)"
"""The end of an answer that quotes a mark."""

MARK = re.compile(
    r"\s{0,8}\[//\]: # \("
    rf"(?:dragoman-no-question|{QUESTION} (?P<task>[0-9a-f-]{{36}})\.(?P<digest>[A-Za-z0-9_-]{{16}}))\)",
    re.ASCII,
)
"""A mark, or the end of an answer that quotes one, with the space before it. That is bounded, so that a search takes no
longer for texts full of space."""


class Mark(Struct, frozen=True):
    """A mark as it was repeated. Only `find_question` says whether there is such a question."""

    task_id: str
    digest: str


def spell_mark(task_id: str, question: Message) -> str:
    """Return the mark of a question, with the empty line that has to stand before a definition."""
    return f"\n\n[//]: # (dragoman-question {task_id}.{_digest(task_id, question)})"


def end_quote(text: str) -> str:
    """Return an answer that asks nothing with the end that it has if it quotes a mark."""
    return text + NOTHING_ASKED if QUESTION in text else text


def strip_marks(text: str) -> str:
    """Return a text without its marks."""
    return MARK.sub("", text) if "[//]: #" in text else text


def split_mark(text: str) -> tuple[str, Mark | None]:
    """Return an answer as the agent gave it, and the mark of its question; None if it asks nothing.

    An answer that asks nothing keeps the marks that it quotes: they may be those of a server behind the agent.
    """
    last = None
    if "[//]: #" in text:
        for found in MARK.finditer(text):
            last = found
    if last is None:
        return text, None
    if last["task"] is None:
        return text[: last.start()] + text[last.end() :], None
    return strip_marks(text), Mark(last["task"], last["digest"])


def find_question(record: Record, mark: Mark) -> Message | None:
    """Return the question that a mark belongs to, the open one or an answered one; None if there is none."""
    asked = open_question(record)
    said = (*record.history, asked) if asked is not None else record.history
    for message in reversed(said):
        if message.role is Role.AGENT and _digest(record.head.id, message) == mark.digest:
            return message
    return None


def open_question(record: Record) -> Message | None:
    """Return the question that the task waits with; None if it does not wait."""
    return record.status.message if record.state in INTERRUPTED else None


def _digest(task_id: str, question: Message) -> str:
    digest = blake2b(f"{task_id}\0{question.message_id}".encode(), digest_size=DIGEST_BYTES).digest()
    return urlsafe_b64encode(digest).decode()
