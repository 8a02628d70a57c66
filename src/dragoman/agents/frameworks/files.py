"""The files that a framework's agent gives, as file parts.

Invariant: a file that cannot be given becomes a text that describes it, never nothing.
"""

import base64
import binascii
from typing import Any
from urllib.parse import unquote_to_bytes

from dragoman.agents.content import BYTES_MEDIA_TYPE
from dragoman.agents.frameworks.conversation import PlainFile
from dragoman.model.message import Part


def file_of(content: Any, media_type: Any = None, name: Any = None) -> Part:
    """The part for the content of a file: bytes, or their base64 form as text."""
    kind, called = _text(media_type) or BYTES_MEDIA_TYPE, _text(name)
    if isinstance(content, bytes | bytearray | memoryview):
        return Part(raw=bytes(content), media_type=kind, filename=called)
    try:
        return Part(raw=base64.b64decode(content, validate=True), media_type=kind, filename=called)
    except (TypeError, ValueError, binascii.Error):
        return described(kind, called)


def file_at(url: Any, media_type: Any = None, name: Any = None) -> Part:
    """The part for a file at a URL. A `data:` URL (RFC 2397) has the file in it.

    The name of a file in a provider's storage, and a path, mean nothing to a caller: they become a description.
    """
    address = _text(url) or ""
    scheme = address.partition(":")[0].lower()
    if scheme in ("http", "https"):
        return Part(url=address, media_type=_text(media_type), filename=_text(name))
    if scheme != "data":
        return described(_text(media_type) or BYTES_MEDIA_TYPE, _text(name))
    head, _, body = address[len("data:") :].partition(",")
    kind = _text(media_type) or head.partition(";")[0] or "text/plain"  # RFC 2397 §3: the default
    if head.lower().endswith(";base64"):
        return file_of(body, kind, name)
    return file_of(unquote_to_bytes(body), kind, name)


def described(media_type: str, name: str | None) -> Part:
    """The text in place of a file that cannot be given."""
    return Part(text=PlainFile(media_type, name=name).described)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
