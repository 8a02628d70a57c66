"""Decodes what python-a2a's clients post: JSON-RPC calls around a whole task, and bare messages and conversations.

Invariant: a message may be in either of the library's formats, with one `content` or with `parts`. A missing or wrong
value is InvalidParams with its path.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v03.decode import decode_call
from dragoman.dialects.v03.decode import message as message_03
from dragoman.dialects.v03.fields import Fields
from dragoman.dialects.vendors import fill_message
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Message, Role
from dragoman.model.operations import CancelTask, GetTask, Operation, SendMessage, StreamMessage
from dragoman.model.task import TaskState

S = TypeVar("S", bound=SendMessage)
Json = dict[str, Any]

MESSAGE = "message"
CONVERSATION = "conversation"
"""The names under which a bare message and a bare conversation, which come without a method, are decoded."""

STATES = v03.STATES | {
    TaskState.WORKING: "waiting",
    TaskState.AUTH_REQUIRED: "input-required",
    TaskState.REJECTED: "failed",
}
"""The library's name of each state; its client raises an error over any other name."""

GOES_ON = frozenset({"input-required", "waiting"})
"""States of a task that a further send with its id continues; with any other state, the send makes a new task."""

ROLES = {"user": Role.USER, "agent": Role.AGENT, "system": Role.AGENT}

_NOTHING = Raw()


class _Bare(Struct):
    """The members that tell a bare body from a JSON-RPC request."""

    jsonrpc: Raw = _NOTHING
    content: Raw = _NOTHING
    parts: Raw = _NOTHING
    role: Raw = _NOTHING
    messages: Raw = _NOTHING


_BARE = msgspec.json.Decoder(_Bare)


def bare(body: bytes) -> str | None:
    """Return `MESSAGE` or `CONVERSATION` if the body is one of them; None for anything else."""
    try:
        seen = _BARE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if seen.jsonrpc != _NOTHING:
        return None
    if seen.messages != _NOTHING:
        return CONVERSATION
    return MESSAGE if seen.role != _NOTHING and (seen.content != _NOTHING or seen.parts != _NOTHING) else None


def decode(method: str, params: bytes | memoryview) -> Operation:
    """Decode a call.

    Raises MethodNotFound if the library has no such method, InvalidParams if a parameter is missing or wrong.
    """
    return decode_call(method, params, _METHODS, {}, fills=False)


def _of_task(fields: Fields, kind: type[S]) -> S:
    """Decode a send of a whole task. Its id counts only if the task goes on: the client makes one up for a new task."""
    said = fields.object("message")
    if said is None:
        raise InvalidParams(fields.at("message"), "is required: a task is sent with its message")
    status = fields.object("status")
    goes_on = status is not None and status.text("state") in GOES_ON
    task_id = fields.required_text("id") if goes_on else None
    context_id = None if goes_on else _conversation(said) or fields.text("sessionId", "session_id") or None
    metadata = fields.mapping("metadata")
    return kind(
        message=_message(said, context_id, task_id),
        metadata=metadata or None,
        skill=_skill(metadata) or _skill(_custom(said.mapping("metadata") or {})),
    )


def _of_message(fields: Fields, kind: type[S]) -> S:
    """Decode a bare message, which may also be wrapped in `{"message": …}`."""
    said = fields.object("message") or fields
    return kind(message=_message(said, _conversation(said)), skill=_skill(_custom(said.mapping("metadata") or {})))


def _of_conversation(fields: Fields) -> SendMessage:
    """Decode a conversation: its last message is sent, those before it are the conversation so far."""
    context_id = fields.text("conversation_id") or None
    messages = [_message(each, context_id) for each in fields.objects("messages")]
    if not messages:
        raise InvalidParams(fields.at("messages"), "must hold at least one message")
    return SendMessage(message=messages[-1], earlier=tuple(messages[:-1]))


def _stream(fields: Fields) -> Operation:
    """Decode what is posted to `tasks/stream`: a task to send and to follow."""
    return _of_task(fields, StreamMessage)


def _message(fields: Fields, context_id: str | None, task_id: str | None = None) -> Message:
    metadata = fields.mapping("metadata") or {}
    message_id = fields.text("message_id", "messageId") or _text_in(metadata, "message_id")
    members: Json = {
        "messageId": message_id,
        "role": ROLES.get(fields.text("role") or "user", Role.USER).value,
        "contextId": context_id,
        "taskId": task_id,
        "metadata": _custom(metadata) or None,
    }
    content = fields.object("content")
    members["parts"] = fields.find("parts") if content is None else [_part(content)]
    return message_03(Fields(fill_message(Fields(members, fields.path)), fields.path))


def _part(content: Fields) -> Json:
    """Return the part for a message's content. Calls and errors become data, as in the library's other format."""
    match content.text("type") or "text":
        case "text":
            return {"type": "text", "text": content.text("text") or ""}
        case "function_call" | "function_response" as kind:
            return {"type": "data", "data": {kind: _without_type(content.members)}}
        case "error":
            return {"type": "data", "data": {"error": content.text("message") or ""}}
        case _:
            raise InvalidParams(content.at("type"), "must be text, function_call, function_response or error")


def _without_type(members: Json) -> Json:
    """Return the members of a content except its type."""
    return {name: value for name, value in members.items() if name != "type"}


def _custom(metadata: Json) -> Json:
    """Return a message's metadata without the ids, and with the custom fields where all others are."""
    held = {name: value for name, value in metadata.items() if name not in _IDS and name != "custom_fields"}
    custom = metadata.get("custom_fields")
    return {**held, **(custom if isinstance(custom, dict) else {})}


def _conversation(said: Fields) -> str | None:
    return said.text("conversation_id") or _text_in(said.mapping("metadata") or {}, "conversation_id")


_IDS = frozenset({"message_id", "conversation_id", "parent_message_id"})
"""Keys of a message's metadata in the library's format with parts, which has no members of its own for them."""


def _text_in(metadata: Json, name: str) -> str | None:
    value = metadata.get(name)
    return value if isinstance(value, str) and value else None


def _skill(metadata: Json | None) -> str | None:
    return _text_in(metadata or {}, "skill")


def _get(fields: Fields) -> Operation:
    length = fields.count("historyLength", "history_length")
    return GetTask(id=fields.required_text("id"), history_length=length or 0)


_METHODS: dict[str, Callable[[Fields], Operation]] = {
    "tasks/send": lambda fields: _of_task(fields, SendMessage),
    "tasks/get": _get,
    "tasks/cancel": lambda fields: CancelTask(id=fields.required_text("id")),
    "tasks/stream": _stream,
    "tasks/sendSubscribe": _stream,
    "tasks/resubscribe": METHODS_03["tasks/resubscribe"],
    MESSAGE: lambda fields: _of_message(fields, SendMessage),
    CONVERSATION: _of_conversation,
    "stream": lambda fields: _of_message(fields, StreamMessage),
}

METHODS = frozenset(_METHODS)
"""The methods of its clients, and the names of what they post without a method."""
