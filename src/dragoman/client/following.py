"""Streams that recover: one that breaks, stalls or ends too early is resumed where it stopped.

If the server numbers its events, `Last-Event-ID` gives exactly the rest. Otherwise the task is read and then subscribed
to, and only news is yielded; if the agent cannot subscribe, the task is polled. Servers repeat chunks to a reader that
joins late, or leave some out. So at the end of a resumed stream the task is read once more, and differences are
replaced, unless event numbers prove that nothing is missing. A send that got no answer is repeated with the same
message id, if the agent recognises repeated sends.

Invariant: however the stream is cut, the updates fold to the artifacts and the status that the agent reports for its
task in the end; and the first terminal state that was yielded stays.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from enum import Enum, auto
from typing import Any, Protocol

from dragoman.client.errors import CallTimedOut, HttpRefusal, NoAnswer, NoToken, PeerError, StreamLost, fate_unknown
from dragoman.client.folding import Folding, missing
from dragoman.client.place import Batch, Place, succeeds
from dragoman.client.retries import Again
from dragoman.client.timeouts import Timeouts
from dragoman.dialects.tongue import Answer, Tongue
from dragoman.model.errors import (
    A2AError,
    AgentOffline,
    InternalError,
    InvalidAgentResponse,
    InvalidParams,
    MethodNotAllowed,
    MethodNotFound,
    NotFound,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from dragoman.model.message import Message
from dragoman.model.operations import GetTask, Operation, SendMessage, StreamMessage, Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

log = logging.getLogger("dragoman.client")

_LACKING = (UnsupportedOperation, MethodNotFound, MethodNotAllowed, NotFound, InvalidParams)
"""Errors of an agent that cannot subscribe, or cannot resume from an event."""

_FOR_NOW = (Unavailable, TooManyRequests, AgentOffline, InternalError)

_BROKEN = (NoAnswer, PeerError, A2AError)

SETTLES_S = 5.0
"""How long an agent may still show the task's earlier state after its stream reported the end."""

COMPLAINTS_MAX, SHOWN_MAX = 8, 80
"""How many faults of one stream are logged, and how many characters of an agent's text each may show."""

LAST_S = 1.0
"""How long a stream may stay open after its task has ended or waits for its caller; some agents never end it."""


