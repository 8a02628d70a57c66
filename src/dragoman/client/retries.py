"""How long a client waits, and when it repeats a call.

Invariant: every wait on an agent ends. A call that may have been carried out is repeated only if it may be carried out
twice, or if its receiver recognises a repeated call. A wait that a server asks for is respected, or
the call is given up.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import TypeVar

from msgspec import Struct

from dragoman.client.errors import CallTimedOut, NoAnswer, NotReached, PeerError, is_untaken, note_earlier_send
from dragoman.model.errors import A2AError
from dragoman.model.ids import Clock, SystemClock
from dragoman.net.retry_after import retry_after_s

T = TypeVar("T")

Pause = Callable[[float], Awaitable[None]]
"""Waits for a number of seconds."""

DOUBLINGS_MAX = 64
"""Limit of the exponent: a task that is polled every few seconds is polled more often in a day than a float can double.
"""


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long a client waits, in seconds.

    `connect_s` bounds making a connection, `card_s` fetching a card, `answer_s` an answer or the beginning of a stream
    once the request is sent, `idle_s` the next bytes of a stream, and `mend_s` resuming a broken stream while nothing
    answers.

    An Egress that the caller passes has its own connect timeout.
    """

    connect_s: float = 5.0
    card_s: float = 10.0
    answer_s: float = 330.0
    """Servers answer a blocking send after 5 minutes with the task as it stands."""
    idle_s: float = 120.0
    """A2A servers send a comment every 15 to 30 s, if they send any; a stream that is cut is resumed."""
    mend_s: float = 120.0
    """Long enough for a restart of an agent, or of its proxy."""


TIMEOUTS = Timeouts()


class Retries(Struct, frozen=True, kw_only=True):
    """How often a call is made (`attempts`, where 1 means once), and how long to wait in between.

    Waits double from `first_s` up to `longest_s`; each is a random share of that, at least half. A server whose answers
    to one call ask for more than `patience_s` in total gets no further call. `dedupes` True: the agent is known to
    recognise a repeated message by its id or `Idempotency-Key`. None: only if its card says so, and for as long as it
    says.
    """

    attempts: int = 4
    first_s: float = 0.2
    longest_s: float = 5.0
    patience_s: float = 30.0
    dedupes: bool | None = None

    def repeats_s(self, said_s: float) -> float:
        """Return for how long a send that may have arrived is repeated, if the card says `said_s`.

        It is a tenth less than that, because the repeat needs time to arrive.
        """
        return 0.9 * said_s if self.dedupes is None else math.inf if self.dedupes else 0.0


RETRIES = Retries()


class Repetition(Enum):
    """Whether a failed call is repeated here, or its caller makes it elsewhere."""

    HERE = auto()
    UNLESS_UNTAKEN = auto()
    """Elsewhere, if the peer has certainly not taken it; else here."""
    NEVER = auto()


class RetryLater(Exception):
    """The agent refused a call that may be repeated: it was not carried out, or a repeat does no harm.

    `after_s` is how long the agent asks to wait, None if it does not. `error` is raised if no attempt succeeds.
    """

    def __init__(self, error: Exception, after_s: float | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


class Retrier(Struct, frozen=True):
    """Repeats calls. `pause`, `chance` and `clock` are time and randomness, which tests replace."""

    retries: Retries = RETRIES
    pause: Pause = asyncio.sleep
    chance: Callable[[], float] = random.random
    clock: Clock = SystemClock()

    async def call(
        self,
        make: Callable[[], Awaitable[T]],
        *,
        repeatable: bool,
        within_s: float = math.inf,
        repetition: Repetition = Repetition.HERE,
        began_ms: int | None = None,
    ) -> T:
        """Return the result of `make`. It is repeated after RetryLater, and after a NoAnswer if that is safe, for
        `within_s`, as far as `repetition` allows.

        A wait that ran out is not repeated. Raises the last error; for a RetryLater, the error in it. That is not
        `untaken`, and its `sent` is true, if any attempt may have been carried out. If the peer then refuses a repeat
        for now, or without an explanation, the error of that attempt is raised: who believed the refusal would make the
        call once more. `began_ms` is when the first attempt began, if that was before now.
        """
        attempt, asked_s = 1, 0.0
        if began_ms is None:
            began_ms = self.clock.now_ms()
        unsure: Exception | None = None  # of an attempt that may have been carried out
        while True:
            try:
                return await make()
            except (A2AError, PeerError) as error:
                if unsure is None:
                    raise
                if isinstance(error, PeerError) or error.untaken:
                    raise unsure from error
                note_earlier_send(error)
                raise
            except RetryLater as later:
                if not (isinstance(unsure, NoAnswer) or is_untaken(later.error)):
                    unsure = later.error  # a proxy may have passed it on
                elif unsure is not None:
                    note_earlier_send(later.error)
                if _is_left(later.error, repetition):
                    raise later.error from later.error.__cause__
                wait_s = self.wait_s(attempt) if later.after_s is None else later.after_s
                late = later.after_s is None and self._late(began_ms, wait_s, within_s)
                asked_s += later.after_s or 0.0
                if attempt >= self.retries.attempts or asked_s > self.retries.patience_s or late:
                    if unsure is not None and unsure is not later.error:
                        raise unsure from later.error
                    raise later.error from later.error.__cause__
            except NoAnswer as error:
                if unsure is not None:
                    note_earlier_send(error)
                if _is_left(error, repetition):
                    raise
                unsure = error if error.sent else unsure
                wait_s = self.wait_s(attempt)
                safe = repeatable and not self._late(began_ms, wait_s, within_s)
                if attempt >= self.retries.attempts or not _worthwhile(error, safe):
                    raise
            await self.pause(wait_s)
            attempt += 1

    def _late(self, began_ms: int, wait_s: float, within_s: float) -> bool:
        return (self.clock.now_ms() - began_ms) / 1000 + wait_s > within_s

    def after_s(self, headers: Mapping[str, str]) -> float | None:
        """Return how long an answer asks to wait (RFC 9110 §10.2.3), None if it does not.

        Header names are in lower case.
        """
        return retry_after_s(headers.get("retry-after"), self.clock.now_ms())

    def wait_s(self, attempt: int) -> float:
        """Return how long to wait after that many attempts."""
        doubled = 2.0 ** min(attempt - 1, DOUBLINGS_MAX)
        whole: float = min(self.retries.longest_s, self.retries.first_s * doubled)
        return whole * (0.5 + 0.5 * self.chance())


def _is_left(error: Exception, repetition: Repetition) -> bool:
    """Whether the call is left to its caller, who makes it elsewhere."""
    if repetition is Repetition.HERE:
        return False
    return repetition is Repetition.NEVER or is_untaken(error)


def _worthwhile(error: NoAnswer, repeatable: bool) -> bool:
    """Whether a call that got no answer may be repeated, and a repeat could get one."""
    if error.sent:
        return repeatable and not isinstance(error, CallTimedOut)
    return not (isinstance(error, NotReached) and error.permanent)
