"""The state machine of the exchange with an upstream about one task of ours: what follows each answer, cut and refusal.

    START ── first run ──► SENDING ──────────────────── settles ──► ASKING ── replied ──► SENDING
      │                     │ ▲ ▲ ▲                                    ▲
      │ later run           │ │ │ └── waited ──── WAITING ◄── not now  │
      │                     │ │ └── shown ── IDENTIFYING ◄── who asks? │
      │                     │ └── moved ─────── MOVING ◄── nobody there│
      │                     │                     │ not moved          │
      │                     │                     ▼                    │
      │                     ├── no A2A ──► CHATTING, CHATTING_INSTEAD ─┤ (settles)
      │                     │ ▲                                        │
      │                     │ └── chosen ── CHOOSING ◄── not taken, and others are left in the pool
      │                     │                                          │
      │                     │ the stream was lost, or took too long    │
      │                     ▼                                          │
      └────────────────► READING ── at work, or settled ─► FOLLOWING ──┘ (settles)
                          ▲ ▲ │                              │
                          │ │ ├── our answer is missing ─────┼────────► SENDING
                          │ │ └── who asks? ─► IDENTIFYING ◄─┤
                          │ └────── shown ────────┘          │
                          └── waited ── PAUSED ◄── failed ───┘ (from READING, too)

    A phase that makes a call may also lead to DONE: our task ends as the upstream's, or fails. A cancel always does.

"Settles": the upstream's task asks something, or has ended, or a message answers ours; after the latter two: DONE. A
failed send is judged by `SEND_ROWS`, a failed read or subscription by `_judge_read`. The first row that applies counts.
Once the upstream has the task it is waited for: for `mend_s`, or as long as it takes if the agent queues. In a pool a
first message goes to another member where `selection` allows it: from SENDING, WAITING and both kinds of chatting.

The machine does not cover when a call may be made (`admission`: the breaker, credentials before the first call), how a
broken stream is put together again (`client.recovery`), the content that is passed on (`relay`), nor the words in which
a task ends (`failures`).

Invariant: pure. `advance` takes the state, the facts and an event, and returns the next state and what to do, in order.
Only the last command leads to another event; `EndRun` and `FailRun` lead to none. A message is sent again only if the
upstream has done nothing with it, or recognises it.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.remote import failures
from dragoman.agents.remote.selection import NextSend, SendFate, judge_fate, judge_next
from dragoman.client.errors import (
    ExchangeRefused,
    ExchangeUnusable,
    HttpRefusal,
    NoAnswer,
    NoToken,
    PeerError,
    StreamLost,
    is_untaken,
)
from dragoman.engine.api import Ended
from dragoman.model.errors import (
    A2AError,
    AgentOffline,
    Forbidden,
    InternalError,
    InvalidAgentResponse,
    MethodNotFound,
    TaskTimeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskStatus

CallError = A2AError | NoAnswer | PeerError

LOOK_AGAIN_S = 5.0
"""Longest time between two checks whether an upstream can be called."""

READ_AGAIN_S = 0.2
"""The wait after the first failed read of the upstream's task. Each further one is twice as long."""

MOVES_MAX = 2
"""How often a message follows an agent whose card has moved its address."""

_NO_CHAT = frozenset({401, 403, 429})
"""Statuses that do not mean that a server lacks A2A."""

NOT_IMPLEMENTED = 501
"""The only status from 500 on that means that a server lacks A2A. After another one it may have done what was asked, or
may do it later; KAOS's agents have not."""

_NOT_INSTEAD = (InvalidAgentResponse, TaskTimeout, Unauthorized, Forbidden, TooManyRequests)
"""Errors after which chat completions are no way out: it may have worked, or lets nobody in."""

_NOT_NOW = (Unavailable, AgentOffline, TooManyRequests)
"""Errors of an upstream that has done nothing with a message, and may take it later."""

_ASKS_WHO = (Unauthorized, Forbidden, ExchangeRefused)
"""Errors of an upstream, or of the issuer of tokens for it, that other credentials of the caller may cure."""

