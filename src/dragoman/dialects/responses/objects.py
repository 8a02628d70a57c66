"""The objects of OpenAI's Responses: ids, items, the response itself, and the facts of a request that it repeats.

Invariant: an id says which task and which turn it is about, so that nothing has to be kept to find it again.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from dragoman.dialects.openai.encode import text_of
from dragoman.model.ids import timestamp_ms
from dragoman.model.message import Message, Part, Role
from dragoman.model.task import TaskHead, Usage

Json = dict[str, Any]

RESPONSE = "resp_"
CONVERSATION = "conv_"
"""How the ids of responses and of conversations begin."""

TASK_STATE = "dragoman_task_state"
"""The key, in the metadata of a response that asks, of the state of its task: `input-required` or `auth-required`."""

REQUEST = "openai"
"""The key, in the metadata of a request, of the parameters that came with it."""

_RESPONSE_ID = re.compile(r"resp_(.{1,200})_([1-9][0-9]{0,8})", re.ASCII)


class ResponseId(Struct, frozen=True):
    """The id of a response: its task, and its turn, counted from 1."""

    task_id: str
    turn: int

    def __str__(self) -> str:
        return f"{RESPONSE}{self.task_id}_{self.turn}"


def read_response_id(text: str) -> ResponseId | None:
    """Read the id of a response; None if it is not one of ours."""
    found = _RESPONSE_ID.fullmatch(text)
    return None if found is None else ResponseId(found[1], int(found[2]))


class TextContent(Struct, frozen=True, gc=False):
    """The text of a message of the agent."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class MessageItem(Struct, frozen=True, gc=False, tag_field="type", tag="message"):
    """A message of the agent, as an item of the output."""

    id: str
    status: str
    content: tuple[TextContent, ...]
    role: Literal["assistant"] = "assistant"


class ImageItem(Struct, frozen=True, gc=False, tag_field="type", tag="image_generation_call"):
    """An image of the agent in base64, as an item of the output; without `result` its bytes are still to come."""

    id: str
    status: str
    result: str | None


class InputItem(Struct, frozen=True, gc=False):
    """A message of the caller, as an item of the input."""

    id: str
    role: str
    content: list[Json]
    type: Literal["message"] = "message"
    status: Literal["completed"] = "completed"


OutputItem = MessageItem | ImageItem
ConversationItem = OutputItem | InputItem


class InputTokens(Struct, frozen=True, gc=False):
    """The details of the tokens that were read. Agents tell nothing of those that were written to a cache."""

    cache_write_tokens: int = 0
    cached_tokens: int = 0


class OutputTokens(Struct, frozen=True, gc=False):
    """The details of the tokens that were written; agents tell nothing of them."""

    reasoning_tokens: int = 0


class Reasoning(Struct, frozen=True, gc=False):
    """The settings of reasoning, which only the agent knows."""

    effort: None = None
    summary: None = None


class TextForm(Struct, frozen=True, gc=False):
    """The form of the text."""

    type: Literal["text"] = "text"


class TextSettings(Struct, frozen=True, gc=False):
    """The settings of the text."""

    format: TextForm = TextForm()


class ResponseTokens(Struct, frozen=True, gc=False):
    """The tokens of a response."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokens = InputTokens()
    output_tokens_details: OutputTokens = OutputTokens()


class ResponseBody(Struct, frozen=True, kw_only=True, gc=False):
    """A response, with every field that the type of the official package has for text."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: str
    background: bool = False
    completed_at: int | None = None
    conversation: Mapping[str, str] | None = None
    error: Mapping[str, str] | None = None
    incomplete_details: Mapping[str, str] | None = None
    instructions: str | None = None
    max_output_tokens: None = None
    max_tool_calls: None = None
    metadata: dict[str, str] = {}
    model: str
    output: Sequence[OutputItem]
    parallel_tool_calls: bool = False
    previous_response_id: str | None = None
    prompt_cache_key: None = None
    reasoning: Reasoning = Reasoning()
    safety_identifier: str | None = None
    service_tier: Literal["default"] = "default"
    temperature: None = None
    text: TextSettings = TextSettings()
    tool_choice: Literal["auto"] = "auto"
    tools: tuple[()] = ()
    top_logprobs: int = 0
    top_p: None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseTokens | None = None
    user: str | None = None


