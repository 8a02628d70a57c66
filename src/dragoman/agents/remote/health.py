"""UpstreamHealth: whether calls to an agent of another server get through, and how they ended.

Invariant: a success ends whatever was held back. A reason that shuts this server out holds until a call gets through.
"""

import asyncio
import logging
from contextlib import suppress

from dragoman.agents.breaker import Breaker, State
from dragoman.agents.remote.failures import NOT_LET_IN
from dragoman.telemetry.coalescing import about
from dragoman.telemetry.counts import UpstreamCalls

log = logging.getLogger("dragoman.upstreams")

AGAIN_S = 5.0
"""Seconds until a send may be repeated, when nobody names a time."""


class UpstreamHealth:
    """Records how calls to the upstream `name` end. The `breaker` holds them back after failures.

    `shut_out` says that it refuses our credentials; empty if it does not, as far as is known.
    """

    __slots__ = ("_answering", "_name", "breaker", "calls", "shut_out")

    def __init__(self, name: str, breaker: Breaker) -> None:
        self.breaker = breaker
        self.calls = UpstreamCalls()
        self.shut_out = ""
        self._name = name
        self._answering = asyncio.Event()

    @property
    def held_back(self) -> bool:
        """Whether calls are held back, but for one from time to time."""
        return self.breaker.state is not State.CLOSED

    @property
    def retry_s(self) -> float:
        """Seconds until a failed send may be repeated: the rest of the breaker's pause, if there is one."""
        return self.breaker.wait_s or AGAIN_S

    def record_failure(self) -> None:
        """Record that a call did not get through."""
        pause_s = self.breaker.record_failure()
        if pause_s is not None:
            log.warning(
                "upstream %s: no call got through: the next one is made in %g s",
                self._name,
                pause_s,
                extra=about(self._name, agent=self._name, breaker="open"),
            )

    def record_answer(self) -> None:
        """Record that a call got through, and admit those that were held back."""
        held_back = self.held_back
        self.shut_out = ""
        self.breaker.record_success()
        if held_back:
            log.info(
                "upstream %s: calls get through again",
                self._name,
                extra=about(self._name, agent=self._name, breaker="closed"),
            )
            self._wake()

    def record_shut_out(self) -> None:
        """Record that a call was refused because of this server's credentials. Holds until a call gets through."""
        self.shut_out = NOT_LET_IN

    def _wake(self) -> None:
        """Wake the runs that wait for the agent to answer again."""
        self._answering.set()
        self._answering = asyncio.Event()

    async def pause(self, pause_s: float) -> None:
        """Wait that long, or less if a held-back agent turns out to answer again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._answering.wait()

    def half_open(self) -> bool:
        """Let the next call show whether it answers, because there is a sign of it. Returns whether that is new."""
        if not self.breaker.half_open():
            return False
        self._wake()
        return True

    def count(self, outcome: str, waited_s: float | None = None) -> None:
        """Count the end of a call. `waited_s` is the time until the first update of its answer."""
        self.calls.outcomes[outcome] += 1
        if waited_s is not None:
            self.calls.waits.add(int(waited_s * 1000))
