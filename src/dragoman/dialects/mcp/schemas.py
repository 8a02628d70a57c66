"""Values against a JSON Schema, as far as the arguments of tools and the fields of forms need it.

`type`, `enum`, `const`, `required`, `properties`, `additionalProperties: false` and `items` are checked. Every other
keyword is the agent's to check: it gets the value as it came. Invariant: a schema is walked no deeper than the value.
"""

from collections.abc import Iterator, Mapping
from typing import Any

KINDS: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
    "null": type(None),
}


def find_violation(value: Any, schema: Any, path: str) -> tuple[str, str] | None:
    """Return the first field of `value` that the schema does not allow, and what it must be; None if there is none."""
    return next(_violations(value, schema, path), None)


def _violations(value: Any, schema: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict):
        return
    wanted = schema.get("type")
    kinds = wanted if isinstance(wanted, list) else [wanted]
    known = [kind for kind in kinds if isinstance(kind, str) and kind in KINDS]
    if known and not any(_is_kind(value, kind) for kind in known):
        yield path, f"must be of type {' or '.join(known)}"
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield path, f"must be one of {', '.join(map(str, choices))}"[:500]
    if "const" in schema and value != schema["const"]:
        yield path, f"must be {schema['const']}"[:500]
    if isinstance(value, dict):
        yield from _object_violations(value, schema, path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _violations(item, schema.get("items"), f"{path}[{index}]")


def _object_violations(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            yield f"{path}.{name}", "is required"
    for name, member in value.items():
        if name in properties:
            yield from _violations(member, properties[name], f"{path}.{name}")
        elif schema.get("additionalProperties") is False and not schema.get("patternProperties"):
            yield f"{path}.{name[:100]}", f"is no argument: send {', '.join(properties) or 'none'}"[:500]


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, KINDS[kind])