class Agent(Protocol):
    """The agent that the stream comes from; see Connection."""

    @property
    def tongue(self) -> Tongue:
        """The dialect that is spoken."""
        ...

    async def ask(
        self, operation: Operation, *, idempotency_key: str | None = None, traceparent: str | None = None
    ) -> Answer:
        """See Connection."""
        ...

    def events(
        self,
        operation: StreamMessage | Subscribe,
        *,
        after: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        place: Place | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """See Connection."""
        ...


class _Step(Enum):
    """The source of the current piece of the stream."""

    SAID = auto()  # the caller's own operation
    RESUMED = auto()  # a subscription from an event on
    ASKED = auto()  # a read of the task
    SUBSCRIBED = auto()  # a subscription that begins with the whole task


class Following:
    """One stream that resumes after a break. `folding` is the task built so far, `place` the position in the stream.

    `final` is the agent's own task at the end, if the stream had to be compared with it: see `_compare`.

    `streams` False: the agent has no streams, so a send is answered once and the task is then polled. The agent
    recognises a repeated send for `repeats_s` seconds.
    """

    def __init__(
        self,
        agent: Agent,
        operation: StreamMessage | Subscribe,
        *,
        again: Again,
        timeouts: Timeouts,
        streams: bool = True,
        repeats_s: float = 0.0,
        after: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
    ) -> None:
        self.folding = Folding(operation.id if isinstance(operation, Subscribe) else "")
        self.place = Place(after or "")
        self.final: Task | None = None
        self.mended = 0
        """How often the stream was resumed. Updates after that may repeat earlier ones, if a server was lost."""
        self._agent = agent
        self._operation = operation
        self._send = operation if isinstance(operation, StreamMessage) else None
        self._again = again
        self._mend_s = timeouts.mend_s
        self._repeats_s = repeats_s
        self._began_ms = again.clock.now_ms()
        self._streams = streams and agent.tongue.streams
        self._key = idempotency_key
        self._traceparent = traceparent
        self._step = _Step.SAID if self._send is not None or agent.tongue.subscribes else _Step.ASKED
        self._resumes = self._subscribes = streams and agent.tongue.subscribes
        self._checks = False
        self._first = True
        self._told = False
        self._asked: TaskStatus | None = None
        self._lost_at: float | None = None
        self._ends_at: float | None = None
        self._attempt = 0
        self._partial = bool(after)  # the events before `after` are unknown here
        self._doubtful = False  # something may be missing or repeated
        self._joining = False  # the next frame decides `_doubtful`
        self._end: Task | StatusUpdate | None = None  # held back until the task has been compared
        self._complained: set[str] = set()

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield the updates one by one, for callers that ignore `folding` and `place`. The caller must close it."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for update in batch:
                    yield update

    async def batches(self) -> AsyncGenerator[list[Update], None]:
        """Yield the updates until the task ends or, for a send, waits for its caller. The caller must close it.

        Each batch holds at least one update, and as many as came together; `folding` and `place` already include them.
        Raises StreamLost if the stream could not be resumed; the agent's own refusal; NoAnswer as Connection does, if
        the stream never began. A NoAnswer whose `sent` is true carries the message id.
        """
        while True:
            lost: Exception | None = None
            self._told = self._checks = settled = False
            try:
                async with aclosing(self._events()) as events:
                    while (came := await (self._await_last(events) if settled else anext(events, None))) is not None:
                        if not (came := self._select_own(came)):
                            continue
                        whole = False
                        if not self._told:
                            self._told = True
                            if not self._fits(came[0][1]):
                                break
                            whole = type(came[0][1]) is Task
                        if self._joining:
                            self._join(came, whole=whole)
                        news = self._take(came)
                        if news:
                            yield news
                        if self._end is not None:
                            break
                        settled = self._settled
                        if not self._first and self._answered:
                            return
            except _BROKEN as error:
                lost = self._check_resumable(error)
            if self._end is not None or self._over(clean=lost is None):
                if self._doubtful and self.folding.task_id and (news := await self._compare()):
                    yield news
                return
            await self._choose_next(lost)

    def _take(self, came: Batch) -> list[Update]:
        """Take in a batch, and return the updates that are new."""
        folding, place = self.folding, self.place
        news: list[Update] = []
        for event_id, update in came:
            if type(update) is not ArtifactUpdate:
                if self._overturns(update):
                    continue
                if self._doubtful and isinstance(update, Task | StatusUpdate) and self._ends(update):
                    self._end = update
                    break
            for each in self._find_news(update) if self._checks else (update,):
                folding.add(each)
                news.append(each)
            place.id = event_id or place.id
            if not self._first and type(update) is not ArtifactUpdate and self._answered:
                break
        if news:
            self._attempt = 0
        return news

    def _find_news(self, update: Update) -> Sequence[Update]:
        """Return the parts of an update that have not been yielded."""
        if self._partial and isinstance(update, Task):
            self._partial = False
            return (update,)  # the caller knows more of the task than `folding` does
        return self.folding.news(update)

    def _select_own(self, came: Batch) -> Batch:
        """Return the frames of this task; frames of another task are ignored."""
        task_id = self.folding.task_id
        own: Batch = []
        for each in came:
            update = each[1]
            named = update.id if isinstance(update, Task) else update.task_id
            if named and named != task_id:
                if task_id:
                    self._complain(f"its stream has a frame of another task, {named[:SHOWN_MAX]!r}: ignored")
                    continue
                task_id = named
            own.append(each)
        return own

    def _overturns(self, update: Update) -> bool:
        """Whether an update contradicts a terminal state with another state; such an update is ignored."""
        state = self.folding.state
        if state not in TERMINAL or not isinstance(update, Task | StatusUpdate) or update.status.state is state:
            return False
        self._complain(f"{update.status.state.value} came after {state.value}, which is final: ignored")
        return True

    def _complain(self, fault: str) -> None:
        """Log what is wrong with the stream, once."""
        if fault not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained.add(fault)
            log.warning("task %.80r: %s", self.folding.task_id, fault)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _join(self, came: Batch, *, whole: bool) -> None:
        """Note whether a piece continues exactly where the one before it broke. `whole`: it begins with the task.

        Only a number that follows the last one proves that. A whole task proves it only if nothing comes after it.
        """
        self._joining = False
        first = came[0][1]
        if type(first) is Task and (self._step is _Step.ASKED or self._ends(first)):
            self._doubtful = False
            self.final = first if self._ends(first) else None
        elif whole or not succeeds(next((event_id for event_id, _ in came if event_id), ""), self.place.id):
            self._doubtful = True

    def _ends(self, update: Task | StatusUpdate) -> bool:
        """Whether no update may follow this one."""
        state = update.status.state
        return state in TERMINAL or (self._send is not None and state in INTERRUPTED and update.status != self._asked)

    async def _compare(self) -> list[Update]:
        """Read the agent's own task, and return where it differs from the updates so far, then the end of the stream.

        The agent's own task is right. An artifact that it lacks altogether stays: some servers keep none. Raises
        StreamLost if the task cannot be read for `mend_s`.
        """
        folding, end = self.folding, self._end
        known, status = folding.task(), folding.status if end is None else end.status
        self.final = None if status is None else await self._read_final(status)
        news: list[Update] = [] if end is None else [end]
        if (final := self.final) is not None:
            news = [final] if known is None or self._partial else self._differences(known, final)
        for each in news:
            folding.add(each)
        return news

    def _differences(self, known: Task, final: Task) -> list[Update]:
        """Return the updates that lead from the task as yielded to the agent's own, the end last."""
        lacking = {each.artifact_id for each in known.artifacts} - {each.artifact_id for each in final.artifacts}
        if lacking:
            log.info("task %.80r: its stream had artifacts that the agent does not keep: %.200r", final.id, lacking)
        news: list[Update] = list(missing(known, final))
        end = self._end
        if type(end) is not StatusUpdate or end.status.state is not final.status.state:
            return news
        if end.status.message is None and (final.status.message is not None or final in news):
            return news
        return [*(each for each in news if type(each) is ArtifactUpdate), end]  # it may carry more than a task does

    async def _read_final(self, status: TaskStatus) -> Task | None:
        """Read the agent's own task until its state is that of `status`, for SETTLES_S; None if it never is.

        Raises StreamLost if the agent does not answer for `mend_s`.
        """
        task_id, began = self.folding.task_id, asyncio.get_running_loop().time()
        attempt = 0
        while True:
            lost: Exception | None = None
            shown: TaskState | None = None
            try:
                task = check_task(await self._agent.ask(GetTask(id=task_id), traceparent=self._traceparent), task_id)
                if task.status.state in TERMINAL or task.status.state is status.state:
                    return task
                shown = task.status.state
            except _BROKEN as error:
                if not _passes(error):
                    log.warning("task %.80r: its end cannot be compared with the agent's own task: %s", task_id, error)
                    return None
                lost = error
            waited_s = asyncio.get_running_loop().time() - began
            if lost is not None and waited_s >= self._mend_s:
                raise StreamLost(self._where(lost), f"its end is not certain: {lost}", task_id, self.place.id) from lost
            if shown is not None and waited_s >= min(SETTLES_S, self._mend_s):
                log.warning("task %.80r: its stream has ended, but the agent shows it as %s", task_id, shown.value)
                return None
            attempt += 1
            await self._again.pause(min(self._again.wait_s(attempt), self._again.retries.patience_s))

    # -- the pieces ----------------------------------------------------------------------------------------------------

    def _events(self) -> AsyncGenerator[Batch, None]:
        task_id, place = self.folding.task_id, self.place
        place.retry_ms = None
        self._joining = self._send is None or self._step is not _Step.SAID or self.folding.status is not None
        match self._step:
            case _Step.RESUMED:
                return self._agent.events(
                    Subscribe(id=task_id), after=place.id, traceparent=self._traceparent, place=place
                )
            case _Step.SUBSCRIBED:
                self._checks = True
                return self._agent.events(Subscribe(id=task_id), traceparent=self._traceparent, place=place)
            case _Step.ASKED:
                self._checks = True
                return self._answer(GetTask(id=task_id))
        if self._send is not None and not self._streams:
            return self._answer(
                SendMessage(**{name: getattr(self._send, name) for name in SendMessage.__struct_fields__})
            )
        self._checks = self.folding.status is not None
        return self._agent.events(
            self._operation,
            after=place.id or None,
            idempotency_key=self._key,
            traceparent=self._traceparent,
            place=place,
        )

    async def _await_last(self, events: AsyncGenerator[Batch, None]) -> Batch | None:
        """Return the next batch although the task is over; None at the end, for which it waits LAST_S at most."""
        if self._ends_at is None:
            self._ends_at = asyncio.get_running_loop().time() + LAST_S
        try:
            async with asyncio.timeout_at(self._ends_at):
                return await anext(events, None)
        except TimeoutError:
            return None

    async def _answer(self, operation: SendMessage | GetTask) -> AsyncGenerator[Batch, None]:
        key: dict[str, Any] = {"idempotency_key": self._key} if isinstance(operation, SendMessage) else {}
        answer = await self._agent.ask(operation, traceparent=self._traceparent, **key)
        if not isinstance(answer, Task | Message):
            raise InvalidAgentResponse(f"expected a task, got {type(answer).__name__}")
        if isinstance(operation, GetTask):
            check_task(answer, operation.id)
        yield [("", answer)]

    def _fits(self, first: Update) -> bool:
        """Whether the beginning of a piece can be joined to the updates so far."""
        whole = isinstance(first, Task)
        match self._step:
            case _Step.SAID:
                if isinstance(first, Task) and self._send is not None and self._send.message.task_id and self._first:
                    self._asked = first.status  # it may still be the question that this message answers
            case _Step.RESUMED:
                self._checks = whole  # the server no longer knows that event, or ignores Last-Event-ID
            case _Step.SUBSCRIBED if not whole:
                self._subscribes = False  # there is no telling how much was missed
                return False
            case _:
                pass
        return True

    # -- what comes next -----------------------------------------------------------------------------------------------

    @property
    def _answered(self) -> bool:
        """Whether a send is over because its task asks something new, not the question that the send answers."""
        folding = self.folding
        return self._send is not None and folding.state in INTERRUPTED and folding.status != self._asked

    @property
    def _settled(self) -> bool:
        """Whether the operation is complete: the task has ended, or waits for its caller."""
        state = self.folding.state
        return state is not None and (state in TERMINAL or (state in INTERRUPTED and self._answered))

    def _over(self, *, clean: bool) -> bool:
        """Whether no more updates are to be expected after a piece has ended."""
        folding = self.folding
        if folding.status is None:
            return folding.message is not None
        if folding.state in TERMINAL or self._answered:
            return True
        if folding.state not in INTERRUPTED or not clean:
            return False
        if self._step is _Step.ASKED:
            return not self._subscribes and self._asked is None
        return self.place.retry_ms is None or not self._told

    @property
    def _knows(self) -> bool:
        """Whether the agent would still recognise the send as a repeat if it came again now."""
        return (self._again.clock.now_ms() - self._began_ms) / 1000 < self._repeats_s

    def _check_resumable(self, error: Exception) -> Exception:
        """Return the error if the stream may be resumed after it; otherwise raise it."""
        begun = self.folding.status is not None or not self._first
        match error:
            case NoAnswer() if self._step is _Step.SAID and self._send is not None and not self.folding.task_id:
                if not (begun or error.sent):
                    raise error
                knows = self._knows and not (isinstance(error, CallTimedOut) and not begun)
                if error.sent and not knows:
                    raise fate_unknown(error, self._send.message.message_id) from error
                return error
            case NoAnswer() if begun or error.sent:
                return error
            case HttpRefusal() if begun and (error.status >= 500 or error.status == 429):
                return error
            case NoToken() if begun and not error.permanent:
                return error
            case A2AError() if self._told:
                raise error  # an error inside the stream is the agent's final word
            case MethodNotFound() if self._first and self._send is None:
                self._resumes = self._subscribes = False
                return error
            case A2AError() if self._step is _Step.RESUMED and isinstance(error, _LACKING):
                self._resumes = False
                return error
            case A2AError() if self._step is _Step.SUBSCRIBED and isinstance(error, _LACKING):
                self._subscribes = False
                return error
            case A2AError() if begun and isinstance(error, _FOR_NOW):
                return error
            case _:
                raise error

    async def _choose_next(self, lost: Exception | None) -> None:
        """Choose the source of the next piece, and wait before it. Raises StreamLost."""
        before = self._step
        if before is _Step.SUBSCRIBED and lost is None and not self._told:
            self._subscribes = False  # a mere acknowledgement (Evo AI)
        self._first = False
        self.mended += 1
        task_id = self.folding.task_id
        if self.place.id and task_id and self._resumes:
            self._step = _Step.RESUMED
        elif not task_id:
            self._step = _Step.SAID
            if self._send is None or not self._knows:
                raise StreamLost(self._where(lost), "the stream ended before it named a task", task_id, "")
        elif before is _Step.ASKED and lost is None and self._subscribes:
            self._step = _Step.SUBSCRIBED
        else:
            self._step = _Step.ASKED
        now = asyncio.get_running_loop().time()
        if lost is None:
            self._lost_at = None
            if self._step is _Step.SUBSCRIBED:
                return  # the read just before it makes a wait unnecessary
        elif self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at >= self._mend_s:
            raise StreamLost(self._where(lost), str(lost), task_id, self.place.id) from lost
        self._attempt += 1
        hint_ms = self.place.retry_ms
        wait_s = self._again.wait_s(self._attempt) if hint_ms is None or self._attempt > 1 else hint_ms / 1000
        await self._again.pause(min(wait_s, self._again.retries.patience_s))

    def _where(self, lost: Exception | None) -> str:
        return lost.url if isinstance(lost, NoAnswer | PeerError) else "stream"


def check_task(answer: object, task_id: str) -> Task:
    """Return the answer if it is the task with that id. Raises InvalidAgentResponse."""
    if not isinstance(answer, Task):
        raise InvalidAgentResponse(f"expected a task, got {type(answer).__name__}")
    if answer.id and answer.id != task_id:
        raise InvalidAgentResponse(f"expected the task {task_id}, got the task {answer.id[:SHOWN_MAX]!r}")
    return answer


def _passes(error: Exception) -> bool:
    """Whether the same call may succeed a moment later."""
    match error:
        case HttpRefusal():
            return error.status >= 500 or error.status == 429
        case NoToken():
            return not error.permanent
        case _:
            return isinstance(error, NoAnswer | Unavailable | TooManyRequests | AgentOffline | InternalError)
