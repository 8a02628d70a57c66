"""JSON values, time stamps and whole messages in protobuf (google.protobuf.Struct, Value and Timestamp).

Invariant: a value that is read back equals the one that was written, but for whole numbers beyond 2^53, which protobuf
has only as doubles. Bytes that are no message raise ParseError and nothing else.
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.dialects.extensions import EVENT_ID
from dragoman.dialects.jsonrpc import clean
from dragoman.model import ids
from dragoman.model.errors import ParseError, UnsupportedOperation

M = TypeVar("M", bound=Message)

MAX_LEVELS = 90
"""Most messages within each other in one value. Parsers refuse more than 100 in all, and A2A's own are up to 7."""

OBJECT_LEVELS = 3
"""An object within a value is a Struct of entries of values; an array is a ListValue of values."""

ARRAY_LEVELS = 2

YEAR_10000_S = 253_402_300_800

TOO_DEEP = "the data is nested too deeply for gRPC: read it over JSON-RPC or HTTP+JSON"

_EXACT = 2.0**53
_DOUBLE = struct.Struct("<d").pack


def read(kind: type[M], body: bytes) -> M:
    """Read a message. Raises ParseError if the bytes are none."""
    try:
        return kind.FromString(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise ParseError(f"the message is not a {kind.DESCRIPTOR.full_name} in protobuf") from None


def fill_struct(target: Struct, members: dict[str, Any]) -> None:
    """Write an object, which may be empty. Raises UnsupportedOperation if it is nested too deeply for protobuf."""
    target.MergeFromString(_struct(members, MAX_LEVELS))
    target.SetInParent()


def fill_value(target: Value, value: Any) -> None:
    """Write any JSON value. Infinity and NaN, which JSON lacks, are null. Raises as `fill_struct` does."""
    target.MergeFromString(_value(value, MAX_LEVELS))


def struct_of_numbers(name: str, members: Sequence[str]) -> Callable[..., bytes]:
    """Return a function that writes the object `{name: {member: number, …}}` as a Struct, from the numbers in order.

    Numbers have one size, so only they are filled in. It raises OverflowError for an integer that no double holds.
    """
    encoded = _struct({name: dict.fromkeys(members, 0.5)}, MAX_LEVELS)
    fixed = encoded.split(_DOUBLE(0.5))
    pack = struct.Struct("<" + "d".join(f"{len(piece)}s" for piece in fixed)).pack
    pieces = [each for piece in fixed for each in (piece, 0.5)][:-1]

    def write(*numbers: float) -> bytes:
        pieces[1::2] = numbers
        return pack(*pieces)

    return write


# The bytes are written by hand: to fill one generated message for each value takes four times as long.


def _struct(members: dict[str, Any], levels: int) -> bytes:
    """The bytes of a Struct: its field 1 is repeated, entries of a name (1) and a value (2)."""
    if levels <= 0:
        raise UnsupportedOperation(TOO_DEEP)
    entries: list[bytes] = []
    for name, value in members.items():
        entry = b"".join(
            (_text(b"\n", name if type(name) is str else str(name)), _sized(b"\x12", _value(value, levels)))
        )
        entries.append(_sized(b"\n", entry))
    return b"".join(entries)


def _value(value: Any, levels: int) -> bytes:
    """The bytes of a Value: null (1), a number (2), a string (3), a flag (4), a Struct (5) or a ListValue (6)."""
    kind = type(value)
    if kind is str:
        return _text(b"\x1a", value)
    if kind is bool:
        return b"\x20\x01" if value else b"\x20\x00"
    if kind is int or kind is float:
        return _number(value)
    if value is None:
        return b"\x08\x00"
    if kind is dict:
        return _sized(b"\x2a", _struct(value, levels - OBJECT_LEVELS))
    if kind is list or kind is tuple:
        if levels <= ARRAY_LEVELS:
            raise UnsupportedOperation(TOO_DEEP)
        return _sized(b"\x32", b"".join([_sized(b"\n", _value(item, levels - ARRAY_LEVELS)) for item in value]))
    return _value(msgspec.to_builtins(value, str_keys=True), levels)


def _text(tag: bytes, text: str) -> bytes:
    return _sized(tag, (text if text.isascii() else clean(text)).encode())


def _number(number: float) -> bytes:
    try:
        return b"\x11" + _DOUBLE(number) if math.isfinite(number) else b"\x08\x00"
    except OverflowError:  # an integer that no double holds
        return _text(b"\x1a", str(number))


def _sized(tag: bytes, content: bytes) -> bytes:
    """A field whose length comes before its content."""
    length = len(content)
    if length < 0x80:
        return b"%b%c%b" % (tag, length, content)
    size = bytearray()
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return b"%b%b%c%b" % (tag, bytes(size), length, content)


def struct_dict(given: Struct) -> dict[str, Any]:
    """Return an object's members."""
    return {name: value_of(value) for name, value in given.fields.items()}


def value_of(given: Value) -> Any:
    """Return the JSON value; one that holds nothing is null. A whole number is an int, as it came from JSON."""
    match given.WhichOneof("kind"):
        case "string_value":
            return given.string_value
        case "number_value":
            number = given.number_value
            if not math.isfinite(number):
                return None
            return int(number) if number.is_integer() and -_EXACT <= number <= _EXACT else number
        case "bool_value":
            return given.bool_value
        case "struct_value":
            return struct_dict(given.struct_value)
        case "list_value":
            return [value_of(value) for value in given.list_value.values]
        case _:
            return None


def add_event_id(kind: type[Message], frame: bytes, event_id: str) -> bytes:
    """Return an item of a stream, a `kind`, with its id in the metadata of what it holds (EVENT_ID)."""
    response = kind.FromString(frame)
    if (held := response.WhichOneof("payload")) is not None:
        fill_struct(getattr(response, held).metadata, {EVENT_ID: event_id})
    return response.SerializeToString()


def fill_timestamp(target: Timestamp, text: str) -> None:
    """Write a time stamp of the model, such as `2026-11-20T07:00:00.000Z`; one that is none is left out."""
    ms = ids.timestamp_ms(text)
    if not ms:
        return
    target.seconds, rest = divmod(ms, 1000)
    target.nanos = rest * 1_000_000


def timestamp_text(given: Timestamp) -> str:
    """Return a time stamp with 3, 6 or 9 digits, whichever it needs; empty if it is no time from 1970 to 9999."""
    if not (0 <= given.seconds < YEAR_10000_S and 0 <= given.nanos < 1_000_000_000):
        return ""
    digits = f"{given.nanos:09d}"
    while digits.endswith("000") and len(digits) > 3:
        digits = digits[:-3]
    return f"{ids.timestamp(given.seconds * 1000)[:-4]}{digits}Z"


def timestamp_ms(given: Timestamp) -> int | None:
    """Return milliseconds since the epoch, rounded up; None if it is before 1970 or after the year 9999."""
    if not (0 <= given.seconds < YEAR_10000_S and 0 <= given.nanos < 1_000_000_000):
        return None
    return given.seconds * 1000 - -given.nanos // 1_000_000
