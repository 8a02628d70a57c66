"""The measurement itself: changes do what they say, nothing while they are off, and are found again where they went."""

import ast
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.power.mapping import find_again, lost
from tests.power.places import Change, changes_of, rewrite
from tests.power.tree import Tree, draw
from tests.power.trial import Suite, in_order, read_record, record, try_change

MODULE = '''"""What a shop knows."""

from __future__ import annotations

LIMIT = 10


class Shop:
    """A shop."""

    open: bool = True

    def price(self, count: int, each: int = 3) -> int:
        """The price of some pieces."""
        if count > LIMIT and self.open:
            self.note(count)
            return count * each - 1
        return count * each

    def note(self, count: int) -> None:
        self.noted = [f"{count + 1} pieces", *getattr(self, "noted", [])]

    async def closes(self) -> bool:
        return not self.open
'''


def changes(text: str = MODULE, module: str = "dragoman/shop.py") -> list[Change]:
    return changes_of(module, ast.parse(text))


def load(numbers: list[int], monkeypatch: pytest.MonkeyPatch, switched: int = 0) -> tuple[ModuleType, list[int]]:
    """The module with some of its changes built in, one of which is on, and the list of what is reached."""
    tree = ast.parse(MODULE)
    chosen = {number: change for number, change in enumerate(changes_of("dragoman/shop.py", tree)) if number in numbers}
    uses = {change.constant: [number] for number, change in chosen.items() if change.constant}
    reached: list[int] = []

    def on(number: int) -> bool:
        reached.append(number)
        return number == switched

    monkeypatch.setitem(sys.modules, "dragoman_power", SimpleNamespace(on=on))
    module = ModuleType("shop")
    exec(compile(rewrite(tree, chosen, uses), "shop.py", "exec", dont_inherit=True), module.__dict__)
    return module, reached


def number_of(kind: str, becomes: str) -> int:
    """The number of a change of `MODULE`."""
    return next(n for n, c in enumerate(changes()) if (c.place.kind, c.place.becomes) == (kind, becomes))


def test_every_change_of_a_module_is_named_by_its_text() -> None:
    assert [change.place[1:5] for change in changes()] == [
        ("", "constant", "10", "11"),
        ("Shop.price", "constant", "3", "4"),
        ("Shop.price", "branch", "if count > LIMIT and self.open", "if not (count > LIMIT and self.open)"),
        ("Shop.price", "branch", "if count > LIMIT and self.open", "if False"),
        ("Shop.price", "boolean", "count > LIMIT and self.open", "count > LIMIT or self.open"),
        ("Shop.price", "comparison", "count > LIMIT", "count >= LIMIT"),
        ("Shop.price", "call", "self.note(count)", "pass"),
        ("Shop.price", "return", "return count * each - 1", "return count * each - 1 + 1"),
        ("Shop.price", "arithmetic", "count * each - 1", "count * each + 1"),
        ("Shop.price", "arithmetic", "count * each", "count + each"),
        ("Shop.price", "constant", "1", "2"),
        ("Shop.price", "return", "return count * each", "return count * each + 1"),
        ("Shop.price", "arithmetic", "count * each", "count + each"),
        ("Shop.closes", "return", "return not self.open", "return not not self.open"),
        ("Shop.closes", "boolean", "not self.open", "self.open"),
    ]
    assert [change.place.ordinal for change in changes() if change.place.source == "count * each"] == [0, 1]


def test_changes_that_are_off_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, reached = load([n for n, c in enumerate(changes()) if c.place.becomes != "if False"], monkeypatch, -1)
    shop = module.Shop()
    assert (shop.price(10), shop.price(20, 2), shop.noted) == (30, 39, ["21 pieces"])
    assert module.__doc__ == "What a shop knows."
    assert number_of("return", "return not not self.open") not in reached


