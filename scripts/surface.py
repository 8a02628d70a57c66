"""The public surface: every name that users may depend on, one a line, kept in `tests/surface.txt`.

`make surface` writes it anew. It refuses to drop a line whose name the changelog does not have, in backquotes, under
Changed or Removed of what is unreleased. A test compares the file with the code, so that no name comes or goes unseen.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from dragoman.admin.question import PREFIX
from dragoman.bindings.admin.routes import routes
from dragoman.bindings.openapi.operations import OPERATIONS
from dragoman.cli import main as command
from dragoman.cli.command import SharedOption
from dragoman.cli.old_names import COMMANDS as OLD_COMMANDS
from dragoman.cli.old_names import OldOption
from dragoman.config import settings
from dragoman.config.agents import KINDS, RESERVED_AGENT_IDS, AgentEntry, ProviderEntry, SkillEntry
from dragoman.config.pools import MEMBER_KEYS
from dragoman.dialects import extensions
from dragoman.dialects.registry import SYSTEMS

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "surface.txt"
CHANGELOG = ROOT / "CHANGELOG.md"
METRICS = ROOT / "src" / "dragoman" / "cli" / "topics" / "metrics.txt"

PACKAGES = ("dragoman", "dragoman.client", "dragoman.testing", "dragoman.kaos")
"""The packages whose names are public; all others may change at any time."""

VARIABLE = re.compile(r'"(_?DRAGOMAN_(?!ERR_)[A-Z_]*[A-Z])"')
METRIC = re.compile(r"(?:^|, )`(dragoman_\w+)(?:\{([^}]*)\})?`", re.MULTILINE)
UNRELEASED = re.compile(r"^## \[Unreleased\].*?$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LEAVING = re.compile(r"^### (?:Changed|Removed)$(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")


def surface() -> list[str]:
    """The lines, sorted: a kind of name, and the name."""
    found = {
        *_settings(),
        *_commands("dragoman", command),
        *_old_commands(),
        *_http(),
        *_python(),
        *_metrics(),
        *_store(),
    }
    return sorted(found)


def faults(recorded: list[str], present: list[str], changelog: str) -> list[str]:
    """One line for every name that came or went without `make surface`."""
    found = unexplained(recorded, present, changelog)
    explained = set(recorded) - set(present) - {line.partition(": ")[0] for line in found}
    found += [f"{line}: is gone, as the changelog says; run make surface" for line in sorted(explained)]
    return found + [f"{line}: is new; run make surface" for line in sorted(set(present) - set(recorded))]


def unexplained(recorded: list[str], present: list[str], changelog: str) -> list[str]:
    """One line for every name that went without an entry in the changelog."""
    unreleased = UNRELEASED.search(changelog)
    sections = LEAVING.findall(unreleased[1]) if unreleased is not None else []
    said = {name for section in sections for name in CODE.findall(section)}
    gone = {line: line.partition(" ")[2] for line in sorted(set(recorded) - set(present))}
    fix = f"under Changed or Removed of Unreleased in {CHANGELOG.name}"
    return [f"{line}: is gone; keep it, or name `{name}` {fix}" for line, name in gone.items() if name not in said]


# -- what there is -----------------------------------------------------------------------------------------------------


def _settings() -> Iterator[str]:
    for setting in settings():
        yield f"setting {setting.name}"
        yield f"variable {setting.env}"
    for module in (ROOT / "src").rglob("*.py"):
        for name in VARIABLE.findall(module.read_text(encoding="utf-8")):
            yield f"variable {name}"
    for kind in KINDS:
        for key in kind.keys:
            yield f"agent-key {kind.prefix}{key}"
    for key in MEMBER_KEYS:
        yield f"agent-key pool.{key}"
    kinds = {*(kind.field for kind in KINDS), "pool"}
    for table, entry in (("", AgentEntry), ("skills.", SkillEntry), ("provider.", ProviderEntry)):
        for key in entry.__struct_fields__:
            if key not in kinds:
                yield f"agent-key {table}{key}"
    for name in RESERVED_AGENT_IDS:
        yield f"reserved-agent-id {name}"


def _old_commands() -> Iterator[str]:
    for old, new in OLD_COMMANDS.items():
        found: click.Command = command
        for word in new:
            assert isinstance(found, click.Group)
            below = found.get_command(click.Context(found), word)
            assert below is not None
            found = below
        path = f"dragoman {' '.join(old)}"
        renamed_below = any(words[: len(old)] == old for words in OLD_COMMANDS if words != old)
        yield from [f"command {path}"] if renamed_below else _commands(path, found)


def _commands(path: str, one: click.Command) -> Iterator[str]:
    yield f"command {path}"
    for parameter in one.params:
        if isinstance(parameter, OldOption | SharedOption) or (
            isinstance(parameter, click.Option) and not parameter.hidden
        ):
            for flag in (*parameter.opts, *parameter.secondary_opts):
                yield f"option {path} {flag}"
        elif isinstance(parameter, click.Argument):
            yield f"argument {path} {parameter.human_readable_name}"
    if isinstance(one, click.Group):
        context = click.Context(one)
        for name in one.list_commands(context):
            below = one.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _commands(f"{path} {name}", below)


def _http() -> Iterator[str]:
    for route in routes():
        yield f"admin {route.method} {PREFIX}{route.path}"
    for operation in OPERATIONS:
        yield f"http {operation.method} {operation.path}"
    for system in SYSTEMS:
        yield f"system {system}"
    for uri in vars(extensions).values():
        if isinstance(uri, str) and uri.startswith("urn:dragoman:"):
            yield f"extension {uri}"


def _python() -> Iterator[str]:
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            full, value = f"{package}.{name}", getattr(module, name)
            yield f"name {full}"
            if inspect.isclass(value):
                yield from _members(full, value)
            elif inspect.isroutine(value):
                yield from _parameters(full, value)


def _members(full: str, value: type) -> Iterator[str]:
    """The attributes that the class or one of our own above it defines, and the parameters of its methods.

    Members that it has from a protocol of the engine are for the server, which asks for them.
    """
    ours = [each for each in value.__mro__ if each.__module__.startswith("dragoman")]
    ours = [each for each in ours if not each.__module__.startswith("dragoman.engine") or each is value]
    if ours and not issubclass(value, Enum):
        yield from _parameters(full, value)
    for each in ours:
        annotated = dict.fromkeys(inspect.get_annotations(each))
        for name, member in {**annotated, **vars(each)}.items():
            if name.startswith("_"):
                continue
            yield f"name {full}.{name}"
            if inspect.isroutine(member):
                yield from _parameters(f"{full}.{name}", getattr(value, name))


def _parameters(full: str, value: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return  # a class of C, without a signature
    for parameter in parameters:
        if parameter.name != "self" and not parameter.name.startswith("_"):
            yield f"parameter {full}({parameter.name})"


def _metrics() -> Iterator[str]:
    for name, labels in METRIC.findall(METRICS.read_text(encoding="utf-8")):
        yield f"metric {name}"
        for label in filter(None, re.split(r",\s*", labels)):
            yield f"label {name}{{{label}}}"


def _store() -> Iterator[str]:
    for step in (files("dragoman.store.sqlite") / "migrations").iterdir():
        if step.name.endswith(".sql"):
            yield f"store-version sqlite {step.name}"


def main() -> int:
    """Write the file, unless a name goes without a word; with --check only compare. Returns the exit status."""
    present = surface()
    recorded = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    if "--check" in sys.argv[1:]:
        found = faults(recorded, present, CHANGELOG.read_text(encoding="utf-8"))
        print("".join(f"{line}\n" for line in found), end="", file=sys.stderr)
        return 1 if found else 0
    if lost := unexplained(recorded, present, CHANGELOG.read_text(encoding="utf-8")):
        print("\n".join(lost), file=sys.stderr)
        return 1
    RECORDED.write_text("\n".join(present) + "\n", encoding="utf-8")
    print(f"{RECORDED.relative_to(ROOT)}: {len(present)} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
