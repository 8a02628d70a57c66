"""Ways to spoil the bytes of a row, as a bad disk or an earlier program leaves them.

Invariant: bytes are spoiled such that no decoder takes them for a value.
"""

from collections.abc import Callable
from typing import Any

import msgspec

Way = Callable[[bytes], bytes]


def cut(data: bytes) -> bytes:
    """The first half of the bytes."""
    return data[: len(data) // 2]


def empty(data: bytes) -> bytes:
    """No bytes."""
    return b""


def flip(data: bytes) -> bytes:
    """The same value with the first text in it replaced by a number, as a program that checks no types writes it."""
    if data[:1] in (b"{", b"["):
        return msgspec.json.encode(_flip_first(msgspec.json.decode(data), [True]))
    return msgspec.msgpack.encode(_flip_first(msgspec.msgpack.decode(data), [True]))


def _flip_first(value: Any, left: list[bool]) -> Any:
    match value:
        case str() if left[0] and len(value) > 1:  # shorter ones are the tags of events
            left[0] = False
            return 5
        case dict():
            return {name: _flip_first(each, left) for name, each in value.items()}
        case list():
            return [_flip_first(each, left) for each in value]
    return value


WAYS: tuple[Way, ...] = (cut, empty, flip)
