"""Decodes the body of `POST /v1/chat/completions` to an operation.

Invariant: nothing that the caller sends is lost. The last user message is the message; the others are the conversation
before it. Every parameter without a meaning here goes into the metadata, under `openai`.
"""

import re
from typing import Any

from msgspec import Struct

from dragoman.dialects.json_fields import raw_bytes
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

DATA_URI = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,", re.ASCII | re.IGNORECASE)

AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
"""The media types of `input_audio.format`."""


class Chat(Struct, frozen=True, kw_only=True):
    """A request for a completion. `tells_usage`: the last chunk of a stream must say how many tokens were used."""

    send: SendMessage
    tells_usage: bool = False

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
    asked, earlier = _conversation(fields, message_id)
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
        earlier=earlier,
        metadata=metadata or None,
        skill=skill if isinstance(skill, str) and skill else None,
        tenant=fields.text("model") or "",
    )
    return Chat(send=send, tells_usage=options is not None and bool(options.flag("include_usage")))


def _conversation(fields: Fields, message_id: str) -> tuple[Message, tuple[Message, ...]]:
    """Return the message to answer, and the conversation: earlier messages, then later ones, such as tool results."""
    said = list(fields.objects("messages"))
    roles = [message.required_text("role") for message in said]
    asked = next((at for at in reversed(range(len(said))) if roles[at] in USERS), None)
    if asked is None:
        asked = next((at for at in reversed(range(len(said))) if roles[at] != "assistant"), None)
    if asked is None:
        raise InvalidParams("messages", "must hold a message of the user")
    messages = [_message(said[at], role, f"{message_id}-{at}") for at, role in enumerate(roles)]
    if not messages[asked].parts:
        raise InvalidParams(said[asked].at("content"), "must be text or a list of parts")
    earlier = messages[:asked] + messages[asked + 1 :]
    return messages[asked], tuple(message for message in earlier if message.parts)


def _message(fields: Fields, role: str, message_id: str) -> Message:
    content = fields.find("content")
    match content:
        case None:
            parts: tuple[Part, ...] = ()
        case str():
            parts = (Part(text=content),)
        case _:
            parts = tuple(_part(part) for part in fields.objects("content"))
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


def _part(fields: Fields) -> Part:
    match fields.required_text("type"):
        case "text" | "input_text" | "output_text":
            text = fields.text("text")
            if text is None:
                raise InvalidParams(fields.at("text"), "is required in a text part")
            return Part(text=text)
        case "refusal":
            return Part(text=fields.text("refusal") or "")
        case "image_url":
            return _image(fields)
        case "file":
            return _file(fields.object("file") or fields)
        case "input_audio":
            audio = fields.object("input_audio") or fields
            form = audio.required_text("format").lower()
            return Part(raw=_bytes(audio, "data"), media_type=AUDIO.get(form, f"audio/{form}"))
        case _:
            raise InvalidParams(fields.at("type"), "must be text, image_url, file or input_audio")


def _image(fields: Fields) -> Part:
    image = None if isinstance(fields.find("image_url"), str) else fields.object("image_url")
    where, name = (fields, "image_url") if image is None else (image, "url")
    detail = image.text("detail") if image is not None else None
    metadata = {"detail": detail} if detail else None
    url = where.required_text(name)
    if url[:5].lower() == "data:":
        found = DATA_URI.match(url)
        media_type = found["type"] if found is not None and found["type"] else "image/png"
        return Part(raw=_bytes(where, name), media_type=media_type, metadata=metadata)
    return Part(url=url, metadata=metadata)


def _file(fields: Fields) -> Part:
    if not fields.has("file_data"):
        raise InvalidParams(fields.at("file_data"), "is required: this server keeps no files, send the file itself")
    found = DATA_URI.match(fields.required_text("file_data"))
    return Part(
        raw=_bytes(fields, "file_data"),
        filename=fields.text("filename") or None,
        media_type=(found["type"] if found is not None else None) or "application/octet-stream",
    )


def _bytes(fields: Fields, name: str) -> bytes:
    """Decode base64, or a data URI."""
    text = fields.required_text(name)
    found = DATA_URI.match(text)
    raw = raw_bytes(text[found.end() :] if found is not None else text)
    if raw is None:
        raise InvalidParams(fields.at(name), "must be base64, or a data URI that is")
    return raw
