"""All agents of a server, from the file and the command line, and how to load them again for a reload.

Invariant: there is at least one agent, and the ids are valid and unique; else AgentReferenceError says what to do.
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
    """The agents, the one that answers at `/` first, and what they were made from, for the next reload.

    `stamps` are those of the user's modules when they were imported; `replaced` are the modules that a fresh import
    replaced.
    """

    agents: tuple[Runner, ...]
    entries: Mapping[str, tuple[AgentEntry, Runner]]
    references: Mapping[str, tuple[Runner, ...]]
    own: Own
    stamps: Mapping[str, Stamp | None]
    replaced: Mapping[str, ModuleType] = {}

    def settled(self) -> "Served":
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
    entries: Sequence[AgentEntry], references: Sequence[str], default: str | None, before: Served | None = None
) -> Served:
    """Load the agents as `load_agents` does. An agent that is unchanged since `before` is the same object.

    If any of the user's modules has changed, all of them are imported again, and all agents in them are new objects.
    Raises AgentReferenceError, and then nothing has changed.
    """
    look_in_working_directory()
    if before is None:
        return _load(entries, references, default, None)
    now = before.own.stamps()
    changed = [file for file, stamp in now.items() if before.stamps.get(file) != stamp]
    if not changed:
        return _load(entries, references, default, before)
    replaced = before.own.modules()
    with before.own.fresh(changed):
        unchanged = {agent_id: kept for agent_id, kept in before.entries.items() if not is_python(kept[0])}
        loaded = _load(entries, references, default, replace(before, entries=unchanged, references={}))
    return replace(loaded, replaced=replaced)


def look_in_working_directory() -> None:
    """Make modules in the working directory importable."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def is_python(entry: AgentEntry) -> bool:
    """Whether the agent is an object in a Python module."""
    return entry.upstream is None and entry.model is None and entry.program is None and ":" in entry.run


def _load(
    entries: Sequence[AgentEntry], references: Sequence[str], default: str | None, before: Served | None
) -> Served:
    made = {entry.id: (entry, _load_entry(entry, before)) for entry in entries}
    given = {
        reference: before.references[reference]
        if before is not None and reference in before.references
        else tuple(referenced(reference))
        for reference in references
    }
    agents = [runner for _, runner in made.values()] + [
        runner for reference in references for runner in given[reference]
    ]
    served = _check_agents(agents, default)
    places = [entry.run.removeprefix(PYTHON).rpartition(":")[0] for entry in entries if is_python(entry)]
    own = Own(roots_of([*places, *(place_of(reference) for reference in references)]))
    return Served(served, made, given, own, own.stamps())


def _load_entry(entry: AgentEntry, before: Served | None) -> Runner:
    kept = None if before is None else before.entries.get(entry.id)
    if kept is not None and replace(kept[0], api_key=None) == replace(entry, api_key=None):
        return kept[1]  # a new key needs no new agent: the authenticator checks keys
    return declared(entry)


def _check_agents(agents: Sequence[Runner], default: str | None) -> tuple[Runner, ...]:
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
