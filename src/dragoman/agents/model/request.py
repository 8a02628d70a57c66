"""The request to a model: the operator's settings, and A2A messages converted to those of chat completions.

Invariant: pure. Nothing of the caller's message is dropped in silence. A part that cannot be sent is refused by its
place and kind; in earlier messages, it is named in the text. Each call gets a new body; what all bodies share is
prepared once.
"""

import mimetypes
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from dragoman.agents.tools import ModelTool
from dragoman.config import Model
from dragoman.model.message import Message, Part, Role

SCHEMA_NAME = "answer"
"""The name of the answer's schema in the request."""

AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""Media types of audio, and their `input_audio.format`."""

FILES = frozenset({"application/pdf"})
"""Media types of a `file` that holds its own bytes."""

_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/toml", "application/sql"})
"""Files that are text, although their media type does not begin with `text/`."""

IMAGE_TOKENS = 1_000
"""The estimate for an image: between a small picture and a large one."""

BYTES_PER_TOKEN = 4
MESSAGE_TOKENS = 4
"""A rule of thumb: too high for English, too low for scripts with few characters and many bytes to a word."""

ChatMessage = dict[str, Any]
"""A message in the API's form."""


class UnsendablePart(Exception):
    """The model cannot be given a part. The message is for the caller."""


class ModelRequest:
    """The requests to the model of the table `model`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._settings = settings_of(model)

    def conversation(self, message: Message, history: Sequence[Message]) -> list[ChatMessage]:
        """The messages of a call: the system's, the window of the history, the caller's. Raises UnsendablePart."""
        model = self._model
        last = encode_message(message, model.takes)
        told = (encode_earlier(each, model.takes, believes=model.system is None) for each in history)
        said = window((each for each in told if each is not None), model.history_tokens)
        first: list[ChatMessage] = [] if model.system is None else [{"role": "system", "content": model.system}]
        return [*first, *merge_neighbours([*said, last])]

    def body(self, messages: Sequence[ChatMessage], tools: Sequence[ModelTool]) -> bytes:
        """Encode the request body."""
        model = self._model
        body: dict[str, Any] = {**self._settings, "messages": messages}
        if tools:
            body["tools"] = [_function(tool) for tool in tools]
        if model.schema is not None:
            said = {"name": SCHEMA_NAME, "schema": model.schema, "strict": model.schema_strict}
            body["response_format"] = {"type": "json_schema", "json_schema": said}
        return msgspec.json.encode(body)


def settings_of(model: Model) -> dict[str, Any]:
    """The fields that are the same in the body of every request: all but messages and tools."""
    names = ("temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort")
    settings: dict[str, Any] = {"model": model.model, "stream": True}
    if model.usage:
        settings["stream_options"] = {"include_usage": True}
    settings |= {name: value for name in names if (value := getattr(model, name)) is not None}
    if model.max_tokens is not None:
        settings[limit_name(model.url)] = model.max_tokens
    if model.stop:
        settings["stop"] = model.stop
    return settings | model.extra


def limit_name(url: str) -> str:
    """The field that limits the answer's length. OpenAI and Azure renamed it; some models refuse the old name."""
    host = urlsplit(url).hostname or ""
    new = host == "api.openai.com" or host.endswith((".openai.azure.com", ".services.ai.azure.com"))
    return "max_completion_tokens" if new else "max_tokens"


def input_modes(takes: Sequence[str]) -> tuple[str, ...]:
    """The media types of sendable parts, for the card."""
    modes = ["text/plain", "text/*", "application/json"]
    if "image" in takes or "image_url" in takes:
        modes += ("image/*", "application/octet-stream")  # the type of an image by URL that names no other
    if "audio" in takes:
        modes += ("audio/wav", "audio/mpeg")
    if "file" in takes:
        modes += FILES
    return tuple(modes)


def fetches(part: Part, takes: Sequence[str]) -> bool:
    """Whether the model must be given the bytes behind the part's URL: an image may be sent as a URL itself."""
    if part.url is None or isinstance(_piece(part, takes), dict):
        return False
    return isinstance(_piece(replace(part, url=None, raw=b"", media_type=media_type(part)), takes), dict)


def unsendable(at: int, part: Part, why: str) -> UnsendablePart:
    """Build the error that says why the part at that place is not taken."""
    return UnsendablePart(f"parts[{at}] ({_describe(part)}): {why}")


def media_type(part: Part) -> str:
    """The media type in lower case: as declared, else guessed from the name. A URL with neither counts as an image."""
    said = (part.media_type or "").partition(";")[0].strip().lower()
    if said and said != "application/octet-stream":
        return said
    name = part.filename or (urlsplit(part.url).path if part.url is not None else "")
    guessed = mimetypes.guess_type(name)[0]
    return guessed or said or ("image/*" if part.url is not None else "application/octet-stream")


