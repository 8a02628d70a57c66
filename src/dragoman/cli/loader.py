"""All agents of a server, from the file and the command line, and how to load them again for a reload.

`SourceFiles` are the files whose change makes a developer's server reload.

Invariant: there is at least one agent, and the ids are valid and unique; else AgentReferenceError says what to do. Only
the user's own modules are imported again: never installed packages, the standard library or Dragoman itself. After a
failed import `sys.modules` has the same modules as before. A look at the files never follows a link to a folder, and
never enters folders of tools: hidden ones, environments, packages of others.
"""

import importlib
import importlib.util
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from msgspec import Struct
from msgspec.structs import replace

from dragoman.cli.entries import make_agent
from dragoman.cli.references import AgentReferenceError, load_reference, place_of, read_given
from dragoman.config import FILE, AgentEntry, Config, agent_id_fault
from dragoman.engine.api import Runner

PYTHON = "python:"

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of directories with installed packages: modules below them are never the user's own."""

FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})
"""Folders whose files nobody edits."""

ENVIRONMENT = "pyvenv.cfg"
"""The file that tells a virtual environment."""

FILES_MAX = 10_000
"""Most files that are looked at: each costs a microsecond or two, several times a second."""

Stamp = tuple[int, int, int]
"""Tells whether a file has changed: its modification time in ns, its size, its inode."""


class OwnModules:
    """The loaded modules from files below `roots`."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(dict.fromkeys(root.resolve() for root in roots))
        self._resolved: dict[Path, Path] = {}
        self._system = tuple(
            Path(path).resolve()
            for name in ("stdlib", "platstdlib", "purelib", "platlib")
            if (path := sysconfig.get_path(name)) is not None
        )

    def modules(self) -> dict[str, ModuleType]:
        """The modules by name, including packages."""
        return {name: module for name, module in tuple(sys.modules.items()) if self._is_own(name, module)}

    def stamps(self) -> dict[str, Stamp | None]:
        """The stamp of each module's file; None: the file is gone."""
        files = {file for module in self.modules().values() if (file := getattr(module, "__file__", None))}
        return {file: _stamp(file) for file in sorted(files)}

    @contextmanager
    def fresh(self, changed: Iterable[str]) -> Iterator[None]:
        """Import the modules anew in this block; if it fails, the old modules are restored.

        The bytecode of the files that `changed` is deleted, so that they are compiled again.
        """
        old = self.modules()
        for file in changed:  # bytecode is matched by a time in whole seconds, and edits may come faster
            with suppress(OSError, NotImplementedError):
                os.unlink(importlib.util.cache_from_source(file))
        for name in old:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        linecache.checkcache()
        try:
            yield
        except BaseException:
            self.restore(old)
            raise

    def restore(self, old: Mapping[str, ModuleType]) -> None:
        """Put the modules `old` back in place of those imported since."""
        for name in self.modules():
            sys.modules.pop(name, None)
        sys.modules.update(old)

    def _is_own(self, name: str, module: ModuleType) -> bool:
        if name == "__main__" or name == "dragoman" or name.startswith("dragoman."):
            return False
        file = getattr(module, "__file__", None)
        if file is None:  # a directory without __init__.py
            return any(self._is_below(Path(path)) for path in getattr(module, "__path__", ()))
        return isinstance(file, str) and file.endswith(".py") and self._is_below(Path(file))

    def _is_below(self, path: Path) -> bool:
        path = self._resolve(path)
        return (
            any(path.is_relative_to(root) for root in self._roots)
            and INSTALLED.isdisjoint(path.parts)
            and not any(path.is_relative_to(place) for place in self._system)
        )

    def _resolve(self, path: Path) -> Path:
        """Resolve links; each folder once, because modules share few folders."""
        if path.is_symlink():
            return path.resolve()
        folder = path.parent
        if folder not in self._resolved:
            self._resolved[folder] = folder.resolve()
        return self._resolved[folder] / path.name


