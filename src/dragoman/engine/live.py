"""LiveTask: what this process keeps in memory of a task that somebody here works on, waits for, or watches.

Invariant: readers see only what is committed. A LiveTask is a cache of the store plus the appends under way; losing one
loses nothing.
"""

from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dragoman.engine.audience import Audience
from dragoman.engine.recent import Recent
from dragoman.engine.turns import begin_next
from dragoman.model.events import Event, Logged, StatusChanged
from dragoman.model.lifecycle import SETTLED, Fold, state_after
from dragoman.model.operations import Shown
from dragoman.model.task import TERMINAL, Record, TaskHead, TaskState, Usage
from dragoman.store.api import Append, Appended, Repeat, Store, Stored, StoreError

if TYPE_CHECKING:
    from dragoman.engine.runs import TaskRun

SNAPSHOT_BYTES_MIN = 16_384
"""The log grows by at least this much between two snapshots, so that all snapshots together stay O(n)."""

STALLED_S = 2.0
"""Callers do not wait longer for a task whose run cannot write. Its writes are tried again every `writer.RETRY_S`, so a
store that is away for a moment is not noticed."""

Outcome = Appended | Repeat | BaseException
"""What became of an append."""


class LiveTask:
    """A task in memory. `seq`, `state` and `status_ms`, when that state was reached, are committed; those with `tip_`
    count the appends under way too.

    `settled_seq` is the seq of the status in which the task settled (terminal or interrupted), 0 while it has not.
    `idle` is called whenever the last append under way has landed, `ended` when the task's end is committed. `audience`
    is there if the task has webhooks; then one write of it is under way at a time. `children` are the tasks it
    delegated, as far as this process has seen them; None: an earlier one may have made some. `shown` is what its caller
    last said who it is with, if an agent of the server passes that on. `taken_on`: whoever does the task has it, which
    is known of agents elsewhere only.
    """

    __slots__ = (
        "_bytes_at_snapshot",
        "_fold",
        "_log_bytes",
        "_recent",
        "_waiting",
        "audience",
        "children",
        "ended",
        "epoch",
        "failing_since",
        "failure",
        "head",
        "idle",
        "in_flight",
        "pins",
        "run",
        "settled_seq",
        "shown",
        "state",
        "status_ms",
        "taken_on",
        "tip_seq",
        "tip_state",
        "tip_status_ms",
    )

    def __init__(self, head: TaskHead) -> None:
        self.head = head
        self.epoch = 0
        self.state = TaskState.SUBMITTED
        self.status_ms = 0
        self.settled_seq = 0
        self.tip_seq = 0
        self.tip_state = TaskState.SUBMITTED
        self.tip_status_ms = 0
        self.in_flight = 0
        self.pins = 0
        self.run: TaskRun | None = None
        self.shown: Shown | None = None
        self.failure: StoreError | None = None
        """Why the run's last append failed; None if it was committed or refused."""
        self.failing_since = 0.0
        """Since when the run's appends fail, a time of the loop's clock."""
        self.taken_on = False
        self.audience: Audience | None = None
        self.children: tuple[str, ...] | None = ()
        self._fold = Fold(head)
        self._recent: Recent | None = None
        self._log_bytes = 0
        self._bytes_at_snapshot = 0
        self._waiting: dict[Future[None], None] = {}
        self.idle: Callable[[LiveTask], None] = _ignore
        self.ended: Callable[[LiveTask, StatusChanged], None] | None = None

    @classmethod
    def of(cls, stored: Stored) -> "LiveTask":
        """A task as the store has it."""
        live = cls(stored.head)
        live.children = None
        live.epoch = stored.epoch
        live.state = live.tip_state = stored.state
        live.status_ms = live.tip_status_ms = stored.status_ms
        live.tip_seq = stored.seq
        live.settled_seq = stored.seq if stored.state in SETTLED else 0
        live._log_bytes = live._bytes_at_snapshot = stored.snapshot_bytes
        live._log_bytes += stored.log_bytes_since
        live._fold = Fold(stored.head, stored.snapshot)
        for logged in stored.events:
            live._fold.add(logged.seq, logged.event)
        return live

    @property
    def seq(self) -> int:
        """How far the log is committed."""
        return self._fold.seq

    @property
    def terminal(self) -> bool:
        """Whether the task has ended, and that is committed."""
        return self.state in TERMINAL

    @property
    def usage(self) -> Usage | None:
        """The tokens used as committed."""
        return self._fold.usage

    @property
    def joined_artifacts(self) -> tuple[str, ...]:
        """See `Fold.joined_artifacts`."""
        return self._fold.joined_artifacts

    def record(self) -> Record:
        """The task as committed."""
        return self._fold.record()

    # -- appending ---------------------------------------------------------------------------------------------------

    def submit(self, store: Store, append: Append, landed: Callable[[Outcome], None]) -> None:
        """Hand an append to the store. When it is committed it is published here, and `landed` gets its outcome.

        Appends of one task commit in the order in which they are submitted, and are published in that order.
        """
        audience = self.audience
        if audience is None:
            self._send(store, append, landed)
        else:
            audience.turns.append(lambda: self._send(store, audience.told(self.head, self._fold, append), landed))
            audience.joining += append.push is not None
        self.in_flight += 1
        self.tip_seq += len(append.events)
        self.tip_state = append.state
        self.tip_status_ms = append.status_ms
        if audience is not None:
            begin_next(self, audience)

    def _send(self, store: Store, append: Append, landed: Callable[[Outcome], None]) -> None:
        store.append(append).add_done_callback(lambda done: self._committed(done, append, landed))

    def turn_over(self) -> None:
        """A `turns.turn` of the task has ended."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self._forget_tip()
        self.wake()
        self.rest()

    def rest(self) -> None:
        """Begin the write that waits, if any; else nothing is under way."""
        if self.audience is not None:
            begin_next(self, self.audience)
        if self.in_flight == 0:
            self.idle(self)

    async def write(
        self, store: Store, append: Append, committed: Callable[[], None] | None = None
    ) -> Appended | Repeat:
        """Submit an append and wait for its outcome. Raises what the store does.

        Once submitted it is written, and if it is, `committed` is called, also when nobody waits any more.
        """
        waiter: Future[Appended | Repeat] = get_running_loop().create_future()

        def landed(outcome: Outcome) -> None:
            if committed is not None and isinstance(outcome, Appended):
                committed()
            tell(waiter, outcome)

        self.submit(store, append, landed)
        return await waiter

    def _committed(self, done: "Future[Appended | Repeat]", append: Append, landed: Callable[[Outcome], None]) -> None:
        self.in_flight -= 1
        outcome: Outcome = done.exception() or done.result()
        if (append.push is not None or append.deliveries) and self.audience is not None:
            self.audience.landed(append, outcome)
        if isinstance(outcome, Appended):
            self.publish(append.events, outcome, append.status_ms, append.snapshot)
        else:
            if self.in_flight == 0:
                self._forget_tip()
            self.wake()
        landed(outcome)
        self.rest()

    def failed(self, failure: StoreError, loop: AbstractEventLoop) -> None:
        """The store could not take what the task's run says; the run tries again."""
        if self.failure is None:
            self.failing_since = loop.time()
        self.failure = failure

    def stalled(self, loop: AbstractEventLoop) -> StoreError | None:
        """Why the task's run cannot write, if that has been so for `STALLED_S`; it tries again nevertheless.

        The task is woken at every try, so that those who wait for it can ask.
        """
        return self.failure if self.failure is not None and loop.time() - self.failing_since >= STALLED_S else None

    def created(self, stored: Stored) -> None:
        """The task has been written. Only its run may add to it, which begins when its maker hears of it."""
        events = tuple(logged.event for logged in stored.events)
        self.publish(events, Appended(stored.seq, stored.epoch, stored.log_bytes_since), stored.status_ms)

    def _forget_tip(self) -> None:
        self.tip_seq, self.tip_state, self.tip_status_ms = self.seq, self.state, self.status_ms

    def publish(
        self, events: Sequence[Event], written: Appended, status_ms: int, snapshot: Record | None = None
    ) -> None:
        """Take in events that are committed, with the record after them if it is known, and wake whoever waits."""
        self.epoch = written.epoch
        self.status_ms = status_ms
        self._log_bytes += written.log_bytes
        size = written.log_bytes // len(events) if events else 0
        first = written.last_seq - len(events) + 1
        if snapshot is not None:
            self._bytes_at_snapshot = self._log_bytes
            self._fold = Fold(self.head, snapshot)
        for seq, event in enumerate(events, first):
            if snapshot is None:
                self._fold.add(seq, event)
            if self._recent is not None:
                self._recent.keep(seq, event, size)
            self.state = state_after(self.state, event)
            if isinstance(event, StatusChanged):
                self.settled_seq = seq if event.state in SETTLED else 0
                if self.ended is not None and event.state in TERMINAL:
                    self.ended(self, event)
        if self._recent is not None:
            self._recent.trim()
        if self.in_flight == 0:
            self._forget_tip()
        self.wake()

    def snapshot_after(self, events: Sequence[Event]) -> Record | None:
        """The record with `events` added, if the log has grown enough for a snapshot; always when they end the task.

        None also while other appends are under way, since their events would be missing.
        """
        ends = isinstance(last := events[-1], StatusChanged) and last.state in TERMINAL
        grown = self._log_bytes - self._bytes_at_snapshot
        if self.in_flight or not (ends or grown > max(self._bytes_at_snapshot, SNAPSHOT_BYTES_MIN)):
            return None
        return self._fold.followed_by(events)

    # -- following ---------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Somebody follows the task: what is committed from now on is kept in memory for a while."""
        if self._recent is None:
            self._recent = Recent()
        self._recent.followers += 1
        self.pins += 1

    def unfollow(self) -> None:
        """Undo one `follow`."""
        assert self._recent is not None
        self._recent.followers -= 1
        self.pins -= 1
        if not self._recent.followers:
            self._recent = None

    def recent(self, after: int, limit: int, limit_bytes: int) -> list[Logged] | None:
        """The events that follow seq `after`, as far as they are in memory; None when the next one is not any more."""
        if after >= self.seq:
            return []
        return None if self._recent is None else self._recent.after(after, limit, limit_bytes)

    def wait(self, loop: AbstractEventLoop) -> "Future[None]":
        """A future that finishes at the next `wake`. Whoever stops waiting leaves it to be cleared then."""
        future: Future[None] = loop.create_future()
        self._waiting[future] = None
        return future

    def unwait(self, future: "Future[None]") -> None:
        """Forget a future of `wait` that timed out."""
        self._waiting.pop(future, None)

    def wake(self) -> None:
        """Something changed: everybody who waits looks again."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def settled(self, loop: AbstractEventLoop, after: int, timeout_s: float, stop: Callable[[], bool]) -> bool:
        """Wait until the task settles with a status later than seq `after`.

        False after `timeout_s`, on `stop`, and once its run is stalled.
        """
        deadline = loop.time() + timeout_s
        while self.settled_seq <= after:
            if stop() or (self.settled_seq == 0 and self.terminal) or self.stalled(loop) is not None:
                return False
            if not await wait_until(self, loop, deadline):
                return False
        return True

    async def contacted(self, loop: AbstractEventLoop, timeout_s: float, stop: Callable[[], bool]) -> None:
        """Wait until it is known whether the task is taken on: `timeout_s` at most, and not beyond `stop`."""
        deadline = loop.time() + timeout_s
        while not (self.taken_on or self.state in SETTLED or stop()):
            if not await wait_until(self, loop, deadline):
                return


async def wait_until(live: LiveTask, loop: AbstractEventLoop, deadline: float) -> bool:
    """Wait for the next change of `live`; False if there was none until `deadline`, a time of the loop's clock."""
    future = live.wait(loop)
    timer: TimerHandle = loop.call_at(deadline, _expire, future)
    try:
        await future
    except TimeoutError:
        return False
    finally:
        timer.cancel()
        if not future.done() or future.cancelled() or future.exception() is not None:
            live.unwait(future)
    return True


def _expire(future: "Future[None]") -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def tell(waiter: "Future[Appended | Repeat]", outcome: Outcome) -> None:
    """Give an outcome to the one who waits for it, unless they have left."""
    if waiter.done():
        return
    if isinstance(outcome, BaseException):
        waiter.set_exception(outcome)
    else:
        waiter.set_result(outcome)


def _ignore(live: LiveTask) -> None:
    """Nobody wants to know."""
