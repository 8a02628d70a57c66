"""RunWriter: the events of a run, on their way to the log.

Invariant: events are written once each, in the order they were put, under the run's epoch. One write of a run is queued
or under way at a time; events that come meanwhile go into the next. Commits drive it, so it needs no asyncio task.
"""

import asyncio

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from dragoman.engine.bounds import PART_BYTES
from dragoman.engine.log import Log
from dragoman.engine.rules import Decision, View, WritePage, decide_page
from dragoman.engine.runs.endings import agent_error
from dragoman.engine.runs.execution import OVER, TaskExecution
from dragoman.engine.runs.questions import Questions
from dragoman.engine.runs.replay import place_of
from dragoman.engine.runs.word_events import over_at_once
from dragoman.engine.writes import Outcome
from dragoman.model.events import Event, Intervened, MessageReceived, Placed, StatusChanged, Submitted, TakenMessage
from dragoman.model.lifecycle import FOLLOWS
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, TERMINAL
from dragoman.model.typed import check_types
from dragoman.store.api import Moved, OutcomeUnknown, Refused, StoreError

BUFFER_EVENTS_MAX = 256
"""Most events that wait for the write under way; then the agent waits too."""

BUFFER_BYTES_MAX = 1_000_000
"""About how many bytes of events may wait for the write under way."""

QUIET_S = 0.025
"""How long a quiet event waits for others, to be written with them. Readers do not notice so short a delay."""


