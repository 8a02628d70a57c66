"""Checks that the fields of structs hold values of their declared types.

Invariant: pure. Python does not check what a field is given, and a decoder refuses to read a value of another type. So
a struct that passes can be read back after it was written. It says nothing of values in fields that are `Any`.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Any

from msgspec import Struct, inspect
from msgspec.structs import astuple

Fits = Callable[[Any], bool]
"""Whether all that a value holds has its declared type. The value itself has."""

SHAPES_MAX = 4096
"""Most shapes that are remembered. There are some hundred, unless many types turn up in fields that are `Any`."""

_PLAIN: dict[type[inspect.Type], type] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.BytesType: bytes,
    inspect.NoneType: NoneType,
}

_shapes: dict[tuple[type, ...], tuple[tuple[int, Fits], ...]] = {}
"""By the types of a struct and of its fields, all of which are allowed: the fields that hold more, and how to check it.

Almost every event has a shape that was seen before, so that one look is all that most structs cost.
"""


def check_types(place: str, value: Struct) -> None:
    """Check every field of a struct, and of the structs in it. Raises TypeError, which names the field."""
    if not _struct_fits(value):
        raise TypeError(f"{place}{_misfit(value)}")


def _struct_fits(value: Struct) -> bool:
    held = astuple(value)
    shape = (type(value), *map(type, held))
    inner = _shapes.get(shape)
    if inner is None:
        fields = _fields(type(value))
        if not all(field.allows(kind) for field, kind in zip(fields, shape[1:], strict=True)):
            return False
        inner = tuple(
            (place, field.inner[kind])
            for place, (field, kind) in enumerate(zip(fields, shape[1:], strict=True))
            if kind in field.inner
        )
        if len(_shapes) < SHAPES_MAX:
            _shapes[shape] = inner
    for place, fits in inner:  # noqa: SIM110  a generator would take as long as the check
        if (whole := held[place]) and not fits(whole):  # an empty tuple or dict holds nothing
            return False
    return True


class _Field(Struct, frozen=True):
    """The types that a value may have, None for all, and for those that hold more how to check that."""

    name: str
    types: frozenset[type] | None
    inner: dict[type, Fits]

    def allows(self, kind: type) -> bool:
        """Whether a value may have that type."""
        return self.types is None or kind in self.types


@cache
def _fields(kind: type[Struct]) -> tuple[_Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return tuple(_field(field.name, field.type) for field in info.fields)


def _field(name: str, declared: inspect.Type) -> _Field:
    match declared:
        case inspect.AnyType():
            return _Field(name, None, {})
        case inspect.UnionType(types):
            members = [_field(name, each) for each in types]
            kinds = [kind for each in members for kind in each.types or ()]
            return _Field(name, frozenset(kinds), {kind: fits for each in members for kind, fits in each.inner.items()})
        case inspect.StructType(cls):
            return _Field(name, frozenset({cls}), {cls: _struct_fits})
        case inspect.EnumType(cls):
            return _Field(name, frozenset({cls}), {})
        case inspect.LiteralType(values):
            return _Field(name, frozenset(map(type, values)), {})
        case inspect.VarTupleType(item):
            return _Field(name, frozenset({tuple}), {tuple: _all_fit(_field("", item))})
        case inspect.DictType(inspect.StrType(), value):
            return _Field(name, frozenset({dict}), {dict: _members_fit(_field("", value))})
        case _ if type(declared) in _PLAIN:
            return _Field(name, frozenset({_PLAIN[type(declared)]}), {})
        case _:
            raise NotImplementedError(f"{name}: no check for a field of {declared}")


def _all_fit(item: _Field) -> Fits:
    if item.inner.keys() == item.types and len(item.inner) == 1:  # one kind of struct, as in almost every tuple
        ((only, inner),) = item.inner.items()

        def structs_fit(held: tuple[Any, ...]) -> bool:
            for each in held:  # noqa: SIM110  as above
                if type(each) is not only or not inner(each):
                    return False
            return True

        return structs_fit
    return lambda held: all(_fits(item, each) for each in held)


def _members_fit(item: _Field) -> Fits:
    if item.types is None:
        return lambda held: all(type(name) is str for name in held)
    return lambda held: all(type(name) is str and _fits(item, each) for name, each in held.items())


def _fits(field: _Field, value: Any) -> bool:
    kind = type(value)
    if field.types is not None and kind not in field.types:
        return False
    return (inner := field.inner.get(kind)) is None or inner(value)


def _misfit(value: Struct) -> str:
    """The path to the first field that does not fit, and what it holds."""
    for field, held in zip(_fields(type(value)), astuple(value), strict=True):
        if _fits(field, held):
            continue
        if isinstance(held, Struct) and field.allows(type(held)):
            return f".{field.name}{_misfit(held)}"
        if isinstance(held, tuple) and field.allows(tuple):
            for number, each in enumerate(held):
                if isinstance(each, Struct) and not _struct_fits(each):
                    return f".{field.name}[{number}]{_misfit(each)}"
        return f".{field.name} must not hold {held!r:.100}"
    return " does not fit"