class SourceFiles:
    """The `.py` files below `folders`, and the `others`, whether they exist or not."""

    def __init__(self, folders: Iterable[Path], others: Iterable[Path] = ()) -> None:
        resolved = sorted({folder.resolve() for folder in folders})
        self.folders = tuple(
            folder for folder in resolved if not any(folder.is_relative_to(up) for up in resolved if up != folder)
        )
        self._others = tuple(others)

    def stamps(self) -> dict[str, Stamp]:
        """The stamp of each file that exists, of the first `FILES_MAX`."""
        found: dict[str, Stamp] = {}
        for path in self._paths():
            try:
                stat = os.stat(path)
            except OSError:
                continue
            found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if len(found) >= FILES_MAX:
                break
        return found

    def _paths(self) -> Iterator[str]:
        yield from map(str, self._others)
        for top in self.folders:
            for folder, below, names in os.walk(top):
                if ENVIRONMENT in names:
                    below.clear()
                    continue
                below[:] = sorted(name for name in below if not name.startswith(".") and name not in FOREIGN)
                yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".py"))


NO_AGENTS = (
    "no agents: name one as MODULE:OBJECT or file.py:OBJECT, or in [[agents]] of the file; or set secret_key_file, or "
    "allow_hosts of [agents_api], if operators add all of them"
)


class LoadedAgents(Struct, frozen=True):
    """The agents, the one that answers at `/` first, and what they were made from, for the next reload.

    `stamps` are those of the user's modules when they were imported; `replaced` are the modules that a fresh import
    replaced.
    """

    agents: tuple[Runner, ...]
    entries: Mapping[str, tuple[AgentEntry, Runner]]
    references: Mapping[str, tuple[Runner, ...]]
    own: OwnModules
    stamps: Mapping[str, Stamp | None]
    replaced: Mapping[str, ModuleType] = {}

    def without_replaced(self) -> "LoadedAgents":
        """The same agents, without the replaced modules: they can no longer be undone."""
        return replace(self, replaced={})

    def undo(self) -> None:
        """Put the replaced modules back, because these agents will not be served."""
        if self.replaced:
            self.own.restore(self.replaced)


def load_agents(entries: Sequence[AgentEntry], references: Sequence[str], default: str | None) -> list[Runner]:
    """Load the agents of the file, then those of the command line; the one that answers at `/` comes first.

    Modules are also searched for in the working directory. Raises AgentReferenceError.
    """
    return list(load_served(entries, references, default).agents)


def load_served(
    entries: Sequence[AgentEntry],
    references: Sequence[str],
    default: str | None,
    before: LoadedAgents | None = None,
    *,
    none: bool = False,
) -> LoadedAgents:
    """Load the agents as `load_agents` does. An agent that is unchanged since `before` is the same object.

    With `none` there may be no agents; then `default` may be one that operators add.

    If any of the user's modules has changed, all of them are imported again, and all agents in them are new objects.
    Raises AgentReferenceError, and then nothing has changed.
    """
    look_in_working_directory()
    if before is None:
        return _load(entries, references, default, None, none)
    now = before.own.stamps()
    changed = [file for file, stamp in now.items() if before.stamps.get(file) != stamp]
    if not changed:
        return _load(entries, references, default, before, none)
    replaced = before.own.modules()
    with before.own.fresh(changed):
        unchanged = {agent_id: kept for agent_id, kept in before.entries.items() if not is_python(kept[0])}
        loaded = _load(entries, references, default, replace(before, entries=unchanged, references={}), none)
    return replace(loaded, replaced=replaced)


def load_given(given: object, config: Config) -> list[Runner]:
    """The agents of the file, then those that a program gives; the one that answers at `/` comes first.

    `given` is a list of agents, a mapping of them by id, or one alone. Each is an object, as `read_given` takes it, or
    a reference, as the command line has it. Raises AgentReferenceError.
    """
    look_in_working_directory()
    named: list[tuple[Runner, str]] = [
        (make_agent(entry), f"run = {entry.run!r} in the file") for entry in config.agents
    ]
    if isinstance(given, Mapping):
        labelled = [(str(agent_id), value) for agent_id, value in given.items()]
    else:
        labelled = [("", value) for value in (given if isinstance(given, list | tuple) else (given,))]
    for agent_id, value in labelled:
        if isinstance(value, str):
            reference = f"{agent_id}={value}" if agent_id else value
            named += [(agent, reference) for agent in load_reference(reference)]
        else:
            named.append((read_given(value, agent_id), "`agents`"))
    return list(_check_agents(named, config.default, none=config.begins_empty))


