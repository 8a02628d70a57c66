"""When a call is made again, and after how long.

Invariant: a call that may have been carried out is made again only if it may be carried out twice, or if its receiver
knows a repeated call (DESIGN: dedupe); a wait that a server asks for is kept to, or the call is given up.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TypeVar

from msgspec import Struct

from dragoman.client.errors import CallTimedOut, NoAnswer, NotReached
from dragoman.model.ids import Clock, SystemClock

T = TypeVar("T")

Pause = Callable[[float], Awaitable[None]]
"""Waits so many seconds."""


DOUBLINGS_MAX = 64
"""A task that is asked for every few seconds is asked for more often in a day than a number can be doubled."""


class Retries(Struct, frozen=True, kw_only=True):
    """How often a call is made (`attempts`, 1 is once), and how long is waited in between.

    Waits grow from `first_s` twofold up to `longest_s`, each a random share of that, at least half. A server whose
    answers to one call ask for more than `patience_s`, taken together, gets no further call. `dedupes`: the agent is
    known to take a repeated message, of the same id or `Idempotency-Key`, for the same; None: if its card says so, and
    for as long as that says.
    """

    attempts: int = 4
    first_s: float = 0.2
    longest_s: float = 5.0
    patience_s: float = 30.0
    dedupes: bool | None = None

    def repeats_s(self, said_s: float) -> float:
        """For how long a send that may have arrived is made again, where the card says `said_s`.

        A tenth less than that: the repeat needs time to arrive.
        """
        return 0.9 * said_s if self.dedupes is None else math.inf if self.dedupes else 0.0


RETRIES = Retries()


class Later(Exception):
    """The agent refused a call that may be made again: it was not carried out, or does no harm twice.

    `after_s` is how long the agent asks to wait, if it does. `error` is what it means if nothing better comes.
    """

    def __init__(self, error: Exception, after_s: float | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


class Again(Struct, frozen=True):
    """Makes calls again. `pause`, `chance` and `clock` are time and randomness, which tests give."""

    retries: Retries = RETRIES
    pause: Pause = asyncio.sleep
    chance: Callable[[], float] = random.random
    clock: Clock = SystemClock()

    async def call(self, make: Callable[[], Awaitable[T]], *, repeatable: bool, within_s: float = math.inf) -> T:
        """What `make` gives, made again after Later, and after a NoAnswer if that is safe: for `within_s`.

        What was waited for as long as it may be is not asked for again. Raises the last error; of a Later, that in it.
        """
        attempt, began_ms, asked_s = 1, self.clock.now_ms(), 0.0
        while True:
            try:
                return await make()
            except Later as later:
                wait_s = self.wait_s(attempt) if later.after_s is None else later.after_s
                late = later.after_s is None and self._late(began_ms, wait_s, within_s)
                asked_s += later.after_s or 0.0
                if attempt >= self.retries.attempts or asked_s > self.retries.patience_s or late:
                    raise later.error from later.error.__cause__
            except NoAnswer as error:
                wait_s = self.wait_s(attempt)
                safe = repeatable and not self._late(began_ms, wait_s, within_s)
                if attempt >= self.retries.attempts or not _worthwhile(error, safe):
                    raise
            await self.pause(wait_s)
            attempt += 1

    def _late(self, began_ms: int, wait_s: float, within_s: float) -> bool:
        return (self.clock.now_ms() - began_ms) / 1000 + wait_s > within_s

    def after_s(self, headers: Mapping[str, str]) -> float | None:
        """How long an answer asks to wait (RFC 9110 §10.2.3), None if it does not. Names are in lower case."""
        said = headers.get("retry-after", "").strip()
        if said.isascii() and said.isdigit():
            return float(said[:9])
        try:
            return max(0.0, parsedate_to_datetime(said).timestamp() - self.clock.now_ms() / 1000)
        except (ValueError, OverflowError):
            return None

    def wait_s(self, attempt: int) -> float:
        """How long to wait after so many attempts."""
        doubled = 2.0 ** min(attempt - 1, DOUBLINGS_MAX)
        whole: float = min(self.retries.longest_s, self.retries.first_s * doubled)
        return whole * (0.5 + 0.5 * self.chance())


def _worthwhile(error: NoAnswer, repeatable: bool) -> bool:
    """Whether a call without an answer may be made again, and could get one."""
    if error.sent:
        return repeatable and not isinstance(error, CallTimedOut)
    return not (isinstance(error, NotReached) and error.permanent)