_FOR_NOW = (Unavailable, TooManyRequests, AgentOffline, InternalError)
"""Errors that may pass while the upstream's task is still there."""


class UpstreamPhase(Enum):
    """The call that is under way, if there is one."""

    START = auto()  # nothing yet
    SENDING = auto()  # a message is sent, and its stream is read to the end
    WAITING = auto()  # until the upstream may take the message
    IDENTIFYING = auto()  # the caller is asked for its credentials
    MOVING = auto()  # the card is read again, because nobody is where it said
    CHATTING = auto()  # the message is sent over chat completions, since there is no A2A
    CHATTING_INSTEAD = auto()  # the same, since nobody answered over A2A
    CHOOSING = auto()  # another member of the pool is taken
    READING = auto()  # the upstream's task is read
    PAUSED = auto()  # until the task is read again
    FOLLOWING = auto()  # the task as it was read is passed on, and then what follows it
    ASKING = auto()  # the caller is asked what the upstream asks
    DONE = auto()


class UpstreamExchange(Struct, frozen=True, kw_only=True):
    """The state. `name`, `queues` and `pooled` never change, `for_callers`, `over_http` and `mend_s` with the member.

    `queues`: the task waits for an upstream that cannot be reached. `for_callers`: it is called with the credentials of
    its callers, or with tokens for which theirs are exchanged. `over_http`: there may be chat completions. `mend_s` is
    how long a task that the upstream has may wait for it. `pooled`: the agent has several members.

    `identified` is the phase after IDENTIFYING. `moves` counts the addresses that a message has followed. `unsent`: the
    message is an answer that an earlier run recorded, and that the upstream may not have. `error` is why the send
    failed, while another way is tried. `lost_at_s` is when the upstream fell silent, and `pause_s` the next wait.
    `repeated`: a member that did not answer was sent the message once more. `unsure`: an upstream may have taken the
    message that is under way, whatever a later answer says.
    """

    name: str
    queues: bool
    for_callers: bool
    over_http: bool
    mend_s: float
    pooled: bool = False
    phase: UpstreamPhase = UpstreamPhase.START
    identified: UpstreamPhase = UpstreamPhase.SENDING
    moves: int = 0
    unsent: bool = False
    error: CallError | None = None
    lost_at_s: float | None = None
    pause_s: float = READ_AGAIN_S
    repeated: bool = False
    unsure: bool = False


class ExchangeFacts(Struct, frozen=True, kw_only=True):
    """The facts at the moment of an event.

    `named`: the upstream has named its task. `first`: the message under way is the first one. `fresh`: no earlier run
    has worked on our task. `chats`: agents of the upstream's dialect offer chat completions. `due`: nothing has shown
    yet whether the upstream has the message that was sent. `others`: another member of the pool can be tried.
    `recognises`: the member would recognise a repeat of the message; if `shared`, so would all. `retry_s` is when a
    failed send may be repeated, `breaker_s` the rest of the breaker's pause, and `now_s` a monotonic time.
    """

    named: bool
    first: bool
    fresh: bool
    chats: bool = False
    due: bool = False
    others: bool = False
    recognises: bool = False
    shared: bool = False
    retry_s: float = 0.0
    breaker_s: float = 0.0
    now_s: float = 0.0

    @property
    def unheard(self) -> bool:
        """Whether nothing has shown that the upstream has the message under way."""
        return self.due or not self.named


# -- events ------------------------------------------------------------------------------------------------------------


class RunBegan(Struct, frozen=True):
    """Nobody has worked on the task before."""


class RunResumed(Struct, frozen=True):
    """An earlier run has. `repeatable`: the first message was not sent, or may be sent twice: `unsure` says that the
    earlier run may have sent it. `unsent` as above.
    """

    repeatable: bool
    unsent: bool = False
    unsure: bool = False


class NoA2a(Struct, frozen=True):
    """The upstream speaks no A2A."""


class CallFailed(Struct, frozen=True):
    """A send, a read or a subscription failed."""

    error: CallError