@pytest.mark.parametrize(
    ("kind", "becomes", "prices", "noted"),
    [
        ("constant", "11", (20, 22, 23), 1),
        ("constant", "4", (20, 21, 23), 2),
        ("branch", "if not (count > LIMIT and self.open)", (19, 22, 24), 1),
        ("branch", "if False", (20, 22, 24), 0),
        ("boolean", "count > LIMIT or self.open", (19, 21, 23), 3),
        ("comparison", "count >= LIMIT", (19, 21, 23), 3),
        ("call", "pass", (20, 21, 23), 0),
        ("return", "return count * each - 1 + 1", (20, 22, 24), 2),
        ("arithmetic", "count * each + 1", (20, 23, 25), 2),
    ],
)
def test_a_change_that_is_on_does_what_it_says(
    kind: str, becomes: str, prices: tuple[int, ...], noted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = number_of(kind, becomes)
    shop = load([number], monkeypatch, number)[0].Shop()
    assert tuple(shop.price(count, 2) for count in (10, 11, 12)) == prices
    assert len(getattr(shop, "noted", ())) == noted


def test_a_constant_and_a_default_are_reached_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, each = number_of("constant", "11"), number_of("constant", "4")
    module, reached = load([limit, each], monkeypatch, each)
    reached.clear()
    shop = module.Shop()
    assert (shop.price(10), reached) == (40, [each, limit])
    shop.note(1)
    assert reached == [each, limit]


def test_a_seed_draws_each_kind_alike_and_a_node_once() -> None:
    drawn = [change.place for change in draw(changes(), 7, 1)]
    assert [place.kind for place in drawn] == [
        *("comparison", "arithmetic", "boolean", "constant", "branch", "call", "return")
    ]
    assert drawn == [change.place for change in draw(changes(), 7, 1)]
    assert any(drawn != [change.place for change in draw(changes(), 7, seed)] for seed in range(2, 9))
    branches = [change for change in changes() if change.place.kind == "branch"]
    assert len({place.source for place in drawn if place.kind == "branch"}) == len(branches) - 1


def test_a_place_is_found_again_where_it_went_or_left_to_a_person() -> None:
    old = {change.place.becomes: change.place for change in changes()}
    moved = changes(
        MODULE.replace("class Shop", "class Store").replace("count * each - 1", "count * each - 2"), "dragoman/store.py"
    )
    found = find_again(old.values(), moved)
    shown = {place.becomes: change.place.qualname for place, change in found.items() if change is not None}
    assert shown["pass"] == "Store.price"
    assert shown["11"] == ""
    assert shown["return not not self.open"] == "Store.closes"
    assert found[old["count * each + 1"]] is None, "the text is another one"
    twice = changes(MODULE + MODULE.replace("class Shop", "class Stall"), "dragoman/both.py")
    assert find_again([old["pass"]], twice)[old["pass"]].place.qualname == "Shop.price", "the nearest name"
    assert (
        find_again([old["pass"]._replace(qualname="Kiosk.price")], twice)[old["pass"]._replace(qualname="Kiosk.price")]
        is None
    )


def test_near_and_quick_tests_come_first_and_planted_bugs_never() -> None:
    seconds = {
        "tests/engine/test_log.py::whole": 3.0,
        "tests/engine/test_send.py::whole": 3.0,
        "tests/engine/test_log.py::quick": 0.2,
        "tests/engine/test_send.py::quick": 0.1,
        "tests/cli/test_keys.py::quick": 0.01,
        "tests/simulation/test_mutations.py::test_a_bug_that_was_put_in_is_found[sweep]": 0.01,
    }
    assert in_order("dragoman/engine/log.py", seconds, seconds) == [
        "tests/engine/test_log.py::quick",
        "tests/engine/test_log.py::whole",
        "tests/engine/test_send.py::quick",
        "tests/cli/test_keys.py::quick",
        "tests/engine/test_send.py::whole",
    ]


def test_losses_are_changes_that_only_the_older_tests_found() -> None:
    places = [change.place._asdict() for change in changes()[:4]]
    old = [{"place": place, "was": None, "outcome": "found"} for place in places[:3]]
    old += [{"place": places[3], "was": None, "outcome": "survives"}, {"planted": "sweep", "outcome": "found"}]
    new = [
        {"place": places[0] | {"module": "dragoman/new.py"}, "was": places[0], "outcome": "hangs"},
        {"place": places[1], "was": places[1], "outcome": "survives"},
        {"planted": "sweep", "outcome": "survives"},
    ]
    assert lost(old, new) == [(old[1], new[1]), (old[2], None), (old[4], new[2])]


TESTS = """
import subprocess, sys
from dragoman.shop import Shop

def test_the_price_of_many():
    assert Shop().price(20, 2) == 39

def test_the_price_of_few_in_another_process():
    code = "from dragoman.shop import Shop; import os; print(Shop().price(1), flush=True); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout == b"3\\n"
"""


@pytest.mark.slow
def test_a_change_is_tried_with_the_tests_that_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with those whose servers reach it, and are killed."""
    for name, text in {
        "src/dragoman/__init__.py": "",
        "src/dragoman/shop.py": MODULE,
        "tests/shop/test_shop.py": TESTS,
        "pytest.ini": "[pytest]",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    tree = Tree(tmp_path)
    wanted = ("return count * each + 1", "count > LIMIT or self.open", "count * each + 1", "self.open", "4")
    chosen = [next(change for change in tree.changes if change.place.becomes == becomes) for becomes in wanted]
    tree.build_in(chosen)
    assert record(tmp_path, ()) == 0
    many, few = (f"tests/shop/test_shop.py::test_the_price_of_{name}" for name in ("many", "few_in_another_process"))
    recorded = read_record(tmp_path)
    assert recorded.reaching == {1: {few}, 2: {few, many}, 3: {many}, 5: {few, many}}
    suite = Suite(tmp_path, recorded.seconds)
    trials = [try_change(tmp_path, suite, n, change.place, recorded, 60) for n, change in enumerate(chosen, 1)]
    suite.close()
    assert [(trial.outcome, trial.by) for trial in trials] == [
        ("found", few),
        ("found", few),
        ("found", many),
        ("unreached", ""),
        ("found", few),
    ]
