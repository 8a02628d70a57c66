"""EndpointProbe: looks from time to time whether the endpoints of a pool answer, so that no caller has to find out.

Invariant: it costs no token: it asks for the list of models. A sign of life lets the next call through, which decides;
it closes no breaker by itself.
"""

import asyncio
from collections.abc import Callable

from dragoman.agents.breaker import State
from dragoman.agents.model.pool import ModelPool, PoolEndpoint
from dragoman.client.errors import NoToken
from dragoman.net.errors import EgressError


class EndpointProbe:
    """Looks at the endpoints of the agent `name` in turn, each about every `probe_s` of its `pool`.

    The time between two looks is up to half of it longer or shorter, by `chance` from 0 to 1.
    """

    def __init__(self, name: str, pool: ModelPool, chance: Callable[[], float]) -> None:
        self._name = name
        self._pool = pool
        self._chance = chance

    async def watch(self) -> None:
        """Look again and again."""
        pause_s = self._pool.probe_s / len(self._pool.endpoints)
        while True:
            for asked in self._pool.endpoints:
                await asyncio.sleep(pause_s * (0.5 + self._chance()))
                await self.look(asked)

    async def look(self, asked: PoolEndpoint) -> None:
        """Look at one of them. An endpoint that cannot be asked without a caller's token is not looked at."""
        endpoint = asked.endpoint
        try:
            answers = (await endpoint.models()).status < 500
        except NoToken:
            return
        except EgressError:
            answers = False
        if answers:
            endpoint.breaker.half_open()
        elif endpoint.breaker.state is State.CLOSED:
            endpoint.record_failure(self._name)
