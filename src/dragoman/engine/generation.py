"""Generation: the agents that are served from one reload to the next, and the calls that began with them.

Invariant: its agents never change. Once it is replaced no call begins with it: after its last call it stays idle.
"""

import asyncio
from collections.abc import Mapping

from dragoman.engine.api import Runner


class Generation:
    """`runners` by id. `busy` counts the calls under way that may start a run with one of them."""

    __slots__ = ("_waiting", "busy", "runners")

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self.runners = runners
        self.busy = 0
        self._waiting: asyncio.Future[None] | None = None

    def done(self) -> None:
        """Count a call as over."""
        self.busy -= 1
        if self._waiting is not None and not self.busy and not self._waiting.done():
            self._waiting.set_result(None)

    async def idle(self) -> None:
        """Wait until no call is under way. Only for a generation that has been replaced, and for one waiter."""
        if self.busy:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
