"""Prints the largest classes of the package, and the lines of its parts: `python scripts/class_sizes.py [FOLDER ...]`.

A slot is an attribute of an object: named in `__slots__`, declared in the body, or assigned to `self` in any method. A
method is a function of the body, a property included. FOLDER is one of the package's, such as `engine`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent / "src" / "dragoman"
SLOTS_MAX = 18
METHODS_MAX = 25


class Size(NamedTuple):
    """How large a class is."""

    slots: int
    methods: int
    name: str
    place: str


def sizes(path: Path) -> Iterator[Size]:
    """The classes of a module."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            yield Size(len(set(slots(node))), len(methods), node.name, str(path.relative_to(PACKAGE)))


def slots(node: ast.ClassDef) -> Iterator[str]:
    """The names of an object's attributes, some of them twice."""
    for each in node.body:
        match each:
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=names) | ast.List(elts=names)):
                yield from (str(name.value) for name in names if isinstance(name, ast.Constant))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if not ast.unparse(annotation).startswith("ClassVar"):
                    yield name
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def lines(places: list[str]) -> int:
    """The lines of modules and of all modules of folders."""
    found = 0
    for place in places:
        path = PACKAGE / place
        modules = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        found += sum(module.read_text().count("\n") for module in modules if module.exists())
    return found


def main() -> None:
    """Print the classes above either bound, the largest first, and the lines of each folder."""
    folders = sys.argv[1:] or ["engine", "agents", "server"]
    for folder in folders:
        print(f"{folder}: {lines([folder]):,} lines")
    found = [size for folder in folders for path in (PACKAGE / folder).rglob("*.py") for size in sizes(path)]
    large = [size for size in found if size.slots > SLOTS_MAX or size.methods > METHODS_MAX]
    for size in sorted(large, reverse=True):
        print(f"{size.slots:3} slots, {size.methods:3} methods: {size.name} ({size.place})")
    print(f"{len(large)} of {len(found)} classes have more than {SLOTS_MAX} slots or {METHODS_MAX} methods")


if __name__ == "__main__":
    main()
