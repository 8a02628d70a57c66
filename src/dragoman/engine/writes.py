"""Writes: the writes to the log of one task, in their turn, each from its decision to its outcome.

Invariant: one write of a task is under way at a time, and each is decided on the prefix that the write before it left.

    queued ──── its turn ────► under way ──── committed ────────────────────────────────► landed
                                 ▲  ▲  │
                                 │  │  ├───── nothing to write, or refused ─────────────► landed
                                 │  │  │
                                 │  │  └───── somebody else wrote first ──► overtaken ──► landed, if the next
                decided again    │  └────────────────────────────────────────┘            decision refuses, or
                                 │                                                        the store is behind
                                 │
               its outcome is known, after it was repeated with its id
                                 │
    under way ── the store was lost during the commit ──► in doubt

A write that is in doubt or overtaken keeps its turn.
"""

import logging
from asyncio import Future, Task, get_running_loop, wait
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from dragoman.engine.followers import Followers
from dragoman.engine.rules import Decision, Row
from dragoman.model.events import Event
from dragoman.model.lifecycle import Fold
from dragoman.model.task import TaskHead
from dragoman.model.typed import check_types
from dragoman.store.api import (
    Append,
    Appended,
    Held,
    Moved,
    NewTask,
    OutcomeUnknown,
    Refused,
    Repeat,
    Store,
    Stored,
    StoreError,
    TaskEnded,
)
from dragoman.telemetry.coalescing import about

logger = logging.getLogger("dragoman.runs")

STALLED_S = 2.0
"""How long callers wait for a task whose run cannot write. The writes are tried again every `retry_s`, so that a short
outage of the store goes unnoticed."""

OVERTAKEN_MAX = 3
"""How often others may overtake a write before it holds the task. Against a run that streams, 22 tries were needed on
average without that, and 301 at worst."""

REPEAT_S = 0.25
"""How long to wait before a write whose outcome is unknown is repeated: a connection takes as long to come back."""


class Prefix(Protocol):
    """The folded prefix of a task's log: what writes are decided on, and what takes in those that are committed."""

    head: TaskHead
    seq: int
    row: Row
    history: str
    rewound: int
    pins: int
    followers: Followers[Any]

    @property
    def outdated(self) -> bool:
        """Whether the store has another history than the prefix, so that the two have to be compared."""
        ...

    def prepare(self, decision: Decision) -> tuple[Append, Fold | None]:
        """Make the write of a decision, and the fold after it if a snapshot goes with it."""
        ...

    def take_in(self, append: Append, ahead: Fold | None, written: Appended) -> bool:
        """Take in a committed write. Returns False if events of others stand before it, which have to be read first."""
        ...

    def rest(self) -> None:
        """Take note that no write is under way: whoever keeps the log drops it, unless it is pinned."""
        ...

    def take_in_new(self, new: NewTask, written: Appended) -> None:
        """Take in the first events of a task."""
        ...

    def take_lease(self, append: Append, written: Appended) -> None:
        """Take in the lease of a committed write, unless a newer one is known."""
        ...

    async def refresh(self) -> bool:
        """Read what the store has beyond the prefix. Raises StoreError or Unknown."""
        ...

    async def catch_up_with(self, stored: Stored) -> bool:
        """As `refresh`, with the task as the store has just given it."""
        ...


P = TypeVar("P", bound=Prefix)

Decide = Callable[[P], Decision | None]
"""Decides what to write to a task as it stands; None writes nothing. Raises the error that its caller is to get.

It is called again if somebody else wrote to the task first.
"""

Outcome = Appended | Repeat | BaseException | None
"""The result of a write; None if its decision wrote nothing."""

Landed = Callable[[Outcome], None]
"""Gets the outcome of a write. OutcomeUnknown, which may come several times, is not the last: the outcome follows."""


class WriteState(Enum):
    """See the drawing above."""

    QUEUED = auto()
    UNDER_WAY = auto()
    IN_DOUBT = auto()
    OVERTAKEN = auto()
    LANDED = auto()


QUEUED, UNDER_WAY, IN_DOUBT, OVERTAKEN, LANDED = WriteState
"""The states by themselves: a look into an enumeration takes as long as a call (CPython 3.11)."""


def state_after(state: WriteState, outcome: Outcome, *, appends: bool) -> WriteState:
    """The state of a write, which is under way or in doubt, after the store's answer. `appends`: it makes no task.

    While a write is in doubt, an error says nothing of its first attempt, which may have been committed.
    """
    if isinstance(outcome, Appended):
        return WriteState.LANDED
    if isinstance(outcome, OutcomeUnknown) or (state is WriteState.IN_DOUBT and isinstance(outcome, StoreError)):
        return WriteState.IN_DOUBT
    if appends and isinstance(outcome, Moved | TaskEnded):
        return WriteState.OVERTAKEN
    return WriteState.LANDED


