"""A walk over the objects of a running server: what they hold that belongs to a module above them, and who sets their
attributes.

Invariant: the order of modules is that of `make check`. A module is above another one if its layer is higher, or if it
is of the same layer and imports the other, directly or through more modules. Imports for type checking count. Frozen
values that a module holds itself, such as the tables of a dialect, are its own, and no objects of the server.
"""

import gc
import inspect
import re
import sys
import tomllib
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache, partial
from pathlib import Path

import grimp
from msgspec import Struct

PACKAGE = "dragoman"
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
CACHED = type(cache(len))
DEPTH = 5
"""How deep containers may lie in each other."""


TEST_RUNNERS = frozenset({"_pytest", "pluggy", "xdist"})
"""The packages whose objects lead to all tests, and so to what those hold."""


class Held(Struct, frozen=True, order=True):
    """A callable of the module `above` in the attribute of an object of a lower class."""

    holder: str
    attribute: str
    above: str
    name: str


class SetFromOutside(Struct, frozen=True, order=True):
    """An attribute of an object that a function sets which is no method of its class."""

    holder: str
    attribute: str
    by: str


class ModuleOrder:
    """Which module of the package is above which."""

    def __init__(self) -> None:
        imports = grimp.build_graph(PACKAGE)
        for offered in tuple(imports.find_modules_directly_imported_by(PACKAGE)):  # as the contracts ignore them
            imports.remove_import(importer=PACKAGE, imported=offered)
        contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
        (rows,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
        self._heights = {
            name.strip(" ()"): height for height, row in enumerate(reversed(rows)) for name in row.split("|")
        }
        self._importers = cache(imports.find_downstream_modules)

    def above(self, upper: str, lower: str) -> bool:
        """Whether `upper` is above `lower`."""
        if upper == lower:
            return False
        difference = self._height(upper) - self._height(lower)
        return difference > 0 or (difference == 0 and upper in self._importers(lower))

    def _height(self, module: str) -> int:
        return self._heights[module.split(".")[1]]


def ours(module: object) -> bool:
    """Whether it is a module of the package."""
    return isinstance(module, str) and module.startswith(f"{PACKAGE}.")


def reachable(roots: Iterable[object]) -> Iterator[object]:
    """The package's objects that can be reached from the roots, in whatever way: by attributes, closures and tasks.

    The state of modules is not the server's: neither through a function nor through a frame that runs. Nor is what the
    runner of the tests has collected, which the frame of a test leads to.
    """
    seen: dict[int, object] = {id(vars(module)): module for module in tuple(sys.modules.values())}
    pending = list(roots)
    while pending:
        found = pending.pop()
        if id(found) in seen or isinstance(found, type | types.ModuleType | types.CodeType):
            continue
        if type(found).__module__.partition(".")[0] in TEST_RUNNERS:
            continue
        seen[id(found)] = found
        if ours(type(found).__module__):
            yield found
        if isinstance(found, types.FunctionType):  # without its globals
            pending += [*(found.__closure__ or ()), *(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).values()]
        else:
            pending += gc.get_referents(found)


def attributes(found: object) -> Iterator[tuple[str, object]]:
    """The attributes that the object itself has."""
    for kind in type(found).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and hasattr(found, name):
                yield name, getattr(found, name)
    yield from getattr(found, "__dict__", {}).items()


def callables(value: object, depth: int = DEPTH) -> Iterator[tuple[str, str]]:
    """The module and the name of each callable in a value, also in containers and behind partials and caches."""
    if isinstance(value, types.MethodType):
        kind = value.__self__ if isinstance(value.__self__, type) else type(value.__self__)
        yield kind.__module__, f"{kind.__qualname__}.{value.__func__.__name__}"
    elif isinstance(value, types.FunctionType):
        yield value.__module__, value.__qualname__
    elif isinstance(value, CACHED):
        yield from callables(value.__wrapped__, depth)
    elif depth:
        if isinstance(value, partial):
            inner: Iterable[object] = (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, dict | types.MappingProxyType):
            inner = (*value.keys(), *value.values())
        elif isinstance(value, list | tuple | set | frozenset | deque):
            inner = tuple(value)
        else:
            return
        for each in inner:
            yield from callables(each, depth - 1)


def members(value: object, depth: int = DEPTH) -> Iterator[object]:
    """The package's objects in a value, also in containers."""
    if ours(type(value).__module__):
        yield value
    elif depth and isinstance(value, dict | types.MappingProxyType):
        for each in (*value.keys(), *value.values()):
            yield from members(each, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset | deque):
        for each in tuple(value):
            yield from members(each, depth - 1)


def module_constants() -> set[int]:
    """The ids of the frozen values that the package's modules hold themselves."""
    found: dict[int, object] = {}
    pending = [value for name, module in tuple(sys.modules.items()) if ours(name) for value in vars(module).values()]
    while pending:
        value = pending.pop()
        if id(value) in found:
            continue
        if isinstance(value, Struct) and value.__struct_config__.frozen:
            pending += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, dict | types.MappingProxyType):
            pending += value.values()
        elif isinstance(value, tuple | frozenset):
            pending += value
        else:
            continue
        found[id(value)] = value
    return set(found)


