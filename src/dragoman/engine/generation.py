"""Generation: the agents that are served from one reload to the next, and the calls that were begun with them.

Invariant: its agents never change. Once it is over nothing is begun with it: after its last call it stays idle.
"""

import asyncio
from collections.abc import Mapping

from dragoman.engine.api import Runner


class Generation:
    """`runners` by id, and how many calls that may start a run with one of them are under way (`busy`)."""

    __slots__ = ("_waiting", "busy", "runners")

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self.runners = runners
        self.busy = 0
        self._waiting: asyncio.Future[None] | None = None

    def done(self) -> None:
        """A call is over."""
        self.busy -= 1
        if self._waiting is not None and not self.busy and not self._waiting.done():
            self._waiting.set_result(None)

    async def idle(self) -> None:
        """Wait until no call is under way. Only for one that is over, and for one who waits."""
        if self.busy:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
