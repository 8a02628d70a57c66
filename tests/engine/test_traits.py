"""What a server has to know about an agent is a fact of its Traits or a method of Runner, never its class."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dragoman
from dragoman.engine.api import Runner, Traits

PACKAGE = Path(dragoman.__file__).parent

ASSEMBLY = "agents/kinds.py"
"""Picks the agents whose class matters, because their workers, upstream or threads are looked after."""

UNKNOWN_OBJECTS = "agents/adapters.py"
"""Asks whether an object of a user's module is an agent at all."""

MEMBERS = {name for name in (*vars(Runner), *Runner.__annotations__) if not name.startswith("_")}
FACTS = MEMBERS | set(Traits.__struct_fields__)


@cache
def sources() -> dict[str, ast.Module]:
    """The package's modules by their path in it."""
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_bytes()) for path in sorted(PACKAGE.rglob("*.py"))}


def named(node: ast.expr) -> Iterator[str]:
    """The classes that an expression names: one, several of a tuple, or a union."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Tuple(elts=several):
            for each in several:
                yield from named(each)
        case ast.BinOp(left=left, right=right):
            yield from named(left)
            yield from named(right)


def asks(node: ast.expr, classes: set[str]) -> bool:
    """Whether an expression names one of the classes."""
    return not classes.isdisjoint(named(node))


def kinds(modules: dict[str, ast.Module]) -> set[str]:
    """The names of the classes that are runners, with Runner itself."""
    classes = [node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found: set[str] = {"Runner"}
    while more := {each.name for each in classes if each.name not in found and any(asks(b, found) for b in each.bases)}:
        found |= more
    return found


def questions(tree: ast.AST, classes: set[str], facts: set[str]) -> Iterator[str]:
    """Where a module asks for the class of an agent, or whether an object has what a runner has."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]) if asks(asked, classes):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                if name in facts:
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.MatchClass(cls=asked) if asks(asked, classes):
                yield f"line {asked.lineno}: case {ast.unparse(node)}"
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[asked]) if asks(asked, classes):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nothing_asks_for_the_class_of_an_agent() -> None:
    modules = sources()
    classes = kinds(modules)
    assert classes >= {"Agent", "WorkerAgent", "UpstreamAgent", "ChatAgent", "ProgramAgent", "ExecutorAgent"}
    found = {
        place: list(questions(tree, classes - {"Runner"} if place == UNKNOWN_OBJECTS else classes, set()))
        for place, tree in modules.items()
        if place != ASSEMBLY
    }
    assert {place: asked for place, asked in found.items() if asked} == {}


def test_nothing_looks_for_what_a_runner_may_have() -> None:
    served = ("engine/", "server/", "bindings/", "doctor/", "cli/", "push/")
    found = {
        place: list(questions(tree, set(), FACTS)) for place, tree in sources().items() if place.startswith(served)
    }
    assert {place: asked for place, asked in found.items() if asked} == {}


def test_the_questions_are_found_in_every_form() -> None:
    text = """
isinstance(agent, WorkerAgent)
isinstance(agent, (str, api.WorkerAgent))
isinstance(agent, str | WorkerAgent)
type(agent) is WorkerAgent
getattr(agent, "offline", False)
hasattr(agent, "check")
match agent:
    case WorkerAgent(): pass
isinstance(agent, str)
getattr(agent, "__name__")
"""
    found = list(questions(ast.parse(text), {"WorkerAgent"}, FACTS))
    assert sorted(int(each.split(":")[0].removeprefix("line ")) for each in found) == [2, 3, 4, 5, 6, 7, 9]
