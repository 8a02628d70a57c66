"""The outcome of an attempt: what the outbox is told, when the next attempt is due, and how much its host gets at once.

Invariant: pure; time and randomness are passed in as numbers. A reason is a few words of our own. It contains no
secret, no URL, and no text of the receiver.
"""

from typing import assert_never

from msgspec import Struct

from dragoman.net.errors import AddressRefused, Broken, EgressError, TimedOut, Unreachable
from dragoman.net.retry_after import retry_after_s
from dragoman.net.target import shown_url
from dragoman.store.outbox import Arrival, Due, Settled
from dragoman.store.receipts import digest_of_body

GONE = 410
"""The receiver wants no more deliveries, ever (RFC 9110 §15.5.11)."""

TOO_MANY = 429
"""The only status below 500 with which a host asks for fewer calls (RFC 6585 §4)."""

ASKS_FOR_TIME = frozenset({TOO_MANY, 503})
"""The statuses whose `Retry-After` counts (RFC 6585 §4, RFC 9110 §15.6.4)."""

DELAYS_S = (1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0)
"""The delays before each retry. A short outage is over within a minute; longer ones have seven hours."""

JITTER = 0.2
"""How much a delay varies, either way, so that deliveries that failed together are not retried together."""

RETRY_AFTER_MAX_S = 21600.0
"""Most that `Retry-After` counts for: our own longest delay, so that a receiver cannot postpone deliveries for ever."""

WINDOW_START = 4
"""Deliveries in flight to a host that has answered, before more is known about it."""

WINDOW_MAX = 64
QUICK_S = 0.1
"""A window opens to twice its size when as many deliveries as it holds have each taken less than this."""

SLOW_S = 1.0
"""A delivery that takes longer closes the window to half its size."""

WRITES_MAX = 12
"""How often a failed write of an outcome is repeated: until the claim has expired."""


# -- what came of an attempt -------------------------------------------------------------------------------------------


class ReceiverAnswered(Struct, frozen=True):
    """The receiver answered after `took_s`. `retry_after` is the header's value, None if there is none."""

    status: int
    took_s: float
    retry_after: str | None = None


class ReceiverSilent(Struct, frozen=True):
    """There was no HTTP answer."""

    error: EgressError


class CannotSend(Struct, frozen=True):
    """The delivery can never be sent as it is. That says nothing about its host."""

    reason: str


class ServerFault(Struct, frozen=True):
    """This server failed. It says nothing about the host, and may not happen the next time."""


AttemptResult = ReceiverAnswered | ReceiverSilent | CannotSend | ServerFault


class Window(Struct, frozen=True):
    """How many deliveries a host gets at once. `quick` counts the quick ones since the size last changed."""

    size: int = WINDOW_START
    quick: int = 0


def settle(
    window: Window, due: Due, result: AttemptResult, schedule: "Schedule", now_ms: int, chance: float
) -> tuple[Window, Settled]:
    """Return the window of the host and the outcome of the delivery after an attempt. `chance` is from 0 to 1."""
    return adjust(window, result), _outcome(due, result, schedule, now_ms, chance)


def adjust(window: Window, result: AttemptResult) -> Window:
    """Open the window of a host while it is quick, and close it when it is slow or fails."""
    match result:
        case ReceiverSilent():
            return Window(size=1)
        case ReceiverAnswered(status, took_s) if 200 <= status < 300:
            if took_s > SLOW_S:
                return _halve(window)
            if took_s >= QUICK_S:
                return window
            quick = window.quick + 1
            if quick < window.size:
                return Window(window.size, quick)
            return Window(min(WINDOW_MAX, window.size * 2))
        case ReceiverAnswered(status, took_s) if took_s > SLOW_S or status == TOO_MANY or status >= 500:
            return _halve(window)
        case _:  # one webhook is wrong, which is no problem of its host
            return window