class TaskRead(Struct, frozen=True):
    """The upstream's task was read. `has_message`: its history has the message that may be unsent."""

    status: TaskStatus
    has_message: bool


class UpstreamSettled(Struct, frozen=True):
    """The upstream says no more for now: its task has ended or asks. None: it answered with a message."""

    status: TaskStatus | None


class ChatFailed(Struct, frozen=True):
    """Chat completions gave no answer. `ended` is how the task would end for that, and `error` what happened."""

    ended: Ended
    error: CallError | None = None


class CardRefreshed(Struct, frozen=True):
    """The card was read again, or could not be. `moved`: it names another address than before."""

    moved: bool


class MemberChosen(Struct, frozen=True, kw_only=True):
    """The message goes to another member of the pool from now on. The fields are as in `UpstreamExchange`."""

    for_callers: bool
    over_http: bool
    mend_s: float


class NoMemberLeft(Struct, frozen=True):
    """No other member of the pool can be called at present."""


class CallerReplied(Struct, frozen=True):
    """The caller answered the upstream's question."""


class CredentialsShown(Struct, frozen=True):
    """The caller sent its credentials."""


class WaitEnded(Struct, frozen=True):
    """A wait is over, or somebody was heard to answer meanwhile."""


class RunCanceled(Struct, frozen=True):
    """Our task was canceled."""


ExchangeEvent = (
    RunBegan
    | RunResumed
    | NoA2a
    | CallFailed
    | TaskRead
    | UpstreamSettled
    | ChatFailed
    | CardRefreshed
    | MemberChosen
    | NoMemberLeft
    | CallerReplied
    | CredentialsShown
    | WaitEnded
    | RunCanceled
)


NEEDS_FACTS = (CallFailed, ChatFailed, CardRefreshed, NoMemberLeft, WaitEnded)
"""The events whose rows look at more of the facts than `named`, `first`, `fresh` and `due`."""


NO_FACTS = ExchangeFacts(named=False, first=False, fresh=False)
NEEDS_NO_FACTS = frozenset({RunBegan, UpstreamSettled})
"""The usual events, whose rows look at none: each message has both."""


# -- commands, each with the events that it leads to -------------------------------------------------------------------


class SendMessageNow(Struct, frozen=True):
    """Send the message once a call may be made, and pass on its stream. NoA2a, CallFailed, UpstreamSettled."""


class SendOverChat(Struct, frozen=True):
    """Send the message over chat completions, and pass on the answer. UpstreamSettled, ChatFailed."""


class ReadTask(Struct, frozen=True):
    """Read the upstream's task once a call may be made. NoA2a, CallFailed, TaskRead."""


class FollowTask(Struct, frozen=True):
    """Pass on the task that was read; with `subscribe` also what follows it. CallFailed, UpstreamSettled."""

    subscribe: bool


class AskCaller(Struct, frozen=True):
    """Ask the caller what the upstream asks. CallerReplied."""

    status: TaskStatus


class AskForCredentials(Struct, frozen=True):
    """Ask the caller for its credentials. CredentialsShown."""


class AwaitUpstream(Struct, frozen=True):
    """Wait until the upstream may take the message, at least the seconds that it asks for. WaitEnded."""

    asked_s: float


class PauseReading(Struct, frozen=True):
    """Wait that long, or until somebody is heard to answer. WaitEnded."""

    pause_s: float


class RefreshCard(Struct, frozen=True):
    """Read the card again, now. CardRefreshed."""


class ChooseMember(Struct, frozen=True):
    """Note the error of this member, and take the next one; None: begin anew with all. MemberChosen, NoMemberLeft."""

    error: CallError | None


class NoteTask(Struct, frozen=True):
    """Note the id of the upstream's task."""

    task_id: str


class NoteTaken(Struct, frozen=True):
    """Note that the upstream has the message."""


class NoteLinkLost(Struct, frozen=True):
    """Note that the upstream is silent."""


class EndRun(Struct, frozen=True):
    """End our task as the upstream's stands. None: it answered with a message."""

    status: TaskStatus | None


