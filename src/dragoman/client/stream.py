"""Streams that recover: one that breaks, stalls or ends too early is resumed where it stopped.

`recovery` decides what happens; this module opens the pieces, waits, and builds the task from its updates. If the
server numbers its events, `Last-Event-ID` gives exactly the rest. Otherwise the task is read and then subscribed to,
and only news is yielded; if the agent cannot subscribe, the task is polled. A send that got no answer is repeated with
the same message id, if the agent recognises repeated sends.

Invariant: however the stream is cut, the updates fold to the artifacts and the status that the agent reports for its
task in the end; and the first terminal state that was yielded stays.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NoReturn

from msgspec.structs import asdict, replace

from dragoman.client import recovery
from dragoman.client.endpoint import AgentEndpoint
from dragoman.client.errors import NoAnswer, PeerError, fate_unknown, note_earlier_send
from dragoman.client.recovery import Agree, Circumstances, Fail, Finish, PieceSource, ReadAgain, Reopen, UpdateVerdict
from dragoman.client.retries import Repetition
from dragoman.client.task_fold import TaskFold
from dragoman.client.transport import NO_HEADERS, Batch, CallHeaders, StreamPosition, succeeds
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.message import Message
from dragoman.model.operations import GetTask, SendMessage, StreamMessage, Subscribe
from dragoman.model.task import TERMINAL, Task, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

log = logging.getLogger("dragoman.client")

COMPLAINTS_MAX, SHOWN_MAX = 8, 80
"""How many faults of one stream are logged, and how many characters of an agent's text each may show."""

LAST_S = 1.0
"""How long a stream may stay open after its task has ended or waits for its caller; some agents never end it."""


