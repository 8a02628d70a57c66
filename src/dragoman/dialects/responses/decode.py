"""Decodes the requests of OpenAI's Responses to operations.

Invariant: every field of a request has a row in the table, or is handed on to the agent. A field that asks for what an
agent cannot do is refused by its name; none is ignored that would change the answer's meaning.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from dragoman.dialects.openai.parts import decode_part
from dragoman.dialects.responses.objects import CONVERSATION, REQUEST, ResponseId, read_response_id
from dragoman.dialects.v03.fields import Fields, read
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import SendMessage, StreamMessage

LABELS_MAX, NAME_MAX, VALUE_MAX = 16, 64, 512
"""The limits of `metadata` in OpenAI's API: how many pairs, and the characters of a name and of a value."""

CONTEXT_MAX = 1024
"""Longest id of a context, as in A2A 1.0."""

PAGE_DEFAULT, PAGE_MAX = 20, 100
"""How many items a page of a list has, as in OpenAI's API."""


class FieldUse(StrEnum):
    """The use of a field. One that is `handed on` is for the agent; a `refused` one may only ask for nothing."""

    USED = "used"
    IGNORED = "ignored"
    HANDED_ON = "handed on"
    REFUSED = "refused"


FIELDS: Mapping[str, FieldUse] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "background",
                "conversation",
                "input",
                "instructions",
                "metadata",
                "model",
                "previous_response_id",
                "safety_identifier",
                "store",
                "stream",
                "user",
            ),
            FieldUse.USED,
        ),
        **dict.fromkeys(
            (
                "access_programs",
                "background_options",
                "context_management",
                "image",
                "include",
                "max_tool_calls",
                "parallel_tool_calls",
                "prompt_cache_key",
                "prompt_cache_options",
                "prompt_cache_retention",
                "service_tier",
                "stream_options",
                "top_logprobs",
                "truncation",
            ),
            FieldUse.IGNORED,
        ),
        **dict.fromkeys(("max_output_tokens", "reasoning", "temperature", "top_p"), FieldUse.HANDED_ON),
        **dict.fromkeys(("moderation", "prompt", "text", "tool_choice", "tools"), FieldUse.REFUSED),
    }
)
"""The fields of a request for a response (`openai.types.responses.ResponseCreateParams`). Others are handed on, too."""

PLAIN = frozenset({"input", "model", "stream"})
"""The fields of a request that asks for nothing special."""

REPEATED = ("background", "conversation", "instructions", "previous_response_id", "safety_identifier", "store", "user")
"""The fields that are kept with the request because the response repeats them."""


class ResponseRequest(Struct, frozen=True, kw_only=True):
    """A request for a response. `send` names no task and no context yet.

    `parts` are all that the caller says, for a task that gets its answer from them: a question has no conversation
    before it. `named` says that the request names an agent.
    """

    send: SendMessage
    parts: tuple[Part, ...]
    previous: ResponseId | None = None
    context_id: str | None = None
    background: bool = False
    stored: bool = True
    named: bool = False

    @property
    def streams(self) -> bool:
        """Whether the answer must be a stream."""
        return isinstance(self.send, StreamMessage)


def decode(body: bytes, message_id: str) -> ResponseRequest:
    """Decode a request for a response. `message_id` is for the message, which has none.

    Raises ParseError, InvalidRequest, or InvalidParams with the path of the field.
    """
    fields = read(body)
    if fields.members.keys() <= PLAIN:
        return _decode_plain(fields, message_id)
    _refuse(fields)
    background, stored = bool(fields.flag("background")), fields.flag("store") is not False
    if background and not stored:
        raise InvalidParams("store", "must be true with background: the response is read later")
    previous, conversation = _previous(fields), _conversation(fields)
    if previous is not None and conversation is not None:
        raise InvalidParams("conversation", "goes without previous_response_id: send one of them")
    messages = _input(fields, message_id)
    message, earlier = _split(messages)
    instructions = fields.text("instructions")
    if instructions:
        system = Message(
            message_id=f"{message_id}-instructions",
            role=Role.USER,
            parts=(Part(text=instructions),),
            metadata={"role": "system"},
        )
        earlier = (system, *earlier)
    metadata = _metadata(fields, conversation)
    skill = metadata.get("skill")
    kind = StreamMessage if fields.flag("stream") else SendMessage
    model = fields.text("model") or ""
    send = kind(
        message=message,
        earlier=earlier,
        continues=bool(earlier),
        metadata=metadata or None,
        skill=skill if isinstance(skill, str) and skill else None,
        tenant=model,
        return_immediately=background,
    )
    said = (each for each in messages if each.role is Role.USER and "role" not in (each.metadata or {}))
    return ResponseRequest(
        send=send,
        parts=tuple(part for each in said for part in each.parts) or message.parts,
        previous=previous,
        context_id=None if conversation is None else conversation.removeprefix(CONVERSATION),
        background=background,
        stored=stored,
        named=bool(model),
    )