class EchoedParameters(Struct, frozen=True):
    """The parameters of a request that its response repeats, from the metadata that the log has of it."""

    metadata: Mapping[str, Any]

    @property
    def sent(self) -> Mapping[str, Any]:
        """The parameters beside the message, as they were sent."""
        sent = self.metadata.get(REQUEST)
        return sent if isinstance(sent, dict) else {}

    @property
    def stored(self) -> bool:
        """Whether the response may be read later."""
        return self.sent.get("store") is not False

    @property
    def labels(self) -> dict[str, str]:
        """The metadata that the caller gave the response."""
        ours = {REQUEST, "user"} if "user" in self.sent else {REQUEST}
        return {name: each for name, each in self.metadata.items() if name not in ours and isinstance(each, str)}


NO_FACTS = EchoedParameters({})


def facts_of(metadata: Mapping[str, Any] | None) -> EchoedParameters:
    """The facts of a request, by its metadata."""
    return EchoedParameters(metadata) if metadata else NO_FACTS


def make_response(
    response_id: str, head: TaskHead, facts: EchoedParameters, created: str, status: str, output: Sequence[OutputItem]
) -> ResponseBody:
    """Make a response that is under way. One that has ended replaces what else it knows."""
    sent, seconds = facts.sent, seconds_of(created)
    if not sent and not facts.metadata:  # as of most requests
        return ResponseBody(id=response_id, created_at=seconds, status=status, model=head.agent, output=output)
    conversation = sent.get("conversation")
    return ResponseBody(
        id=response_id,
        created_at=seconds,
        status=status,
        model=head.agent,
        output=output,
        background=sent.get("background") is True,
        conversation={"id": conversation} if isinstance(conversation, str) else None,
        instructions=sent.get("instructions"),
        metadata=facts.labels,
        previous_response_id=sent.get("previous_response_id"),
        safety_identifier=sent.get("safety_identifier"),
        user=sent.get("user"),
    )


def seconds_of(timestamp: str) -> int:
    """A time stamp in whole seconds since the epoch."""
    return timestamp_ms(timestamp) // 1000


def count_usage(before: Usage | None, after: Usage | None) -> ResponseTokens:
    """Count the tokens that a turn has used; zeros, if the agent has reported none."""
    first, last = before or Usage(), after or before or Usage()
    return ResponseTokens(
        last.input_tokens - first.input_tokens,
        last.output_tokens - first.output_tokens,
        last.total_tokens - first.total_tokens,
        InputTokens(cached_tokens=last.cached_tokens - first.cached_tokens),
    )


def encode_conversation(context_id: str, made_ms: int) -> Json:
    """Encode a conversation: a context that was made at a time in milliseconds since the epoch."""
    conversation_id = f"{CONVERSATION}{context_id}"
    return {"id": conversation_id, "object": "conversation", "created_at": made_ms // 1000, "metadata": {}}


# -- items -------------------------------------------------------------------------------------------------------------


def is_image(part: Part) -> bool:
    """Whether a part holds the bytes of an image."""
    return part.raw is not None and (part.media_type or "").startswith("image/")


def encode_input(message: Message, item_id: str) -> ConversationItem:
    """Encode a message of the caller, or one of the agent that the caller sent along, as an item."""
    if message.role is Role.AGENT:
        return MessageItem(item_id, "completed", (TextContent(text_of(message.parts)),))
    role = (message.metadata or {}).get("role")
    return InputItem(
        item_id,
        role if role in ("system", "developer") else "user",
        [_encode_input_part(part) for part in message.parts],
    )


def _encode_input_part(part: Part) -> Json:
    kind = (part.media_type or "").partition("/")[0]
    detail = (part.metadata or {}).get("detail")
    if part.raw is not None:
        data = f"data:{part.media_type or 'application/octet-stream'};base64,{b64encode(part.raw).decode()}"
        if kind == "image":
            return _encode_image(data, detail)
        return {"type": "input_file", "file_data": data, "filename": part.filename}
    if part.url is not None:
        if part.filename is None and kind in ("", "image"):
            return _encode_image(part.url, detail)
        return {"type": "input_file", "file_url": part.url, "filename": part.filename}
    return {"type": "input_text", "text": text_of((part,))}


def _encode_image(url: str, detail: Any) -> Json:
    known = detail if detail in ("low", "high", "auto", "original") else "auto"
    return {"type": "input_image", "image_url": url, "detail": known}
