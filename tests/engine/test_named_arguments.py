"""No call that every request passes has more arguments than CPython passes without making a dict of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import dragoman

STACK_MAX = 30
"""CPython 3.11 passes a call's arguments on its stack if they are at most so many, a named one counted twice
(`STACK_USE_GUIDELINE` in `compile.c`). More become a tuple and a dict first, which takes three times as long."""

PACKAGE = Path(dragoman.__file__).parent

ON_THE_WAY = ("model", "engine", "agents/python", "bindings/calls.py", "store/codec.py", "store/encoder.py")
READS = ("store/sqlite/reads.py", "store/postgres/reads.py", "store/sqlite/ledger.py")
BESIDE_IT = PACKAGE / "engine/admin"


def modules() -> Iterator[Path]:
    for name in ON_THE_WAY + READS:
        path = PACKAGE / name
        yield from path.rglob("*.py") if path.is_dir() else (path,)


def calls_with_dict(source: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        f"line {call.lineno}: {ast.unparse(call.func)}"
        for call in calls
        if len(call.args) + 2 * len(call.keywords) > STACK_MAX
    ]


def test_no_call_makes_a_dict_of_its_arguments() -> None:
    looked_at = [path for path in modules() if BESIDE_IT not in path.parents]
    assert len(looked_at) > 50
    assert {path.name: found for path in looked_at if (found := calls_with_dict(path.read_text()))} == {}


def test_a_call_with_sixteen_named_arguments_does() -> None:
    named = ", ".join(f"a{number}=1" for number in range(16))
    assert calls_with_dict(f"make({named})") == ["line 1: make"]
    assert calls_with_dict(f"make({named.removesuffix(', a15=1')})") == []
