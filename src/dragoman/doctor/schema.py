"""A reader of answers by the letter of the protocol: it names every difference from a schema, and repairs nothing.

Invariant: pure and total: any JSON value gives faults, none if it is what the schema says. A field that is there under
another name is one fault, and not also missing.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from msgspec import Struct

_MEMBER = re.compile(r"(?P<one>\^?)(?P<name>[A-Za-z0-9]+)(?P<mark>[!+]?)(?::(?P<many>\[\])?(?P<kind>\S+))?")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})?", re.ASCII)

SHOWN = 60
"""How many characters of a stranger's value a fault shows."""

CLOSE = 0.8
"""How alike two names are of which one is a misspelling of the other, from 0 to 1."""


class FaultKind(StrEnum):
    """The kinds of faults, each with a check of its own."""

    ENVELOPE = "envelope"
    ID = "id"
    WRAPPER = "wrapper"
    OTHER_VERSION = "other version"
    NAME = "name"
    MISSING = "missing"
    VALUE = "value"
    UNKNOWN = "unknown"


class SchemaFault(Struct, frozen=True):
    """A difference from the schema: where it is, and what is there, in words that follow the path."""

    kind: FaultKind
    path: str
    told: str

    def __str__(self) -> str:
        return f"{self.path} {self.told}"


class SchemaField(Struct, frozen=True):
    """A field: its kind, whether it is a list, whether it must be there, and whether it must then not be empty."""

    kind: str
    many: bool
    required: bool
    filled: bool


class Shape(Struct, frozen=True):
    """A message: its fields by JSON name, and those of which exactly one is there."""

    members: Mapping[str, SchemaField]
    one_of: frozenset[str]


class Schema(Struct, frozen=True, kw_only=True):
    """The messages and enums of one version of the protocol, over one binding.

    `wrapped` are the shapes that hold a value under its name, each with the signs by which a bare value is recognised.
    `old_members` and `old_values` are what another version writes, with what this one writes instead (empty: nothing);
    `other` names that version. `zoned`: timestamps have a time zone.
    """

    shapes: Mapping[str, Shape]
    enums: Mapping[str, frozenset[str]]
    other: str
    old_members: Mapping[str, str]
    old_values: Mapping[str, str]
    zoned: bool

    def faults(self, kind: str, value: Any, path: str) -> Iterator[SchemaFault]:
        """Yield the differences of a value from a kind: a shape, an enum, a scalar, or a fixed word (`=task`)."""
        if kind in self.shapes:
            yield from self._shape_faults(kind, value, path)
        elif kind in self.enums:
            yield from self._enum_faults(kind, value, path)
        elif kind.startswith("="):
            if value != kind[1:]:
                yield SchemaFault(FaultKind.VALUE, path, f"is {_shown(value)}, not {kind[1:]!r}")
        elif told := _scalar_fault(kind, value, zoned=self.zoned):
            yield SchemaFault(FaultKind.VALUE, path, told)

    def _enum_faults(self, kind: str, value: Any, path: str) -> Iterator[SchemaFault]:
        if isinstance(value, str) and value in self.enums[kind]:
            return
        if isinstance(value, str) and value in self.old_values:
            told = f"is {value!r}, which is how {self.other} writes {self.old_values[value]}"
            yield SchemaFault(FaultKind.OTHER_VERSION, path, told)
        else:
            yield SchemaFault(FaultKind.VALUE, path, f"is {_shown(value)}, which is no {kind}")

    def _shape_faults(self, kind: str, value: Any, path: str) -> Iterator[SchemaFault]:
        shape = self.shapes[kind]
        if not isinstance(value, dict):
            yield SchemaFault(FaultKind.VALUE, path, f"is {_shown(value)}, not an object")
            return
        if "result" in value and "result" not in shape.members:
            yield SchemaFault(FaultKind.WRAPPER, path, f"has a `result` of its own, where the {kind} belongs")
            return
        if shape.one_of and kind.endswith("Response") and not value.keys() & shape.one_of:
            yield from self._bare_faults(kind, value, path)
            return
        if kind == "Task" and value.keys() == {"task"}:
            yield SchemaFault(FaultKind.WRAPPER, path, "holds the task under `task`, where a bare Task belongs")
            value, path = value["task"], f"{path}.task"
            if not isinstance(value, dict):
                return
        there = value.keys() & shape.one_of
        if shape.one_of and len(there) > 1:
            yield SchemaFault(
                FaultKind.VALUE, path, f"has {' and '.join(sorted(there))}, of which one excludes the other"
            )
        names, faults = self._names(shape, value, path)
        yield from faults
        if shape.one_of and not there and not any(name in shape.one_of for name in names.values()) and not faults:
            yield SchemaFault(FaultKind.MISSING, path, f"has none of {', '.join(sorted(shape.one_of))}")
        for name, member in shape.members.items():
            said = name if name in value else next((old for old, new in names.items() if new == name), "")
            yield from self._member_faults(member, value.get(said) if said else None, f"{path}.{name}", said)

    def _names(self, shape: Shape, value: dict[str, Any], path: str) -> tuple[dict[str, str], list[SchemaFault]]:
        """Return the members that other names stand for, and the faults of all names that the shape has not."""
        names: dict[str, str] = {}
        faults = []
        for said in value.keys() - shape.members.keys():
            where = f"{path}.{said[:SHOWN]}"
            absent = [name for name in shape.members if name not in value]
            if said in self.old_members:
                new = self.old_members[said]
                names[said] = new
                told = f"is a field of {self.other}" + (f", here {new}" if new else "")
                faults.append(SchemaFault(FaultKind.OTHER_VERSION, where, told))
            elif meant := meant_name(said, absent):
                names[said] = meant
                faults.append(SchemaFault(FaultKind.NAME, where, f"is written {meant}"))
            else:
                faults.append(SchemaFault(FaultKind.UNKNOWN, where, "is not in the schema"))
        return names, sorted(faults, key=str)

    def _member_faults(self, member: SchemaField, value: Any, path: str, said: str) -> Iterator[SchemaFault]:
        if value is None:
            if member.required:
                yield SchemaFault(FaultKind.MISSING, path, "is null" if said else "is missing")
        elif member.many:
            if not isinstance(value, list):
                yield SchemaFault(FaultKind.VALUE, path, f"is {_shown(value)}, not a list")
                return
            if member.filled and not value:
                yield SchemaFault(FaultKind.MISSING, path, "is empty")
            for index, item in enumerate(value):
                yield from self.faults(member.kind, item, f"{path}[{index}]")
        elif member.filled and value == "":
            yield SchemaFault(FaultKind.MISSING, path, "is empty")
        else:
            yield from self.faults(member.kind, value, path)

    def _bare_faults(self, kind: str, value: dict[str, Any], path: str) -> Iterator[SchemaFault]:
        """Name the fault of a value that is not under its name, and those inside it."""
        shape = self.shapes[kind]
        named = next((name for name, signs in _SIGNS.items() if name in shape.one_of and value.keys() & signs), "")
        if "kind" in value and "kind" in self.old_members:
            told = f"is what {self.other} sends: {_shown(value['kind'])} as its kind, and not under a name"
            yield SchemaFault(FaultKind.OTHER_VERSION, path, told)
        elif named:
            bare = shape.members[named].kind
            yield SchemaFault(FaultKind.WRAPPER, path, f"is a bare {bare}, which belongs under `{named}`")
            yield from self.faults(bare, value, path)
        elif meant := {said: new for said in value if (new := meant_name(said, sorted(shape.one_of)))}:
            for said, new in meant.items():
                yield SchemaFault(FaultKind.NAME, f"{path}.{said[:SHOWN]}", f"is written {new}")
            yield from self.faults(kind, {new: value[said] for said, new in meant.items()}, path)
        else:
            yield SchemaFault(FaultKind.WRAPPER, path, f"has none of {', '.join(sorted(shape.one_of))}")


