"""All agents of a server: those of the file and those of the command line.

Invariant: their ids differ and can be served, and there is one at least; else AgentReferenceError says what to do.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.cli.declared import declared
from dragoman.cli.references import AgentReferenceError, referenced
from dragoman.config import AgentEntry, agent_id_fault
from dragoman.engine.api import Runner


def load_agents(entries: Sequence[AgentEntry], references: Sequence[str], default: str | None) -> list[Runner]:
    """The agents of the file, then those of the command line; the one that answers at `/` comes first.

    Modules are looked for in the working directory, too. Raises AgentReferenceError.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    agents = [declared(entry) for entry in entries]
    for reference in references:
        agents.extend(referenced(reference))
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
    return sorted(agents, key=lambda agent: agent.profile.id != default) if default else agents
