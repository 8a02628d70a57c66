"""The state machine of a stream that recovers. A stream is read in pieces: each begins at a source and may break.

    start ──► open_piece ──► begin_piece ──► judge, each update ──► end_piece ─┬─► Fail
                   ▲              └── it cannot be joined ─────────────▲       ├─► Finish ──► over
                   └───────────── Reopen, after a wait ────────────────────────┤
                                                             Finish(compare) ◄─┘
                                                                   └──► judge_final ─┬─► Agree, Fail
                                                                          ▲── wait ◄─┴─► ReadAgain

After a break the next source is chosen as follows; the first line that applies counts.

    way          next source                   needs
    numbered     RESUME                        the id of an event, and an agent that resumes after it
    repeated     CALL, the operation again     no task id yet, and an agent that still recognises the message
    unnumbered   READ, then SUBSCRIBE          an agent that can subscribe
    polled       READ, again and again         nothing else

Servers repeat chunks to a reader that joins late, or leave some out. A stream in which that may have happened is
`doubtful`. Its end is held back and compared with the agent's own task. How updates become a task is not covered
(`task_fold`), nor how a single call is repeated (`retries`).

Invariant: pure. Each function takes a state and what happened, and returns the next state and what to do.
"""

from enum import Enum, auto
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman.client.errors import CallTimedOut, HttpRefusal, NoAnswer, NoToken, PeerError, StreamLost
from dragoman.client.task_fold import missing
from dragoman.model.errors import (
    A2AError,
    AgentOffline,
    InternalError,
    InvalidParams,
    MethodNotAllowed,
    MethodNotFound,
    NotFound,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.operations import StreamMessage, Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

Failure = A2AError | NoAnswer | PeerError

SETTLES_S = 5.0
"""How long an agent may still show the task's earlier state after its stream reported the end."""

_LACKING = (UnsupportedOperation, MethodNotFound, MethodNotAllowed, NotFound, InvalidParams)
"""Errors of an agent that cannot subscribe, or cannot resume after an event."""

_TEMPORARY = (Unavailable, TooManyRequests, AgentOffline, InternalError)
"""Errors of an agent that may answer the same call a moment later."""


class PieceSource(Enum):
    """The source of a piece."""

    CALL = auto()  # the caller's own operation
    RESUME = auto()  # a subscription that begins after an event
    READ = auto()  # one read of the task
    SUBSCRIBE = auto()  # a subscription that begins with the whole task


class StreamRecovery(Struct, frozen=True, kw_only=True):
    """The state of a stream. `sends`, `message_id`, `answers` and `mend_s` never change.

    `answers`: the message goes to a task that exists. `resumes` and `subscribes`: what the agent has not yet refused.
    `first`: no piece has ended yet. `begun`: the current piece has brought an update. `repeats`: its updates may repeat
    earlier ones, so that only news counts. `partial`: the caller knows earlier parts of the task, which are unknown
    here. `question` is the status that the message may answer; it does not end the stream. `final` is the agent's own
    task in its end. `lost_at_s` is when the agent began to be silent; `attempt` counts the pieces without news.
    """

    sends: bool
    message_id: str
    answers: bool
    mend_s: float
    source: PieceSource
    resumes: bool
    subscribes: bool
    partial: bool
    first: bool = True
    begun: bool = False
    repeats: bool = False
    doubtful: bool = False
    question: TaskStatus | None = None
    final: Task | None = None
    lost_at_s: float | None = None
    attempt: int = 0

    def answered(self, status: TaskStatus | None) -> bool:
        """Whether a send is over because its task asks something new."""
        return self.sends and status is not None and status.state in INTERRUPTED and status != self.question

    def settled(self, status: TaskStatus | None) -> bool:
        """Whether the operation is complete: its task has ended, or waits for the caller."""
        return status is not None and (status.state in TERMINAL or self.answered(status))


class Circumstances(Struct, frozen=True, kw_only=True):
    """The circumstances of an event: what has been learned of the task and of the stream so far.

    `message`: the agent answered with a message. `event_id` is the newest complete event. `retry_ms` is the delay that
    the server asked for when it ended the piece. `recognises`: the agent would still recognise the message as a repeat.
    """

    task_id: str = ""
    status: TaskStatus | None = None
    message: bool = False
    event_id: str = ""
    retry_ms: int | None = None
    recognises: bool = False
    now_s: float = 0.0


class UpdateVerdict(Enum):
    """The fate of an update."""

    TAKE = auto()
    IGNORE = auto()  # it contradicts a terminal state
    HOLD = auto()  # it ends the stream, which has to be compared first


class Reopen(Struct, frozen=True):
    """Wait, then open a piece at the state's source. `attempt` 0: do not wait. `hint_s` takes the place of the wait."""

    attempt: int
    hint_s: float | None = None


class Finish(Struct, frozen=True):
    """The stream is over; `compare`: compare it with the agent's own task first."""

    compare: bool


class Fail(Struct, frozen=True):
    """Raise `error`. `fate_unknown`: tell the caller that the agent may or may not have the message."""

    error: Exception
    fate_unknown: bool = False


def start(
    operation: StreamMessage | Subscribe, *, streams: bool, subscribes: bool, mend_s: float, after: str
) -> StreamRecovery:
    """Return the state before the first piece.

    `streams`: the agent promises streams; `subscribes`: the dialect has subscriptions. `after` is the event up to which
    the caller knows the task.
    """
    message = operation.message if isinstance(operation, StreamMessage) else None
    sends = message is not None
    return StreamRecovery(
        sends=sends,
        message_id="" if message is None else message.message_id,
        answers=message is not None and bool(message.task_id),
        mend_s=mend_s,
        source=PieceSource.CALL if sends or subscribes else PieceSource.READ,
        resumes=streams and subscribes,
        subscribes=streams and subscribes,
        partial=bool(after),
    )


# -- a piece -----------------------------------------------------------------------------------------------------------


def open_piece(state: StreamRecovery, known: Circumstances) -> StreamRecovery:
    """Begin to read at the state's source."""
    match state.source:
        case PieceSource.READ | PieceSource.SUBSCRIBE:
            repeats = True
        case PieceSource.RESUME:
            repeats = False  # until it begins with the whole task
        case PieceSource.CALL:
            repeats = known.status is not None
        case _:
            assert_never(state.source)
    return replace(state, begun=False, repeats=repeats)


def begin_piece(
    state: StreamRecovery, known: Circumstances, first: Update, *, continues: bool
) -> tuple[StreamRecovery, bool]:
    """Take note of the first update of a piece. Returns whether the piece can be joined to the updates so far.

    `continues`: the number of its first event directly follows the last one. Only that proves that nothing is missing
    or repeated. A whole task proves it only if nothing comes after it.
    """
    state = replace(state, begun=True)
    task = first if isinstance(first, Task) else None
    match state.source:
        case PieceSource.CALL if task is not None and state.first and state.answers:
            state = replace(state, question=task.status)  # it may still be the question that this message answers
        case PieceSource.RESUME:
            state = replace(state, repeats=task is not None)  # the server lost that event, or ignores Last-Event-ID
        case PieceSource.SUBSCRIBE if task is None:
            return replace(state, subscribes=False), False  # nobody can tell how much was missed
        case _:
            pass
    if state.sends and state.source is PieceSource.CALL and known.status is None:
        return state, True  # the very beginning, which follows nothing
    if task is not None and (state.source is PieceSource.READ or _ends(state, task)):
        return replace(state, doubtful=False, final=task if _ends(state, task) else None), True
    if task is not None or not continues:
        state = replace(state, doubtful=True)
    return state, True


def judge(state: StreamRecovery, status: TaskStatus | None, update: Update) -> UpdateVerdict:
    """Decide about an update that comes while the task is in `status`."""
    if not isinstance(update, Task | StatusUpdate):
        return UpdateVerdict.TAKE
    if status is not None and status.state in TERMINAL and update.status.state is not status.state:
        return UpdateVerdict.IGNORE  # the first terminal state stays
    return UpdateVerdict.HOLD if state.doubtful and _ends(state, update) else UpdateVerdict.TAKE


def take_news(state: StreamRecovery) -> StreamRecovery:
    """Take note of updates that are new: the agent is not silent, and the next wait is short again."""
    return replace(state, attempt=0, lost_at_s=None)


def _ends(state: StreamRecovery, update: Task | StatusUpdate) -> bool:
    """Whether no update may follow this one."""
    return state.settled(update.status)


# -- the end of a piece ------------------------------------------------------------------------------------------------


def end_piece(
    state: StreamRecovery, known: Circumstances, error: Failure | None, *, held: bool = False
) -> tuple[StreamRecovery, Reopen | Finish | Fail]:
    """Decide what follows a piece that has ended, or broken with an error. `held`: the end of the stream was held."""
    if error is not None:
        state, failure = _admit(state, known, error)
        if failure is not None:
            return state, failure
    if held or _is_over(state, known, clean=error is None):
        return state, Finish(compare=state.doubtful and bool(known.task_id))
    return _choose_source(state, known, error)


def _admit(state: StreamRecovery, known: Circumstances, error: Failure) -> tuple[StreamRecovery, Fail | None]:
    """Decide whether the stream may go on after an error. The first row that applies counts."""
    begun = known.status is not None or not state.first
    match error:
        case NoAnswer() if state.sends and state.source is PieceSource.CALL and not known.task_id:
            if not (begun or error.sent):
                return state, Fail(error)
            recognises = known.recognises and not (isinstance(error, CallTimedOut) and not begun)
            return state, Fail(error, fate_unknown=True) if error.sent and not recognises else None
        case NoAnswer() if begun or error.sent:
            return state, None
        case HttpRefusal() | NoToken() if begun and is_temporary(error):
            return state, None
        case A2AError() if state.begun:
            return state, Fail(error)  # an error inside the stream is the agent's final word
        case MethodNotFound() if state.first and not state.sends:
            return replace(state, resumes=False, subscribes=False), None
        case A2AError() if state.first and not state.sends and known.status is not None and isinstance(error, _LACKING):
            return replace(state, resumes=False, subscribes=False), None  # the task may have ended since it was read
        case A2AError() if state.source is PieceSource.RESUME and isinstance(error, _LACKING):
            return replace(state, resumes=False), None
        case A2AError() if state.source is PieceSource.SUBSCRIBE and isinstance(error, _LACKING):
            return replace(state, subscribes=False), None
        case A2AError() if begun and is_temporary(error):
            return state, None
        case _:
            return state, Fail(error)


def _is_over(state: StreamRecovery, known: Circumstances, *, clean: bool) -> bool:
    """Whether no more updates are to be expected after a piece. `clean`: the agent ended it."""
    status = known.status
    if status is None:
        return known.message
    if state.settled(status):
        return True
    if status.state not in INTERRUPTED or not clean:
        return False
    if state.source is PieceSource.READ:
        return not state.subscribes and state.question is None
    return known.retry_ms is None or not state.begun


def _choose_source(
    state: StreamRecovery, known: Circumstances, error: Failure | None
) -> tuple[StreamRecovery, Reopen | Fail]:
    """Choose the source of the next piece, as in the table above, and the wait before it."""
    before = state.source
    if before is PieceSource.SUBSCRIBE and error is None and not state.begun:
        state = replace(state, subscribes=False)  # a mere acknowledgement (Evo AI)
    if known.event_id and known.task_id and state.resumes:
        source = PieceSource.RESUME
    elif not known.task_id:
        source = PieceSource.CALL
        if not state.sends or not known.recognises:
            return state, Fail(StreamLost(url_of(error), "the stream ended before it named a task", "", ""))
    elif before is PieceSource.READ and error is None and state.subscribes:
        source = PieceSource.SUBSCRIBE
    else:
        source = PieceSource.READ
    state = replace(state, first=False, source=source)
    if error is None:
        state = replace(state, lost_at_s=None)
        if source is PieceSource.SUBSCRIBE:
            return state, Reopen(0)  # the read just before it makes a wait unnecessary
    elif state.lost_at_s is None:
        state = replace(state, lost_at_s=known.now_s)
    elif known.now_s - state.lost_at_s >= state.mend_s:
        return state, Fail(StreamLost(url_of(error), str(error), known.task_id, known.event_id))
    state = replace(state, attempt=state.attempt + 1)
    hint_s = None if known.retry_ms is None or state.attempt > 1 else known.retry_ms / 1000
    return state, Reopen(state.attempt, hint_s)


# -- the comparison at the end -----------------------------------------------------------------------------------------


class Agree(Struct, frozen=True):
    """The agent's own task is in its end, or will not be read: None, then the stream is right as it is."""

    task: Task | None


class ReadAgain(Struct, frozen=True):
    """Read the agent's task again after a wait."""


def judge_final(
    state: StreamRecovery, known: Circumstances, ended: TaskStatus, read: Task | Failure, waited_s: float
) -> Agree | ReadAgain | Fail:
    """Decide about a read of the agent's task, whose stream ended with the status `ended`, `waited_s` ago."""
    if isinstance(read, Task):
        if read.status.state in TERMINAL or read.status.state is ended.state:
            return Agree(read)
        return Agree(None) if waited_s >= min(SETTLES_S, state.mend_s) else ReadAgain()
    if not is_temporary(read):
        return Agree(None)
    if waited_s < state.mend_s:
        return ReadAgain()
    return Fail(StreamLost(url_of(read), f"its end is not certain: {read}", known.task_id, known.event_id))


def differences(known: Task, final: Task, held: Update | None) -> list[Update]:
    """Return the updates that lead from the task as yielded to the agent's own. `held` is the end of the stream.

    The agent's own task is right. An artifact that it lacks altogether stays: some servers keep none.
    """
    news = list(missing(known, final))
    if type(held) is not StatusUpdate or held.status.state is not final.status.state:
        return news
    if held.status.message is None and (final.status.message is not None or final in news):
        return news
    return [*(each for each in news if type(each) is ArtifactUpdate), held]  # it may carry more than a task does


def is_temporary(error: Failure) -> bool:
    """Whether the same call may succeed a moment later."""
    match error:
        case HttpRefusal():
            return error.status >= 500 or error.status == 429
        case NoToken():
            return not error.permanent
        case _:
            return isinstance(error, (NoAnswer, *_TEMPORARY))


def url_of(error: Failure | None) -> str:
    """Return the URL that an error names."""
    return error.url if isinstance(error, NoAnswer | PeerError) else "stream"
