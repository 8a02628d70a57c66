"""The parts of the server that every transport of A2A answers with.

Invariant: they belong to one set of agents, like the application that made them; a reload makes others.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from dragoman.bindings.calls import Reception
from dragoman.bindings.cards import Cards
from dragoman.bindings.streams import Streams
from dragoman.bindings.traffic import Traffic
from dragoman.engine.handler import Handler
from dragoman.model.errors import A2AError, AgentNotFound, Unavailable

Elsewhere = Callable[[str], Awaitable[bool]]
"""Whether another replica serves an agent. Raises A2AError if that cannot be found out."""


class Backend(Struct, frozen=True):
    """The objects that answer a call, over any transport. `default` is the agent that answers at the root.

    `elsewhere` knows the agents of other replicas. `traffic` notes what becomes of requests.
    """

    handler: Handler
    reception: Reception
    cards: Cards
    streams: Streams
    default: str
    elsewhere: Elsewhere | None = None
    traffic: Traffic | None = None

    async def locate(self, error: A2AError) -> A2AError:
        """Return the error for the caller. An agent that other replicas serve is not unknown: a retry may reach one."""
        if not isinstance(error, AgentNotFound) or self.elsewhere is None:
            return error
        try:
            served = await self.elsewhere(error.agent)
        except A2AError as unknown:
            return unknown
        return Unavailable(f"agent {error.agent} is served by other replicas: try again", 1) if served else error