class Write(Generic[P]):
    """One write to the log of `prefix`. `land` tells whoever asked for it. The queue knows how far it has come."""

    __slots__ = ("decide", "land", "new", "prefix")

    def __init__(self, prefix: P, decide: Decide[P] | None, land: Landed, new: NewTask | None = None) -> None:
        self.prefix = prefix
        self.decide = decide
        self.land = land
        self.new = new
        """The task that this write makes; None if it appends to one."""


class Turn(Generic[P]):
    """A wait for a turn. `begun` gets it, or the error because of which nobody waits any more."""

    __slots__ = ("begun", "prefix")

    def __init__(self, prefix: P) -> None:
        self.prefix = prefix
        self.begun: Future[None] = get_running_loop().create_future()


class WriteQueue(Generic[P]):
    """The writes of one task. `busy` says that one is under way or queued.

    `state` is that of the write whose turn it is; None if there is none.

    The queue belongs to a prefix, which comes with each write: if the queue kept it, the two would form a cycle, which
    waits for the garbage collector.
    """

    __slots__ = (
        "_ahead",
        "_append",
        "_reading",
        "_seq",
        "_store",
        "_times_overtaken",
        "_waiting",
        "busy",
        "failing_since",
        "failure",
        "read_back",
        "state",
    )

    def __init__(self, store: Store) -> None:
        self.busy = False
        self.state: WriteState | None = None
        self.failure: StoreError | None = None
        """Why the run's last write failed; None if it was committed or refused."""
        self.failing_since = 0.0
        """When the run's writes began to fail, a time of the loop's clock."""
        self.read_back = False
        """Whether the write that lands now is read from the store, with what stands before it."""
        self._store = store
        self._waiting: deque[Write[P] | Turn[P]] | None = None
        """Those whose turn comes later, in order, if any: few tasks have some, and an empty deque takes 760 bytes."""
        self._reading: Task[None] | None = None
        self._append: Append | None = None
        """The write whose turn it is, as it was decided."""
        self._ahead: Fold | None = None
        """The fold after it, if a snapshot goes with it."""
        self._seq = 0
        """The seq upon which it was decided."""
        self._times_overtaken = 0

    # -- asking for a write ------------------------------------------------------------------------------------------

    async def append(
        self,
        prefix: P,
        decide: Decide[P],
        committed: Callable[[], None] | None = None,
        *,
        patient: bool = True,
        in_doubt: Callable[[StoreError], None] | None = None,
    ) -> Appended | Repeat | None:
        """Write what `decide` says, in its turn, and wait for the outcome. Raises what `decide` or the store raises.

        The write happens, and `committed` is called after it, even if the waiting caller has left. Returns the earlier
        call if the store knows the dedupe key, None if there was nothing to write.

        If the outcome of this write, or of one before it, stays unknown for `STALLED_S`, `in_doubt` is called, perhaps
        several times, and StoreError is raised unless `patient`. The write is made nevertheless.
        """
        waiter: Future[Appended | Repeat | None] = get_running_loop().create_future()

        def landed(outcome: Outcome) -> None:
            if isinstance(outcome, OutcomeUnknown):
                if in_doubt is not None:
                    in_doubt(StoreError(f"the outcome of a write is unknown: {outcome}"))
                if patient:
                    return
            try:
                if committed is not None and isinstance(outcome, Appended):
                    committed()
            finally:
                settle(waiter, outcome)

        self.submit(prefix, decide, landed)
        return await waiter

    def submit(self, prefix: P, decide: Decide[P], landed: Landed) -> None:
        """As `append`, without waiting: `landed` gets the outcome."""
        write = Write(prefix, decide, landed)
        if self.busy:
            self._add(write)
            return
        self._begin(write)
        if not self.busy:
            self._next(prefix)

    def create(self, prefix: P, new: NewTask, landed: Landed) -> None:
        """Write the task itself. `landed` gets the outcome, after the first events have been published.

        Raises TypeError if the task could not be read back.
        """
        check_types("task", new.head)
        _check_events(new.events)
        self.busy = True
        write = Write(prefix, None, landed, new)
        self.state = UNDER_WAY
        self._send(write).add_done_callback(partial(self._take_outcome, write))

    @asynccontextmanager
    async def turn(self, prefix: P) -> AsyncIterator[None]:
        """Wait for a turn to write and keep it until the block ends. No other write of this task begins meanwhile.

        Raises StoreError if the outcome of a write before it stays unknown for `STALLED_S`.
        """
        turn = Turn(prefix)
        mine = turn.begun
        self._add(turn)
        if not self.busy:
            self._next(prefix)
        try:
            await mine
            yield
        finally:
            if mine.done() and not mine.cancelled() and mine.exception() is None:  # else the turn never began
                self.busy = False
                self._next(prefix)

    # -- the turns ---------------------------------------------------------------------------------------------------

    def _add(self, later: Write[P] | Turn[P]) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(later)

    def _next(self, prefix: P) -> None:
        """Begin the oldest queued write, or report that none is left."""
        while not self.busy:
            if self._waiting is None:
                prefix.rest()
                return
            first = self._waiting.popleft()
            if not self._waiting:
                self._waiting = None
            if isinstance(first, Write):
                self._begin(first)
            elif not first.begun.done():  # else the waiter for this turn was cancelled, or has stopped waiting
                self.busy = True
                first.begun.set_result(None)

    def _begin(self, write: Write[P], held: Held | None = None) -> "Future[Appended | Repeat] | None":
        """Decide and send a write, and return it; None if it has landed without. `held`: nobody else writes."""
        self.busy = True
        if self.state is None:  # else it is decided again
            self.state = QUEUED
        prefix = write.prefix
        assert write.decide is not None
        try:
            decision = write.decide(prefix)
            if decision is None:
                self._land(write, None)
                return None
            if not decision.checked:
                _check_events(decision.events)
            self._seq = prefix.seq
            append, self._ahead = prefix.prepare(decision)
            self._append, self.state = append, UNDER_WAY
            sent = self._store.append(append) if held is None else held.append(append)
        except Exception as refusal:  # noqa: BLE001  any error goes to the one who asked for the write
            self._land(write, refusal)
            return None
        sent.add_done_callback(partial(self._take_outcome, write))
        return sent

    def _send(self, write: Write[P]) -> "Future[Appended | Repeat]":
        """Give a write that was decided to the store, for the first time or once more."""
        if write.new is not None:
            return self._store.create(write.new)
        assert self._append is not None
        return self._store.append(self._append)

    def _take_outcome(self, write: Write[P], done: "Future[Appended | Repeat]") -> None:
        """Go on from `under way`, or from `in doubt`."""
        outcome: Outcome = done.exception() or done.result()
        assert self.state is not None
        after = LANDED  # as almost every write
        if not isinstance(outcome, Appended):
            after = state_after(self.state, outcome, appends=write.new is None)
        if after is IN_DOUBT:
            self._doubt(write, outcome)
            return
        if self.state is IN_DOUBT:
            self.note_success()
            logger.warning("task %s: the outcome of its write is known again", write.prefix.head.id)
        if after is OVERTAKEN:
            assert isinstance(outcome, Refused)
            self.state = after
            self._read(self._decide_again(write, outcome))
            return
        if isinstance(outcome, Appended):
            if not self._take_in(write, outcome):
                self._read(self._fill_gap(write, outcome))
                return
        elif write.new is None:
            write.prefix.followers.wake()
        self._land(write, outcome)
        if self._waiting or write.prefix.pins <= 0:
            self._next(write.prefix)

    def _take_in(self, write: Write[P], written: Appended) -> bool:
        """Take in a committed write. Returns False if events of others have to be read before."""
        prefix = write.prefix
        try:
            if write.new is None:
                assert self._append is not None
                return prefix.take_in(self._append, self._ahead, written)
            prefix.take_in_new(write.new, written)
        except Exception:
            logger.exception("task %s: a committed write cannot be applied", prefix.head.id)
            prefix.followers.wake()
        return True

    def _land(self, write: Write[P], outcome: Outcome) -> None:
        """Tell the one who asked for a write that it is over. Their reaction does not keep the turn."""
        self.state = self._append = self._ahead = None
        self._times_overtaken = 0
        try:
            write.land(outcome)
        except Exception:
            logger.exception("task %s: the work after a write failed", write.prefix.head.id)
        self.busy = False

    # -- in doubt ----------------------------------------------------------------------------------------------------

    def _doubt(self, write: Write[P], error: Outcome) -> None:
        """Repeat a write whose outcome is unknown, with its id, until it is known.

        After `STALLED_S` whoever asked for it is told, and may stop waiting; so is everybody whose turn comes after it.
        """
        if self.state is not IN_DOUBT:
            self.state = IN_DOUBT
            logger.warning(
                "task %s: the outcome of a write is unknown, so it is repeated until it is known: %s",
                write.prefix.head.id,
                error,
                extra=about("writes in doubt"),
            )
        loop = get_running_loop()
        self.note_failure(StoreError(f"the outcome of a write is unknown: {error}"))
        if (stalled := self.stalled) is not None:
            unknown = OutcomeUnknown(str(error))
            write.land(unknown)
            for waiting in tuple(self._waiting or ()):
                if isinstance(waiting, Write):
                    waiting.land(unknown)
                elif not waiting.begun.done():
                    waiting.begun.set_exception(stalled)
        write.prefix.followers.wake()
        loop.call_later(REPEAT_S, self._repeat, write)

    def _repeat(self, write: Write[P]) -> None:
        self._send(write).add_done_callback(partial(self._take_outcome, write))

    def note_failure(self, failure: StoreError) -> None:
        """Note that the store could not take a write of the run, which tries again."""
        if self.failure is None:
            self.failing_since = get_running_loop().time()
        self.failure = failure

    def note_success(self) -> None:
        """Note that the store can take the writes of the run, or that no run makes any."""
        self.failure = None

    @property
    def stalled(self) -> StoreError | None:
        """Why the task's run cannot write, if that has lasted for `STALLED_S`; the run keeps trying nevertheless.

        Every try wakes the task, so that waiters can ask again.
        """
        if self.failure is None or get_running_loop().time() - self.failing_since < STALLED_S:
            return None
        return self.failure

    # -- overtaken, and what stands before a committed write ---------------------------------------------------------

    def _read(self, reading: Coroutine[None, None, None]) -> None:
        """Read the events of others, as a step of the write under way, which keeps its turn."""
        self._reading = get_running_loop().create_task(reading)

    async def _fill_gap(self, write: Write[P], written: Appended) -> None:
        """A write may follow events of others; followers need those too. The prefix stays short if this fails."""
        prefix, append = write.prefix, self._append
        assert append is not None
        try:
            await prefix.refresh()
        except StoreError as error:
            logger.warning("task %s: events of other servers cannot be read now: %s", prefix.head.id, error)
        except Exception:
            logger.exception("task %s: a committed write cannot be applied", prefix.head.id)
            prefix.followers.wake()
        prefix.take_lease(append, written)
        self.read_back = True
        self._land(write, written)
        self.read_back = False
        self._next(prefix)

    async def _decide_again(self, write: Write[P], refused: Refused) -> None:
        """Read what somebody else wrote to the task, and decide the write again.

        If there is nothing, the store is behind the prefix: after a failover, which will be noticed (`StoreRewound`).
        But a worker's lease may be what has changed, which its writer reads anew. If what the write was decided on is
        lost, its caller has to look at what is left.
        """
        prefix, append, seq, rewound = write.prefix, self._append, self._seq, write.prefix.rewound
        assert append is not None
        outcome: BaseException = refused
        self._times_overtaken += 1
        try:
            if self._times_overtaken >= OVERTAKEN_MAX:
                await self._decide_alone(write)
                return
            await prefix.refresh()
        except Exception as error:  # noqa: BLE001  any error goes to the one who asked for the write
            outcome = error
        leased = append.expected_epoch is not None and append.expected_epoch != prefix.row.epoch
        moved = prefix.seq > seq or leased or prefix.row.webhooks_version != append.webhooks_version
        if prefix.rewound == rewound and (moved or prefix.history != append.history):
            self._begin(write)
        else:
            lost = append.lease is None or prefix.rewound != rewound
            if outcome is refused and lost:  # nobody has written, and nobody has deleted the task
                outcome = StoreError("the store has lost what was read of this task")
            prefix.followers.wake()
            self._land(write, outcome)
        if not self.busy:
            self._next(prefix)

    async def _decide_alone(self, write: Write[P]) -> None:
        """Let a write be decided, and made, while nobody else writes to the task. Raises StoreError or Unknown.

        Nothing else is read meanwhile: that would take a second connection of the store, for which all writers that
        hold a task could wait for ever. So changed webhooks, and another history of the store, are read before the task
        is held again.
        """
        prefix = write.prefix
        while True:
            async with self._store.hold(prefix.head.id) as held:
                if held.stored.webhooks_version == prefix.row.webhooks_version and not prefix.outdated:
                    await prefix.catch_up_with(held.stored)
                    if (written := self._begin(write, held)) is not None:
                        await wait((written,))
                    break
            await prefix.refresh()
        if not self.busy:
            self._next(prefix)


def settle(waiter: "Future[Appended | Repeat | None]", outcome: Outcome) -> None:
    """Set the outcome on its waiter, unless that was cancelled or has stopped waiting."""
    if waiter.done():
        return
    if not isinstance(outcome, BaseException):
        waiter.set_result(outcome)
    elif isinstance(outcome, OutcomeUnknown):
        waiter.set_exception(StoreError(f"the outcome of a write is unknown: {outcome}"))
    else:
        waiter.set_exception(outcome)


def _check_events(events: Sequence[Event]) -> None:
    """Refuse events that could not be read back: one of them would hide the whole task. Raises TypeError."""
    for event in events:
        check_types(type(event).__name__, event)
