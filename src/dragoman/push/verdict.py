"""The outcome of an attempt, for the outbox: from the receiver's answer, or from the error.

Invariant: a reason is a few words of our own. It contains no secret, no URL, and no text of the receiver.
"""

from dragoman.net.egress import Reply
from dragoman.net.errors import AddressRefused, Broken, EgressError, TimedOut, Unreachable
from dragoman.push.schedule import Schedule, retry_after_s
from dragoman.store.outbox import Due, Settled

GONE = 410
"""The receiver wants no more deliveries, ever (RFC 9110 §15.5.11)."""

ASKS_FOR_TIME = frozenset({429, 503})
"""The statuses whose `Retry-After` counts (RFC 6585 §4, RFC 9110 §15.6.4)."""


def answered(due: Due, reply: Reply, schedule: Schedule, now_ms: int, chance: float) -> Settled:
    """The outcome of an answer. Any 2xx is a receipt. A redirect is not followed, so it is a failure."""
    if reply.ok:
        return Settled(number=due.number, outcome="delivered")
    reason = f"HTTP {reply.status}"
    if reply.status == GONE:
        return Settled(number=due.number, outcome="gone", reason=reason)
    if 300 <= reply.status < 400:
        reason += ": redirects are not followed"
    asked_s = retry_after_s(reply.headers.get("retry-after"), now_ms) if reply.status in ASKS_FOR_TIME else None
    return _failed(due, reason, schedule.delay_s(due.attempts, chance, asked_s), now_ms, reached=True)


def unanswered(due: Due, error: EgressError, schedule: Schedule, now_ms: int, chance: float) -> Settled:
    """The outcome of a call without an HTTP answer."""
    return _failed(due, _reason(error), schedule.delay_s(due.attempts, chance), now_ms, reached=False)


def unsendable(due: Due, reason: str) -> Settled:
    """The outcome of a delivery that can never be sent as it is. That says nothing about its host."""
    return Settled(number=due.number, outcome="dead", reason=reason)


def faulty(due: Due, schedule: Schedule, now_ms: int, chance: float) -> Settled:
    """The outcome of a failure in this server. It says nothing about the host, and may not happen the next time."""
    return _failed(
        due, "a fault in this server: see its log", schedule.delay_s(due.attempts, chance), now_ms, reached=True
    )


def _failed(due: Due, reason: str, delay_s: float | None, now_ms: int, *, reached: bool) -> Settled:
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