class FailRun(Struct, frozen=True):
    """End our task as said. No more is to be had of the upstream."""

    ended: Ended


class CancelUpstreamTask(Struct, frozen=True):
    """Cancel the upstream's task."""


class CancelOnceNamed(Struct, frozen=True):
    """Read the stream on, for a bounded time, until the upstream names its task. Then cancel that."""


ExchangeCommand = (
    SendMessageNow
    | SendOverChat
    | ReadTask
    | FollowTask
    | AskCaller
    | AskForCredentials
    | AwaitUpstream
    | PauseReading
    | RefreshCard
    | ChooseMember
    | NoteTask
    | NoteTaken
    | NoteLinkLost
    | EndRun
    | FailRun
    | CancelUpstreamTask
    | CancelOnceNamed
)

Step = tuple[UpstreamExchange, tuple[ExchangeCommand, ...]]


def advance(state: UpstreamExchange, facts: ExchangeFacts, event: ExchangeEvent) -> Step:
    """Return what follows an event. Raises RuntimeError if it cannot happen in this phase."""
    row = TRANSITIONS.get((state.phase, type(event)))
    if row is None:
        raise RuntimeError(f"{type(event).__name__} cannot follow in phase {state.phase.name}")
    return row(state, facts, event)


# -- the steps that several rows take ----------------------------------------------------------------------------------


def _send(state: UpstreamExchange) -> Step:
    return replace(state, phase=UpstreamPhase.SENDING, unsent=False, error=None), (SendMessageNow(),)


def _read(state: UpstreamExchange) -> Step:
    return replace(state, phase=UpstreamPhase.READING), (ReadTask(),)


def _fail(state: UpstreamExchange, ended: Ended) -> Step:
    return replace(state, phase=UpstreamPhase.DONE, error=None), (FailRun(ended),)


def _identify(state: UpstreamExchange, then: UpstreamPhase) -> Step:
    return replace(state, phase=UpstreamPhase.IDENTIFYING, identified=then), (AskForCredentials(),)


def _choose(state: UpstreamExchange, error: CallError | None) -> Step:
    return replace(state, phase=UpstreamPhase.CHOOSING, error=error), (ChooseMember(error),)


