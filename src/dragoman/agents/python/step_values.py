"""The results of steps as parts of a log, and back.

Invariant: a value that comes back from the log equals the one that the first run went on with, because that one has
made the same way. Nothing is decoded that could run code: a class is looked up among those that are loaded, and has to
be one of data.
"""

import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import is_dataclass
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from dragoman.agents.content import INLINE_BYTES, json_of, json_of_part, parts_of, recorded_json
from dragoman.engine.words import JSON_FORM
from dragoman.model.message import Part

TEXT_MEDIA_TYPE = "text/plain"

NONE_FORM, TEXT_FORM, BYTES_FORM, PART_FORM, PARTS_FORM = "none", "text", "bytes", "part", "parts"
TYPED_FORM = "typed"
"""JSON that is read as the function's return annotation says."""

CLASS_FORM = "class:"
"""JSON that is read as an object of the class that follows: its module, a colon, its qualified name."""


class UnreadableResult(Exception):
    """A recorded result can no longer be read: the function's annotation or the class of the result has changed."""


def parts_of_result(value: object, function: Callable[..., object]) -> tuple[tuple[Part, ...], str]:
    """The parts that a step's result is recorded as, and their form.

    Raises TypeError or ValueError if the value cannot be recorded: it is none of text, bytes, Part, JSON, a dataclass,
    a msgspec struct or a Pydantic model, nor a list of those.
    """
    match value:
        case None:
            return (), NONE_FORM
        case str() if len(value) <= INLINE_BYTES:
            return parts_of(value), TEXT_FORM
        case str():
            return (Part(raw=value.encode(), media_type=TEXT_MEDIA_TYPE),), TEXT_FORM
        case bytes() | bytearray() | memoryview():
            return parts_of(value), BYTES_FORM
        case Part():
            return parts_of(value), PART_FORM
        case list() | tuple() if value and all(isinstance(item, Part) for item in value):
            return parts_of(value), PARTS_FORM
    data = json_of(value, "result")
    return (recorded_json(data),), _form(value, data, function)


def result_of_parts(parts: tuple[Part, ...], form: str, function: Callable[..., object]) -> Any:
    """The value that was recorded. Raises UnreadableResult."""
    if form == NONE_FORM or not parts:
        return None
    first = parts[0]
    if form == TEXT_FORM:
        return first.text if first.text is not None else (first.raw or b"").decode()
    if form == BYTES_FORM:
        return first.raw
    if form == PART_FORM:
        return first
    if form == PARTS_FORM:
        return list(parts)
    data = json_of_part(first)
    if form == JSON_FORM:
        return data
    kind = return_type(function) if form == TYPED_FORM else _loaded_class(form.removeprefix(CLASS_FORM))
    try:
        return _convert(data, kind)
    except (TypeError, ValueError) as error:
        raise UnreadableResult(f"it is no {getattr(kind, '__qualname__', kind)} any more: {error}") from error


def _form(value: object, data: object, function: Callable[..., object]) -> str:
    """How `data` becomes the value again."""
    if type(value) is type(data) and value == data:
        return JSON_FORM
    kind = return_type(function)
    if kind is not None:
        try:
            if _convert(data, kind) == value:
                return TYPED_FORM
        except (TypeError, ValueError):
            pass
    found = type(value)
    if not _is_data_class(found) or _class_named(found.__module__, found.__qualname__) is not found:
        return JSON_FORM
    try:
        _convert(data, found)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"result: {found.__qualname__} cannot be made again of its own JSON: give a dict of it ({error})"
        ) from error
    return f"{CLASS_FORM}{found.__module__}:{found.__qualname__}"


def return_type(function: Callable[..., object]) -> Any:
    """The type that the function says it returns; None if it says none, or says it in a way that cannot be read."""
    inner = function.func if isinstance(function, partial) else function
    if "return" not in getattr(inner, "__annotations__", {}):
        return None
    try:
        said = get_type_hints(inner).get("return")
    except Exception:  # noqa: BLE001  a name in it may be known to type checkers alone
        return None
    if get_origin(said) in (Awaitable, Coroutine) or getattr(get_origin(said), "__name__", "") in (
        "Awaitable",
        "Coroutine",
    ):
        said = get_args(said)[-1]
    return None if said is Any else said


def _convert(data: object, kind: Any) -> Any:
    if kind is None:
        raise UnreadableResult("its function has no return annotation any more, or its class is gone")
    if hasattr(kind, "model_validate"):
        return _validated(kind, data)
    return msgspec.convert(data, kind, str_keys=True, dec_hook=_validated)


def _validated(kind: Any, data: object) -> Any:
    """A Pydantic model. Its JSON has the names of its fields, whether or not they have aliases."""
    if not hasattr(kind, "model_validate"):
        raise TypeError(f"{getattr(kind, '__qualname__', kind)} is no class of data")
    try:
        return kind.model_validate(data)
    except ValueError:
        return kind.model_validate(data, by_name=True)


def _is_data_class(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, Struct) or hasattr(kind, "model_validate")


def _loaded_class(named: str) -> Any:
    module, _, qualified = named.partition(":")
    found = _class_named(module, qualified)
    return found if isinstance(found, type) and _is_data_class(found) else None


def _class_named(module: str, qualified: str) -> object:
    found: object = sys.modules.get(module)
    for name in qualified.split("."):
        found = getattr(found, name, None)
    return found
