"""Reads lenient wire structs, and the ProtoJSON scalars that msgspec does not read by itself.

Invariant: a fault becomes an A2AError with the field's path on the wire; the text of an exception goes no further.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from dragoman.model.errors import InvalidParams, InvalidRequest, ParseError

T = TypeVar("T")

Violations = list[tuple[str, str]]
"""The faults so far: the path of each field and what it should be."""

MAX_VIOLATIONS = 20
"""Most violations that an answer names: a body of a million empty parts has a million."""

INT32_MAX = 2**31 - 1

PIECE = 1 << 20
"""Most characters of base64 that are decoded in one go, which takes a millisecond. No other thread runs meanwhile."""

_KINDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
    "bytes": "base64",
}
_MISMATCH = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<got>[^`]+)`")
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<sign><=|>=|<|>) (?P<bound>-?[0-9.]+)(?: |$)")
_BOUNDS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_INTEGER = re.compile(r"-?[0-9]{1,10}(?:\.0+)?")
_RFC3339 = re.compile(
    r"(?P<second>[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))"
)
_URL_SAFE = str.maketrans("-_", "+/")
_BYTES = msgspec.json.Decoder(bytes)
_STRING = msgspec.json.Decoder(str)


def read(decoder: msgspec.json.Decoder[T], body: bytes | memoryview) -> T:
    """Decode with `decoder`. Raises ParseError, InvalidRequest (too deep), InvalidParams (a field of a wrong type)."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidParams(*violation(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ParseError("the body is not JSON") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def convert(values: dict[str, Any], into: type[T]) -> T:
    """Convert plain values to a wire struct. Raises InvalidParams."""
    try:
        return msgspec.convert(values, into)
    except msgspec.ValidationError as error:
        raise InvalidParams(*violation(error)) from None


