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

LOOK_S = 5.0
"""About how often in seconds the only endpoint of an agent is looked at while its calls are held back."""


def look_s(pool: ModelPool) -> float:
    """About how often in seconds each endpoint is looked at. Two looks are up to half of that longer apart."""
    return pool.probe_s if len(pool.endpoints) > 1 else min(pool.probe_s, LOOK_S)


class EndpointProbe:
    """Looks at the endpoints of the agent `name` in turn, each about every `look_s` of its `pool`.

    A single one is only looked at while its calls are held back.

    The time between two looks is up to half of it longer or shorter, by `chance` from 0 to 1.
    """

    def __init__(self, name: str, pool: ModelPool, chance: Callable[[], float]) -> None:
        self._name = name
        self._pool = pool
        self._chance = chance

    async def watch(self) -> None:
        """Look again and again."""
        endpoints = self._pool.endpoints
        pause_s = look_s(self._pool) / len(endpoints)
        while True:
            for asked in endpoints:
                await asyncio.sleep(pause_s * (0.5 + self._chance()))
                if len(endpoints) > 1 or asked.endpoint.breaker.state is not State.CLOSED:
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