def _halve(window: Window) -> Window:
    return Window(max(1, window.size // 2))


def _outcome(due: Due, result: AttemptResult, schedule: "Schedule", now_ms: int, chance: float) -> Settled:
    """Return what the outbox is told. Any 2xx is a receipt. A redirect is not followed, so it is a failure."""
    match result:
        case ReceiverAnswered(status) if 200 <= status < 300:
            return Settled(number=due.number, outcome="delivered", arrivals=(_arrival(due, result, now_ms),))
        case ReceiverAnswered(status) if status == GONE:
            return Settled(number=due.number, outcome="gone", reason=f"HTTP {status}")
        case ReceiverAnswered(status, _, retry_after):
            reason = f"HTTP {status}" + (": redirects are not followed" if 300 <= status < 400 else "")
            asked_s = retry_after_s(retry_after, now_ms) if status in ASKS_FOR_TIME else None
            return _failure(due, reason, schedule.delay_s(due.attempts, chance, asked_s), now_ms)
        case ReceiverSilent(error):
            return _failure(due, _reason(error), schedule.delay_s(due.attempts, chance), now_ms, reached=False)
        case CannotSend(reason):
            return Settled(number=due.number, outcome="dead", reason=reason)
        case ServerFault():
            reason = "a fault in this server: see its log"
            return _failure(due, reason, schedule.delay_s(due.attempts, chance), now_ms)
        case _:
            assert_never(result)


def _arrival(due: Due, answered: ReceiverAnswered, now_ms: int) -> Arrival:
    return Arrival(
        number=due.number,
        at_ms=now_ms,
        status=answered.status,
        took_ms=round(answered.took_s * 1000),
        url=shown_url(due.config.url),
        digest=digest_of_body(due.delivery.body),
    )


def _failure(due: Due, reason: str, delay_s: float | None, now_ms: int, *, reached: bool = True) -> Settled:
    if delay_s is None:
        return Settled(number=due.number, outcome="dead", reason=reason, reached=reached)
    due_ms = now_ms + round(delay_s * 1000)
    return Settled(number=due.number, outcome="retry", due_ms=due_ms, reason=reason, reached=reached)


def _reason(error: EgressError) -> str:
    match error:
        case TimedOut():
            return f"no answer within {error.timeout_s:g} s"
        case AddressRefused():
            return "address refused"
        case Unreachable():
            return "no connection"
        case Broken():
            return "the connection broke before the answer"
        case _:
            return "no answer"


# -- when it is tried again --------------------------------------------------------------------------------------------


class Schedule(Struct, frozen=True):
    """How long to wait after the first failure, the second, and so on. After the last delay comes the last attempt."""

    delays_s: tuple[float, ...] = DELAYS_S
    jitter: float = JITTER

    def delay_s(self, attempts: int, chance: float, retry_after_s: float | None = None) -> float | None:
        """How long to wait after a failure that `attempts` failures preceded; None: no more attempts.

        `chance` is from 0 to 1. The receiver's `retry_after_s` is honoured up to six hours.
        """
        if attempts >= len(self.delays_s):
            return None
        delay_s = self.delays_s[attempts] * (1 + self.jitter * (2 * chance - 1))
        return delay_s if retry_after_s is None else max(delay_s, min(retry_after_s, RETRY_AFTER_MAX_S))


# -- the write of an outcome -------------------------------------------------------------------------------------------


class Rewrite(Struct, frozen=True):
    """Write the outcome again later. `failed` is how often writing it has failed."""

    failed: int


class Abandon(Struct, frozen=True):
    """Leave the delivery to its claim, which expires: it is sent twice rather than lost."""


class Written(Struct, frozen=True):
    """The outbox knows the outcome. `retry_ms` is when the next attempt is due; None if there is none.

    `counted` are the outcomes to count, with those of the deliveries before this one.
    """

    counted: tuple[str, ...]
    retry_ms: int | None = None


def judge_write(
    settled: Settled, error: BaseException | None, failed: int, *, stopping: bool
) -> Rewrite | Abandon | Written:
    """Decide what follows a write of an outcome that ended with `error`, after `failed` writes that failed."""
    if error is not None:
        return Rewrite(failed + 1) if failed < WRITES_MAX and not stopping else Abandon()
    counted = (*("delivered" for _ in settled.before), settled.outcome)
    if settled.outcome == "retry":
        return Written(counted, retry_ms=settled.due_ms)
    return Written(counted)
