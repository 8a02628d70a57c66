"""Decodes the body of `POST /v1/chat/completions` to an operation.

Invariant: nothing that the caller sends is lost, but for the marks of questions (`marks.py`). The last user message is
the message; the others are the conversation before it. Every parameter without a meaning here goes into the metadata,
under `openai`.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.dialects.openai.chores import is_chore
from dragoman.dialects.openai.conversation import Person, person_of, turns
from dragoman.dialects.openai.marks import Mark, split_mark, strip_marks
from dragoman.dialects.openai.parts import decode_part
from dragoman.dialects.v03.fields import Fields, read
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import SendMessage, StreamMessage

USERS = frozenset({"user", "task-delegation"})
"""Roles whose last message is the one to answer; KAOS uses the second to delegate a task."""

KNOWN = frozenset({"model", "messages", "stream", "stream_options", "metadata", "user", "n"})
"""Fields with a meaning here; all others are passed to the agent unchanged."""

ID_LENGTH_MAX = 1024
"""Longest id that a caller may name, as in A2A 1.0."""


class Chat(Struct, frozen=True, kw_only=True):
    """A request for a completion. `tells_usage`: the last chunk of a stream must say how many tokens were used.

    `before` are the turns of user and assistant before the message, if nothing follows it; `mark` is that of the last
    one of the assistant. `person` is the one whom the caller names. No message in `send` has a mark of this server.
    """

    send: SendMessage
    tells_usage: bool = False
    before: tuple[Message, ...] = ()
    mark: Mark | None = None
    person: Person = Person()

    @property
    def streams(self) -> bool:
        """Whether the answer must be streamed in chunks."""
        return isinstance(self.send, StreamMessage)


def decode(body: bytes, message_id: str, context_id: str | None = None, task_id: str | None = None) -> Chat:
    """Decode a request. `message_id` is for the message, which has none; the other ids come from the headers.

    Raises ParseError, InvalidRequest, or InvalidParams with the path of the field.
    """
    fields = read(body)
    if fields.count("n", least=1) not in (None, 1):
        raise InvalidParams("n", "must be 1: an agent answers once")
    for name, value in (("x-dragoman-context-id", context_id), ("x-dragoman-task-id", task_id)):
        if value is not None and len(value) > ID_LENGTH_MAX:
            raise InvalidParams(name, f"must have at most {ID_LENGTH_MAX} characters")
    talk = _conversation(fields, message_id)
    asked = talk.asked
    unattended = is_chore(asked, talk.earlier)
    if unattended:  # what it tells of the conversation has the marks, too
        asked = replace(asked, parts=tuple(_strip_part(part) for part in asked.parts))
    metadata = dict(fields.mapping("metadata") or {})
    if (user := fields.text("user")) is not None:
        metadata["user"] = user
    if told := {name: value for name, value in fields.members.items() if name not in KNOWN and value is not None}:
        metadata["openai"] = told
    skill = metadata.get("skill")
    options = fields.object("stream_options")
    kind = StreamMessage if fields.flag("stream") else SendMessage
    send = kind(
        message=Message(
            message_id=message_id,
            role=Role.USER,
            parts=asked.parts,
            context_id=context_id or None,
            task_id=task_id or None,
            metadata=asked.metadata,
        ),
        earlier=talk.earlier,
        unattended=unattended,
        metadata=metadata or None,
        skill=skill if isinstance(skill, str) and skill else None,
        tenant=fields.text("model") or "",
    )
    return Chat(
        send=send,
        tells_usage=options is not None and bool(options.flag("include_usage")),
        before=talk.before,
        mark=talk.mark,
        person=person_of(metadata),
    )


class _Conversation(Struct, frozen=True):
    """The message to answer, and the others: earlier messages, then later ones, such as tool results. See `Chat`."""

    asked: Message
    earlier: tuple[Message, ...]
    before: tuple[Message, ...]
    mark: Mark | None


def _conversation(fields: Fields, message_id: str) -> _Conversation:
    """Decode the messages. Raises InvalidParams."""
    said = list(fields.objects("messages"))
    roles = [message.required_text("role") for message in said]
    asked = next((at for at in reversed(range(len(said))) if roles[at] in USERS), None)
    if asked is None:
        asked = next((at for at in reversed(range(len(said))) if roles[at] != "assistant"), None)
    if asked is None:
        raise InvalidParams("messages", "must hold a message of the user")
    as_sent = [_message(said[at], role, f"{message_id}-{at}") for at, role in enumerate(roles)]
    if not as_sent[asked].parts:
        raise InvalidParams(said[asked].at("content"), "must be text or a list of parts")
    messages, mark, last_mark = list(as_sent), None, None
    for at, role in enumerate(roles):
        if role == "assistant":
            messages[at], mark = _without_marks(as_sent[at])
            if mark is not None or messages[at].text.strip():  # else a failed request has left an empty turn
                last_mark = mark
    ends = asked == len(messages) - 1
    return _Conversation(
        asked=messages[asked],
        earlier=_others(messages, asked),
        before=turns(messages[:asked]) if ends else (),
        mark=last_mark if ends else None,
    )


def _others(messages: list[Message], asked: int) -> tuple[Message, ...]:
    return tuple(message for message in messages[:asked] + messages[asked + 1 :] if message.parts)


def _without_marks(message: Message) -> tuple[Message, Mark | None]:
    """Take our marks from a message of the agent, so that no agent reads them, repeats them or learns to write one.

    Returns the mark of its question, too.
    """
    mark, parts = None, list(message.parts)
    for at, part in enumerate(parts):
        if part.text is not None:
            text, found = split_mark(part.text)
            if text != part.text:
                mark, parts[at] = found, replace(part, text=text)
    return replace(message, parts=tuple(parts)), mark


def _strip_part(part: Part) -> Part:
    return part if part.text is None else replace(part, text=strip_marks(part.text))


def _message(fields: Fields, role: str, message_id: str) -> Message:
    content = fields.find("content")
    match content:
        case None:
            parts: tuple[Part, ...] = ()
        case str():
            parts = (Part(text=content),)
        case _:
            parts = tuple(decode_part(part) for part in fields.objects("content"))
    if role == "assistant" and not parts and (refusal := fields.text("refusal")) is not None:
        parts = (Part(text=refusal),)
    if (calls := fields.find("tool_calls")) is not None:
        parts = (*parts, Part(data={"tool_calls": calls}))
    said: dict[str, Any] = {name: value for name in ("name", "tool_call_id") if (value := fields.text(name))}
    if role not in ("user", "assistant"):
        said["role"] = role
    return Message(
        message_id=message_id,
        role=Role.AGENT if role == "assistant" else Role.USER,
        parts=parts,
        metadata=said or None,
    )
