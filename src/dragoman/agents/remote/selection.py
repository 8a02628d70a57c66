"""Whether a message may go to another member of a pool: when it is placed, and after its send has failed. Pure.

    the member of the conversation, by the log ──► it may be called ───────────────────────────► that one
         │ none yet       │ it may not, affinity = strict ──► none: for this conversation the agent is offline
         │                │ it may not, affinity = prefer ─┐  (the operator sees that the history stayed behind)
         ▼                                                 ▼
    those that may be called, without those tried ──► those without a known fault, else all ──► by the pool's strategy

    a send has failed   what happened                                                next
    UNTAKEN             nothing of it was written; 429; 503 with Retry-After         another member, unless an earlier
                                                                                     send may have been taken: then as
                                                                                     after UNANSWERED
    UNANSWERED          it was written, and no answer came                           another, if all recognise what any
                                                                                     has; the same, if it recognises
                                                                                     repeats; else nobody knows
    GIVEN_UP            502, 503, 504 or gRPC's UNAVAILABLE: a proxy in between      another, if all recognise what any
                        may have given up                                            has; else as without a pool: the
                                                                                     same one, if it recognises repeats
                                                                                     and the agent queues; or nobody
                                                                                     knows
    ANSWERED            the upstream, or the issuer of its tokens, has answered      as without a pool

Invariant: a message goes to a second member only if the first has certainly not taken it, or if both would recognise
it. The strategy is `agents.member_order`.
"""

from enum import Enum, auto
from typing import assert_never

from dragoman.client.errors import (
    ExchangeRefused,
    ExchangeUnusable,
    HttpRefusal,
    NoAnswer,
    PeerError,
    is_untaken,
)
from dragoman.config import Affinity
from dragoman.model.errors import A2AError, TaskTimeout, Unavailable

_GATEWAY = frozenset({502, 503, 504})
"""Statuses with which a proxy says that it got no answer (RFC 9110 §15.6)."""


def may_leave(bound: str | None, affinity: Affinity) -> bool:
    """Whether a new task may go to another member than that of its conversation, which is `bound` to it."""
    return bound is None or affinity == "prefer"


class SendFate(Enum):
    """The fate of a message whose send has failed: see the drawing."""

    UNTAKEN = auto()
    UNANSWERED = auto()
    GIVEN_UP = auto()
    ANSWERED = auto()


def judge_fate(error: A2AError | NoAnswer | PeerError) -> SendFate:
    """The fate of a message that was sent to one member."""
    if isinstance(error, ExchangeRefused | ExchangeUnusable):
        return SendFate.ANSWERED  # the issuer of tokens has: what it says of the caller holds for all members
    if is_untaken(error):
        return SendFate.UNTAKEN
    if isinstance(error, NoAnswer):
        return SendFate.UNANSWERED
    if isinstance(error, Unavailable | TaskTimeout):  # dialects read these statuses so, whoever has answered
        return SendFate.GIVEN_UP
    return SendFate.GIVEN_UP if isinstance(error, HttpRefusal) and error.status in _GATEWAY else SendFate.ANSWERED


class NextSend(Enum):
    """The next step of a message after a failed send."""

    OTHER = auto()
    SAME = auto()
    UNKNOWN = auto()
    AS_ALONE = auto()


def judge_next(
    fate: SendFate, *, others: bool, recognises: bool, shared: bool, repeated: bool, unsure: bool
) -> NextSend:
    """Decide about a message without a task, after its send has failed.

    `others`: another member can be tried. `recognises`: the member recognises a repeat of this message. `shared`: so
    do all others. `repeated`: the same member was asked again before. `unsure`: an earlier send of the message may have
    been taken.
    """
    match fate:
        case SendFate.ANSWERED:
            return NextSend.AS_ALONE
        case SendFate.UNTAKEN if not unsure:
            return NextSend.OTHER if others else NextSend.AS_ALONE
        case _ if recognises and shared and others:
            return NextSend.OTHER
        case SendFate.UNTAKEN | SendFate.GIVEN_UP:
            return NextSend.AS_ALONE if recognises else NextSend.UNKNOWN
        case SendFate.UNANSWERED:
            return NextSend.SAME if recognises and not repeated else NextSend.UNKNOWN
        case _:
            assert_never(fate)
