"""Subscriptions: streams of a task's log, for callers who send, subscribe or reconnect.

Invariant: every stream of a task gives the same events in the same order, each once (invariant 3). Together with its
snapshot, or with the events that its reader already has, it is complete. A stream has no queue: it reads from memory,
or from the store when it lags, so that a slow reader holds up nobody.
"""

from asyncio import AbstractEventLoop, Future, TimerHandle, sleep
from collections.abc import Callable, Sequence

from msgspec import Struct

from dragoman.engine import policy
from dragoman.engine.handler import Direct, Snapshot, StreamItem, Waker
from dragoman.engine.intake import AcceptedMessage
from dragoman.engine.log import Log, read_record
from dragoman.engine.stopping import Stopping
from dragoman.engine.tasks import Tasks
from dragoman.model.errors import TaskNotFound, UnsupportedOperation
from dragoman.model.events import Logged, StatusChanged, seq_and_frame
from dragoman.model.message import Message
from dragoman.model.operations import Call, StreamMessage
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskHead
from dragoman.store.api import Store, StoreError, Unknown

BATCH_EVENTS_MAX = 256
"""How many events one `next` gives at most, so that no reader holds the loop for long."""

BATCH_BYTES_MAX = 262_144
"""About how many bytes of events one `next` gives at most."""

READ_AGAIN_S = 0.5
"""How long a stream waits after a read that the store could not do. It shows as a keep-alive to its caller."""


class TailServices(Struct, frozen=True):
    """What all streams of a process share. They send a keep-alive every `keepalive_s`, and end when the server stops.

    `loop` is the engine's: asking asyncio for it costs a system call.
    """

    store: Store
    loop: AbstractEventLoop
    keepalive_s: float
    stopping: Stopping


