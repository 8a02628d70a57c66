"""What agents have open, from the start of a server to its end.

Invariant: none of them keeps the server from starting, or makes it unready.
"""

import asyncio
from collections.abc import Sequence

from dragoman.agents.lifetime import Living
from dragoman.agents.upstream import UpstreamAgent
from dragoman.engine.api import Runner
from dragoman.telemetry.counts import Counts

OK = "ok"


class Lifetimes:
    """The agents that are opened before they are served, and those of them that live on other servers."""

    def __init__(self, agents: Sequence[Runner]) -> None:
        self._living = [agent for agent in agents if isinstance(agent, Living)]
        self._upstreams = [agent for agent in agents if isinstance(agent, UpstreamAgent)]

    def degraded(self) -> dict[str, str]:
        """Those that cannot be called, by their ids here, and why."""
        states = ((agent.profile.id, agent.way.state) for agent in self._upstreams)
        return {agent_id: state for agent_id, state in states if state != OK}

    async def open(self, group: asyncio.TaskGroup, counts: Counts | None) -> None:
        """Open all at once, for a bounded time; what is not there then is tried again."""
        if counts is not None:
            counts.upstreams.update({agent.profile.id: agent.way.calls for agent in self._upstreams})
        await asyncio.gather(*(agent.open(group) for agent in self._living))

    async def close(self) -> None:
        """End what is open."""
        await asyncio.gather(*(agent.close() for agent in self._living))
