"""A tree of Dragoman with the drawn changes built into it.

Invariant: the tree is a scratch clone. It is rewritten in place, and `git checkout src` makes it what it was.
"""

import ast
import json
import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.power.places import KINDS, Change, Place, changes_of, rewrite

HERE = Path(__file__).parent
LEFT_OUT = ("dragoman/testing/store_cases/", "dragoman/__main__.py")
"""Code that is a test itself, and a module that only calls the command."""


class Tree:
    """A tree, its modules parsed, and all the changes that they allow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = path / ".power"
        source = path / "src"
        names = sorted(str(file.relative_to(source)) for file in (source / "dragoman").rglob("*.py"))
        self.modules = {
            name: ast.parse((source / name).read_text("utf-8")) for name in names if not name.startswith(LEFT_OUT)
        }
        self.changes = [change for name, tree in self.modules.items() for change in changes_of(name, tree)]

    def build_in(self, drawn: Sequence[Change]) -> None:
        """Rewrite the modules of the drawn changes, number 1 on, and those that use a constant that was drawn."""
        if self.files.exists():
            raise FileExistsError(f"{self.files} exists: run `git checkout src` in the tree and remove it")
        numbered = dict(enumerate(drawn, 1))
        constants: dict[tuple[str, str], list[int]] = {}
        for number, change in numbered.items():
            if change.constant:
                constants.setdefault((_dotted(change.place.module), change.constant), []).append(number)
        for name, module in self.modules.items():
            chosen = {number: change for number, change in numbered.items() if change.place.module == name}
            uses = dict(_uses(_dotted(name), module, constants))
            if chosen or uses:
                (self.path / "src" / name).write_text(rewrite(module, chosen, uses), "utf-8")
        shutil.copyfile(HERE / "recorder.py", self.path / "src" / "dragoman_power.py")
        self.files.mkdir()


def draw(changes: Sequence[Change], count: int, seed: int) -> list[Change]:
    """Changes that a seed chooses: equally many of each kind, so that the many branches do not hide the rest.

    A node has at most one of them.
    """
    by_kind: dict[str, list[Change]] = {kind: [] for kind in KINDS}
    for change in changes:
        by_kind[change.place.kind].append(change)
    chance = random.Random(seed)
    drawn: list[Change] = []
    nodes: set[int] = set()
    while len(drawn) < count:
        left = by_kind[KINDS[len(drawn) % len(KINDS)]]
        change = left.pop(chance.randrange(len(left)))
        if id(change.node) not in nodes:
            nodes.add(id(change.node))
            drawn.append(change)
    return drawn


def write_places(tree: Tree, drawn: Iterable[tuple[Change, Place | None]]) -> None:
    """Keep what was built in, in the order of the numbers, each with its place in an older tree."""
    rows = [{"place": change.place._asdict(), "was": old and old._asdict()} for change, old in drawn]
    (tree.files / "places").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _uses(
    module: str, tree: ast.Module, constants: Mapping[tuple[str, str], list[int]]
) -> Iterator[tuple[str, list[int]]]:
    """The names by which a module knows constants that were drawn, its own and those that it imports."""
    yield from ((name, numbers) for (home, name), numbers in constants.items() if home == module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if numbers := constants.get((node.module, alias.name)):
                    yield alias.asname or alias.name, numbers


def _dotted(module: str) -> str:
    """The name by which a module is imported."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
