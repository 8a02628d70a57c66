"""UpstreamHealth: whether calls to an agent of another server get through, and how they ended.

Invariant: a success ends whatever was held back. A reason that shuts this server out holds until a call gets through.
"""

import asyncio
import logging
from contextlib import suppress

from dragoman.agents.breaker import Breaker, State
from dragoman.agents.remote.failures import NOT_LET_IN
from dragoman.model.errors import Unavailable
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.counts import UpstreamCalls

log = logging.getLogger("dragoman.upstreams")

REST_S = 1.0
"""Seconds for which other members of a pool go before one that has too much to do, when it names no time."""

AGAIN_S = 5.0
"""Seconds until a send may be repeated, when nobody names a time."""

LOOK_S = 5.0
"""Longest time in seconds between two readings of a card while calls are held back: the next call is made as soon as
one succeeds, however long the pause of the breaker has grown."""

RETRY_S_MAX = 2 * LOOK_S
"""Longest time after which callers are asked to send again: they may be the first call."""


class Wakes:
    """Wakes the runs that wait for an agent to answer again, at whichever of its members."""

    __slots__ = ("_answering",)

    def __init__(self) -> None:
        self._answering = asyncio.Event()

    def wake(self) -> None:
        """Wake all that wait now."""
        self._answering.set()
        self._answering = asyncio.Event()

    async def pause(self, pause_s: float) -> None:
        """Wait that long, or until the next wake."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._answering.wait()


class UpstreamHealth:
    """Records how calls to the upstream `name` end. The `breaker` holds them back after failures.

    `shut_out` says that it refuses our credentials; empty if it does not, as far as is known. `suspect`: the last call
    or probe did not get through. `agent` is the agent's id, where `name` is that of a member of its pool.
    """

    __slots__ = ("_agent", "_name", "_wakes", "breaker", "calls", "rests_until_s", "shut_out", "suspect")

    def __init__(self, name: str, breaker: Breaker, *, agent: str = "", wakes: Wakes | None = None) -> None:
        self.breaker = breaker
        self.calls = UpstreamCalls()
        self.shut_out = ""
        self.suspect = False
        self._name = name
        self._agent = agent or name
        self.rests_until_s = 0.0
        """Until when it has asked for no calls, by the clock of the breaker; 0 if it never has."""
        self._wakes = wakes or Wakes()

    @property
    def held_back(self) -> bool:
        """Whether calls are held back, but for one from time to time."""
        return self.breaker.state is not State.CLOSED

    @property
    def retry_s(self) -> float:
        """Seconds until a failed send may be repeated: the rest of the breaker's pause, if there is one, or until a
        reading of the card may have ended it."""
        return min(self.breaker.wait_s, RETRY_S_MAX) or AGAIN_S

    def refusal(self, agent_id: str) -> Unavailable:
        """The error for a send while calls are held back."""
        return self.breaker.refusal(agent_id, RETRY_S_MAX)

    @property
    def resting(self) -> bool:
        """Whether it has asked for no calls at present."""
        return self.rests_until_s > 0 and self.breaker.clock() < self.rests_until_s

    def rest(self, asked_s: float) -> None:
        """Record that it asks for no calls, for that long; 0: it does not say for how long."""
        self.rests_until_s = self.breaker.clock() + (asked_s or REST_S)

    def record_probe(self, *, well: bool) -> None:
        """Record whether its card could be read."""
        if self.suspect is well:
            self.suspect = not well
            if well:
                self._wakes.wake()

    def record_failure(self) -> None:
        """Record that a call did not get through."""
        self.suspect = True
        pause_s = self.breaker.record_failure()
        if pause_s is not None:
            log.warning(
                "upstream %s: no call got through: the next one is made in %g s",
                self._name,
                pause_s,
                extra=about(self._name, agent=self._agent, breaker="open"),
            )

    def record_answer(self) -> None:
        """Record that a call got through, and admit those that were held back."""
        held_back = self.breaker.opened > 0
        self.shut_out = ""
        self.suspect = False
        self.breaker.record_success()
        if held_back:
            log.info(
                "upstream %s: calls get through again",
                self._name,
                extra=about(self._name, agent=self._agent, breaker="closed"),
            )
            self._wakes.wake()

    def record_shut_out(self) -> None:
        """Record that a call was refused because of this server's credentials. Holds until a call gets through."""
        self.shut_out = NOT_LET_IN

    async def pause(self, pause_s: float) -> None:
        """Wait that long, or less if a held-back agent, or another member of its pool, turns out to answer again."""
        await self._wakes.pause(pause_s)

    def half_open(self) -> bool:
        """Let the next call show whether it answers, because there is a sign of it. Returns whether that is new."""
        if not self.breaker.half_open():
            return False
        self._wakes.wake()
        return True

    def count(self, outcome: str, waited_s: float | None = None) -> None:
        """Count the end of a call. `waited_s` is the time until the first update of its answer."""
        self.calls.outcomes[outcome] += 1
        if waited_s is not None:
            self.calls.waits.add(int(waited_s * 1000))