def source_files(entries: Sequence[AgentEntry], references: Sequence[str], file: Path | None) -> SourceFiles:
    """The files whose change may change the agents: Python in the working directory and beside files that agents name.

    `file` is the configuration. Nothing is imported.
    """
    places = [entry.run.removeprefix(PYTHON).rpartition(":")[0] for entry in entries if is_python(entry)]
    places += [place_of(reference) for reference in references]
    named = [Path(place).parent for place in places if place.endswith(".py") or "/" in place]
    return SourceFiles([Path.cwd(), *named], [Path(FILE) if file is None else file])


def look_in_working_directory() -> None:
    """Make modules in the working directory importable."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def is_python(entry: AgentEntry) -> bool:
    """Whether the agent is an object in a Python module."""
    return entry.upstream is None and entry.model is None and entry.program is None and ":" in entry.run


def _load(
    entries: Sequence[AgentEntry],
    references: Sequence[str],
    default: str | None,
    before: LoadedAgents | None,
    none: bool,
) -> LoadedAgents:
    made = {entry.id: (entry, _load_entry(entry, before)) for entry in entries}
    given = {
        reference: before.references[reference]
        if before is not None and reference in before.references
        else tuple(load_reference(reference))
        for reference in references
    }
    named = [(runner, f"run = {entry.run!r} in the file") for entry, runner in made.values()]
    named += [(runner, reference) for reference in references for runner in given[reference]]
    served = _check_agents(named, default, none=none)
    places = [entry.run.removeprefix(PYTHON).rpartition(":")[0] for entry in entries if is_python(entry)]
    own = OwnModules(roots_of([*places, *(place_of(reference) for reference in references)]))
    return LoadedAgents(served, made, given, own, own.stamps())


def _load_entry(entry: AgentEntry, before: LoadedAgents | None) -> Runner:
    kept = None if before is None else before.entries.get(entry.id)
    if kept is not None and replace(kept[0], api_key=None) == replace(entry, api_key=None):
        return kept[1]  # a new key needs no new agent: the authenticator checks keys
    return make_agent(entry)


def _check_agents(
    named: Sequence[tuple[Runner, str]], default: str | None, *, none: bool = False
) -> tuple[Runner, ...]:
    """Check the agents, each with the words that named it. Raises AgentReferenceError, unless there may be `none`."""
    if not named and none:
        return ()
    if not named:
        raise AgentReferenceError(NO_AGENTS)
    sources: dict[str, list[str]] = {}
    for agent, source in named:
        sources.setdefault(agent.profile.id, []).append(source)
    for agent_id, given in sources.items():
        if len(given) > 1:
            raise AgentReferenceError(
                f"agent id {agent_id!r} is given {len(given)} times, by {' and by '.join(given)}: ids must differ; "
                "ID=MODULE:OBJECT gives an agent another one"
            )
        if fault := agent_id_fault(agent_id):
            raise AgentReferenceError(f"agent id {agent_id!r}: {fault}")
    if default is not None and default not in sources:
        raise AgentReferenceError(f"default = {default!r}: no such agent; there are {', '.join(sources)}")
    agents = [agent for agent, _ in named]
    return tuple(sorted(agents, key=lambda agent: agent.profile.id != default) if default else agents)


def roots_of(places: Iterable[str]) -> Iterator[Path]:
    """Yield where the user's own modules are.

    These are the working directory, the directory of each file that agents name, and the package or file of each
    module that they name.
    """
    yield Path.cwd()
    for place in places:
        if place.endswith(".py") or "/" in place:
            yield Path(place).parent
        elif isinstance(file := getattr(sys.modules.get(place.partition(".")[0]), "__file__", None), str):
            path = Path(file)
            yield path.parent if path.name == "__init__.py" else path


def _stamp(file: str) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
