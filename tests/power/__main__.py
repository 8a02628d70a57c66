"""Measures what the tests notice: `python -m tests.power draw|record|try|summary|compare`, as CONTRIBUTING.md shows."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.power.mapping import Row, find_again, lost, share_found, summary
from tests.power.places import Change, Place
from tests.power.tree import Tree, draw, write_places
from tests.power.trial import FULL_RUN, Suite, planted, read_record, record, try_change


def main() -> int:
    """Run one step. The status is 1 if `compare` misses something, or the full run broke off."""
    parser = argparse.ArgumentParser(prog="python -m tests.power", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("draw", help="build drawn changes into a scratch clone, each behind a switch")
    step.add_argument("tree", type=Path)
    step.add_argument("--seed", type=int, default=1)
    step.add_argument("--count", type=int, default=300)
    step.add_argument("--again", type=Path, help="a result of an older tree, whose changes are built in first")
    step.add_argument("--map", type=Path, help="a file that says where changes went: lines with `was` and `place`")
    step = steps.add_parser("record", help="run the suite without a change, and record which test reaches which place")
    step.add_argument("tree", type=Path)
    step.add_argument("arguments", nargs="*", default=FULL_RUN, help="for pytest, after --")
    step = steps.add_parser("try", help="run the tests that reach a place with its change, one after the other")
    step.add_argument("tree", type=Path)
    step.add_argument("result", type=Path, help="lines are appended; changes that it has finished are left out")
    step.add_argument("--bound", type=float, default=120, help="seconds of tests for one change")
    step = steps.add_parser("summary", help="say what a result shows")
    step.add_argument("result", type=Path)
    step = steps.add_parser("compare", help="say what was found in an older tree, and is not in a newer one")
    step.add_argument("old", type=Path)
    step.add_argument("new", type=Path)
    step.add_argument("--map", type=Path, help="the file given to `draw`: `place` is null where the code is gone")
    arguments = parser.parse_args()
    match arguments.step:
        case "draw":
            return _draw(arguments.tree, arguments.seed, arguments.count, arguments.again, arguments.map)
        case "record":
            return 0 if record(arguments.tree, arguments.arguments) in (0, 1) else 1
        case "try":
            return _try(arguments.tree, arguments.result, arguments.bound)
        case "summary":
            print(summary(_result(arguments.result)))
            return 0
    gone = {Place(**row["was"]) for row in _rows(arguments.map) if not row["place"]} if arguments.map else set()
    return _compare([row for row in _result(arguments.old) if _identity(row) not in gone], _result(arguments.new))


def _draw(path: Path, seed: int, count: int, again: Path | None, by_hand: Path | None) -> int:
    """Build the changes of an older result in, if there is one, and new ones."""
    tree = Tree(path)
    old = [Place(**row["place"]) for row in _result(again) if row.get("place")] if again else []
    found = find_again(old, tree.changes)
    known = {change.place: change for change in tree.changes}
    moved = {Place(**row["was"]): row["place"] for row in _rows(by_hand)} if by_hand else {}
    found |= {was: known[Place(**place)] if place else None for was, place in moved.items()}
    chosen: dict[int, tuple[Change, Place | None]] = {}
    for place in old:
        if (change := found[place]) is not None:
            chosen.setdefault(id(change.node), (change, place))
    measured = {place for _, place in chosen.values()}
    new = [change for change in draw(tree.changes, count + len(chosen), seed) if id(change.node) not in chosen][:count]
    drawn = [*chosen.values(), *((change, None) for change in new)]
    tree.build_in([change for change, _ in drawn])
    write_places(tree, drawn)
    if missing := [place for place in old if place not in measured and place not in moved]:
        print(f"{len(missing)} places could not be found; write into a file for --map where they went:")
        for place in missing:
            print(json.dumps({"was": place._asdict(), "place": None}))
    return 0


def _try(tree: Path, result: Path, bound_s: float) -> int:
    """Try each change that the result does not have, or has as unfinished, and append what became of it."""
    recorded = read_record(tree)
    done = {_identity(row) for row in _result(result) if row["outcome"] != "unfinished"} if result.exists() else set()
    suite = Suite(tree, recorded.seconds)
    with result.open("a", encoding="utf-8") as file:

        def write(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        for name, is_found, seconds in planted(tree):
            if name not in done:
                write({"planted": name, "outcome": "found" if is_found else "survives", "seconds": seconds})
        for number, row in enumerate(_rows(tree / ".power" / "places"), 1):
            if _identity(row) not in done:
                trial = try_change(tree, suite, number, Place(**row["place"]), recorded, bound_s)
                write(row | trial._asdict())
    suite.close()
    return 0


def _compare(old: list[Row], new: list[Row]) -> int:
    """Print what the newer tests miss. New draws are to be found as often as the old ones."""
    missed = lost(old, new)
    for row, now in missed:
        print(json.dumps(row.get("place") or row["planted"]), "->", now["outcome"] if now else "not measured")
    before = share_found(row for row in old if "place" in row)
    after = share_found(row for row in new if "place" in row and not row["was"])
    print(f"{len(missed)} that were found are not found.")
    print(f"Found of new draws: {after[0]} of {after[1]}; of the old ones: {before[0]} of {before[1]}.")
    return 1 if missed or (after[1] and after[0] / after[1] < before[0] / before[1]) else 0


def _identity(row: Row) -> Any:
    return row.get("planted") or Place(**row["place"])


def _result(path: Path) -> list[Row]:
    """The last line of each change: an unfinished one may have been tried again."""
    return list({_identity(row): row for row in _rows(path)}.values())


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
