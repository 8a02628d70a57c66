"""RunWriter: the events of a run, on their way to the log.

Invariant: events are written once each, in the order they were put, under the run's epoch. One write of a run is queued
or under way at a time; events that come meanwhile go into the next. Commits drive it, so it needs no asyncio task.
"""

import asyncio
from collections.abc import Callable

import msgspec

from dragoman.engine.task_log import Decision, Outcome, TaskLog
from dragoman.model.events import ArtifactChunk, Delegated, Event, Noted, StatusChanged
from dragoman.model.lifecycle import may_follow
from dragoman.model.message import Part
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskState
from dragoman.store.api import Ended as TaskEnded
from dragoman.store.api import Moved, Refused, StoreError

BUFFER_EVENTS_MAX = 256
"""Most events that wait for the write under way; then the agent waits too (DESIGN §5)."""

BUFFER_BYTES_MAX = 1_000_000
"""About how many bytes of events may wait for the write under way."""

QUIET_S = 0.025
"""How long a quiet event waits for others, to be written with them. Readers do not notice so short a delay."""

EVENT_BYTES = 64
"""The weight of an event beside its content."""


class RunWriter:
    """Buffers a run's events and appends them.

    `fenced` is called when the run has lost the right to write, `unwritable` when an event cannot be written at all.
    `answered` is asked just before a question is written; True means that the question needs no answer from the caller
    any more, so it is not written. A write that the store cannot take is repeated after `retry_s`.
    """

    __slots__ = (
        "_answered",
        "_buffer",
        "_buffer_bytes",
        "_due",
        "_fenced",
        "_flying",
        "_log",
        "_loop",
        "_queued",
        "_quiet",
        "_retry_s",
        "_state",
        "_status_ms",
        "_timer",
        "_unwritable",
        "_waiting",
        "epoch",
        "lost",
    )

    def __init__(
        self,
        log: TaskLog,
        loop: asyncio.AbstractEventLoop,
        *,
        retry_s: float,
        fenced: Callable[[], None],
        unwritable: Callable[[BaseException], None],
        answered: Callable[[StatusChanged], bool],
    ) -> None:
        self.epoch = log.epoch
        self.lost = False
        self._log = log
        self._loop = loop
        self._retry_s = retry_s
        self._fenced = fenced
        self._unwritable = unwritable
        self._answered = answered
        self._state = log.state
        self._status_ms = 0
        self._buffer: list[Event] = []
        self._buffer_bytes = 0
        self._flying: list[Event] = []
        self._due = False
        self._queued = False
        self._quiet = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, event: Event, now_ms: int, *, quietly: bool = False) -> None:
        """Queue an event for the log; it is written soon. Does nothing once the run has ended or is fenced.

        A `quietly` put event waits up to `QUIET_S` for the next event, unless somebody waits for the writes.

        Raises TypeError if a data part in it is not JSON.
        """
        if self.lost or self._state in TERMINAL:
            return
        size = _weight(event)
        if isinstance(event, StatusChanged):
            if not may_follow(self._state, event.state):
                return
            self._state = event.state
            self._status_ms = now_ms
        self._quiet = quietly and not self._buffer
        self._buffer.append(event)
        self._buffer_bytes += size
        if not self._due and not self._queued:
            self._due = True
            self._loop.call_soon(self._flush)

    def resumed(self, epoch: int) -> None:
        """Write under `epoch` from now on: the task was answered under a new lease."""
        self.epoch = epoch
        self._state = self._log.state

    def stop(self) -> None:
        """Write nothing more. A write under way may still be committed."""
        self.lost = True
        self._buffer.clear()
        self._wake()

    def release(self) -> None:
        """Drop the callbacks of the run, which is over.

        Without this, run and writer form a cycle that waits for the garbage collector. That costs a fifth of the
        engine's share of a short send.
        """
        self._fenced, self._unwritable, self._answered = _nobody, _nobody, _unanswered

    @property
    def pending(self) -> list[Event]:
        """The events that were put and are not committed."""
        return [*self._flying, *self._buffer]

    @property
    def state(self) -> TaskState:
        """The state of the task after all events that were put."""
        return self._state

    @property
    def full(self) -> bool:
        """Whether the agent must wait before it emits more."""
        return len(self._buffer) >= BUFFER_EVENTS_MAX or self._buffer_bytes >= BUFFER_BYTES_MAX

    async def room(self) -> None:
        """Wait until the buffer is not full."""
        while self.full and not self.lost:
            await self._next_commit()

    async def drained(self) -> None:
        """Wait until everything put so far is committed, or the run is fenced."""
        while (self._buffer or self._flying) and not self.lost:
            await self._next_commit()

    def landing(self, done: "asyncio.Future[None]") -> None:
        """Set the result of `done` when the write now under way is committed; at once if there is none."""
        if (self._buffer or self._flying) and not self.lost:
            self._waiting.append(done)
            self._hasten()
        elif not done.done():
            done.set_result(None)

    async def _next_commit(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        self._hasten()
        await future

    def _hasten(self) -> None:
        """Write a quiet event now, because somebody waits."""
        self._quiet = False
        if self._timer is not None:
            self._flush()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _flush(self) -> None:
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._buffer or self._queued or self.lost:
            return
        if self._quiet:
            self._quiet = False
            self._timer = self._loop.call_later(QUIET_S, self._flush)
            return
        self._queued = True
        self._log.submit(self._page, self._landed)

    def _page(self, log: TaskLog) -> Decision | None:
        """Decide on one write with all events put so far. Called again if somebody else wrote to the task first."""
        self._take_back()
        events = self._buffer
        if self.lost or not events:
            return None
        if log.terminal:
            raise TaskEnded(log.head.id)
        if self._state in INTERRUPTED:
            self._drop_answered(log)
            if not events:
                return None
        self._buffer, self._flying = [], events
        self._buffer_bytes = 0
        return Decision(
            events=tuple(events), now_ms=self._status_ms, epoch=self.epoch, release=self._state in INTERRUPTED
        )

    def _drop_answered(self, log: TaskLog) -> None:
        """Leave out a question that has its answer already. Notes may stand behind it."""
        statuses = [event for event in self._buffer if isinstance(event, StatusChanged)]
        if statuses and self._answered(statuses[-1]):
            question = statuses.pop()
            self._buffer.remove(question)
            self._buffer_bytes -= _weight(question)
            self._state = statuses[-1].state if statuses else log.state

    def _take_back(self) -> None:
        """Put the events of a failed write back into the queue."""
        if self._flying:
            self._buffer[:0] = self._flying
            self._buffer_bytes += sum(map(_weight, self._flying))
            self._flying = []

    def _landed(self, outcome: Outcome) -> None:
        self._queued = False
        if isinstance(outcome, StoreError) and not self.lost:
            self._log.failed(outcome, self._loop)
        else:  # a run that is lost stalls nobody: the task goes on without it
            self._log.failure = None
        match outcome:
            case StoreError() | Moved() if not self.lost:
                self._take_back()
                self._due = True
                self._loop.call_later(self._retry_s, self._flush)
                return
            case Refused() if not self.lost:
                self._fenced()
            case BaseException() if not self.lost:
                self._buffer.clear()
                self._buffer_bytes = 0
                self._state = self._log.state
                self._unwritable(outcome)
            case _:
                pass
        self._flying = []
        if self._buffer and not self._due:
            self._flush()
        self._wake()


def _weight(event: Event) -> int:
    if isinstance(event, ArtifactChunk):
        parts = event.artifact.parts
    elif isinstance(event, Delegated):
        parts = event.parts
    elif isinstance(event, Noted):
        return EVENT_BYTES
    elif event.message is not None:
        parts = event.message.parts
    else:
        return EVENT_BYTES
    return EVENT_BYTES + sum(map(_part_weight, parts))


def _part_weight(part: Part) -> int:
    if part.data is msgspec.UNSET:
        return EVENT_BYTES + len(part.text or part.raw or part.url or "")
    return EVENT_BYTES + len(msgspec.json.encode(part.data))


def _nobody(*_: object) -> None:
    """Stand in for the callbacks once the run is over."""


def _unanswered(question: StatusChanged) -> bool:
    """Stand in for `answered` once the run is over."""
    return False
