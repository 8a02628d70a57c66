"""Converts a tool's result to parts: text, images, audio, resources, links, structured content.

Invariant: no content of a tool is lost: unreadable content is described in words.
"""

import binascii
from base64 import b64decode
from typing import Any

from msgspec import Struct, field

from dragoman.dialects.mcp.hearing import read
from dragoman.model.errors import InvalidAgentResponse
from dragoman.model.message import Part

BYTES_MEDIA_TYPE = "application/octet-stream"
"""The media type of a blob that names none (RFC 2046 §4.5.1)."""


class Outcome(Struct, frozen=True):
    """The outcome of a call. `failed`: the tool itself reports a failure, and `parts` say why."""

    parts: tuple[Part, ...]
    failed: bool = False

    @property
    def text(self) -> str:
        """The text of the parts."""
        return "\n".join(part.text for part in self.parts if part.text is not None)


class _Result(Struct, rename="camel"):
    content: list[dict[str, Any]] = field(default_factory=list)
    structured_content: Any = None
    is_error: bool | None = None


def outcome(result: bytes) -> Outcome:
    """Decode the answer to `tools/call`. Raises InvalidAgentResponse."""
    said = read(result, _Result)
    parts = [_part(block) for block in said.content]
    if said.structured_content is not None and not _says(parts, said.structured_content):
        parts.append(Part(data=said.structured_content))
    return Outcome(tuple(parts), bool(said.is_error))


def _part(block: dict[str, Any]) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return Part(text=text)
        case {"type": "image" | "audio", "data": str(data)}:
            return _file(data, block.get("mimeType"), None)
        case {"type": "resource", "resource": {"text": str(text), **rest}}:
            return Part(text=text, media_type=_word(rest.get("mimeType")), filename=_word(rest.get("uri")))
        case {"type": "resource", "resource": {"blob": str(blob), **rest}}:
            return _file(blob, rest.get("mimeType"), _word(rest.get("uri")))
        case {"type": "resource_link", "uri": str(uri)}:
            return Part(url=uri, media_type=_word(block.get("mimeType")), filename=_word(block.get("name")))
        case _:
            return Part(data=block)


def _file(data: str, media_type: object, name: str | None) -> Part:
    """Decode a file from base64; some servers leave out the padding."""
    kind = _word(media_type) or BYTES_MEDIA_TYPE
    try:
        raw = b64decode(data + "=" * (-len(data) % 4), validate=True)
    except (binascii.Error, ValueError):
        return Part(text=f"[{kind} that cannot be read: its base64 is broken]")
    return Part(raw=raw, media_type=kind, filename=name)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _says(parts: list[Part], structured: Any) -> bool:
    """Whether the text only repeats the structured content, as servers write it for older clients.

    Some servers wrap a value that is not an object as `result`, with a text for each item of a list. Others wrap their
    text.
    """
    said = [value for part in parts if part.text is not None for value in (part.text, _json(part.text))]
    if structured in said:
        return True
    match list(structured.items()) if isinstance(structured, dict) else []:
        case [("result", [_, *_] as items)]:
            return items in said or all(item in said for item in items)
        case [("result", value)] | [(_, str(value))]:
            return value in said
        case _:
            return False


def _json(text: str) -> Any:
    try:
        return read(text.encode(), object)
    except (InvalidAgentResponse, UnicodeEncodeError):
        return text