def _fail_send(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step:
    if state.unsure and facts.unheard and (not isinstance(error, A2AError) or isinstance(error, _NOT_NOW)):
        return _fail(state, failures.uncertain(state.name))  # the last error says nothing of what was sent before
    untouched = facts.fresh and facts.first and not facts.named
    return _fail(state, failures.ending(state.name, error, facts.retry_s if untouched else None))


def _chat_or_fail(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step:
    """Try chat completions, which have neither tasks nor questions, where there was nothing but a first message."""
    if state.over_http and facts.first and not facts.named and not state.unsure:
        return replace(state, phase=UpstreamPhase.CHATTING_INSTEAD, error=error), (SendOverChat(),)
    return _fail_send(state, facts, error)


# -- the rows ----------------------------------------------------------------------------------------------------------


def _start(state: UpstreamExchange, facts: ExchangeFacts, event: RunBegan) -> Step:
    return _send(state)


def _resume(state: UpstreamExchange, facts: ExchangeFacts, event: RunResumed) -> Step:
    if facts.named:
        return _read(replace(state, unsent=event.unsent))
    if not event.repeatable:
        return _fail(state, failures.uncertain(state.name))
    return _send(replace(state, unsure=event.unsure))


def _chat(state: UpstreamExchange, facts: ExchangeFacts, event: NoA2a) -> Step:
    return replace(state, phase=UpstreamPhase.CHATTING), (SendOverChat(),)


def _lose_task(state: UpstreamExchange, facts: ExchangeFacts, event: NoA2a) -> Step:
    return _fail(state, failures.forgotten(state.name))


def _settle(state: UpstreamExchange, facts: ExchangeFacts, event: UpstreamSettled) -> Step:
    status = event.status
    if status is not None and status.state in INTERRUPTED:
        return replace(state, phase=UpstreamPhase.ASKING, error=None, unsure=False), (AskCaller(status),)
    return replace(state, phase=UpstreamPhase.DONE, error=None), (EndRun(status),)


def _send_again(state: UpstreamExchange, facts: ExchangeFacts, event: CallerReplied) -> Step:
    return _send(state)


def _end_wait(state: UpstreamExchange, facts: ExchangeFacts, event: WaitEnded) -> Step:
    if state.unsure and not facts.recognises:
        return _fail(state, failures.uncertain(state.name))  # it no longer would: the wait was too long
    if not (state.pooled and facts.first and not facts.named):
        return _send(state)
    return _choose(state, None) if facts.shared or not state.unsure else _send(state)


def _send_to_other(state: UpstreamExchange, facts: ExchangeFacts, event: MemberChosen) -> Step:
    return _send(
        replace(
            state,
            for_callers=event.for_callers,
            over_http=event.over_http,
            mend_s=event.mend_s,
            moves=0,
            repeated=False,
        )
    )


def _stay(state: UpstreamExchange, facts: ExchangeFacts, event: NoMemberLeft) -> Step:
    """The message is judged as if there was no pool; if nobody has refused it yet, it waits."""
    if state.error is None:
        return replace(state, phase=UpstreamPhase.WAITING), (AwaitUpstream(0.0),)
    return _judge_alone(state, facts, state.error)


def _read_again(state: UpstreamExchange, facts: ExchangeFacts, event: WaitEnded) -> Step:
    return _read(state)


def _go_on_identified(state: UpstreamExchange, facts: ExchangeFacts, event: CredentialsShown) -> Step:
    return _read(state) if state.identified is UpstreamPhase.READING else _send(state)


def _follow_card(state: UpstreamExchange, facts: ExchangeFacts, event: CardRefreshed) -> Step:
    if event.moved:
        return _send(replace(state, moves=state.moves + 1))
    assert state.error is not None
    return _chat_or_fail(state, facts, state.error)


def _fail_chat(state: UpstreamExchange, facts: ExchangeFacts, event: ChatFailed) -> Step:
    other = None if event.error is None else _try_other(state, facts, event.error) or _doubt(state, facts, event.error)
    return other or _fail(state, event.ended)


def _fail_instead(state: UpstreamExchange, facts: ExchangeFacts, event: ChatFailed) -> Step:
    assert state.error is not None
    other = None if event.error is None else _try_other(state, facts, event.error) or _doubt(state, facts, event.error)
    return other or _fail_send(state, facts, state.error)


def _take_up(state: UpstreamExchange, facts: ExchangeFacts, event: TaskRead) -> Step:
    """The upstream answers again. An answer of ours that it lacks is sent if it still asks."""
    asks = event.status.state in INTERRUPTED
    if state.unsent and asks and not event.has_message:
        return _send(replace(state, lost_at_s=None, pause_s=READ_AGAIN_S))
    noted = (NoteTaken(),) if state.unsent else ()
    state = replace(state, phase=UpstreamPhase.FOLLOWING, unsent=False, lost_at_s=None, pause_s=READ_AGAIN_S)
    return state, (*noted, FollowTask(subscribe=not (asks or event.status.state in TERMINAL)))


def _cancel(state: UpstreamExchange, facts: ExchangeFacts, event: RunCanceled) -> Step:
    over = replace(state, phase=UpstreamPhase.DONE)
    if facts.named:
        return over, (CancelUpstreamTask(),)
    return over, (CancelOnceNamed(),) if state.phase is UpstreamPhase.SENDING else ()


# -- failures of a send ------------------------------------------------------------------------------------------------


def _read_lost(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    """The stream could not be resumed for `mend_s`: the task is read once, and only waited for if the agent queues.

    The upstream may have the message. If it asks again, the next answer has an id of its own.
    """
    if not (isinstance(error, StreamLost) and facts.named):
        return None
    state, commands = _read(replace(state, lost_at_s=facts.now_s - state.mend_s, pause_s=READ_AGAIN_S))
    return state, (NoteTaken(), *commands) if facts.due else commands


def _read_late(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    """The upstream has the task, and answers before that has ended (BeeOS, Evo AI)."""
    if not (isinstance(error, TaskTimeout) and error.task_id):
        return None
    state, commands = _read(replace(state, lost_at_s=None, pause_s=READ_AGAIN_S))
    return state, (NoteTask(error.task_id), NoteTaken(), *commands)


def _ask_who(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    asks = state.for_callers and isinstance(error, _ASKS_WHO)
    return _identify(state, UpstreamPhase.SENDING) if asks else None


def _wait(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    """The message has not reached the upstream, or the upstream has done nothing with it."""
    if not state.queues or isinstance(error, ExchangeUnusable):
        return None  # no wait changes the setup, and each attempt would ask the issuer for another token
    given_up = facts.unheard and _is_given_up(error)
    unsaid = isinstance(error, NoToken) or (isinstance(error, NoAnswer) and not error.sent)
    if not (facts.recognises if given_up else unsaid or isinstance(error, _NOT_NOW)):
        return None
    state = replace(state, phase=UpstreamPhase.WAITING, unsure=state.unsure or given_up)
    return state, (AwaitUpstream(failures.asked_s(error)),)


def _is_given_up(error: CallError) -> bool:
    """Whether a proxy may have passed the message on before it answered so."""
    return judge_fate(error) is SendFate.GIVEN_UP


def _doubt(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    """The upstream may have taken the message, and nobody is told to send it again."""
    if not facts.unheard or isinstance(error, NoAnswer):
        return None
    lost = error.repeated and _is_absent(error, facts.chats)  # now, which says nothing of the first send
    return _fail(state, failures.uncertain(state.name)) if lost or _is_given_up(error) else None


def _lacks_a2a(error: CallError, chats: bool) -> bool:
    """Whether a server that answered so has done nothing with the message, since it does not speak A2A there."""
    if not isinstance(error, HttpRefusal) or error.status in _NO_CHAT:
        return False
    return error.status < 500 or error.status == NOT_IMPLEMENTED or chats


def _is_absent(error: CallError, chats: bool) -> bool:
    """Whether an error says that there is no agent at the address, or none that speaks A2A."""
    return _lacks_a2a(error, chats) or isinstance(error, MethodNotFound) or failures.not_there(error)


def _move(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    """There is no agent at the address, or none that speaks A2A."""
    if not _is_absent(error, facts.chats):
        return None
    if state.moves < MOVES_MAX:
        return replace(state, phase=UpstreamPhase.MOVING, error=error), (RefreshCard(),)
    return _chat_or_fail(state, facts, error)


def _chat_instead(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    """KAOS's agents answer over chat completions what they refuse over A2A."""
    tries = facts.chats and isinstance(error, A2AError) and not isinstance(error, _NOT_INSTEAD)
    return _chat_or_fail(state, facts, error) if tries else None


def _try_other(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step | None:
    """In a pool a first message may go to another member, or to the same once more: see `selection`."""
    if not state.pooled or facts.named or not facts.first:
        return None
    fate = judge_fate(error)
    match judge_next(
        fate,
        others=facts.others,
        recognises=facts.recognises and state.phase is UpstreamPhase.SENDING,  # chat completions have no message ids
        shared=facts.shared,
        repeated=state.repeated,
        unsure=state.unsure,
    ):
        case NextSend.OTHER:
            return _choose(replace(state, unsure=state.unsure or not is_untaken(error)), error)
        case NextSend.SAME if state.phase is UpstreamPhase.SENDING:
            return _send(replace(state, repeated=True, unsure=True))
        case NextSend.UNKNOWN:
            return _fail(state, failures.uncertain(state.name))
        case _:
            return None


ALONE_ROWS = (_wait, _doubt, _move, _chat_instead, _fail_send)
SEND_ROWS = (_read_lost, _read_late, _ask_who, _try_other, *ALONE_ROWS)
"""The step after a failed send: that of the first row that returns one. Those of ALONE_ROWS know of no pool."""


def _judge_send(state: UpstreamExchange, facts: ExchangeFacts, event: CallFailed) -> Step:
    return next(step for row in SEND_ROWS if (step := row(state, facts, event.error)) is not None)


def _judge_alone(state: UpstreamExchange, facts: ExchangeFacts, error: CallError) -> Step:
    return next(step for row in ALONE_ROWS if (step := row(state, facts, error)) is not None)


# -- failures of a read or a subscription ------------------------------------------------------------------------------


def _judge_read(state: UpstreamExchange, facts: ExchangeFacts, event: CallFailed) -> Step:
    """The upstream has the task: it is waited for, for `mend_s`, or as long as it takes if the agent queues."""
    error = event.error
    silent = isinstance(error, NoAnswer)
    lost = (NoteLinkLost(),) if silent else ()
    if state.for_callers and isinstance(error, _ASKS_WHO):
        return _identify(state, UpstreamPhase.READING)
    if isinstance(error, ExchangeUnusable):
        return _fail(state, failures.ending(state.name, error))
    lost_at_s = state.lost_at_s
    if lost_at_s is None:
        lost_at_s = facts.now_s - (state.mend_s if isinstance(error, StreamLost) else 0.0)
    if isinstance(error, A2AError) and not isinstance(error, _FOR_NOW):
        return _fail(state, failures.ending(state.name, error))
    waits = state.queues and not isinstance(error, InternalError)
    if not waits and facts.now_s - lost_at_s >= state.mend_s:
        # it has the message, even if it did not hear this question
        ended = failures.uncertain(state.name) if silent else failures.ending(state.name, error)
        state, commands = _fail(state, ended)
        return state, (*lost, *commands)
    pause_s = min(LOOK_AGAIN_S, max(state.pause_s, facts.breaker_s))
    state = replace(state, phase=UpstreamPhase.PAUSED, lost_at_s=lost_at_s, pause_s=state.pause_s * 2)
    return state, (*lost, PauseReading(pause_s))


# -- the table ---------------------------------------------------------------------------------------------------------

TRANSITIONS: Mapping[tuple[UpstreamPhase, type], Callable[..., Step]] = {
    (UpstreamPhase.START, RunBegan): _start,
    (UpstreamPhase.START, RunResumed): _resume,
    (UpstreamPhase.SENDING, NoA2a): _chat,
    (UpstreamPhase.SENDING, CallFailed): _judge_send,
    (UpstreamPhase.SENDING, UpstreamSettled): _settle,
    (UpstreamPhase.WAITING, WaitEnded): _end_wait,
    (UpstreamPhase.CHOOSING, MemberChosen): _send_to_other,
    (UpstreamPhase.CHOOSING, NoMemberLeft): _stay,
    (UpstreamPhase.IDENTIFYING, CredentialsShown): _go_on_identified,
    (UpstreamPhase.MOVING, CardRefreshed): _follow_card,
    (UpstreamPhase.CHATTING, UpstreamSettled): _settle,
    (UpstreamPhase.CHATTING, ChatFailed): _fail_chat,
    (UpstreamPhase.CHATTING_INSTEAD, UpstreamSettled): _settle,
    (UpstreamPhase.CHATTING_INSTEAD, ChatFailed): _fail_instead,
    (UpstreamPhase.READING, NoA2a): _lose_task,
    (UpstreamPhase.READING, CallFailed): _judge_read,
    (UpstreamPhase.READING, TaskRead): _take_up,
    (UpstreamPhase.PAUSED, WaitEnded): _read_again,
    (UpstreamPhase.FOLLOWING, CallFailed): _judge_read,
    (UpstreamPhase.FOLLOWING, UpstreamSettled): _settle,
    (UpstreamPhase.ASKING, CallerReplied): _send_again,
    **{(phase, RunCanceled): _cancel for phase in UpstreamPhase},
}
"""The row of each phase and event. An event that has no row cannot happen in that phase."""
