"""Tail: one caller's view of a task's log as it grows.

Invariant: every tail of a task gives the same events in the same order, each once (invariant 3). It has no queue: it
reads what is in memory, or, when it lags, the store; so a slow reader costs nobody anything.
"""

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Sequence

from dragoman.engine.handler import Direct, Snapshot, StreamItem
from dragoman.engine.live import LiveTask
from dragoman.model.events import Logged, StatusChanged
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskHead
from dragoman.store.api import Store, StoreError

BATCH_EVENTS_MAX = 256
"""How many events one `next` gives at most, so that no reader holds the loop for long."""

BATCH_BYTES_MAX = 262_144
"""About how many bytes of events one `next` gives at most."""


class Tail:
    """The stream of a task from a place in its log on: see `engine.handler.Stream`.

    With `snapshot` the task as it stands there comes first; with `ends_with_snapshot` nothing else comes. With
    `ends_when_interrupted` the stream closes after an `input-required` or `auth-required` that follows seq `after` (A2A
    1.0 §3.1.2) and was not over when the stream began; else only at a terminal state.
    """

    __slots__ = (
        "_after",
        "_begun_at",
        "_closed",
        "_ended",
        "_ends_when_interrupted",
        "_keepalive_s",
        "_live",
        "_loop",
        "_released",
        "_since",
        "_snapshot",
        "_stopping",
        "_store",
        "_timer",
        "_waiting",
        "base",
        "head",
        "retry",
    )

    def __init__(
        self,
        live: LiveTask,
        store: Store,
        loop: AbstractEventLoop,
        *,
        after: int,
        snapshot: Snapshot | None,
        base: Record | None,
        ends_when_interrupted: bool,
        ends_with_snapshot: bool = False,
        keepalive_s: float,
        stopping: Callable[[], bool],
        released: Callable[[LiveTask], None],
    ) -> None:
        self.head: TaskHead | None = live.head
        self.retry = False
        self.base = base
        self._live = live
        self._store = store
        self._loop = loop
        self._after = after
        self._begun_at = live.seq
        self._snapshot = snapshot
        self._ends_when_interrupted = ends_when_interrupted
        self._keepalive_s = keepalive_s
        self._stopping = stopping
        self._released = released
        self._closed = False
        self._ended = ends_with_snapshot or (live.terminal and after >= live.seq)
        self._waiting: Future[None] | None = None
        self._timer: TimerHandle | None = None
        self._since = 0.0
        live.follow()

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """The next batch: see `engine.handler.Stream.next`."""
        items: list[StreamItem] = []
        if self._snapshot is not None and not self._closed:
            items.append(self._snapshot)
            self._snapshot = None
        while not self._closed:
            batch = [] if self._ended else await self._read()
            if batch is None:
                break
            if items or batch:
                return [*items, *batch] if items else batch
            if self._ended:
                break
            if self._stopping():
                self.retry = True
                break
            if not await self._wait(wait_s):
                if self._swept():
                    break
                return ()
        self.close()
        return None

    async def _read(self) -> Sequence[StreamItem] | None:
        """What follows in the log, as far as it is there; None if the caller left while it was read."""
        live = self._live
        batch: Sequence[Logged] | None = live.recent(self._after, BATCH_EVENTS_MAX, BATCH_BYTES_MAX)
        if batch is None:
            batch = await self._store.read(live.head.id, self._after, BATCH_BYTES_MAX)
            if self._closed:
                return None
            if not batch or batch[0].seq != self._after + 1:  # the log has been pruned: the task as it ended
                self._after, self._ended = live.seq, live.terminal
                return (Snapshot(live.record()),)
        for index, logged in enumerate(batch):
            if self._ends(logged):
                self._ended = True
                batch = batch[: index + 1]
                break
        if batch:
            self._after = batch[-1].seq
        return batch

    def _swept(self) -> bool:
        """Whether the task waited for its caller for so long that it has been deleted, so that nothing follows."""
        if self._live.state not in INTERRUPTED:
            return False
        try:
            return self._store.head(self._live.head.id) is None
        except StoreError:
            return False  # who knows; the next time will tell

    def _ends(self, logged: Logged) -> bool:
        event = logged.event
        if not isinstance(event, StatusChanged):
            return False
        asks = self._ends_when_interrupted and event.state in INTERRUPTED and logged.seq >= self._begun_at
        return asks or event.state in TERMINAL

    async def _wait(self, wait_s: float | None) -> bool:
        """Wait for the task to move; False when `wait_s`, or else the keep-alive interval, passes first."""
        future = self._waiting = self._live.wait(self._loop)
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._keepalive_s, self._tick)
        alarm = None if wait_s is None else self._loop.call_later(wait_s, self._give_up, future)
        try:
            await future
        finally:
            self._live.unwait(future)
            if alarm is not None:
                alarm.cancel()
        moved = self._waiting is not None
        self._waiting = None
        return moved

    def _tick(self) -> None:
        """One timer serves many waits: it is set anew for what is left of the present one."""
        self._timer = None
        future = self._waiting
        if future is None or future.done():
            return
        left = self._since + self._keepalive_s - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._tick)
            return
        self._give_up(future)

    def _give_up(self, future: Future[None]) -> None:
        if not future.done():
            self._waiting = None
            future.set_result(None)

    def close(self) -> None:
        """The caller has left: see `engine.handler.Stream.close`."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        self._live.unfollow()
        self._released(self._live)


class DirectStream:
    """The stream of an agent that answers directly: exactly one Message (A2A 1.0 §3.1.2)."""

    __slots__ = ("_message", "base", "head", "retry")

    def __init__(self, message: Message) -> None:
        self.head: TaskHead | None = None
        self.base: Record | None = None
        self.retry = False
        self._message: Message | None = message

    async def next(self, wait_s: float | None = None) -> Sequence[StreamItem] | None:
        """The message, then the end."""
        if self._message is None:
            return None
        message, self._message = self._message, None
        return (Direct(message),)

    def close(self) -> None:
        """Nothing is held."""
        self._message = None
