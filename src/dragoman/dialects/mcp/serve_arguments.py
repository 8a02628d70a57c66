"""Converts the arguments of a tool call to a message for the agent.

Invariant: nothing is lost: an argument without a meaning here is refused by name.
"""

import re

from msgspec import Struct

from dragoman.dialects.json_fields import raw_bytes
from dragoman.dialects.v03.fields import MAX_ID, Fields
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Message, Part, Role

ARGUMENTS = ("message", "data", "files", "context_id", "task_id")

DATA_URI = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,", re.ASCII | re.IGNORECASE)


class Asked(Struct, frozen=True):
    """The purpose of a call: to send `message` or, if that is None, to wait for the task `task_id`."""

    message: Message | None
    task_id: str = ""


def asked(arguments: Fields, message_id: str) -> Asked:
    """Decode the arguments. `message_id` is for the message, which has none. Raises InvalidParams."""
    for name in arguments.members:
        if name not in ARGUMENTS:
            raise InvalidParams(arguments.at(name[:100]), f"is no argument: send {', '.join(ARGUMENTS)}")
    text = arguments.text("message")
    data = arguments.mapping("data")
    task_id, context_id = _id(arguments, "task_id"), _id(arguments, "context_id")
    parts = [Part(text=text)] if text else []
    if data is not None:
        parts.append(Part(data=data))
    parts += [_file(file) for file in arguments.objects("files")]
    if not parts:
        if task_id is None:
            raise InvalidParams(arguments.at("message"), "is required: say what the agent should do")
        return Asked(None, task_id)
    message = Message(message_id=message_id, role=Role.USER, parts=tuple(parts), context_id=context_id, task_id=task_id)
    return Asked(message, task_id or "")


def answer(text: str, task_id: str, message_id: str) -> Message:
    """Build the answer to a question of a task."""
    return Message(message_id=message_id, role=Role.USER, parts=(Part(text=text),), task_id=task_id)


def _id(arguments: Fields, name: str) -> str | None:
    value = arguments.text(name)
    if value is not None and len(value) > MAX_ID:
        raise InvalidParams(arguments.at(name), f"must have at most {MAX_ID} characters")
    return value or None


def _file(fields: Fields) -> Part:
    url = fields.required_text("url")
    name, media_type = fields.text("name") or None, fields.text("media_type") or None
    if url[:5].lower() != "data:":
        return Part(url=url, filename=name, media_type=media_type)
    found = DATA_URI.match(url)
    raw = None if found is None else raw_bytes(url[found.end() :])
    if found is None or raw is None:
        raise InvalidParams(fields.at("url"), "must be an address, or a data: URI with base64")
    return Part(raw=raw, filename=name, media_type=media_type or found["type"] or "application/octet-stream")
