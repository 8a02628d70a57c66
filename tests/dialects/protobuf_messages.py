"""Messages of the official types with any values in any of their fields, also values that A2A does not allow."""

import math
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message
from hypothesis import strategies as st

DEPTH = 9
"""Deepest nesting: a task's artifact's part's data with a few objects in it."""

_TEXTS = ("", "a", "tasks/t", "tasks/", "tasks/t/pushNotificationConfigs/c", "https://a", "\0", "é🌍", "x" * 1100)
_KEYS = ("a", "skill", "value", "data_part_compat", "urn:dragoman:progress:v1", "urn:dragoman:usage:v1", "current")
_DOUBLES = (0.0, -0.0, 1.5, -3.0, 2.0**60, 1e308, math.nan, math.inf, -math.inf)
_SCALARS: dict[int, tuple[Any, ...]] = {
    Field.TYPE_STRING: _TEXTS,
    Field.TYPE_BYTES: (b"", b"AP8=", b"test", b"\xff"),
    Field.TYPE_BOOL: (True, False),
    Field.TYPE_ENUM: (0, 1, 2, 5, 8, 77, -1),
    Field.TYPE_DOUBLE: _DOUBLES,
    Field.TYPE_INT32: (0, 1, -1, 50, 2**31 - 1, -(2**31)),
    Field.TYPE_INT64: (0, 1, -1, 1_763_800_000, 253_402_300_800, 2**63 - 1, -(2**63)),
}


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Message:
    """A message of that type."""
    message = kind()
    _fill(draw, message, 0)
    return message


def _fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    fields = list(message.DESCRIPTOR.fields)
    for field in (
        draw(st.lists(st.sampled_from(fields), max_size=5, unique_by=lambda each: each.name)) if fields else ()
    ):
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.message_type is not None and depth >= DEPTH:
            continue
        if entry:
            _fill_map(draw, getattr(message, field.name), field.message_type.fields_by_name["value"], depth)
        elif field.is_repeated:
            for _ in range(draw(st.integers(1, 2))):
                if field.message_type is None:
                    getattr(message, field.name).append(_scalar(draw, field))
                else:
                    _fill(draw, getattr(message, field.name).add(), depth + 1)
        elif field.message_type is None:
            setattr(message, field.name, _scalar(draw, field))
        else:
            getattr(message, field.name).SetInParent()
            _fill(draw, getattr(message, field.name), depth + 1)


def _fill_map(draw: st.DrawFn, entries: Any, value: Any, depth: int) -> None:
    key = draw(st.sampled_from(_KEYS))
    if value.message_type is None:
        entries[key] = _scalar(draw, value)
    else:
        _fill(draw, entries[key], depth + 1)


def _scalar(draw: st.DrawFn, field: Any) -> Any:
    return draw(st.sampled_from(_SCALARS[field.type]))
