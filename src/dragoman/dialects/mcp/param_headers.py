"""Arguments of tools that are repeated in HTTP headers (2026-07-28, Custom Headers from Tool Parameters).

Invariant: a schema with an annotation that is not allowed gives no header at all: the specification has clients leave
out such a tool.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.headers import encode_value

ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
"""The name of a header (RFC 9110 §5.6.2)."""

_TYPES = frozenset({"string", "integer", "boolean"})
_VALUES = frozenset({"default", "const", "enum", "examples"})
"""Keywords that hold values, not schemas."""

_MAPS = frozenset({"$defs", "definitions", "patternProperties", "dependentSchemas"})
"""Keywords that hold schemas by name, beside `properties`."""


class UnusableSchema(ValueError):
    """A tool's schema has an annotation that is not allowed; the message says which and why."""


class ParamHeader(Struct, frozen=True):
    """A header that repeats an argument, and the path of that argument."""

    header: str
    path: tuple[str, ...]


def find_param_headers(schema: Mapping[str, Any]) -> tuple[ParamHeader, ...]:
    """The headers that a tool's schema asks for, in its order. Raises UnusableSchema."""
    found: dict[str, ParamHeader] = {}
    for path, annotated in _annotated(schema, ()):
        header = annotated[ANNOTATION]
        if not path:
            raise UnusableSchema(f"{ANNOTATION} is beside the chain of `properties`")
        where = f"{ANNOTATION} of {'.'.join(path)[:100]!r}"
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise UnusableSchema(f"{where} is not the name of a header")
        if annotated.get("type") not in _TYPES:
            raise UnusableSchema(f"{where} is on a value that is no string, integer or boolean")
        if header.lower() in found:
            raise UnusableSchema(f"{where} is there twice")
        found[header.lower()] = ParamHeader(f"{names.PARAM_HEADER}{header}", path)
    return tuple(found.values())


def encode_param_headers(headers: tuple[ParamHeader, ...], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a call with these arguments. One whose argument is missing or null is left out."""
    said: dict[str, str] = {}
    for each in headers:
        value: Any = arguments
        for name in each.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            said[each.header] = "true" if value else "false"
        elif isinstance(value, str):
            said[each.header] = encode_value(value)
        elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            said[each.header] = str(int(value))
    return said


def _annotated(schema: object, path: tuple[str, ...] | None) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield each annotated schema with its path; the path is empty where no chain of `properties` leads to it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _annotated(each, None)
    if not isinstance(schema, dict):
        return
    if ANNOTATION in schema:
        yield path or (), schema
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            for name, each in value.items():
                yield from _annotated(each, None if path is None else (*path, name))
        elif keyword in _MAPS and isinstance(value, dict):
            for each in value.values():
                yield from _annotated(each, None)
        elif keyword not in _VALUES:
            yield from _annotated(value, None)