def _decode_plain(fields: Fields, message_id: str) -> ResponseRequest:
    """Decode a request that has only the fields of PLAIN, as most have: a third of the time."""
    messages = _input(fields, message_id)
    message, earlier = _split(messages)
    kind = StreamMessage if fields.flag("stream") else SendMessage
    model = fields.text("model") or ""
    send = kind(message=message, earlier=earlier, continues=bool(earlier), tenant=model)
    return ResponseRequest(send=send, parts=message.parts, named=bool(model))


def decode_conversation(body: bytes) -> None:
    """Decode a request for a new conversation. Raises ParseError, InvalidRequest or InvalidParams."""
    fields = read(body)
    if fields.find("items"):
        raise InvalidParams("items", "must be empty: send them as the input of the conversation's first response")
    if fields.mapping("metadata"):
        raise InvalidParams("metadata", "must be empty: a conversation keeps none, its responses keep theirs")


class ItemPage(Struct, frozen=True):
    """The page of a list of items that a caller asks for: `limit` items behind the one with the id `after`."""

    limit: int = PAGE_DEFAULT
    after: str | None = None
    newest_first: bool = True


def decode_page(query: Mapping[str, str]) -> ItemPage:
    """Decode the query of a list. Raises InvalidParams."""
    fields = Fields(dict(query))
    order = fields.text("order") or "desc"
    if order not in ("asc", "desc"):
        raise InvalidParams("order", "must be asc or desc")
    limit = fields.count("limit", least=1, most=PAGE_MAX)
    return ItemPage(PAGE_DEFAULT if limit is None else limit, fields.text("after") or None, order == "desc")


def decode_look(query: Mapping[str, str]) -> tuple[bool, int | None]:
    """Decode the query of a response that is read: whether as a stream, and after which event. Raises InvalidParams."""
    fields = Fields(dict(query))
    after = fields.count("starting_after", least=0)
    streams = bool(fields.flag("stream"))
    if after is not None and not streams:
        raise InvalidParams("starting_after", "goes with stream=true: it says where the stream goes on")
    return streams, after


# -- fields ------------------------------------------------------------------------------------------------------------


def _no_tools(fields: Fields) -> None:
    if fields.find("tools"):
        raise InvalidParams("tools", "must be empty: an agent has tools of its own, and calls none of its caller's")


def _no_choice(fields: Fields) -> None:
    if fields.find("tool_choice") not in (None, "auto", "none"):
        raise InvalidParams("tool_choice", "must be auto or none: an agent has tools of its own")


def _no_form(fields: Fields) -> None:
    text = fields.object("text")
    form = None if text is None else text.object("format")
    if form is not None and form.text("type") not in (None, "text"):
        raise InvalidParams("text.format.type", "must be text: an agent decides on the form of its answer")


def _no_prompt(fields: Fields) -> None:
    if fields.has("prompt"):
        raise InvalidParams("prompt", "is not kept here: send its text as instructions or input")


def _no_moderation(fields: Fields) -> None:
    if fields.has("moderation"):
        raise InvalidParams("moderation", "is not done here: leave it out")


REFUSALS: Mapping[str, Callable[[Fields], None]] = MappingProxyType(
    {
        "moderation": _no_moderation,
        "prompt": _no_prompt,
        "text": _no_form,
        "tool_choice": _no_choice,
        "tools": _no_tools,
    }
)


def _refuse(fields: Fields) -> None:
    for refuse in REFUSALS.values():
        refuse(fields)


def _previous(fields: Fields) -> ResponseId | None:
    text = fields.text("previous_response_id")
    if not text:
        return None
    found = read_response_id(text)
    if found is None:
        raise InvalidParams("previous_response_id", "must be the id of a response of this server, as in `id`")
    return found


def _conversation(fields: Fields) -> str | None:
    named = fields.find("conversation")
    text = Fields(named, "conversation").required_text("id") if isinstance(named, dict) else fields.text("conversation")
    if not text:
        return None
    if not text.startswith(CONVERSATION) or not len(CONVERSATION) < len(text) <= CONTEXT_MAX:
        raise InvalidParams("conversation", f"must be the id of a conversation, which begins with {CONVERSATION}")
    return text


