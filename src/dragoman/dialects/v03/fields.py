"""Reading JSON leniently: members that go by several names, null as absent, numbers as ProtoJSON spells them.

Invariant: whatever the bytes, reading raises A2AError, with the path of the field where there is one, and nothing else.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.dialects import json_fields
from dragoman.model.errors import InvalidParams

MAX_ID = 1024
"""Longest id that a caller may choose, as in 1.0."""

_DECODER = msgspec.json.Decoder(dict[str, Any] | None)


class Fields(Struct, frozen=True):
    """One JSON object of a request; `path` is where it stands (`message.parts[0]`), empty for the whole."""

    members: dict[str, Any]
    path: str = ""

    def at(self, name: str) -> str:
        """The path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, *names: str) -> bool:
        """Whether one of the names is there and not null."""
        return any(self.members.get(name) is not None for name in names)

    def find(self, *names: str) -> Any:
        """The member by the first of its names that is there and not null, else None."""
        for name in names:
            value = self.members.get(name)
            if value is not None:
                return value
        return None

    def text(self, *names: str) -> str | None:
        """A string, else None."""
        value = self.find(*names)
        if value is None or isinstance(value, str):
            return value
        raise InvalidParams(self.at(names[0]), "must be a string")

    def required_text(self, *names: str) -> str:
        """A string that must be there and not be empty."""
        value = self.text(*names)
        if value:
            return value
        raise InvalidParams(self.at(names[0]), "is required: send a string that is not empty")

    def flag(self, *names: str) -> bool | None:
        """A boolean, also spelled as the words a query has for it, else None."""
        value = self.find(*names)
        if isinstance(value, str):
            value = value.lower()
        match value:
            case None | bool():
                return value
            case "true" | "1":
                return True
            case "false" | "0":
                return False
            case _:
                raise InvalidParams(self.at(names[0]), "must be true or false")

    def count(self, *names: str, least: int = 0, most: int = json_fields.INT32_MAX) -> int | None:
        """An integer within bounds, also spelled `"5"` or `5.0` as in ProtoJSON, else None."""
        violations: json_fields.Violations = []
        value = self.find(*names)
        if isinstance(value, bool) or not isinstance(value, int | float | str | None):
            raise InvalidParams(self.at(names[0]), "must be an integer")
        number = json_fields.whole(value, self.at(names[0]), violations, least, most)
        json_fields.refuse(violations)
        return number

    def texts(self, *names: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        value = self.find(*names)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise InvalidParams(self.at(names[0]), "must be a list of strings")

    def mapping(self, *names: str) -> dict[str, Any] | None:
        """An object as it is, else None."""
        value = self.find(*names)
        if value is None or isinstance(value, dict):
            return value
        raise InvalidParams(self.at(names[0]), "must be an object")

    def object(self, *names: str) -> "Fields | None":
        """An object to read on in, else None."""
        value = self.mapping(*names)
        return None if value is None else Fields(value, self.at(names[0]))

    def objects(self, *names: str) -> Iterator["Fields"]:
        """A list of objects; nothing when absent."""
        value = self.find(*names)
        if value is None:
            return
        if not isinstance(value, list):
            raise InvalidParams(self.at(names[0]), "must be a list")
        for index, item in enumerate(value):
            path = f"{self.at(names[0])}[{index}]"
            if not isinstance(item, dict):
                raise InvalidParams(path, "must be an object")
            yield Fields(item, path)


def read(body: bytes) -> Fields:
    """The object that `body` holds; nothing, or null, is the empty one.

    Raises ParseError if it is not JSON, InvalidRequest if it is nested too deeply, InvalidParams if it is no object.
    """
    return Fields(json_fields.read(_DECODER, body) or {}) if body else Fields({})
