"""The time that a stopping server has, and how it is shared: most of it is for the runs, the rest for closing.

Invariant: nothing that is closed within it keeps the server longer than its grace period.
"""

import asyncio
import logging
from collections.abc import Awaitable

log = logging.getLogger(__name__)

CLOSING_S = 3.0
"""So much of the grace period is for what follows the runs. If all is well it takes less than 0.5 s. In the worst case
agents that do not let themselves be canceled take 1 s of it, answers, webhook calls and programs another second."""

REST_S = 0.8
"""The part of that which is kept for the audit trail and for the connections that nothing uses any more."""

STORE_S = 0.5
"""The part of `REST_S` which only the store has. It closes within milliseconds on a healthy disk."""


def runs_s(grace_s: float) -> float:
    """How long running tasks may go on: all but the last 3 s of the grace period, but at least half of it."""
    return max(grace_s - CLOSING_S, grace_s / 2)


def whole_s(grace_s: float) -> float:
    """How long a stop takes at most, from the signal to the end of the process: `grace_s`, if that is 6 s or more."""
    return runs_s(grace_s) + CLOSING_S


class Shutdown:
    """A stop that begins now, and has `grace_s` in all."""

    def __init__(self, grace_s: float) -> None:
        self.runs_s = runs_s(grace_s)
        """How long running tasks may go on."""
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + whole_s(grace_s)
        self._kept_s = REST_S

    @property
    def answers_s(self) -> float:
        """How much is left for what is under way."""
        return max(0.0, self._end - self._kept_s - self._loop.time())

    def spend_rest(self) -> None:
        """Nothing is under way any more: all but the store's part may be used."""
        self._kept_s = STORE_S

    async def within(self, name: str, closing: Awaitable[None]) -> None:
        """Await `closing` as long as there is time, then cancel it and log that `name` was left behind."""
        try:
            async with asyncio.timeout(self.answers_s):
                await closing
        except TimeoutError:
            log.warning("stopping: %s did not close in time and is left behind", name)
