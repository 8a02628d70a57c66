"""The memories of CrewAI's crews and agents between runs.

Invariant: what the run of one caller remembered is recalled in no other caller's. Views that the author made of a
memory (`memory.scope(…)`, `memory.slice(…)`) stay as the author made them.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any


def keep_apart(crew: Any, agents: Iterable[Any], caller: str) -> None:
    """Give the copies of a crew (None: no crew) and of agents memories with a separate place for this caller."""
    if crew is not None and crew._memory is not None:
        crew._memory = crew.memory = _own(crew._memory, caller)  # a copy has the crew's memory in both
    for agent in agents:
        agent.memory = _own(agent.memory, caller)


def _own(memory: Any, caller: str) -> Any:
    if not hasattr(memory, "root_scope"):
        return memory
    # CrewAI matches places by prefix: names of one length, so that none is a prefix of another.
    place = f"{memory.root_scope or ''}/caller/{sha256(caller.encode()).hexdigest()}"
    return memory.model_copy(update={"root_scope": place})
