"""The agents of other servers, from the start of this one to its end.

Invariant: none of them keeps the server from starting, or makes it unready.
"""

import asyncio
from collections.abc import Sequence

from dragoman.agents.upstream import UpstreamAgent
from dragoman.engine.api import Runner
from dragoman.telemetry.counts import Counts

OK = "ok"


class Upstreams:
    """Those of the agents that live on other servers."""

    def __init__(self, agents: Sequence[Runner]) -> None:
        self._agents = [agent for agent in agents if isinstance(agent, UpstreamAgent)]

    def degraded(self) -> dict[str, str]:
        """Those that cannot be called, by their ids here, and why."""
        states = ((agent.profile.id, agent.way.state) for agent in self._agents)
        return {agent_id: state for agent_id, state in states if state != OK}

    async def open(self, group: asyncio.TaskGroup, counts: Counts | None) -> None:
        """Read their cards, all at once, for a bounded time; what does not come is tried again."""
        if counts is not None:
            counts.upstreams.update({agent.profile.id: agent.way.calls for agent in self._agents})
        await asyncio.gather(*(agent.open(group) for agent in self._agents))

    async def close(self) -> None:
        """End what is open to them."""
        await asyncio.gather(*(agent.close() for agent in self._agents))