class RunWriter:
    """Buffers the events of an `execution` and appends them.

    A write that the store cannot take is repeated after `retry_s`. `state` is the state of the task after all events
    that were put.
    """

    __slots__ = (
        "_buffer",
        "_buffer_bytes",
        "_execution",
        "_flying",
        "_hears",
        "_log",
        "_loop",
        "_questions",
        "_queued",
        "_retry_s",
        "_status_ms",
        "_timer",
        "_waiting",
        "_wakes_ms",
        "asleep",
        "epoch",
        "lost",
        "state",
        "taken",
    )

    def __init__(self, log: Log, loop: asyncio.AbstractEventLoop, execution: TaskExecution, retry_s: float) -> None:
        row = log.row
        self.epoch = row.epoch
        self.lost = False
        self._log = log
        self._loop = loop
        self._retry_s = retry_s
        self._execution = execution
        self._questions: Questions | None = None
        """Knows whether the question that was put last still needs an answer."""
        self._hears = False
        """Whether a sleep that ends with a message was put and is not committed."""
        self._wakes_ms: int | None = None
        """When the task wakes, of a sleep that ends the lease and is not committed."""
        self.asleep = False
        """Whether the task sleeps, so that the run is over."""
        self.state = row.state
        self.taken: tuple[TakenMessage, ...] = ()
        """The messages that questions have taken, which the next event records: see `model.events.Placed`."""
        self._status_ms = 0
        self._buffer: list[Event] = []
        self._buffer_bytes = 0
        self._flying: list[Event] = []
        self._queued = False
        """Whether a write is queued or under way, or waits to be tried again."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, event: Event, now_ms: int = 0, *, weight: int = 0, quietly: bool = False) -> bool:
        """Queue an event for the log; it is written soon. Does nothing once the run has ended or is fenced.

        A status comes with its time, `now_ms`, an event that has been weighed with its `weight`. A `quietly` put event
        waits up to `QUIET_S` for the next event, unless somebody waits for the writes. Returns whether the buffer is
        full, so that the agent must wait for `room`.

        Raises TypeError if the event could not be read back. One with a `weight` has been checked, too.
        """
        if self.lost or self.state in TERMINAL:
            return False
        if not weight:
            check_types(type(event).__name__, event)
        if type(event) is StatusChanged:
            size = weight or (PART_BYTES if event.message is None else weigh(event))
            if event.state not in FOLLOWS[self.state]:
                return False
            if self.state in INTERRUPTED:
                self._withdraw_question()
            self.state = event.state
            self._status_ms = now_ms
        else:
            size = weight or weigh(event)
        if self.taken:
            event = self._record_taken(event)
        self._buffer.append(event)
        self._buffer_bytes += size
        if not self._queued:
            if quietly and self._timer is None:
                self._timer = self._loop.call_later(QUIET_S, self._write)
            else:
                self._queued = True
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                self._loop.call_soon(self._log.writes.submit, self._log, self._page, self._landed)
        return len(self._buffer) >= BUFFER_EVENTS_MAX or self._buffer_bytes >= BUFFER_BYTES_MAX

    def put_question(self, question: StatusChanged, now_ms: int, questions: Questions) -> bool:
        """As `put`. It is left out if `questions` say, when its turn comes, that it needs no answer any more."""
        self._questions = questions
        return self.put(question, now_ms)

    def put_sleep(self, sleep: StatusChanged, now_ms: int, questions: Questions, *, suspends: bool) -> None:
        """As `put`. With `suspends` its write ends the lease. One that ends with a message is over at once if
        `questions` have one that the agent has not read when its turn comes."""
        placed = sleep.placed
        assert placed is not None
        self._questions = questions
        self._hears = self._hears or placed.wakes_on_message
        self._wakes_ms = placed.wakes_ms if suspends else None
        self.put(sleep, now_ms)

    def stay_awake(self) -> None:
        """Keep the lease, if the sleep that was put last is not being written yet."""
        if not any(map(_is_sleep, self._flying)):
            self._wakes_ms = None

    def note_taken(self, place: str, message: Message) -> None:
        """Have the next event record which question, if it has a place, has taken a message of the caller."""
        if place:
            self.taken += (TakenMessage(place, message.message_id),)

    def _record_taken(self, event: Event) -> Event:
        if isinstance(event, Submitted | MessageReceived | Intervened):
            return event  # no run writes one
        taken, self.taken = self.taken, ()
        return replace(event, placed=replace(event.placed or Placed(), taken=taken))

    def resume(self, epoch: int) -> None:
        """Write under `epoch` from now on: the task was answered under a new lease."""
        self.epoch = epoch
        self.state = self._log.state

    def stop(self) -> None:
        """Write nothing more. A write under way may still be committed."""
        self.lost = True
        self._buffer.clear()
        self._wake()

    def release(self) -> None:
        """Drop the run, which is over.

        Without this, run and writer form a cycle that waits for the garbage collector. That costs a fifth of the
        engine's share of a short send.
        """
        self._execution, self._questions = OVER, None

    @property
    def pending(self) -> list[Event]:
        """The events that were put and are not committed."""
        return [*self._flying, *self._buffer]

    async def room(self) -> None:
        """Wait until the buffer is not full."""
        while len(self._buffer) >= BUFFER_EVENTS_MAX or self._buffer_bytes >= BUFFER_BYTES_MAX:
            if (commit := self.next_commit()) is None:
                return
            await commit

    async def drained(self) -> None:
        """Wait until everything put so far is committed, or the run is fenced."""
        while (commit := self.next_commit()) is not None:
            await commit

    def next_commit(self, future: "asyncio.Future[None] | None" = None) -> "asyncio.Future[None] | None":
        """Return a future, or the given one, that finishes at the next commit.

        Returns None if everything put is committed, or the run is fenced.
        """
        if self.lost or not (self._buffer or self._flying):
            return None
        if future is None:
            future = self._loop.create_future()
        self._waiting.append(future)
        if self._timer is not None:  # a quiet event is written now, because somebody waits
            self._timer.cancel()
            self._write()
        return future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _write(self) -> None:
        """Write what was put. A run that is lost by the time of its turn writes nothing."""
        self._timer = None
        self._queued = True
        self._log.writes.submit(self._log, self._page, self._landed)

    def _page(self, log: Log) -> Decision | None:
        """Decide on one write with all events put so far. Called again if somebody else wrote to the task first."""
        if self.lost:  # perhaps since this write was refused because somebody else had written
            self._flying = []
            self._buffer.clear()
            return None
        if self._flying:
            self._take_back()
        events = self._buffer
        if not events:
            return None
        if self.state in INTERRUPTED and not log.terminal:
            self._drop_answered(log)
            if not events:
                return None
        if self._hears:
            self._cut_sleeps()
        if self._wakes_ms is not None and self.state in TERMINAL:  # the run has ended since
            self._wakes_ms = None
        row = log.row
        view = View(log.head, row.state, row.epoch, row.holder)
        page = WritePage(
            tuple(events), self.epoch, self.state, self._status_ms, self._buffer_bytes, self._wakes_ms, self._hears
        )
        decision = decide_page(view, page)
        self._buffer, self._flying, self._buffer_bytes = [], events, 0
        return decision

    def _drop_answered(self, log: Log) -> None:
        """Leave out a question that has its answer already. Notes may stand behind it."""
        statuses = [event for event in self._buffer if isinstance(event, StatusChanged)]
        if statuses and self._questions is not None and self._questions.overtaken():
            question = statuses.pop()
            if (late := self._questions.taken) is not None:
                self.note_taken(place_of(question), late)
            self._leave_out(question)
            self.state = statuses[-1].state if statuses else log.state

    def _cut_sleeps(self) -> None:
        """Let sleeps that a message ends be over at once, if the agent has not read one."""
        if self._questions is None or not self._questions.unread:
            return
        for at, event in enumerate(self._buffer):
            if isinstance(event, StatusChanged) and event.placed is not None and event.placed.wakes_on_message:
                self._buffer[at] = over_at_once(event)
        self._hears, self._wakes_ms = False, None

    def _withdraw_question(self) -> None:
        """Leave out a question that is not being written yet: the run ends, and nobody can answer."""
        for event in self._buffer:
            if isinstance(event, StatusChanged) and event.state in INTERRUPTED:
                self._leave_out(event)
                return

    def _leave_out(self, question: StatusChanged) -> None:
        """Do not write a question. The next event records what it would have recorded of other words."""
        self._buffer.remove(question)
        self._buffer_bytes -= weigh(question)
        if question.placed is not None:
            self.taken = (*question.placed.taken, *self.taken)

    def _take_back(self) -> None:
        """Put the events of a failed write back into the queue."""
        self._buffer[:0] = self._flying
        self._buffer_bytes += sum(map(weigh, self._flying))
        self._flying = []
        if self.state not in INTERRUPTED:  # the run went on while its question was being refused
            self._withdraw_question()

    def _landed(self, outcome: Outcome) -> None:
        if not isinstance(outcome, BaseException):
            if self._log.writes.failure is not None:
                self._log.writes.note_success()
        elif isinstance(outcome, OutcomeUnknown):
            return  # the log repeats the write until the outcome is known
        elif self.lost:  # a run that is lost stalls nobody: the task goes on without it
            self._log.writes.note_success()
        else:
            if isinstance(outcome, StoreError):
                self._log.writes.note_failure(outcome)
            else:
                self._log.writes.note_success()
            if isinstance(outcome, StoreError | Moved):
                self._take_back()
                self._loop.call_later(self._retry_s, self._write)
                return
            self._give_up(outcome)
        if (self._hears or self._wakes_ms is not None) and not self.lost and not any(map(_is_sleep, self._buffer)):
            self.asleep, self._hears, self._wakes_ms = self._wakes_ms is not None, False, None
        self._flying = []
        self._queued = False
        if self._buffer and self._timer is None:
            self._write()
        if self._waiting:
            self._wake()

    def _give_up(self, error: BaseException) -> None:
        """The write was refused, or its events cannot be written at all."""
        if isinstance(error, Refused):
            self._execution.lose(error)
            return
        self._buffer.clear()
        self._buffer_bytes = 0
        self.state = self._log.state
        self._execution.impose(agent_error(self._log.head, "gave out what cannot be written", error))


def _is_sleep(event: Event) -> bool:
    return isinstance(event, StatusChanged) and event.placed is not None and event.placed.wakes_ms is not None


def weigh(event: Event) -> int:
    """About how many bytes an event takes in memory. Raises TypeError if a data part in it is not JSON."""
    weight = PART_BYTES
    for part in event.all_parts:
        content = part.text or part.raw or part.url or ""
        weight += PART_BYTES + len(content if part.data is UNSET else msgspec.json.encode(part.data))
    return weight