def callables_from_above(objects: Iterable[object], order: ModuleOrder) -> set[Held]:
    """Each callable that one of the objects holds, and that a module above its class has defined."""
    found: set[Held] = set()
    for holder in objects:
        kind = type(holder)
        for attribute, value in attributes(holder):
            for module, name in callables(value):
                if ours(module) and order.above(module, kind.__module__):
                    found.add(Held(name_of(kind), attribute, module, name))
    return found


def protocols_from_above(objects: Iterable[object], order: ModuleOrder) -> tuple[set[str], set[Held]]:
    """The protocols by which the objects hold objects of classes above them, and those that no protocol names.

    A protocol names an object if a method of the holder takes it, or a field of a struct has it, and the object has all
    that the protocol asks for.
    """
    protocols = {
        kind.__name__: kind for kind in _all_classes() if getattr(kind, "_is_protocol", False) and ours(kind.__module__)
    }
    named: set[str] = set()
    bare: set[Held] = set()
    for holder in objects:
        kind = type(holder)
        for attribute, value in attributes(holder):
            for member in members(value):
                upper = type(member)
                if isinstance(member, Struct | Enum) or not order.above(upper.__module__, kind.__module__):
                    continue
                fitting = [
                    name
                    for name in _words(kind) & set(protocols)
                    if not order.above(protocols[name].__module__, kind.__module__) and _fits(member, protocols[name])
                ]
                named.update(fitting)
                if not fitting:
                    bare.add(Held(name_of(kind), attribute, upper.__module__, upper.__qualname__))
    return named, bare


@cache
def _words(kind: type) -> frozenset[str]:
    """The words in the annotations of a class and of its methods."""
    hints = [*inspect.get_annotations(kind).values()]
    for function in vars(kind).values():
        if isinstance(function, types.FunctionType):
            hints += inspect.get_annotations(function).values()
    return frozenset(re.findall(r"\w+", " ".join(map(inspect.formatannotation, hints))))


def _fits(member: object, protocol: type) -> bool:
    return all(hasattr(member, name) for name in vars(protocol) if not name.startswith("_"))


@cache
def _is_own(kind: type, module: str, function: str) -> bool:
    """Whether a function of this name is a method of the class or of one that it inherits from, or lies in one."""
    return any(module == each.__module__ and function.startswith(f"{each.__qualname__}.") for each in kind.__mro__)


def name_of(kind: type) -> str:
    """The name of a class of the package, without the package."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix(f"{PACKAGE}.")


@contextmanager
def watched_sets(found: set[SetFromOutside]) -> Iterator[None]:
    """Note each attribute of an object that is set by a function of the package which is no method of its class."""
    watched: dict[type, Callable[[object, str, object], None]] = {}
    for kind in _settable():
        watched[kind] = kind.__setattr__
        kind.__setattr__ = _watching(kind.__setattr__, found)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for kind in watched:
            del kind.__setattr__  # type: ignore[misc]


def _all_classes() -> list[type]:
    """The classes of the package that are imported."""
    return [
        kind
        for name, module in tuple(sys.modules.items())
        if ours(name)
        for kind in tuple(vars(module).values())
        if isinstance(kind, type) and kind.__module__ == name
    ]


def _settable() -> list[type]:
    """Those whose objects have attributes that can be set in the usual way."""
    return [
        kind
        for kind in _all_classes()
        if "__setattr__" not in vars(kind)
        and not issubclass(kind, BaseException | Enum | type)
        and not (issubclass(kind, Struct) and kind.__struct_config__.frozen)
        and not getattr(kind, "_is_protocol", False)
    ]


def _watching(
    inherited: Callable[[object, str, object], None], found: set[SetFromOutside]
) -> Callable[[object, str, object], None]:
    def set_attribute(self: object, name: str, value: object) -> None:
        caller: types.FrameType | None = inspect.currentframe()
        while caller is not None and caller.f_code is set_attribute.__code__:
            caller = caller.f_back
        assert caller is not None
        module = caller.f_globals.get("__name__")
        if ours(module) and not _is_own(type(self), module, caller.f_code.co_qualname):
            found.add(SetFromOutside(name_of(type(self)), name, f"{module}.{caller.f_code.co_qualname}"))
        inherited(self, name, value)

    return set_attribute
