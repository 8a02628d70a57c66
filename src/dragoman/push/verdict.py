"""What an attempt amounts to: from an answer, or from none, to what the outbox is told.

Invariant: a reason is a few words of ours. It holds no secret, no URL, and nothing of what the receiver wrote.
"""

from dragoman.net.egress import Reply
from dragoman.net.errors import AddressRefused, Broken, EgressError, TimedOut, Unreachable
from dragoman.push.schedule import Schedule, retry_after_s
from dragoman.store.outbox import Due, Settled

GONE = 410
"""RFC 9110 §15.5.11: the receiver wants nothing more, ever."""

ASKS_FOR_TIME = frozenset({429, 503})
"""The statuses whose `Retry-After` counts (RFC 6585 §4, RFC 9110 §15.6.4)."""


def answered(due: Due, reply: Reply, schedule: Schedule, now_ms: int, chance: float) -> Settled:
    """The receiver has answered. Any 2xx is a receipt; a redirect is not followed, and so a failure."""
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
    """There was no HTTP answer."""
    return _failed(due, _reason(error), schedule.delay_s(due.attempts, chance), now_ms, reached=False)


def unsendable(due: Due, reason: str) -> Settled:
    """It cannot be sent as it is, now or later; that says nothing of its host."""
    return Settled(number=due.number, outcome="dead", reason=reason)


def faulty(due: Due, schedule: Schedule, now_ms: int, chance: float) -> Settled:
    """Something failed in this server. That says nothing of the host, and may be over the next time."""
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