def violation(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the path of the field that did not fit, and the reason in our own words."""
    text = str(error)
    place = _PATH.search(text)
    if (missing := _MISSING.match(text)) is not None:
        return f"{place['path']}.{missing['field']}" if place else missing["field"], "is required"
    if (unknown := _UNKNOWN.match(text)) is not None:
        return f"{place['path']}.{unknown['field']}" if place else unknown["field"], "is not known here"
    if (beyond := _BOUND.match(text)) is not None:
        bound = beyond["bound"].removesuffix(".0")
        return place["path"] if place else "", f"must be {_BOUNDS[beyond['sign']]} {bound}"
    mismatch = _MISMATCH.match(text)
    if mismatch is None:
        return place["path"] if place else "", "is out of range" if "out of range" in text else "has a wrong value"
    kinds = [kind for kind in mismatch["expected"].split(" | ") if kind != "null"]
    expected = " or ".join(_KINDS.get(kind, "another value") for kind in kinds)
    return place["path"] if place else "", f"must be {expected}, not {_KINDS.get(mismatch['got'], 'that')}"


def refuse(violations: Violations) -> None:
    """Raise InvalidParams with all of them, if there are any."""
    if violations:
        raise refusal(violations)


def refusal(violations: Violations) -> InvalidParams:
    """Make the error that names the violations. There is at least one."""
    first, *more = violations[:MAX_VIOLATIONS]
    return InvalidParams(*first, *more)


def whole(
    value: int | float | str | None, field: str, violations: Violations, low: int = 0, high: int = INT32_MAX
) -> int | None:
    """Read an int32 as ProtoJSON spells it: a number, a number with no fraction, or either in a string."""
    if value is None:
        return None
    number: int | None = None
    if isinstance(value, int):
        number = value
    elif isinstance(value, float):
        number = int(value) if value.is_integer() else None
    elif _INTEGER.fullmatch(value):
        number = int(value.partition(".")[0])
    if number is None or not low <= number <= high:
        span = f"from {low} to {high}" if high != INT32_MAX else f"{low} or more"
        violations.append((field, f"must be an integer, {span}"))
        return None
    return number


def check_text(values: Mapping[str, str]) -> None:
    """Refuse text from percent-decoding that UTF-8 cannot encode. Raises InvalidParams."""
    for name, text in values.items():
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidParams(name if name.isascii() else "", "must be valid UTF-8") from None


def named_skill(*found: dict[str, Any] | None) -> str | None:
    """Return the skill that the first of the metadata names; None if none of them does."""
    for metadata in found:
        if metadata is not None:
            skill = metadata.get("skill")
            if isinstance(skill, str) and skill:
                return skill
    return None


def from_seq(value: object, metadata: dict[str, Any] | None) -> str | None:
    """Return the id of the last event seen, from the parameter `fromSeq` or the metadata of that name: `7`, `"7"` or
    `"7.2"`.

    Raises InvalidParams if it is neither a whole number nor a string. Whether it is an id of ours is not checked.
    """
    field = "fromSeq"
    if value is None and metadata is not None:
        value, field = metadata.get("fromSeq"), "metadata.fromSeq"
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidParams(field, "must be the id of the last event seen, like 7")
    return str(value)


def timestamp_ms(text: str) -> int | None:
    """Convert an RFC 3339 time stamp to milliseconds since the epoch, rounded up; None if it is not one.

    It is rounded up because an event at or after .1235 s is, in whole milliseconds, at or after .124 s.
    """
    if (found := _utc(text)) is None:
        return None
    moment, fraction = found
    nanoseconds = int(fraction.ljust(9, "0"))
    return int(moment.timestamp()) * 1000 - -nanoseconds // 1_000_000


def utc_text(text: str) -> str | None:
    """Return an RFC 3339 time stamp in UTC, with all of its digits and at least milliseconds; None if it is not one.

    Times before 1970 are None.
    """
    if (found := _utc(text)) is None:
        return None
    moment, fraction = found
    if moment.year < 1970:
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction.ljust(3, '0')}Z"


def _utc(text: str) -> tuple[datetime, str] | None:
    """Return the second of an RFC 3339 time stamp in UTC, and the digits of its fraction; None if it is not one."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(match["second"].upper()).replace(tzinfo=UTC)
        if match["sign"]:
            offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"]))
            moment += -offset if match["sign"] == "+" else offset
    except (ValueError, OverflowError):
        return None
    return moment, match["fraction"] or ""


def raw_bytes(text: str) -> bytes | None:
    """Decode a ProtoJSON `bytes` field: base64, standard or URL-safe, padded or not; None if it is none of them.

    A long text is decoded in pieces, so that other threads can run in between.
    """
    return _decode_base64(text) if len(text) <= PIECE else _decode_pieces(text)


def raw_bytes_in(json: msgspec.Raw) -> bytes | None:
    """Decode the same from raw JSON, which saves one copy of a large file; None also if it is not a string."""
    try:
        if len(view := memoryview(json)) > PIECE and (raw := _decode_pieces(view[1:-1])) is not None:
            return raw
        return _BYTES.decode(json)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return raw_bytes(_STRING.decode(json))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def _decode_pieces(encoded: str | memoryview) -> bytes | None:
    pieces: list[bytes] = []
    for start in range(0, len(encoded), PIECE):
        piece = encoded[start : start + PIECE]
        raw = _decode_base64(piece if isinstance(piece, str) else str(piece, "latin-1"))
        if raw is None or (len(raw) < PIECE // 4 * 3 and start + PIECE < len(encoded)):  # padding ends base64
            return None
        pieces.append(raw)
    return b"".join(pieces)


def _decode_base64(text: str) -> bytes | None:
    """msgspec reads only the padded standard alphabet, at about three times the speed of binascii."""
    if "-" in text or "_" in text:
        text = text.translate(_URL_SAFE)
    if len(text) % 4:
        text += "=" * (-len(text) % 4)
    try:
        return msgspec.convert(text, bytes)
    except msgspec.ValidationError:
        return None