class Tail:
    """The stream of a task from a place in its log on: see `engine.handler.Stream`.

    With `snapshot` the task as it stands there comes first; with `ends_with_snapshot` nothing follows it. With
    `ends_when_interrupted` the stream closes after an `input-required` or `auth-required` that follows seq `after` (A2A
    1.0 §3.1.2) and was not over when the stream began. With `past_only` it closes where it would wait. Otherwise it
    closes at a terminal state.
    """

    __slots__ = (
        "_after",
        "_begun_at",
        "_closed",
        "_ended",
        "_ends_when_interrupted",
        "_past_only",
        "_recent",
        "_rewound",
        "_services",
        "_snapshot",
        "_task",
        "_timer",
        "_timer_s",
        "_until",
        "_waiting",
        "_waker",
        "_when_closed",
        "base",
        "head",
        "retry",
    )

    def __init__(
        self,
        task: Log,
        services: TailServices,
        *,
        after: int,
        snapshot: Snapshot | None = None,
        base: Record | None = None,
        ends_when_interrupted: bool = False,
        ends_with_snapshot: bool = False,
        past_only: bool = False,
    ) -> None:
        self.head: TaskHead | None = task.head
        self.retry = False
        self.base = base
        self._task = task
        self._services = services
        self._after = after
        self._begun_at = task.seq
        self._snapshot = snapshot
        self._ends_when_interrupted = ends_when_interrupted
        self._past_only = past_only
        self._closed = False
        self._ended = ends_with_snapshot or (task.terminal and after >= task.seq)
        self._waiting: Future[bool] | None = None
        self._waker: Waker | None = None
        self._timer: TimerHandle | None = None
        self._timer_s = 0.0
        """When the timer fires."""
        self._until = 0.0
        """When the present wait ends."""
        task.pin()
        self._recent = task.followers.enter()
        self._rewound = task.rewound
        self._when_closed: tuple[Callable[[], None], ...] = ()

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """The next batch: see `engine.handler.Stream.next`."""
        task, services = self._task, self._services
        loop = services.loop
        items: Sequence[StreamItem] = ()
        batch: Sequence[Logged] | None
        while not self._closed:
            if task.outdated and not await self._compare():
                return ()
            if task.rewound != self._rewound:  # the caller may have seen what is lost: see `engine.log.reread`
                self.retry = True
                break
            if self._snapshot is not None:
                items, self._snapshot = (self._snapshot,), None
            if self._after < task.seq and not self._ended:
                batch = self._recent.after(self._after, BATCH_EVENTS_MAX, BATCH_BYTES_MAX)
                if batch is None:
                    try:
                        batch = await services.store.read(task.head.id, self._after, BATCH_BYTES_MAX)
                    except StoreError:  # the stream stays open, and the next call reads again
                        await sleep(READ_AGAIN_S)
                        return items
                    if self._left():
                        break
                    if task.rewound != self._rewound:  # while this read
                        continue
                    if not batch or batch[0].seq != self._after + 1:  # the log was pruned: send the task as it ended
                        self._after, self._ended = task.seq, task.terminal
                        return (*items, Snapshot(task.record()))
                    if batch[-1].seq > task.seq:  # a commit that the log has not heard of: GetTask does not know it yet
                        batch = batch[: task.seq - self._after]
                for index, logged in enumerate(batch):
                    if isinstance(logged.event, StatusChanged) and self._ends(logged.seq, logged.event):
                        self._ended = True
                        batch = batch[: index + 1]
                        break
                self._after = batch[-1].seq
                return (*items, *batch) if items else batch
            if items:
                return items
            if self._ended or self._past_only:
                break
            if services.stopping.begun:
                self.retry = True
                break
            whole = wait_s is None or wait_s >= services.keepalive_s
            until = self._until = loop.time() + (services.keepalive_s if whole or wait_s is None else wait_s)
            future = self._waiting = task.followers.wait(task, loop)
            if self._timer is None or self._timer_s > until:
                self._set_timer(until)
            try:
                changed = await future
            finally:
                self._waiting = None
                if future.cancelled():
                    task.followers.expire(future)
            if not changed and not self._left():
                if whole and not task.terminal and await self.deleted():
                    break
                return ()
        self.close()
        return None

    async def _compare(self) -> bool:
        """Compare the task with the store, which may have lost some of it. Returns False if the store cannot answer."""
        try:
            await self._task.compare()
        except StoreError:  # the stream stays open, and the next call reads again
            await sleep(READ_AGAIN_S)
            return False
        except Unknown:
            pass  # the stream ends, since the task has been rewound
        return True

    def _left(self) -> bool:
        """Whether the caller has left while this stream waited."""
        return self._closed

    async def deleted(self) -> bool:
        """Whether the task has been deleted: it waited too long for its caller, or an operator has canceled and deleted
        it at another engine before its end was read here."""
        try:
            return await self._services.store.head(self._task.head.id) is None
        except StoreError:
            return False  # unknown now; the next call asks again

    @property
    def unheard(self) -> bool:
        """See `engine.handler.OpenStream.unheard`. The end of a run of this process is heard of."""
        task = self._task
        return task.state in INTERRUPTED or not task.followers.attached or self._services.store.replicas.shared

    def park(self, waker: Waker) -> bool:
        """See `engine.handler.OpenStream.park`."""
        task, recent = self._task, self._recent
        if self._closed or self._ended or self._past_only or self._services.stopping.begun:
            return False
        if self._snapshot is not None or self._after < task.seq or task.outdated or task.rewound != self._rewound:
            return False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waker = waker
        task.followers.park(task, self)
        if recent.followers == task.followers.waiting:  # all readers wait, and have read all
            recent.drop()
        return True

    def unpark(self) -> None:
        """See `engine.handler.OpenStream.unpark`."""
        self._waker = None
        self._task.followers.unpark(self)

    def wake(self) -> None:
        """See `engine.followers.ParkedFollower`."""
        waker, self._waker = self._waker, None
        if waker is not None:
            waker.wake()

    def _ends(self, seq: int, status: StatusChanged) -> bool:
        """Whether the stream closes after this status."""
        asks = self._ends_when_interrupted and status.state in INTERRUPTED and seq >= self._begun_at
        return asks or status.state in TERMINAL

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s, self._timer = at_s, self._services.loop.call_at(at_s, self._tick)

    def _tick(self) -> None:
        """Set the timer anew for the rest of the present wait. One timer serves many waits."""
        self._timer = None
        future = self._waiting
        if future is None or future.done():
            return
        if self._until > self._services.loop.time():
            self._set_timer(self._until)
            return
        self._task.followers.expire(future)

    def when_closed(self, done: Callable[[], None]) -> None:
        """See `engine.handler.OpenStream.when_closed`."""
        self._when_closed += (done,)

    def close(self) -> None:
        """The caller has left: see `engine.handler.Stream.close`."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            self._task.followers.expire(self._waiting)
        if self._waker is not None:
            self._task.followers.unpark(self)
            self.wake()
        self._task.followers.leave()
        self._task.unpin()
        for done in self._when_closed:
            done()


class DirectStream:
    """The stream of an agent that answers directly: exactly one Message (A2A 1.0 §3.1.2)."""

    __slots__ = ("_message", "_when_closed", "base", "head", "retry")

    def __init__(self, message: Message) -> None:
        self.head: TaskHead | None = None
        self.base: Record | None = None
        self.retry = False
        self._message: Message | None = message
        self._when_closed: list[Callable[[], None]] = []

    @property
    def unheard(self) -> bool:
        """There is no task."""
        return False

    async def deleted(self) -> bool:
        """There is no task."""
        return False

    def park(self, waker: Waker) -> bool:
        """Return False: it never waits."""
        return False

    def unpark(self) -> None:
        """Do nothing."""

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """The message, then the end."""
        if self._message is None:
            self.close()
            return None
        message, self._message = self._message, None
        return (Direct(message),)

    def close(self) -> None:
        """See `engine.handler.Stream.close`."""
        self._message = None
        closed, self._when_closed = self._when_closed, []
        for done in closed:
            done()

    def when_closed(self, done: Callable[[], None]) -> None:
        """See `engine.handler.OpenStream.when_closed`."""
        self._when_closed.append(done)


class Tails:
    """Opens tails of `tasks`."""

    def __init__(self, tasks: Tasks, services: TailServices) -> None:
        self._tasks = tasks
        self._services = services
        self._store = services.store

    async def of_send(self, call: Call, send: StreamMessage, taken: AcceptedMessage) -> Tail:
        """Open the stream that follows a message, from the task as it stood then (A2A 1.0 §3.1.2).

        Raises A2AError or StoreError.
        """
        task, seq = taken.task, taken.seq
        if taken.repeated and call.after is not None:
            return await self._after(task, call.after, ends=True, folds=call.folds)
        if task.seq == seq:
            return self._tail(task, seq, Snapshot(task.record(), send.history_length), ends=True)
        if (record := await read_record(task, seq)) is not None:
            return self._tail(task, seq, Snapshot(record, send.history_length), ends=True)
        return self._tail(task, task.seq, Snapshot(task.record(), send.history_length), ends=True)

    async def of_task(self, call: Call, task_id: str, *, past_only: bool = False) -> Tail:
        """Open a subscription (A2A 1.0 §3.1.6). Raises A2AError or StoreError.

        With `past_only`, which goes with `Call.after`, the stream ends where it would wait.
        """
        task = await self._tasks.pin(call, task_id)
        ends = not call.manners.subscribed_until_terminal
        try:
            if call.after is not None:
                return await self._after(task, call.after, ends=ends, folds=call.folds, past_only=past_only)
            if task.terminal and not call.manners.subscribes_to_ended:
                raise UnsupportedOperation(f"task {task_id} has ended ({task.state.value}): read it with GetTask")
            tells_end = ends and call.manners.subscribes_to_ended and task.state in INTERRUPTED
            return self._tail(task, task.seq, Snapshot(task.record(), subscribed=True), ends=ends, over=tells_end)
        finally:
            task.unpin()

    async def of_log(self, task_id: str, after: str) -> Tail:
        """Open a stream of the events after `after` until the task ends, whoever owns it.

        If those events were pruned, a snapshot comes first. Raises A2AError or StoreError.
        """
        task = await self._tasks.pin_known(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        try:
            return await self._after(task, after, ends=False, folds=False)
        finally:
            task.unpin()

    async def _after(self, task: Log, after: str, *, ends: bool, folds: bool, past_only: bool = False) -> Tail:
        """Open a stream after the last id the caller saw.

        If those events were pruned, or the store may have lost that one at a failover, a snapshot comes first.
        """
        if self._store.replicas.shared and seq_and_frame(after)[0] > task.seq:
            over = ends and task.state in INTERRUPTED
            return self._tail(task, task.seq, Snapshot(task.record()), ends=ends, over=over)
        seq, frame = policy.read_after(after, task.seq)
        first = max(0, seq - 1) if frame else seq
        if task.terminal and first < task.seq:  # only terminal tasks are pruned
            following = await self._store.read(task.head.id, first, 1)
            if not following or following[0].seq != first + 1:
                return self._tail(task, task.seq, Snapshot(task.record()), ends=ends)
        base = None
        if folds and first > 0 and (base := await read_record(task, first)) is None:
            return self._tail(task, task.seq, Snapshot(task.record()), ends=ends)
        return self._tail(task, first, None, ends=ends, base=base, past_only=past_only)

    def _tail(
        self,
        task: Log,
        after: int,
        snapshot: Snapshot | None,
        *,
        ends: bool,
        over: bool = False,
        base: Record | None = None,
        past_only: bool = False,
    ) -> Tail:
        return Tail(
            task,
            self._services,
            after=after,
            snapshot=snapshot,
            base=base,
            ends_when_interrupted=ends,
            ends_with_snapshot=over,
            past_only=past_only,
        )
