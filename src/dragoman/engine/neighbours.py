"""Neighbours: the agents that other replicas of the store serve.

Invariant: what it says is at most `FRESH_S` old, so that strangers who ask for agents that nobody has cost one read a
second, not one each.
"""

import asyncio
from collections.abc import Callable

from dragoman.store.api import Store

FRESH_S = 1.0
"""How long an answer of the store counts."""


class Neighbours:
    """Knows which agents the other replicas serve. `here` returns the id of this one."""

    def __init__(self, store: Store, here: Callable[[], str]) -> None:
        self._store = store
        self._here = here
        self._agents: frozenset[str] = frozenset()
        self._until_s = 0.0

    async def serve(self, agent: str) -> bool:
        """Whether another replica that is alive serves the agent. Raises StoreError."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until_s:
            replicas = await self._store.replicas.all()
            here = self._here()
            self._agents = frozenset(name for one in replicas if one.id != here for name in one.agents)
            self._until_s = loop.time() + FRESH_S
        return agent in self._agents
