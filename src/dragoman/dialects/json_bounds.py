"""Bounds of a JSON body, checked on its bytes before anything is built from them.

Invariant: a body that passes is UTF-8. It is nested no deeper than allowed, so nothing recurses far on the way in or
out. It has no more values than allowed, so decoding takes no longer than its size justifies.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from itertools import accumulate

from msgspec import UNSET
from msgspec.json import decode, encode

from dragoman.model.errors import InvalidParams, InvalidRequest, ParseError
from dragoman.model.message import Message
from dragoman.model.operations import SendMessage

MAX_DEPTH = 64
"""Deepest nesting unless a setting says otherwise; real calls stay below 20."""

EXACT_MAX = (1 << 53) - 1
"""Highest integer that every reader of JSON keeps exact (RFC 8259 §6). The stores' integers go further."""

MAX_VALUES = 200_000
"""Most values in a body unless a setting says otherwise: names of members, strings, numbers, objects and arrays.

A decoder blocks all other threads until it is done. It makes 200,000 values in 10 to 40 ms. 15,000,000 integers, which
fit into 30 MB, take 300 ms and half a gigabyte.
"""

MAX_ESCAPES = 3_000_000
"""Most backslashes in a body. Each takes a decoder some 10 ns, during which no other thread runs: 15,000,000 of them,
which fit into 30 MB, would take 150 ms.
"""

MAX_TEXT = 4 * 1024 * 1024
"""Most characters of one string unless a setting says otherwise: a long book has one million."""

MAX_SENT_BYTES = 8 * 1024 * 1024
"""Most bytes of a send beside its files, or twice `max_text` if that is more.

Texts and data are copied whole several times: they are decoded, written to the log and to the snapshot, and encoded for
the answer. One copy of 8 MiB holds up everybody else for 5 to 20 ms. Files are not copied so often.
"""

_CHUNK = 1 << 16
_STRETCH = 1 << 20
"""How many bytes are checked in one go, which takes half a millisecond; other threads can run in between."""
_STEPS = bytes(1 if c in b"[{" else 255 if c in b"]}" else 0 for c in range(256))
_SEPARATORS = b",:"
_ASCII = bytes(range(128))
_NOT_STRUCTURE = bytes(c for c in range(256) if c not in b"[]{},:")


def check(body: bytes, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES, max_wide: int | None = None) -> None:
    """Refuse a body that is empty, not UTF-8 (RFC 8259 §8.1), nested too deeply, of too many values or too wide.

    `max_wide` bounds the bytes that are not ASCII: they belong to no file, and decoding them takes up to four times as
    long. The decoder decides whether it is JSON. The check costs next to nothing for a body of fewer than `max_values`
    bytes with few brackets. Raises ParseError, InvalidRequest, or InvalidParams for a body that is too wide.
    """
    if not body:
        raise ParseError("the body is empty: send a JSON object")
    if not body.isascii():
        _check_utf8(body, max_wide)
    if len(body) > MAX_ESCAPES and _holds_more_of(body, b"\\", MAX_ESCAPES):
        raise InvalidRequest(f"the body holds more than {MAX_ESCAPES} escapes: send its text as UTF-8")
    if len(body) < _CHUNK:
        deep = body.count(b"[") + body.count(b"{") > max_depth
    else:
        deep = _opens_more_than(max_depth, body)
    if deep or (len(body) > max_values and _holds_more_of(body, _SEPARATORS, max_values - max_depth)):
        _check_structure(body, max_depth, max_values)


def check_sent(sent: SendMessage, max_parts: int, max_text: int = MAX_TEXT) -> None:
    """Refuse a send that is too large: in its message, in the conversation before it, or in its metadata.

    See `check_parts`.
    """
    check_parts(sent.message, max_parts, max_text)
    for index, message in enumerate(sent.earlier):
        check_parts(message, max_parts, max_text, f"history[{index}]")
    if sent.metadata is not None:
        _check_strings("metadata", sent.metadata, max_text)


def max_sent_bytes(max_text: int) -> int:
    """Most bytes of a send beside its files, where one text may have `max_text` characters."""
    return max(MAX_SENT_BYTES, 2 * max_text)


def check_size(sent: SendMessage, size: int, max_text: int = MAX_TEXT) -> None:
    """Refuse a send of `size` bytes that holds too much beside the bytes of its files. Raises InvalidParams.

    See `MAX_SENT_BYTES`.
    """
    most = max_sent_bytes(max_text)
    if size <= most:
        return
    files = sum(len(part.raw or b"") for message in (sent.message, *sent.earlier) for part in message.parts)
    if size - files * 4 // 3 > most:  # in base64 a file is a third longer
        raise _too_much(most)


def _too_much(most: int) -> InvalidParams:
    return InvalidParams(
        "message.parts", f"a request may hold {most} bytes beside its files: send long texts and data as files"
    )


