"""Bounds of a message, checked on its bytes before anything is built from them.

Invariant: a message that passes has no more values than allowed. Without this, 32 MB of empty parts, two bytes each,
would become a gigabyte of objects. Whether the bytes are a message at all is for the decoder to say.
"""

from collections.abc import Mapping

from dragoman.model.errors import InvalidParams

Shape = Mapping[int, "Shape"]
"""The fields of a message that are messages, by number, each with its own shape. All other fields are values."""

ENTRY: dict[int, Shape] = {}
"""An entry of a google.protobuf.Struct, whose value is field 2."""

STRUCT: Shape = {1: ENTRY}
LIST: dict[int, Shape] = {}
VALUE: Shape = {5: STRUCT, 6: LIST}
ENTRY[2] = VALUE
LIST[1] = VALUE

MAX_DEPTH = 100
"""Deepest nesting that parsers of protobuf accept."""


def check(body: bytes, shape: Shape, max_values: int) -> None:
    """Refuse a message with more than `max_values` fields in all. Bytes that are no message are left to the decoder.

    A field costs half a microsecond. Raises InvalidParams.
    """
    if len(body) <= 2 * max_values:  # a field has at least two bytes
        return
    ends = [len(body)]
    shapes = [shape]
    at, values = 0, 0
    while ends:
        end, fields = ends[-1], shapes[-1]
        if at >= end:
            ends.pop()
            shapes.pop()
            continue
        values += 1
        if values > max_values:
            raise InvalidParams("", f"the message has more than {max_values} values (max_values): send less")
        tag, at = _varint(body, at, end)
        kind = tag & 7
        if kind == 2:
            length, at = _varint(body, at, end)
            inner = fields.get(tag >> 3)
            if inner is not None and at + length <= end and len(ends) < MAX_DEPTH:
                ends.append(at + length)
                shapes.append(inner)
            else:
                at += length
        elif kind == 0:
            _, at = _varint(body, at, end)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind not in (3, 4):  # groups, which only unknown fields are: their fields are counted like the others
            return


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a number. Returns it with the place after it, which is `end` if the number is cut off."""
    number = shift = 0
    for following in range(at, min(end, at + 10)):
        byte = body[following]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, following + 1
        shift += 7
    return 0, end
