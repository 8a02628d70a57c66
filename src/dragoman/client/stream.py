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
from typing import NoReturn

from msgspec.structs import asdict, replace

from dragoman.client import recovery
from dragoman.client.endpoint import AgentEndpoint
from dragoman.client.errors import NoAnswer, PeerError, fate_unknown, note_earlier_send
from dragoman.client.http_transport import BegunStream
from dragoman.client.recovery import Agree, Circumstances, Fail, Finish, PieceSource, ReadAgain, Reopen, UpdateVerdict
from dragoman.client.retries import Repetition
from dragoman.client.task_fold import TaskFold
from dragoman.client.transport import NO_HEADERS, CallHeaders, StreamPosition, UpdateBatch, UpdateReader, succeeds
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
    without streams a send is answered once, and the task is then polled. `begun` is the call, if it has been sent.
    """

    # Values that most streams never change are kept with the class.
    resumptions = 0
    """How often the stream was resumed. Updates after that may repeat earlier ones, if a server was lost."""
    chunks = False
    """Whether the updates that were returned last only add a text to one artifact each."""
    ended = False
    """Whether nothing follows the updates that were returned last, as far as is known: `next` returns None."""
    _lost = False
    _piece: UpdateReader | None = None
    _piece_ends = False
    """Whether nothing more is read of the piece."""
    _status: TaskStatus | None = None
    """The last status that the piece has brought, and whether the operation is complete with it: `_settled`."""
    _settled = False
    _held: Task | StatusUpdate | None = None  # the end of the stream, until it has been compared
    _closes_at_s: float | None = None

    def __init__(
        self,
        endpoint: AgentEndpoint,
        operation: StreamMessage | Subscribe,
        beside: CallHeaders = NO_HEADERS,
        on_link: Callable[[bool], None] | None = None,
        begun: BegunStream | None = None,
    ) -> None:
        self.fold = TaskFold(operation.id if isinstance(operation, Subscribe) else "")
        self.position = StreamPosition(beside.after or "")
        self._endpoint = endpoint
        self._operation = operation
        self._retrier = endpoint.terms.retrier
        self._sends_s = 0.0 if beside.repetition is Repetition.NEVER else endpoint.sends_s
        self._began_ms = self._retrier.clock.now_ms() if begun is None else begun.began_ms
        self._begun = begun
        streams, tongue = endpoint.streams, endpoint.tongue
        self._streams = streams and tongue.streams
        self._beside = beside
        self._on_link = on_link
        self._state = recovery.start(
            operation,
            streams=streams,
            subscribes=tongue.subscribes,
            mend_s=endpoint.terms.timeouts.mend_s,
            after=self.position.id,
        )
        self._complaints: set[str] = set()

    @property
    def final(self) -> Task | None:
        """The agent's own task in its end, if the stream had to be compared with it."""
        return self._state.final

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield the updates one by one, for callers that ignore `fold` and `position`. The caller must close it."""
        try:
            while (batch := await self.next()) is not None:
                for update in batch:
                    yield update
        finally:
            self.close()

    async def next(self) -> list[Update] | None:
        """Return the next updates until the task ends or, for a send, waits for its caller; then None.

        They are at least one, and as many as came together; `fold` and `position` already include them. The caller must
        close the stream. Raises StreamLost if the stream could not be resumed; the agent's own refusal; NoAnswer as
        Connection does, if the stream never began. A NoAnswer whose `sent` is true carries the message id.
        """
        while not self.ended:
            error: A2AError | NoAnswer | PeerError | None = None
            try:
                if (piece := self._piece) is None:
                    piece = self._open_piece()
                while not self._piece_ends:
                    may_last = self._settled and not self.position.over
                    batch = await (self._await_last(piece) if may_last else piece.next())
                    if batch is None:
                        break
                    news = self._take(batch)
                    if (status := self.fold.status) is not self._status:
                        self._status, self._settled = status, self._state.settled(status)
                        self._piece_ends = self._piece_ends or self._complete
                    if self._held is not None or (self._settled and self.position.over):
                        self._piece_ends = True
                    if news:
                        if self._piece_ends and self._settled and not self._doubts:
                            self._end()  # nearly all streams: nothing follows
                        return news
            except (A2AError, NoAnswer, PeerError) as broken:
                error = broken
            self.close()
            if error is None and self._settled and not self._doubts:
                self.ended = True
                break
            self._state, action = recovery.end_piece(
                self._state, self._circumstances(), error, held=self._held is not None
            )
            match action:
                case Finish(compare):
                    rest = await self._compare() if compare else None
                    self.ended = True
                    return rest or None
                case Fail():
                    self.ended = True
                    self._fail(action, error)
                case Reopen():
                    self.resumptions += 1
                    if isinstance(error, NoAnswer):
                        self._set_link(up=False)
                    await self._pause(action)
        return None

    @property
    def _doubts(self) -> bool:
        """Whether the end of the stream has to be compared with the agent's own task."""
        return self._held is not None or self._state.doubtful

    def _end(self) -> None:
        """Read no more: the stream is over."""
        self.ended = True
        self.close()

    def close(self) -> None:
        """Stop reading."""
        piece, self._piece = self._piece, None
        if piece is not None:
            piece.close()
        if self._begun is not None:
            self._begun.close()
            self._begun = None

    def _set_link(self, *, up: bool) -> None:
        """Tell whether the agent can be heard."""
        self._lost = not up
        if self._on_link is not None:
            self._on_link(up)

    # -- a piece -------------------------------------------------------------------------------------------------------

    def _open_piece(self) -> UpdateReader:
        """Begin to read at the source that the state names."""
        if not (self._state.sends and self._state.first and self.fold.status is None):  # then nothing changes
            self._state = recovery.open_piece(self._state, self._circumstances())
        self._status, self._settled, self._piece_ends = self.fold.status, False, False
        self.position.begin()
        piece = self._piece = self._choose_reader()
        return piece

    def _choose_reader(self) -> UpdateReader:
        task_id, position = self.fold.task_id, self.position
        match self._state.source:
            case PieceSource.CALL:
                called = self._beside if self._state.first else replace(self._beside, after=position.id)
                begun, self._begun = self._begun, None
                if begun is None and isinstance(self._operation, StreamMessage) and not self._streams:
                    return AnswerReader(self._endpoint, SendMessage(**asdict(self._operation)), called)
                return self._endpoint.stream(self._operation, called, position, begun)
            case PieceSource.RESUME:
                beside = replace(self._later, after=position.id)
                return self._endpoint.stream(Subscribe(id=task_id), beside, position)
            case PieceSource.SUBSCRIBE:
                return self._endpoint.stream(Subscribe(id=task_id), self._later, position)
            case PieceSource.READ:
                return AnswerReader(self._endpoint, GetTask(id=task_id), self._later)

    @property
    def _later(self) -> CallHeaders:
        """The headers of the calls after the first one."""
        return replace(self._beside, after=None, repetition=Repetition.HERE)

    async def _await_last(self, piece: UpdateReader) -> UpdateBatch | None:
        """Return the next batch although the operation is complete; None at the end, for which it waits LAST_S."""
        if self._closes_at_s is None:
            self._closes_at_s = asyncio.get_running_loop().time() + LAST_S
        try:
            async with asyncio.timeout_at(self._closes_at_s):
                return await piece.next()
        except TimeoutError:
            return None

    def _begin_first(self) -> bool:
        """Begin with the first piece of a message that makes a task: it follows nothing. Returns whether this is it."""
        state = self._state
        if not (state.sends and state.first) or state.answers or self._lost or self.fold.status is not None:
            return False
        self._state = replace(state, begun=True)
        return True

    def _begin(self, ids: list[str], updates: list[Update], first: Update) -> bool:
        """Begin with the first update of a piece. Returns whether it can be joined to the updates so far."""
        if self._lost:
            self._set_link(up=True)
        continues = False
        if before := self.position.id:
            event_id = next(filter(None, ids[updates.index(first) :]), "")
            continues = succeeds(event_id, before)
        self._state, fits = recovery.begin_piece(self._state, self._circumstances(), first, continues=continues)
        return fits

    def _take(self, batch: UpdateBatch) -> list[Update]:
        """Take in a batch, and return the updates that are new. Frames of another task are ignored."""
        fold, state, updates, ids = self.fold, self._state, batch.updates, batch.ids
        ended = fold.status is not None and fold.status.state in TERMINAL
        self.chunks = batch.chunks and state.begun and not (ended or state.repeats)
        if self.chunks and not fold.extend(updates):  # type: ignore[arg-type]  # they are chunks
            self.chunks = False
        if self.chunks:  # most batches of a long stream
            if moved := ids[-1] or next(filter(None, reversed(ids)), ""):
                self.position.move(moved)
            if state.attempt:
                self._state = recovery.take_news(state)
            return updates
        if not state.begun and self._begin_first():
            state = self._state
        if state.begun and state.first and not (ended or state.doubtful or state.repeats):
            count = fold.add_usual(updates)
            if count == len(updates):  # nearly all batches
                if moved := ids[-1] or next(filter(None, reversed(ids)), ""):
                    self.position.move(moved)
                return updates
            return updates[:count] + self._take_each(ids, updates, count)
        return self._take_each(ids, updates, 0)

    def _take_each(self, ids: list[str], updates: list[Update], start: int) -> list[Update]:
        """Take in each update from the place `start` on, and return those that are new."""
        fold, state, task_id = self.fold, self._state, self.fold.task_id
        news: list[Update] = []
        moved = next(filter(None, reversed(ids[:start])), "")
        for event_id, update in zip(ids[start:], updates[start:], strict=True):
            named = update.id if isinstance(update, Task) else update.task_id
            if named and named != task_id:
                if task_id:
                    self._complain(f"its stream has a frame of another task, {named[:SHOWN_MAX]!r}: ignored")
                    continue
                task_id = named
            if not state.begun:
                if not self._begin(ids, updates, update):
                    self._piece_ends = True
                    return news
                state = self._state
            if not self._admit(update):
                if self._held is not None:
                    break
                continue
            if state.repeats:
                for each in self._find_news(update):
                    fold.add(each)
                    news.append(each)
                state = self._state
            else:
                fold.add(update)
                news.append(update)
            moved = event_id or moved  # without an id, the one before it counts
            if not state.first and type(update) is not ArtifactUpdate and self._complete:
                break
        if moved:
            self.position.move(moved)
        if news and state.attempt:
            self._state = recovery.take_news(state)
        return news

    def _admit(self, update: Update) -> bool:
        """Whether an update is to be taken. `_held` is one that ends the stream, which has to be compared first."""
        status = self.fold.status
        if type(update) is ArtifactUpdate:
            if status is not None and status.state in TERMINAL:
                self._complain(f"a chunk came after {status.state.value}, which is final: ignored")
                return False
            return True
        verdict = recovery.judge(self._state, status, update)
        if verdict is UpdateVerdict.HOLD:
            assert isinstance(update, Task | StatusUpdate)
            self._held = update
        elif verdict is UpdateVerdict.IGNORE:
            self._complain_of_change(update)
        return verdict is UpdateVerdict.TAKE

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
                read = check_task(await self._endpoint.ask(GetTask(id=task_id), self._later), task_id)
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


class AnswerReader:
    """The answer to a call that is no stream; see `UpdateReader`."""

    __slots__ = ("_beside", "_endpoint", "_operation")

    def __init__(self, endpoint: AgentEndpoint, operation: SendMessage | GetTask, beside: CallHeaders) -> None:
        self._endpoint: AgentEndpoint | None = endpoint
        self._operation = operation
        self._beside = beside

    async def next(self) -> UpdateBatch | None:
        """See `UpdateReader`."""
        if self._endpoint is None:
            return None
        answer = await self._endpoint.ask(self._operation, self._beside)
        if not isinstance(answer, Task | Message):
            raise InvalidAgentResponse(f"expected a task, got {type(answer).__name__}")
        if isinstance(self._operation, GetTask):
            check_task(answer, self._operation.id)
        self._endpoint = None
        return UpdateBatch([""], [answer])

    def close(self) -> None:
        """See `UpdateReader`."""
        self._endpoint = None


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
