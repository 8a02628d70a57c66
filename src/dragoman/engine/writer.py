"""RunWriter: what a run says, on its way to the log.

Invariant: events are written in the order they were put, each once, under the run's epoch; one append of a run is under
way at a time, and what comes meanwhile goes into the next. It needs no task of its own: commits drive it.
"""

import asyncio
from collections.abc import Callable

import msgspec

from dragoman.engine.live import LiveTask, Outcome
from dragoman.model.events import ArtifactChunk, Delegated, Event, Noted, StatusChanged
from dragoman.model.lifecycle import may_follow
from dragoman.model.message import Part
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskState
from dragoman.store.api import Append, Moved, Refused, Store, StoreError

BUFFER_EVENTS_MAX = 256
"""Events that wait for the commit under way; then the agent waits too (DESIGN §5)."""

BUFFER_BYTES_MAX = 1_000_000
"""About how many bytes of events wait for the commit under way."""

RETRY_S = 0.5
"""How long a run waits before it writes again what the store could not take, because its disk is full for instance."""

QUIET_S = 0.025
"""How long what is said by the way waits for more, to be written with it: readers do not see so short a time."""

EVENT_BYTES = 64
"""What an event weighs beside its content."""


class RunWriter:
    """Buffers a run's events and appends them.

    `fenced` is called when the run has lost the right to write, `unwritable` when an event cannot be written at all.
    """

    __slots__ = (
        "_buffer",
        "_buffer_bytes",
        "_due",
        "_fenced",
        "_flying",
        "_live",
        "_loop",
        "_quiet",
        "_state",
        "_status_ms",
        "_store",
        "_timer",
        "_unwritable",
        "_waiting",
        "epoch",
        "lost",
    )

    def __init__(
        self,
        live: LiveTask,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        fenced: Callable[[], None],
        unwritable: Callable[[BaseException], None],
    ) -> None:
        self.epoch = live.epoch
        self.lost = False
        self._live = live
        self._store = store
        self._fenced = fenced
        self._unwritable = unwritable
        self._loop = loop
        self._state = live.tip_state
        self._status_ms = live.tip_status_ms
        self._buffer: list[Event] = []
        self._buffer_bytes = 0
        self._flying: list[Event] = []
        self._due = False
        self._quiet = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, event: Event, now_ms: int, *, quietly: bool = False) -> None:
        """Take an event for the log; it is written soon. Nothing happens once the run has ended or is fenced.

        `quietly`: with what follows it, if something does within `QUIET_S` or somebody waits for what was put.

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
        if not self._due and not self._flying:
            self._due = True
            self._loop.call_soon(self._flush)

    def resumed(self, epoch: int, now_ms: int) -> None:
        """The task was answered under a new lease: what is put from now on carries `epoch`."""
        self.epoch = epoch
        self._state = self._live.state
        self._status_ms = now_ms

    def stop(self) -> None:
        """Write nothing more. What is under way may still be committed."""
        self.lost = True
        self._buffer.clear()
        self._wake()

    def release(self) -> None:
        """The run is over: nobody is told any more.

        Without this, run and writer are a cycle that waits for the collector, which costs the engine a fifth of its
        part of a short send.
        """
        self._fenced, self._unwritable = _nobody, _nobody

    @property
    def pending(self) -> list[Event]:
        """What was put and is not committed."""
        return [*self._flying, *self._buffer]

    @property
    def state(self) -> TaskState:
        """The state of the task after all that was put."""
        return self._state

    @property
    def in_flight(self) -> int:
        """How many appends are under way: 0 or 1."""
        return 1 if self._flying else 0

    @property
    def full(self) -> bool:
        """Whether the agent must wait before it says more."""
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
        """`done` is done when what is on its way to the log now has been committed; at once if nothing is."""
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
        """Somebody waits: nothing is put off."""
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
        if not self._buffer or self._flying or self.lost:
            return
        if self._quiet:
            self._quiet = False
            self._timer = self._loop.call_later(QUIET_S, self._flush)
            return
        live, events = self._live, self._buffer
        snapshot = live.snapshot_after(events)
        if snapshot is None and self._state in TERMINAL:
            # A terminal append carries the snapshot, and that must hold what a caller is writing right now.
            self._due = True
            live.wait(self._loop).add_done_callback(lambda _: self._flush())
            return
        self._buffer, self._flying = [], events
        self._buffer_bytes = 0
        append = Append(
            task_id=live.head.id,
            events=tuple(events),
            state=self._state,
            status_ms=self._status_ms,
            epoch=self.epoch,
            release=self._state in INTERRUPTED,
            snapshot=snapshot,
        )
        live.submit(self._store, append, self._landed)

    def _landed(self, outcome: Outcome) -> None:
        events, self._flying = self._flying, []
        if isinstance(outcome, StoreError):
            self._live.failed(outcome, self._loop)
        else:
            self._live.failure = None
        match outcome:
            case StoreError() | Moved() if not self.lost:
                self._buffer[:0] = events
                self._buffer_bytes += sum(map(_weight, events))
                self._due = True
                self._loop.call_later(RETRY_S, self._flush)
                return
            case Refused() if not self.lost:
                self._fenced()
            case BaseException() if not self.lost:
                self._buffer.clear()
                self._buffer_bytes = 0
                self._state, self._status_ms = self._live.tip_state, self._live.tip_status_ms
                self._unwritable(outcome)
            case _:
                pass
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
    """Who is told once the run is over."""
