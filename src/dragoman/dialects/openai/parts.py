"""Decodes the content parts that OpenAI's requests have in common: of chat completions, and of Responses.

Invariant: an address is handed on and never fetched, and a data URI becomes its bytes.
"""

import re

from dragoman.dialects.json_fields import raw_bytes
from dragoman.dialects.v03.fields import Fields
from dragoman.model.errors import InvalidParams
from dragoman.model.message import Part

DATA_URI = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,", re.ASCII | re.IGNORECASE)

AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
"""The media types of `input_audio.format`."""


def decode_part(fields: Fields) -> Part:
    """Decode one part of a message. Raises InvalidParams with the path of the field."""
    match fields.required_text("type"):
        case "text" | "input_text" | "output_text":
            text = fields.text("text")
            if text is None:
                raise InvalidParams(fields.at("text"), "is required in a text part")
            return Part(text=text)
        case "refusal":
            return Part(text=fields.text("refusal") or "")
        case "image_url" | "input_image":
            return _image(fields)
        case "file" | "input_file":
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
    detail = (image or fields).text("detail")
    metadata = {"detail": detail} if detail else None
    url = where.required_text(name)
    if url[:5].lower() == "data:":
        found = DATA_URI.match(url)
        media_type = found["type"] if found is not None and found["type"] else "image/png"
        return Part(raw=_bytes(where, name), media_type=media_type, metadata=metadata)
    return Part(url=url, metadata=metadata)


def _file(fields: Fields) -> Part:
    if fields.has("file_url"):
        return Part(url=fields.required_text("file_url"), filename=fields.text("filename") or None)
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
