"""JSON values, time stamps and whole messages in protobuf (google.protobuf.Struct, Value and Timestamp).

Invariant: a value that is read back equals the one that was written, but for whole numbers beyond 2^53, which protobuf
has only as doubles. Bytes that are no message raise ParseError and nothing else.
"""

import math
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

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

_EXACT = 2.0**53


def read(kind: type[M], body: bytes) -> M:
    """Read a message. Raises ParseError if the bytes are none."""
    try:
        return kind.FromString(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise ParseError(f"the message is not a {kind.DESCRIPTOR.full_name} in protobuf") from None


def fill_struct(target: Struct, members: dict[str, Any], levels: int = MAX_LEVELS) -> None:
    """Write an object, which may be empty. Raises UnsupportedOperation if it is nested too deeply for protobuf."""
    target.SetInParent()
    if levels <= 0:
        raise UnsupportedOperation("the data is nested too deeply for gRPC: read it over JSON-RPC or HTTP+JSON")
    fields = target.fields
    for name, value in members.items():
        fill_value(fields[name if type(name) is str and name.isascii() else clean(str(name))], value, levels)


def fill_value(target: Value, value: Any, levels: int = MAX_LEVELS) -> None:
    """Write any JSON value. Infinity and NaN, which JSON lacks, are null. Raises as `fill_struct` does."""
    kind = type(value)
    if kind is str:
        target.string_value = value if value.isascii() else clean(value)
    elif kind is bool:
        target.bool_value = value
    elif kind is int or kind is float:
        _fill_number(target, value)
    elif value is None:
        target.null_value = 0  # type: ignore[assignment]  # NULL_VALUE, the only one
    elif kind is dict:
        fill_struct(target.struct_value, value, levels - OBJECT_LEVELS)
    elif kind is list or kind is tuple:
        _fill_list(target.list_value, value, levels - ARRAY_LEVELS)
    else:
        fill_value(target, msgspec.to_builtins(value, str_keys=True), levels)


def _fill_list(target: ListValue, items: list[Any] | tuple[Any, ...], levels: int) -> None:
    target.SetInParent()
    if levels <= 0:
        raise UnsupportedOperation("the data is nested too deeply for gRPC: read it over JSON-RPC or HTTP+JSON")
    values = target.values
    for item in items:
        fill_value(values.add(), item, levels)


def _fill_number(target: Value, number: float) -> None:
    try:
        if math.isfinite(number):
            target.number_value = number
        else:
            target.null_value = 0  # type: ignore[assignment]
    except OverflowError:  # an integer that no double holds
        target.string_value = str(number)


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


def fill_timestamp(target: Timestamp, text: str) -> None:
    """Write a time stamp of the model, such as `2026-11-20T07:00:00.000Z`; an empty one is left out."""
    if not text:
        return
    try:
        ms = ids.timestamp_ms(text)
    except ValueError:
        return
    target.seconds, rest = divmod(ms, 1000)
    target.nanos = rest * 1_000_000


def timestamp_text(given: Timestamp) -> str:
    """Return a time stamp as the model spells it; empty if it is before 1970 or after the year 9999."""
    ms = timestamp_ms(given)
    return "" if ms is None else ids.timestamp(ms)


def timestamp_ms(given: Timestamp) -> int | None:
    """Return milliseconds since the epoch, rounded up; None if it is before 1970 or after the year 9999."""
    if not (0 <= given.seconds < YEAR_10000_S and 0 <= given.nanos < 1_000_000_000):
        return None
    return given.seconds * 1000 - -given.nanos // 1_000_000