def encode_message(message: Message, takes: Sequence[str]) -> ChatMessage:
    """Convert the caller's message. `takes` says which of `image`, `image_url`, `audio` and `file` the model reads.

    Raises UnsendablePart.
    """
    pieces: list[Any] = []
    for at, part in enumerate(message.parts):
        piece = _piece(part, takes)
        if isinstance(piece, str):
            raise unsendable(at, part, piece)
        pieces.append(piece)
    return _message("user", pieces)


def encode_earlier(message: Message, takes: Sequence[str], *, believes: bool) -> ChatMessage | None:
    """Convert an earlier message of the conversation; None if it has no content.

    A caller that supplied the conversation itself may have given a message the system's role. `believes`: keep that
    role.
    """
    role = "assistant" if message.role is Role.AGENT else "user"
    if believes and (message.metadata or {}).get("role") in ("system", "developer"):
        role = "system"
    pieces: list[Any] = []
    for part in message.parts:
        piece = _piece(part, takes if role == "user" else ())
        pieces.append({"type": "text", "text": f"[{_describe(part)}]"} if isinstance(piece, str) else piece)
    return _message(role, pieces) if pieces else None


def window(messages: Iterable[ChatMessage], tokens_max: int | None) -> list[ChatMessage]:
    """The newest messages within an estimate of `tokens_max` tokens, beginning with one that is not an answer.

    Neighbours with the same role are merged, because the templates of many models require it.
    """
    kept: list[ChatMessage] = []
    left = tokens_max
    for message in reversed(list(messages)):
        if left is not None:
            left -= tokens(message)
            if left < 0:
                break
        kept.append(message)
    kept.reverse()
    while kept and kept[0]["role"] == "assistant":
        kept.pop(0)
    return merge_neighbours(kept)


def merge_neighbours(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The same messages, with neighbours of one role merged."""
    merged: list[ChatMessage] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"] and message["role"] in ("user", "assistant"):
            merged[-1] = _message(message["role"], [*_pieces(merged[-1]), *_pieces(message)])
        else:
            merged.append(message)
    return merged


def tokens(message: ChatMessage) -> int:
    """Estimate the number of tokens: a quarter of the UTF-8 bytes, 4 for the message, 1,000 for an image."""
    count = MESSAGE_TOKENS
    for piece in _pieces(message):
        if piece["type"] == "text":
            count += -(-len(piece["text"].encode()) // BYTES_PER_TOKEN)
        elif piece["type"] == "image_url":
            count += IMAGE_TOKENS
        else:
            count += len(msgspec.json.encode(piece)) // BYTES_PER_TOKEN
    return count


def _function(tool: ModelTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _message(role: str, pieces: list[Any]) -> ChatMessage:
    """Build a message. Text alone becomes plain text, which every endpoint takes."""
    if all(piece["type"] == "text" for piece in pieces):
        return {"role": role, "content": "\n\n".join(piece["text"] for piece in pieces)}
    return {"role": role, "content": pieces}


def _pieces(message: ChatMessage) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _piece(part: Part, takes: Sequence[str]) -> dict[str, Any] | str:
    """The part as a piece of content or, as a str, the reason why it cannot be one."""
    if part.text is not None:
        return {"type": "text", "text": part.text}
    if part.data is not UNSET:
        return {"type": "text", "text": msgspec.json.encode(part.data).decode()}
    kind = media_type(part)
    if part.raw is not None and (kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))):
        text = part.raw.decode("utf-8", "replace")
        return {"type": "text", "text": f"{part.filename}:\n{text}" if part.filename else text}
    if kind.startswith("image/"):
        if part.url is None:
            return _image(part, kind) if "image" in takes else "this agent takes no images"
        web = urlsplit(part.url).scheme in ("http", "https")
        return _image(part, kind) if web and "image_url" in takes else "this agent takes no such URLs of images"
    if part.url is not None:
        return "this agent takes no such file"
    raw = part.raw or b""
    if kind.startswith("audio/"):
        if "audio" not in takes:
            return "this agent takes no audio"
        if kind not in AUDIO:
            return "this agent takes audio as audio/wav and audio/mpeg only"
        return {"type": "input_audio", "input_audio": {"data": b64encode(raw).decode(), "format": AUDIO[kind]}}
    if kind not in FILES:
        return "this agent takes text, JSON, images, audio and PDF only" if takes else "this agent takes text only"
    if "file" not in takes:
        return "this agent takes no files"
    name = part.filename or "document.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": f"data:{kind};base64,{b64encode(raw).decode()}"}}


def _image(part: Part, kind: str) -> dict[str, Any]:
    url = part.url if part.url is not None else f"data:{kind};base64,{b64encode(part.raw or b'').decode()}"
    image: dict[str, Any] = {"url": url}
    if (detail := (part.metadata or {}).get("detail")) in ("auto", "low", "high"):
        image["detail"] = detail
    return {"type": "image_url", "image_url": image}


def _describe(part: Part) -> str:
    """A short description of the part."""
    if part.raw is None and part.url is None:
        return "text" if part.text is not None else "data"
    return f"{part.filename}, {media_type(part)}" if part.filename else media_type(part)
