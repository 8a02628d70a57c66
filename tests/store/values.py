"""Values of the types that a store keeps, made up by hypothesis from the types themselves.

Invariant: every field of every struct is given a value other than its default, so a field that is added to a type later
is made up too, and a test that compares what was written with what is read notices if it is not stored.
"""

from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from msgspec import Struct, UnsetType

from dragoman.model.message import Part
from dragoman.model.operations import PushConfig

KEPT_BY_THE_STORE = {(Part, "blob")}
"""Fields that no value outside of a store has."""

INTEGERS = st.integers(1, 2**62)
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: INTEGERS,
    bool: st.just(True),
    bytes: st.binary(min_size=1, max_size=2000),
    Any: JSON,
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type as a field of a struct names it. Raises NotImplementedError for a type that it does not know."""
    if kind in SCALARS:
        return SCALARS[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return st.one_of([values(one) for one in arguments if one not in (NoneType, UnsetType)])
    if origin is tuple:
        return st.lists(values(arguments[0]), min_size=1, max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), min_size=1, max_size=2)
    if origin is Literal:
        return st.sampled_from(arguments)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if issubclass(kind, Struct):
        return structs(kind)
    raise NotImplementedError(f"no values for {kind!r}: say here how to make them")


def structs(kind: type[Struct], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a struct, with all of its fields; `given` are those that something else decides."""
    made = {
        field.name: values(field.type)
        for field in msgspec.structs.fields(kind)
        if (kind, field.name) not in KEPT_BY_THE_STORE and field.name not in given
    }
    return st.builds(kind, **made, **given)


CONFIGS: st.SearchStrategy[PushConfig] = structs(PushConfig)