class TaskStream:
    """One stream that resumes after a break. `fold` is the task built so far, `position` the place in the stream.

    `on_link` is called with False when the connection is lost, and with True when something comes again. For an agent
    without streams a send is answered once, and the task is then polled.
    """

    def __init__(
        self,
        endpoint: AgentEndpoint,
        operation: StreamMessage | Subscribe,
        beside: CallHeaders = NO_HEADERS,
        on_link: Callable[[bool], None] | None = None,
    ) -> None:
        self.fold = TaskFold(operation.id if isinstance(operation, Subscribe) else "")
        self.position = StreamPosition(beside.after or "")
        self.resumptions = 0
        """How often the stream was resumed. Updates after that may repeat earlier ones, if a server was lost."""
        self._endpoint = endpoint
        self._operation = operation
        self._retrier = endpoint.terms.retrier
        self._repetition = beside.repetition
        self._sends_s = 0.0 if beside.repetition is Repetition.NEVER else endpoint.sends_s
        self._began_ms = self._retrier.clock.now_ms()
        streams, tongue = endpoint.streams, endpoint.tongue
        self._streams = streams and tongue.streams
        self._beside = CallHeaders(idempotency_key=beside.idempotency_key, traceparent=beside.traceparent)
        self._on_link = on_link
        self._lost = False
        self._state = recovery.start(
            operation,
            streams=streams,
            subscribes=tongue.subscribes,
            mend_s=endpoint.terms.timeouts.mend_s,
            after=self.position.id,
        )
        self._held: Task | StatusUpdate | None = None  # the end of the stream, until it has been compared
        self._closes_at_s: float | None = None
        self._complaints: set[str] = set()

    @property
    def final(self) -> Task | None:
        """The agent's own task in its end, if the stream had to be compared with it."""
        return self._state.final

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield the updates one by one, for callers that ignore `fold` and `position`. The caller must close it."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for update in batch:
                    yield update

    async def batches(self) -> AsyncGenerator[list[Update], None]:
        """Yield the updates until the task ends or, for a send, waits for its caller. The caller must close it.

        Each batch holds at least one update, and as many as came together; `fold` and `position` already include them.
        Raises StreamLost if the stream could not be resumed; the agent's own refusal; NoAnswer as Connection does, if
        the stream never began. A NoAnswer whose `sent` is true carries the message id.
        """
        while True:
            error: A2AError | NoAnswer | PeerError | None = None
            if not (self._state.sends and self._state.first and self.fold.status is None):  # then nothing changes
                self._state = recovery.open_piece(self._state, self._circumstances())
            status, settled, complete = self.fold.status, False, False
            try:
                async with aclosing(self._open()) as piece:
                    while True:
                        may_last = settled and not self.position.over
                        batch = await (self._await_last(piece) if may_last else anext(piece, None))
                        if batch is None:
                            break
                        if not (batch := self._select_own(batch)):
                            continue
                        if not (self._state.begun or self._begin(batch)):
                            break
                        if news := self._take(batch):
                            yield news
                        if self.fold.status is not status:
                            status = self.fold.status
                            settled, complete = self._state.settled(status), self._complete
                        if complete or self._held is not None:
                            break
            except (A2AError, NoAnswer, PeerError) as broken:
                error = broken
            self._state, action = recovery.end_piece(
                self._state, self._circumstances(), error, held=self._held is not None
            )
            match action:
                case Finish(compare):
                    if compare and (news := await self._compare()):
                        yield news
                    return
                case Fail():
                    self._fail(action, error)
                case Reopen():
                    self.resumptions += 1
                    if isinstance(error, NoAnswer):
                        self._set_link(up=False)
                    await self._pause(action)

    def _set_link(self, *, up: bool) -> None:
        """Tell whether the agent can be heard."""
        self._lost = not up
        if self._on_link is not None:
            self._on_link(up)

    # -- a piece -------------------------------------------------------------------------------------------------------

    def _open(self) -> AsyncGenerator[Batch, None]:
        """Begin to read at the source that the state names."""
        task_id, position, beside = self.fold.task_id, self.position, self._beside
        position.begin()
        match self._state.source:
            case PieceSource.RESUME:
                return self._endpoint.events(Subscribe(id=task_id), replace(beside, after=position.id), position)
            case PieceSource.SUBSCRIBE:
                return self._endpoint.events(Subscribe(id=task_id), beside, position)
            case PieceSource.READ:
                return self._answer(GetTask(id=task_id), beside)
            case PieceSource.CALL:
                called = replace(beside, after=position.id, repetition=self._repetition)
                if isinstance(self._operation, StreamMessage) and not self._streams:
                    return self._answer(SendMessage(**asdict(self._operation)), called)
                return self._endpoint.events(self._operation, called, position)

    async def _answer(self, operation: SendMessage | GetTask, beside: CallHeaders) -> AsyncGenerator[Batch, None]:
        """Yield the answer to a call that is no stream."""
        answer = await self._endpoint.ask(operation, beside)
        if not isinstance(answer, Task | Message):
            raise InvalidAgentResponse(f"expected a task, got {type(answer).__name__}")
        if isinstance(operation, GetTask):
            check_task(answer, operation.id)
        yield [("", answer)]

    async def _await_last(self, piece: AsyncGenerator[Batch, None]) -> Batch | None:
        """Return the next batch although the operation is complete; None at the end, for which it waits LAST_S."""
        if self._closes_at_s is None:
            self._closes_at_s = asyncio.get_running_loop().time() + LAST_S
        try:
            async with asyncio.timeout_at(self._closes_at_s):
                return await anext(piece, None)
        except TimeoutError:
            return None

    def _select_own(self, batch: Batch) -> Batch:
        """Return the frames of this task; frames of another task are ignored."""
        task_id = self.fold.task_id
        for _, update in batch:
            if type(update) is not ArtifactUpdate or update.task_id != task_id:
                break
        else:
            return batch
        own: Batch = []
        for each in batch:
            update = each[1]
            if type(update) is ArtifactUpdate:
                named: str | None = update.task_id
            else:
                named = update.id if isinstance(update, Task) else update.task_id
            if named and named != task_id:
                if task_id:
                    self._complain(f"its stream has a frame of another task, {named[:SHOWN_MAX]!r}: ignored")
                    continue
                task_id = named
            own.append(each)
        return own

    def _begin(self, batch: Batch) -> bool:
        """Begin with the first batch of a piece. Returns whether it can be joined to the updates so far."""
        if self._lost:
            self._set_link(up=True)
        continues = False
        if before := self.position.id:
            continues = succeeds(next((event_id for event_id, _ in batch if event_id), ""), before)
        self._state, fits = recovery.begin_piece(self._state, self._circumstances(), batch[0][1], continues=continues)
        return fits

    def _take(self, batch: Batch) -> list[Update]:
        """Take in a batch, and return the updates that are new."""
        fold, position, state = self.fold, self.position, self._state
        first, news = state.first, list[Update]()
        for event_id, update in batch:
            if type(update) is not ArtifactUpdate:
                verdict = recovery.judge(state, fold.status, update)
                if verdict is UpdateVerdict.HOLD:
                    assert isinstance(update, Task | StatusUpdate)
                    self._held = update
                    break
                if verdict is UpdateVerdict.IGNORE:
                    self._complain_of_change(update)
                    continue
            elif fold.status is not None and fold.status.state in TERMINAL:
                self._complain(f"a chunk came after {fold.status.state.value}, which is final: ignored")
                continue
            if state.repeats:
                for each in self._find_news(update):
                    fold.add(each)
                    news.append(each)
            else:
                fold.add(update)
                news.append(update)
            if event_id:  # without one, the id before it counts
                position.move(event_id)
            if not first and type(update) is not ArtifactUpdate and self._complete:
                break
        if news and self._state.attempt:
            self._state = recovery.take_news(self._state)
        return news

    def _find_news(self, update: Update) -> Sequence[Update]:
        """Return the parts of an update that have not been yielded."""
        if self._state.partial and isinstance(update, Task):
            self._state = replace(self._state, partial=False)
            return (update,)  # the caller knows more of the task than `fold` does
        return self.fold.news(update)

    @property
    def _complete(self) -> bool:
        """Whether a resumed send is over, so that the agent need not end its stream."""
        return not self._state.first and self._state.answered(self.fold.status)

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _compare(self) -> list[Update]:
        """Read the agent's own task, and return its differences from the updates so far, then the end of the stream.

        Raises StreamLost if the task cannot be read for `mend_s`.
        """
        fold, held = self.fold, self._held
        known, status = fold.task(), fold.status if held is None else held.status
        final = None if status is None else await self._read_final(status)
        self._state = replace(self._state, final=final)
        news: list[Update] = [] if held is None else [held]
        if final is not None:
            if known is None or self._state.partial:
                news = [final]
            else:
                self._log_lacking(known, final)
                news = recovery.differences(known, final, held)
        for each in news:
            fold.add(each)
        return news

    async def _read_final(self, ended: TaskStatus) -> Task | None:
        """Read the agent's own task until it shows its end; None if it never does."""
        task_id, began_s, attempt = self.fold.task_id, asyncio.get_running_loop().time(), 0
        while True:
            read: Task | A2AError | NoAnswer | PeerError
            try:
                read = check_task(await self._endpoint.ask(GetTask(id=task_id), self._beside), task_id)
            except (A2AError, NoAnswer, PeerError) as error:
                read = error
            waited_s = asyncio.get_running_loop().time() - began_s
            match recovery.judge_final(self._state, self._circumstances(), ended, read, waited_s):
                case Agree(task):
                    if task is None:
                        _log_disagreement(task_id, read)
                    return task
                case Fail() as action:
                    self._fail(action, read if isinstance(read, Exception) else None)
                case ReadAgain():
                    attempt += 1
                    await self._pause(Reopen(attempt))

    # -- what the state machine asks for -------------------------------------------------------------------------------

    def _circumstances(self) -> Circumstances:
        """Describe the circumstances for a decision."""
        fold, position = self.fold, self.position
        return Circumstances(
            task_id=fold.task_id,
            status=fold.status,
            message=fold.message is not None,
            event_id=position.id,
            retry_ms=position.retry_ms,
            recognises=(self._retrier.clock.now_ms() - self._began_ms) / 1000 < self._sends_s,
            now_s=asyncio.get_running_loop().time(),
        )

    async def _pause(self, action: Reopen) -> None:
        if action.attempt:
            wait_s = self._retrier.wait_s(action.attempt) if action.hint_s is None else action.hint_s
            await self._retrier.pause(min(wait_s, self._retrier.retries.patience_s))

    def _fail(self, action: Fail, cause: Exception | None) -> NoReturn:
        error = action.error
        if self.resumptions and not self.fold.task_id:
            note_earlier_send(error)
        if action.fate_unknown and isinstance(error, NoAnswer):
            raise fate_unknown(error, self._state.message_id)
        if error is cause:
            raise error
        raise error from cause

    # -- the log -------------------------------------------------------------------------------------------------------

    def _complain(self, fault: str) -> None:
        """Log what is wrong with the stream, once."""
        if fault not in self._complaints and len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.add(fault)
            log.warning("task %.80r: %s", self.fold.task_id, fault)

    def _complain_of_change(self, update: Update) -> None:
        if isinstance(update, Task | StatusUpdate) and self.fold.state is not None:
            state, other = self.fold.state.value, update.status.state.value
            self._complain(f"{other} came after {state}, which is final: ignored")

    def _log_lacking(self, known: Task, final: Task) -> None:
        lacking = {each.artifact_id for each in known.artifacts} - {each.artifact_id for each in final.artifacts}
        if lacking:
            log.info("task %.80r: its stream had artifacts that the agent does not keep: %.200r", final.id, lacking)


def check_task(answer: object, task_id: str) -> Task:
    """Return the answer if it is the task with that id. Raises InvalidAgentResponse."""
    if not isinstance(answer, Task):
        raise InvalidAgentResponse(f"expected a task, got {type(answer).__name__}")
    if answer.id and answer.id != task_id:
        raise InvalidAgentResponse(f"expected the task {task_id}, got the task {answer.id[:SHOWN_MAX]!r}")
    return answer


def _log_disagreement(task_id: str, read: Task | Exception) -> None:
    """Log why the stream is believed although the agent's own task does not confirm its end."""
    if isinstance(read, Task):
        log.warning("task %.80r: its stream has ended, but the agent shows it as %s", task_id, read.status.state.value)
    else:
        log.warning("task %.80r: its end cannot be compared with the agent's own task: %s", task_id, read)
