"""The time budget of a stop: most of it is for the runs, the rest for closing.

Invariant: nothing that is closed within the budget holds the server up longer than its grace period.
"""

import asyncio
import logging
from collections.abc import Awaitable

log = logging.getLogger(__name__)

CLOSING_S = 3.0
"""The part of the grace period for everything after the runs. Normally that takes less than 0.5 s. In the worst case
agents that ignore their cancellation take 1 s of it, and answers, webhook calls and programs another second."""

REST_S = 0.8
"""The part of `CLOSING_S` that is reserved for the audit trail, the idle connections and the store."""

STORE_S = 0.5
"""The part of `REST_S` that is reserved for the store. It closes within milliseconds on a healthy disk."""


def runs_s(grace_s: float) -> float:
    """How long running tasks may go on: all but the last 3 s of the grace period, but at least half of it."""
    return max(grace_s - CLOSING_S, grace_s / 2)


def whole_s(grace_s: float) -> float:
    """How long a stop takes at most, from the signal to the end of the process: `grace_s`, if that is 6 s or more."""
    return runs_s(grace_s) + CLOSING_S


class Shutdown:
    """A stop that begins now and has `grace_s` in all."""

    def __init__(self, grace_s: float) -> None:
        self.runs_s = runs_s(grace_s)
        """How long running tasks may go on."""
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + whole_s(grace_s)
        self._kept_s = REST_S

    @property
    def answers_s(self) -> float:
        """How many seconds are left, less the reserved part."""
        return max(0.0, self._end - self._kept_s - self._loop.time())

    def spend_rest(self) -> None:
        """Release the reserve, except for the store's part, because nothing is under way any more."""
        self._kept_s = STORE_S

    async def within(self, name: str, closing: Awaitable[None]) -> None:
        """Await `closing` while there is time, then cancel it and log that `name` was left behind."""
        try:
            async with asyncio.timeout(self.answers_s):
                await closing
        except TimeoutError:
            log.warning("stopping: %s did not close in time and is left behind", name)