def check_parts(message: Message, max_parts: int, max_text: int = MAX_TEXT, path: str = "message") -> None:
    """Refuse a message with more than `max_parts` parts, or with a string of more than `max_text` characters.

    The bytes of files are not counted. Raises InvalidParams.
    """
    if len(message.parts) > max_parts:
        raise InvalidParams(f"{path}.parts", f"at most {max_parts} parts are allowed (max_parts)")
    for field, text in (("messageId", message.message_id), ("contextId", message.context_id)):
        if text is not None and len(text) > max_text:
            raise _too_long(f"{path}.{field}", max_text)
    if message.metadata is not None:
        _check_strings(f"{path}.metadata", message.metadata, max_text)
    if message.extensions:
        _check_strings(f"{path}.extensions", message.extensions, max_text)
    if message.reference_task_ids:
        _check_strings(f"{path}.referenceTaskIds", message.reference_task_ids, max_text)
    for index, part in enumerate(message.parts):
        text = part.text
        if text is not None and len(text) > max_text:
            raise _too_long(f"{path}.parts[{index}].text", max_text)
        if part.url is not None and len(part.url) > max_text:
            raise _too_long(f"{path}.parts[{index}].url", max_text)
        if part.filename is not None and len(part.filename) > max_text:
            raise _too_long(f"{path}.parts[{index}].filename", max_text)
        if part.media_type is not None and len(part.media_type) > max_text:
            raise _too_long(f"{path}.parts[{index}].mediaType", max_text)
        if part.data is not UNSET:
            _check_strings(f"{path}.parts[{index}].data", part.data, max_text)
        if part.metadata is not None:
            _check_strings(f"{path}.parts[{index}].metadata", part.metadata, max_text)


def _check_strings(field: str, value: object, max_text: int) -> None:
    """Check every string of a JSON value, including names of members.

    The value is scanned as JSON, at a gigabyte a second. JSON that is no longer than the limit holds no string over it.
    """
    json = encode(value)
    if len(json) <= max_text:
        return
    if b"\\" in json:
        json = json.replace(rb"\\", b".").replace(rb"\"", b".")  # a quote now begins or ends a string
    fitting = re.compile(rb'(?:[^"]*+"[^"]{0,%d}+")*+' % max_text)
    at = 0
    while match := fitting.match(json, at):
        at = json.find(b'"', match.end())
        if at < 0:
            return
        end = json.index(b'"', at + 1) + 1
        if len(decode(json[at:end])) > max_text:  # it has fewer characters than bytes if it is not ASCII
            raise _too_long(field, max_text)
        at = end


def _too_long(field: str, max_text: int) -> InvalidParams:
    return InvalidParams(field, f"a text may have at most {max_text} characters (max_text)")


def _opens_more_than(limit: int, body: bytes) -> bool:
    opening = 0  # in a long body mostly of one string, `find` is forty times as fast as `count`
    for bracket in (b"[", b"{"):
        at = body.find(bracket)
        while at >= 0:
            opening += 1
            if opening > limit:
                return True
            at = body.find(bracket, at + 1)
    return False


def _check_utf8(body: bytes, max_wide: int | None) -> None:
    decode = getincrementaldecoder("utf-8")().decode
    counts = max_wide is not None and len(body) > max_wide
    wide = 0
    try:
        for start in range(0, len(body), _STRETCH):
            stretch = body[start : start + _STRETCH]
            decode(stretch, start + _STRETCH >= len(body))
            if counts:
                wide += len(stretch.translate(None, _ASCII))
    except UnicodeDecodeError:
        raise ParseError("the body is not valid UTF-8") from None
    if max_wide is not None and wide > max_wide:
        raise _too_much(max_wide)


def _holds_more_of(body: bytes, characters: bytes, limit: int) -> bool:
    """Whether the body has more than `limit` bytes among `characters`, including those inside strings."""
    found = 0
    for start in range(0, len(body), _STRETCH):
        found += sum(body.count(character, start, start + _STRETCH) for character in characters)
        if found > limit:
            return True
    return False


def _check_structure(body: bytes, max_depth: int, max_values: int) -> None:
    depth = values = 0
    for structure in _outside_strings(body):
        brackets = structure.translate(None, _SEPARATORS)
        opening = brackets.count(b"[") + brackets.count(b"{")
        values += opening + len(structure) - len(brackets)
        if values > max_values:
            raise InvalidRequest(
                f"the body holds more than {max_values} values (max_values): names of members, strings, numbers, "
                "objects and arrays"
            )
        if brackets:
            depths = list(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=depth))
            if max(depths) > max_depth:
                raise InvalidRequest(f"the body is nested deeper than the {max_depth} levels allowed (max_depth)")
            depth = depths[-1]


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """Yield the brackets, commas and colons outside strings, in chunks.

    For a body that is not JSON the result is arbitrary. The body is processed chunk by chunk, so that other threads can
    run meanwhile.
    """
    escapes = b"\\" in body
    inside = False
    start = 0
    while start < len(body):
        stop = start + _CHUNK
        chunk = body[start:stop]
        if escapes:
            if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:  # an escape goes on in the next chunk
                chunk += body[stop : stop + 1]
                stop += 1
            chunk = chunk.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = chunk.split(b'"')
        yield b"".join(pieces[inside::2]).translate(None, _NOT_STRUCTURE)
        inside ^= len(pieces) % 2 == 0
        start = stop
