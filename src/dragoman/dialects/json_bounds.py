"""Bounds of a JSON body, checked on its bytes before anything is built from them.

Invariant: what passes is UTF-8 and nested no deeper than asked, so that nothing recurses far, on the way in or out.
"""

from collections.abc import Iterator
from itertools import accumulate

from dragoman.model.errors import InvalidParams, InvalidRequest, ParseError
from dragoman.model.message import Message

MAX_DEPTH = 64
"""Deepest nesting unless a setting says otherwise; real calls stay below 20."""

MAX_CONTAINERS = 500_000
"""Most objects and arrays in a body: each costs about 100 bytes once decoded, so 10 MB of `{},` would cost 330."""

_CHUNK = 1 << 16
_STEPS = bytes(1 if c in b"[{" else 255 if c in b"]}" else 0 for c in range(256))
_NO_BRACKETS = bytes(c for c in range(256) if c not in b"[]{}")


def check(body: bytes, max_depth: int = MAX_DEPTH, max_containers: int = MAX_CONTAINERS) -> None:
    """Refuse a body that is empty, not UTF-8 (RFC 8259 §8.1), too deep or of too many pieces.

    Whether it is JSON is for the decoder to say. Costs next to nothing as long as there are few brackets. Raises
    ParseError or InvalidRequest.
    """
    if not body:
        raise ParseError("the body is empty: send a JSON object")
    if not body.isascii():
        try:
            str(body, "utf-8")
        except UnicodeDecodeError:
            raise ParseError("the body is not valid UTF-8") from None
    if _opens_more_than(max_depth, body):
        _check_brackets(body, max_depth, max_containers)


def check_parts(message: Message, max_parts: int) -> None:
    """Refuse a message of more than `max_parts` parts. Raises InvalidParams."""
    if len(message.parts) > max_parts:
        raise InvalidParams("message.parts", f"at most {max_parts} parts are allowed (max_parts)")


def _opens_more_than(limit: int, body: bytes) -> bool:
    if len(body) < _CHUNK:
        return body.count(b"[") + body.count(b"{") > limit
    opening = 0  # in a long body mostly of one string, `find` is forty times as fast as `count`
    for bracket in (b"[", b"{"):
        at = body.find(bracket)
        while at >= 0:
            opening += 1
            if opening > limit:
                return True
            at = body.find(bracket, at + 1)
    return False


def _check_brackets(body: bytes, max_depth: int, max_containers: int) -> None:
    depth = containers = 0
    for brackets in _outside_strings(body):
        containers += brackets.count(b"[") + brackets.count(b"{")
        if containers > max_containers:
            raise InvalidRequest(f"the body holds more than {max_containers} objects and arrays")
        depths = list(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=depth))
        if max(depths) > max_depth:
            raise InvalidRequest(f"the body is nested deeper than the {max_depth} levels allowed (max_depth)")
        depth = depths[-1]


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """The brackets that are not inside strings, in chunks. Of a body that is not JSON it gives any brackets."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = False
    for start in range(0, len(body), _CHUNK):
        pieces = body[start : start + _CHUNK].split(b'"')
        yield b"".join(pieces[inside::2]).translate(None, _NO_BRACKETS)
        inside ^= len(pieces) % 2 == 0
