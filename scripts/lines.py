"""Prints how much there is to read: `python scripts/lines.py [TREE]`.

A line of code is one that is neither blank, nor only a comment, nor part of a docstring; for SQL, neither blank nor
only a comment. Templates and what a build makes (the console's pages) are not counted. The core is what somebody has to
know before a first change: the server on SQLite with the official versions over HTTP.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Folders and modules of the package, without what stands in `CORE_WITHOUT`.
CORE = ("model", "dialects", "engine", "store", "bindings", "server", "config")
CORE_WITHOUT = (
    "dialects/v1/protobuf",
    "dialects/v03/protobuf",
    "dialects/protobuf",
    "dialects/beeos",
    "dialects/evoai",
    "dialects/fasta2a",
    "dialects/kaos",
    "dialects/mcp",
    "dialects/openai",
    "dialects/protoagent",
    "dialects/python_a2a",
    "store/postgres",
    "store/blobs/s3.py",
    "bindings/grpc",
    "bindings/mcp",
    "bindings/openai.py",
    "bindings/question_finder.py",
    "bindings/console",
    "bindings/remote",
)


class Count(NamedTuple):
    """The lines of a module, how many of them are code, and how many stand in functions that pytest calls."""

    lines: int
    code: int
    tests: int


def count(path: Path) -> Count:
    """Count the lines of a file of Python or SQL."""
    text = path.read_text()
    lines = text.count("\n")
    if path.suffix == ".sql":
        return Count(
            lines, sum(bool(line.strip()) and not line.strip().startswith("--") for line in text.splitlines()), 0
        )
    tree = ast.parse(text)
    code = set(numbers_of_tokens(text)) - set(numbers_of_docstrings(tree))
    return Count(lines, len(code), len(set(numbers_of_tests(tree))))


def numbers_of_tokens(text: str) -> Iterator[int]:
    """The lines on which something other than a comment stands."""
    without = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in without:
            yield from range(token.start[0], token.end[0] + 1)


def numbers_of_docstrings(tree: ast.Module) -> Iterator[int]:
    """The lines of docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str())) as first:
                    yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def numbers_of_tests(tree: ast.Module) -> Iterator[int]:
    """The lines of functions that pytest calls, with their decorators: the rows of a parametrised test are tests."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield from range(first, (node.end_lineno or node.lineno) + 1)


def sources(folder: Path) -> Iterator[Path]:
    """The files below a folder that people write."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".py", ".sql"} and "node_modules" not in path.parts and "built" not in path.parts:
            yield path


def is_core(path: str) -> bool:
    """Whether a file of the package belongs to what everybody has to know."""
    return path.split("/")[0] in CORE and not any(path == each or path.startswith(f"{each}/") for each in CORE_WITHOUT)


def add(counts: Counter[str], name: str, found: Count) -> None:
    """Add a file's counts under a name."""
    for kind, number in found._asdict().items():
        counts[f"{name} {kind}"] += number


def main() -> None:
    """Print the package's folders, the core, the whole, and the tests."""
    tree = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent.parent
    package, counts = tree / "src" / "dragoman", Counter[str]()
    folders: Counter[str] = Counter()
    for path in sources(package):
        found, place = count(path), path.relative_to(package).as_posix()
        folder = place.split("/")[0] if "/" in place else "(package)"
        folders[folder] += found.lines
        for name in (folder, "all of src", *(["the core"] if is_core(place) else [])):
            add(counts, name, found)
    for path in sources(tree / "tests"):
        add(counts, "tests", count(path))
    print(f"{'':14}{'lines':>9}{'code':>9}")
    for name in [*(name for name, _ in folders.most_common()), "the core", "all of src", "tests"]:
        print(f"{name:14}{counts[f'{name} lines']:9,}{counts[f'{name} code']:9,}")
    print(f"{counts['tests tests'] / max(1, counts['tests lines']):.0%} of the tests' lines are in test functions")


if __name__ == "__main__":
    main()