def _metadata(fields: Fields, conversation: str | None) -> dict[str, Any]:
    """The metadata of the request: the caller's own, and all else that the agent and the response have to know."""
    metadata = dict(fields.mapping("metadata") or {})
    if len(metadata) > LABELS_MAX:
        raise InvalidParams("metadata", f"must have at most {LABELS_MAX} pairs")
    for name, value in metadata.items():
        if name == REQUEST:
            raise InvalidParams(f"metadata.{REQUEST}", "is the name of the request's parameters: take another one")
        if len(name) > NAME_MAX:
            raise InvalidParams(f"metadata.{name[:NAME_MAX]}", f"must be named with at most {NAME_MAX} characters")
        if not isinstance(value, str) or len(value) > VALUE_MAX:
            raise InvalidParams(f"metadata.{name}", f"must be a string of at most {VALUE_MAX} characters")
    sent = {
        name: value
        for name, value in fields.members.items()
        if value is not None and (name in REPEATED or FIELDS.get(name, FieldUse.HANDED_ON) is FieldUse.HANDED_ON)
    }
    for name in ("instructions", "safety_identifier", "user"):
        fields.text(name)
    if conversation is not None:
        sent["conversation"] = conversation
    for name in ("conversation", "previous_response_id"):
        if sent.get(name) == "":  # none is named
            del sent[name]
    if (user := fields.text("user")) is not None:
        metadata["user"] = user
    if sent:
        metadata[REQUEST] = sent
    return metadata


# -- input -------------------------------------------------------------------------------------------------------------


def _split(messages: list[Message]) -> tuple[Message, tuple[Message, ...]]:
    """The message to answer, and the conversation: that is the last one of the user, else the last one not the agent's.

    Raises InvalidParams if there is none.
    """
    theirs = [at for at, message in enumerate(messages) if message.role is Role.USER]
    said = [at for at in theirs if "role" not in (messages[at].metadata or {})]
    if not theirs:
        raise InvalidParams("input", "must hold a message of the user")
    at = (said or theirs)[-1]
    return messages[at], (*messages[:at], *messages[at + 1 :])


def _input(fields: Fields, message_id: str) -> list[Message]:
    given = fields.find("input")
    if isinstance(given, str):
        if not given:
            raise InvalidParams("input", "must not be empty: send text, or a list of messages")
        return [Message(message_id=message_id, role=Role.USER, parts=(Part(text=given),))]
    if not isinstance(given, list):
        raise InvalidParams("input", "is required: send text, or a list of messages")
    messages: list[Message] = []
    for at, item in enumerate(fields.objects("input")):
        message = _item(item, f"{message_id}-{at}")
        if message is not None:
            messages.append(message)
    return messages


def _item(item: Fields, message_id: str) -> Message | None:
    """Decode an item of the input; None if it says nothing."""
    match item.text("type"):
        case None | "message":
            pass
        case "image_generation_call":  # an earlier answer, sent back
            result = item.text("result")
            url = Fields({"type": "input_image", "image_url": f"data:image/png;base64,{result}"}, item.path)
            return None if not result else _agent_message(message_id, (decode_part(url),))
        case "reasoning":  # no agent of this server gives any out; another model's is of no use to it
            return None
        case _:
            raise InvalidParams(item.at("type"), "must be message: send what was said, or name previous_response_id")
    role = item.required_text("role")
    if role not in ("user", "assistant", "system", "developer"):
        raise InvalidParams(item.at("role"), "must be user, assistant, system or developer")
    content = item.find("content")
    match content:
        case str():
            parts: tuple[Part, ...] = (Part(text=content),) if content else ()
        case None:
            raise InvalidParams(item.at("content"), "is required: send text, or a list of parts")
        case _:
            parts = tuple(decode_part(part) for part in item.objects("content"))
    if role == "assistant":
        return _agent_message(message_id, parts) if parts else None
    if not parts:
        raise InvalidParams(item.at("content"), "must not be empty")
    metadata = None if role == "user" else {"role": role}
    return Message(message_id=message_id, role=Role.USER, parts=parts, metadata=metadata)


def _agent_message(message_id: str, parts: tuple[Part, ...]) -> Message:
    return Message(message_id=message_id, role=Role.AGENT, parts=parts)