_SIGNS = {
    "artifactUpdate": {"artifact"},
    "statusUpdate": {"taskId", "final"},
    "message": {"messageId", "role", "parts"},
    "task": {"status", "id"},
}
"""The members by which a bare value is recognised, in the order in which they are looked for."""


def make_schema(
    messages: str,
    enums: Mapping[str, str],
    *,
    other: str,
    old_members: Mapping[str, str],
    old_values: Mapping[str, str],
    zoned: bool,
) -> Schema:
    """Return a schema from lines `Name: member member …`.

    A member is `name`, `name:kind` or `name:[]kind`, a text unless it says; with `!` after the name it must be there
    and hold something, with `+` it must be there; exactly one of those with `^` is there.
    """
    shapes = {}
    for line in messages.strip().splitlines():
        title, _, members = line.partition(":")
        found = {match["name"]: match for match in map(_MEMBER.fullmatch, members.split()) if match}
        shapes[title.strip()] = Shape(
            {
                name: SchemaField(
                    match["kind"] or "text", bool(match["many"]), bool(match["mark"]), match["mark"] == "!"
                )
                for name, match in found.items()
            },
            frozenset(name for name, match in found.items() if match["one"]),
        )
    words = {name: frozenset(values.split()) for name, values in enums.items()}
    return Schema(shapes=shapes, enums=words, other=other, old_members=old_members, old_values=old_values, zoned=zoned)


def meant_name(said: str, names: list[str]) -> str:
    """Return the one of the names that `said` misspells, empty if there is none: `task_id`, `taskid`, `taskIdd`."""
    plain = {_plain(name): name for name in names}
    found = plain.get(_plain(said)) or plain.get(_ALIASES.get(said, ""))
    if found is None and len(said) > 3:
        found = plain.get(next(iter(get_close_matches(_plain(said), plain, 1, CLOSE)), ""))
    return found or ""


_ALIASES = {"type": "kind"}
"""What A2A before 0.2.2 called fields of 0.3."""


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _scalar_fault(kind: str, value: Any, *, zoned: bool) -> str:
    """Say what is wrong with a scalar, empty if nothing is."""
    shown = _shown(value)
    match kind:
        case "text":
            return "" if isinstance(value, str) else f"is {shown}, not a text"
        case "bool":
            return "" if isinstance(value, bool) else f"is {shown}, not true or false"
        case "int32":
            whole = isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
            return "" if whole else f"is {shown}, not a whole number"
        case "struct":
            return "" if isinstance(value, dict) else f"is {shown}, not an object"
        case "bytes":
            return "" if _is_base64(value) else f"is {shown}, not base64"
        case "time":
            return _time_fault(value, zoned=zoned)
    return ""


def _is_base64(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        plain = value.replace("-", "+").replace("_", "/")
        base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _time_fault(value: Any, *, zoned: bool) -> str:
    if not isinstance(value, str) or not (match := _TIME.fullmatch(value)):
        return f"is {_shown(value)}, not a time like 2026-01-31T12:00:00.000Z"
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return f"is {_shown(value)}, a time that there is not"
    return f"is {_shown(value)}, a time without a zone" if zoned and not match[2] else ""


def _shown(value: Any) -> str:
    text = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
