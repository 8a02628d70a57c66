"""All agents of a server: those of the file and those of the command line; and, later, what has become of them.

Invariant: their ids differ and can be served, and there is one at least; else AgentReferenceError says what to do.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from msgspec import Struct
from msgspec.structs import replace

from dragoman.cli.declared import declared
from dragoman.cli.modules import Own, Stamp, roots_of
from dragoman.cli.references import AgentReferenceError, place_of, referenced
from dragoman.config import AgentEntry, agent_id_fault
from dragoman.engine.api import Runner

PYTHON = "python:"


class Served(Struct, frozen=True):
    """The agents, the one that answers at `/` first, and what they were made of, for whoever makes them again.

    `stamps` are those of the user's modules as they were imported; `replaced` those that a fresh import replaced.
    """

    agents: tuple[Runner, ...]
    entries: Mapping[str, tuple[AgentEntry, Runner]]
    references: Mapping[str, tuple[Runner, ...]]
    own: Own
    stamps: Mapping[str, Stamp | None]
    replaced: Mapping[str, ModuleType] = {}

    def settled(self) -> "Served":
        """The same, without a way back: what was replaced may be forgotten."""
        return replace(self, replaced={})

    def undo(self) -> None:
        """These are not to be served: the modules are those of before."""
        if self.replaced:
            self.own.restore(self.replaced)


def load_agents(entries: Sequence[AgentEntry], references: Sequence[str], default: str | None) -> list[Runner]:
    """The agents of the file, then those of the command line; the one that answers at `/` comes first.

    Modules are looked for in the working directory, too. Raises AgentReferenceError.
    """
    return list(load_served(entries, references, default).agents)


def load_served(
    entries: Sequence[AgentEntry], references: Sequence[str], default: str | None, before: Served | None = None
) -> Served:
    """The same. What is as it was `before` is the same object.

    If any of the user's modules has changed, all of them are imported again, and all agents in them are others. Raises
    AgentReferenceError, and then nothing has changed.
    """
    look_in_working_directory()
    if before is None:
        return _loaded(entries, references, default, None)
    now = before.own.stamps()
    changed = [file for file, stamp in now.items() if before.stamps.get(file) != stamp]
    if not changed:
        return _loaded(entries, references, default, before)
    replaced = before.own.modules()
    with before.own.fresh(changed):
        unchanged = {agent_id: kept for agent_id, kept in before.entries.items() if not is_python(kept[0])}
        loaded = _loaded(entries, references, default, replace(before, entries=unchanged, references={}))
    return replace(loaded, replaced=replaced)


def look_in_working_directory() -> None:
    """Have modules be found in the working directory, too."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def is_python(entry: AgentEntry) -> bool:
    """Whether the agent is an object in a Python module."""
    return entry.upstream is None and entry.model is None and entry.program is None and ":" in entry.run


def _loaded(
    entries: Sequence[AgentEntry], references: Sequence[str], default: str | None, before: Served | None
) -> Served:
    made = {entry.id: (entry, _made(entry, before)) for entry in entries}
    given = {
        reference: before.references[reference]
        if before is not None and reference in before.references
        else tuple(referenced(reference))
        for reference in references
    }
    agents = [runner for _, runner in made.values()] + [
        runner for reference in references for runner in given[reference]
    ]
    served = _checked(agents, default)
    places = [entry.run.removeprefix(PYTHON).rpartition(":")[0] for entry in entries if is_python(entry)]
    own = Own(roots_of([*places, *(place_of(reference) for reference in references)]))
    return Served(served, made, given, own, own.stamps())


def _made(entry: AgentEntry, before: Served | None) -> Runner:
    kept = None if before is None else before.entries.get(entry.id)
    if kept is not None and replace(kept[0], api_key=None) == replace(entry, api_key=None):
        return kept[1]  # a key is asked for before an agent hears of its caller
    return declared(entry)


def _checked(agents: Sequence[Runner], default: str | None) -> tuple[Runner, ...]:
    if not agents:
        raise AgentReferenceError(
            "no agents: name one as MODULE:OBJECT or file.py:OBJECT, or in [[agents]] of the file"
        )
    ids = [agent.profile.id for agent in agents]
    for agent_id in ids:
        if ids.count(agent_id) > 1:
            raise AgentReferenceError(f"agent id {agent_id!r} is given {ids.count(agent_id)} times: ids must differ")
        if fault := agent_id_fault(agent_id):
            raise AgentReferenceError(f"agent id {agent_id!r}: {fault}")
    if default is not None and default not in ids:
        raise AgentReferenceError(f"default = {default!r}: no such agent; there are {', '.join(ids)}")
    return tuple(sorted(agents, key=lambda agent: agent.profile.id != default) if default else agents)
