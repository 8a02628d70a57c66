"""The error messages of the server that name a fix, as the code has them.

A message names a fix if, after a colon, semicolon or full stop, it goes on with what to do. `…` stands for what differs
from case to case.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "dragoman"

SERVER = (
    "application.py",
    "admin",
    "auth",
    "bindings",
    "bus",
    "config",
    "dialects",
    "engine",
    "server",
    "store",
    "agents/worker",
    "agents/remote",
    "agents/frameworks",
)
"""The packages, and a module, whose messages reach those who run a server or call one. Commands and the client are not
here: their messages answer what somebody has just typed."""

VERBS = (
    "add ask call check choose compile copy get give go install leave let listen lower make move name put raise remove "
    "restart run say send serve set start stop take try turn upgrade use wait write"
)

FIX = re.compile(rf"(?:[:;,] |\. |\()(?:{VERBS.replace(' ', '|')})\b", re.IGNORECASE)

LOGGED = ("warning", "error", "critical")


def messages() -> dict[str, str]:
    """Each message with the module that has it."""
    found: dict[str, str] = {}
    for package in SERVER:
        at = SOURCE / package
        for path in [at] if at.is_file() else sorted(at.rglob("*.py")):
            for text in _texts(ast.parse(path.read_text(encoding="utf-8"))):
                if FIX.search(text):
                    found.setdefault(text, str(path.relative_to(SOURCE)))
    return found


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts that are raised, and those that are logged as a warning or worse."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            arguments = [*node.exc.args, *(keyword.value for keyword in node.exc.keywords)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGGED:
            arguments = node.args[:1]
        else:
            continue
        yield from filter(None, map(_text, arguments))


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%(?:\.\d+)?[a-z]", "…", text)
        case ast.JoinedStr(values=values):
            return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in values)
        case ast.IfExp(body=body):
            return _text(body)
    return None
