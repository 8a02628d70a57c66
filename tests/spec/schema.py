"""A strict reader of JSON answers: every member is one that the version's schema has, of the type it says.

Invariant: what passes for A2A 1.0 parses with the official proto and no unknown field ignored; absent is left out, so
`null` passes only where it is a value.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
"""A2A 1.0 §5.6.1: UTC, milliseconds."""

_MEMBER = re.compile(r"(?P<one>\^?)(?P<name>[A-Za-z0-9]+)(?P<mark>[!+]?)(?::(?P<many>\[\])?(?P<kind>\S+))?")


class Member(Struct, frozen=True):
    """A field: its kind, whether it is a list, whether it must be there, and whether it must then not be empty."""

    kind: str
    many: bool
    required: bool
    filled: bool


class Shape(Struct, frozen=True):
    """A message: its fields by JSON name, and those of which exactly one is there."""

    members: Mapping[str, Member]
    one_of: frozenset[str]


class Schema(Struct, frozen=True):
    """The messages and enums of one version of the protocol."""

    shapes: Mapping[str, Shape]
    enums: Mapping[str, frozenset[str]]

    def check(self, kind: str, value: Any, path: str = "") -> None:
        """Fail unless `value` is a `kind`, to the letter."""
        where = path or kind
        if kind in self.shapes:
            self._check_shape(self.shapes[kind], value, where)
        elif kind in self.enums:
            assert value in self.enums[kind], f"{where}: {value!r} is not in {sorted(self.enums[kind])}"
        elif kind.startswith("="):
            assert value == kind[1:], f"{where}: {value!r} is not {kind[1:]!r}"
        else:
            assert SCALARS[kind](value), f"{where}: {value!r} is not a {kind}"

    def _check_shape(self, shape: Shape, value: Any, where: str) -> None:
        assert isinstance(value, dict), f"{where}: {value!r} is not an object"
        unknown = value.keys() - shape.members.keys()
        assert not unknown, f"{where}: {sorted(unknown)} is not in the schema"
        if shape.one_of:
            there = value.keys() & shape.one_of
            assert len(there) == 1, f"{where}: one of {sorted(shape.one_of)} must be there, not {sorted(there)}"
        for name, member in shape.members.items():
            at = f"{where}.{name}"
            if name not in value:
                assert not member.required, f"{at} is missing"
            elif member.many:
                assert isinstance(value[name], list), f"{at}: {value[name]!r} is not a list"
                assert value[name] or not member.filled, f"{at} is empty"
                for index, item in enumerate(value[name]):
                    self.check(member.kind, item, f"{at}[{index}]")
            else:
                assert value[name] != "" or not member.filled, f"{at} is empty"
                self.check(member.kind, value[name], at)


def schema(messages: str, enums: Mapping[str, str]) -> Schema:
    """A schema from lines `Name: member member …`.

    A member is `name`, `name:kind` or `name:[]kind`, a string unless it says; with `!` after the name it must be there
    and hold something, with `+` it must be there; those with `^` before are a oneof.
    """
    shapes = {}
    for line in messages.strip().splitlines():
        title, _, members = line.partition(":")
        found = {match["name"]: match for match in map(_MEMBER.fullmatch, members.split()) if match}
        assert len(found) == len(members.split()), line
        shapes[title.strip()] = Shape(
            {
                name: Member(match["kind"] or "string", bool(match["many"]), bool(match["mark"]), match["mark"] == "!")
                for name, match in found.items()
            },
            frozenset(name for name, match in found.items() if match["one"]),
        )
    return Schema(shapes, {name: frozenset(values.split()) for name, values in enums.items()})


def decoded(body: bytes) -> Any:
    """JSON by the letter: UTF-8, no NaN, no key twice."""
    return json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    assert len(members) == len(pairs), f"a key is there twice: {[name for name, _ in pairs]}"
    return members


def _is_base64(value: Any) -> bool:
    return isinstance(value, str) and base64.b64encode(base64.b64decode(value, validate=True)).decode() == value


SCALARS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int32": lambda value: isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31,
    "bytes": _is_base64,
    "time": lambda value: isinstance(value, str) and TIMESTAMP.fullmatch(value) is not None,
    "struct": lambda value: isinstance(value, dict),
    "value": lambda value: True,
    "texts": lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
}
