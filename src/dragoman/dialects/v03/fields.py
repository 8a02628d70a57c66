"""Reads JSON leniently: members with several names, null as absent, numbers as ProtoJSON spells them.

Invariant: any bytes give a value or an A2AError, with the path of the field where there is one, and nothing else.
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
    """One JSON object of a request; `path` is its place (`message.parts[0]`), empty for the whole."""

    members: dict[str, Any]
    path: str = ""

    def at(self, name: str) -> str:
        """Return the path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, *names: str) -> bool:
        """Whether one of the names is present and not null."""
        return any(self.members.get(name) is not None for name in names)

    def find(self, *names: str) -> Any:
        """Return the member under the first of its names that is present and not null, else None."""
        for name in names:
            value = self.members.get(name)
            if value is not None:
                return value
        return None

    def text(self, *names: str) -> str | None:
        """Return a string, None if it is absent."""
        value = self.find(*names)
        if value is None or isinstance(value, str):
            return value
        raise InvalidParams(self.at(names[0]), "must be a string")

    def required_text(self, *names: str) -> str:
        """Return a required string, which must not be empty."""
        value = self.text(*names)
        if value:
            return value
        raise InvalidParams(self.at(names[0]), "is required: send a string that is not empty")

    def flag(self, *names: str) -> bool | None:
        """Return a boolean, also as a query spells it in words; None if it is absent."""
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
        """Return an integer within bounds, also spelled `"5"` or `5.0` as in ProtoJSON; None if it is absent."""
        violations: json_fields.Violations = []
        value = self.find(*names)
        if isinstance(value, bool) or not isinstance(value, int | float | str | None):
            raise InvalidParams(self.at(names[0]), "must be an integer")
        number = json_fields.whole(value, self.at(names[0]), violations, least, most)
        json_fields.refuse(violations)
        return number

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return a list of strings; empty if it is absent."""
        value = self.find(*names)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise InvalidParams(self.at(names[0]), "must be a list of strings")

    def mapping(self, *names: str) -> dict[str, Any] | None:
        """Return an object unchanged, None if it is absent."""
        value = self.find(*names)
        if value is None or isinstance(value, dict):
            return value
        raise InvalidParams(self.at(names[0]), "must be an object")

    def object(self, *names: str) -> "Fields | None":
        """Return an object as Fields, None if it is absent."""
        value = self.mapping(*names)
        return None if value is None else Fields(value, self.at(names[0]))

    def objects(self, *names: str) -> Iterator["Fields"]:
        """Yield the objects of a list as Fields; none if it is absent."""
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


def read(body: bytes | memoryview) -> Fields:
    """Decode the object in `body`; an empty body, or null, is an empty object.

    Raises ParseError if it is not JSON, InvalidRequest if it is nested too deeply, InvalidParams if it is not an
    object.
    """
    return Fields(json_fields.read(_DECODER, body) or {}) if body else Fields({})
