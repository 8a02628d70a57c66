"""Writer: gathers the writes of one moment into batches, and keeps the writes of each task in order.

Invariant: every submitted write gets exactly one outcome, after its transaction is durable or undone, or its outcome is
unknown. At most one write of a task, and one with the same dedupe key, is under way at a time; the next one starts when
that one has its outcome. A failing write undoes none of the other writes in its batch.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dragoman.model.ids import Clock
from dragoman.store.api import OutcomeUnknown, StoreError, StoreUnreachable
from dragoman.store.outage import WriteRecord
from dragoman.store.postgres.ledger import AGAIN, Outcome, PostgresLedger
from dragoman.store.postgres.writes import OtherWrite, TaskTurn, Write
from dragoman.store.writes import Addition, Creation

LANES = 2
"""How many batches of plain writes, and how many of others, may be under way at the same time."""

QUIET_TURNS = 3
"""A batch starts after this many turns of the loop without another write: as many as an agent takes to answer an event.
A commit costs more than the rows of ten writes, so that writes of one moment should form one batch."""

ENOUGH = 12
"""A batch of so many writes starts without waiting for more: their rows cost PostgreSQL nearly as much as the start of
a statement, and while it works for them, the loop works for the other callers."""

GATHERING_TURNS = 12
"""A batch waits for at most this many turns."""

GATHERING_S = 0.025
"""A batch waits for at most this long: for turns of the loop that take milliseconds, or for a larger batch."""

BATCH_MAX = 200
BATCH_BYTES_MAX = 4 << 20
"""The most writes and bytes of a batch. A larger write is a batch of its own."""

Waiting = tuple[Any, "asyncio.Future[Any]"]
"""A write, and who waits for its outcome."""


class PostgresWriter:
    """The only way to the tables of tasks for writes. Made and called on the loop."""

    def __init__(self, ledger: PostgresLedger, clock: Clock, record: WriteRecord, shown: str) -> None:
        """`record` counts batches from their first statement to their outcomes. `shown` is the address for messages."""
        self._record = record
        self._ledger = ledger
        self._clock = clock
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, deque[Waiting] | None] = {}
        """Tasks with a write under way, and the writes that come after it."""
        self._calls: dict[bytes, deque[Waiting] | None] = {}
        """Dedupe keys, in the same way."""
        self._work: set[asyncio.Task[None]] = set()
        self._plain = BatchQueue(range(LANES), self._begin)
        self._others = BatchQueue(range(LANES, 2 * LANES), self._begin)
        """Writes that need more than a statement: plain ones do not wait for them."""
        self._finished: asyncio.Future[None] | None = None
        """The batches that `close` waits for."""
        self._closed = False

    def submit(self, write: Creation | Addition | OtherWrite) -> "asyncio.Future[Any]":
        """Submit a write. The future returns its outcome, or raises Refused, StoreError or OutcomeUnknown."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreError(f"store {self._shown!r} is closed"))
            return future
        self._record.note_write()
        self._enter((write, future))
        return future

    @asynccontextmanager
    async def turn(self, task_id: str) -> AsyncIterator[None]:
        """A block in which no write of a task is under way; it begins once those before have their outcome."""
        if self._closed:
            raise StoreError(f"store {self._shown!r} is closed")
        turn, begins = TaskTurn(task_id), self._loop.create_future()
        self._enter((turn, begins))
        try:
            await begins
            yield
        finally:
            if begins.done() and not begins.cancelled():
                self._leave(turn)
            # a turn that was given up before it came is over as soon as it comes

    async def write_in_turn(self, work: Awaitable[Any]) -> Any:
        """The outcome of a write that is made in a turn; it counts like one that was submitted."""
        self._record.note_write()
        try:
            outcome = await work
        except (StoreError, OutcomeUnknown) as error:
            self._failed(1, error)
            raise
        self._committed()
        return outcome

    async def close(self) -> None:
        """Finish the submitted writes."""
        self._closed = True
        while self._tasks or self._work:
            self._finished = self._loop.create_future()
            await self._finished
        self._record.close()

    # -- order ---------------------------------------------------------------------------------------------------------

    def _enter(self, waiting: Waiting) -> None:
        """Let a write begin, or wait behind the others of its task."""
        task_id = waiting[0].id
        if task_id is not None:
            if task_id in self._tasks:
                self._tasks[task_id] = _behind(self._tasks[task_id], waiting)
                return
            self._tasks[task_id] = None
        self._admit(waiting)

    def _admit(self, waiting: Waiting) -> None:
        """Let a write begin whose turn it is, unless another one with its dedupe key is under way."""
        write: Write = waiting[0]
        if isinstance(write, OtherWrite):
            self._start(self._do(write, waiting[1]))
        elif isinstance(write, TaskTurn):
            if waiting[1].done():
                self._leave(write)
            else:
                waiting[1].set_result(None)
        else:
            if write.asked.dedupe is not None:
                key = write.asked.dedupe.key
                if key in self._calls:
                    self._calls[key] = _behind(self._calls[key], waiting)
                    return
                self._calls[key] = None
            self._gather(waiting)

    def _gather(self, waiting: Waiting) -> None:
        (self._plain if self._ledger.is_plain(waiting[0]) else self._others).add(waiting)

    def _leave(self, write: Write) -> None:
        """Let those begin that waited for `write`."""
        if isinstance(write, Creation | Addition) and write.asked.dedupe is not None:
            key = write.asked.dedupe.key
            after = self._calls[key]
            if after:
                self._gather(after.popleft())
            else:
                del self._calls[key]
        if write.id is not None:
            after = self._tasks[write.id]
            if after:
                self._admit(after.popleft())
            else:
                del self._tasks[write.id]
                self._finish()

    # -- work ----------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._work.discard(task)
        self._finish()

    def _finish(self) -> None:
        if self._finished is not None and not self._tasks and not self._work and not self._finished.done():
            self._finished.set_result(None)

    async def _do(self, job: OtherWrite, future: "asyncio.Future[Any]") -> None:
        outcome: Any
        try:
            outcome = await job.run()
        except Exception as error:  # noqa: BLE001  any error goes to the waiter
            outcome = error
        self._deliver((((job, future)),), (outcome,))

    def _begin(self, queue: "BatchQueue", lane: int, batch: Sequence[Waiting]) -> None:
        self._start(self._write(queue, lane, batch))

    async def _write(self, queue: "BatchQueue", lane: int, batch: Sequence[Waiting]) -> None:
        """Make a batch of writes, and alone those for which that failed. Each gets its outcome."""
        outcomes: Sequence[Any]
        began_s = self._loop.time()
        try:
            outcomes = await self._ledger.write(lane, [write for write, _ in batch])
            self._record.commits.add(self._loop.time() - began_s)
        except Exception as error:  # noqa: BLE001  any error goes to the waiters
            outcomes = [error] * len(batch)
        if any(outcome is AGAIN for outcome in outcomes):
            pairs = tuple(zip(batch, outcomes, strict=True))
            made = [pair for pair in pairs if pair[1] is not AGAIN]
            self._deliver([waiting for waiting, _ in made], [outcome for _, outcome in made])
            for waiting, outcome in pairs:
                if outcome is AGAIN:
                    self._deliver((waiting,), (await self._alone(lane, waiting[0]),))
        else:
            self._deliver(batch, outcomes)
        queue.free(lane)

    async def _alone(self, lane: int, write: Creation | Addition) -> Outcome | Exception:
        try:
            return await self._ledger.alone(lane, write)
        except Exception as error:  # noqa: BLE001  any error goes to the waiter
            return error

    def _deliver(self, batch: Sequence[Waiting], outcomes: Sequence[Any]) -> None:
        """Set the outcomes on the futures that are still awaited."""
        failures = 0
        last: StoreError | OutcomeUnknown | None = None
        committed = False
        for (write, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                if isinstance(outcome, StoreError | OutcomeUnknown):
                    failures, last = failures + 1, outcome
                if not future.done():
                    future.set_exception(outcome)
            else:
                committed = True
                if not future.done():  # else its waiter was canceled
                    future.set_result(outcome)
            self._leave(write)
        if last is not None:
            self._failed(failures, last)
        if committed:
            self._committed()

    def _committed(self) -> None:
        self._record.note_commit(self._clock.now_ms())
        self._record.committed()

    def _failed(self, failures: int, error: StoreError | OutcomeUnknown) -> None:
        reason = error.reason if isinstance(error, StoreError) else StoreUnreachable.reason
        self._record.failed(failures, reason, error)


class BatchQueue:
    """The writes, plain or not, that are not under way yet, and the lanes that are free for a batch of them."""

    def __init__(self, lanes: Sequence[int], write: Callable[["BatchQueue", int, Sequence[Waiting]], None]) -> None:
        """`write` starts to write a batch in a lane, which it has to `free` in the end."""
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Waiting] = deque()
        self._free = list(lanes)
        self._under_way: dict[int, int] = {}
        """How many writes the batch in a lane has."""
        self._gathering: asyncio.Handle | None = None
        """The next look at what has arrived."""
        self._waits = False
        """Whether that look comes only when there is no more time to wait for the end of a batch under way."""
        self._gathered = 0
        self._turns = self._quiet = 0
        self._until_s = 0.0

    def add(self, waiting: Waiting) -> None:
        """Take a write that may begin."""
        self._arrived.append(waiting)
        if self._free and (self._gathering is None or (self._waits and self._is_worth_it())):
            self._gather_soon()

    def free(self, lane: int) -> None:
        """Take back a lane whose batch has its outcomes."""
        self._free.append(lane)
        del self._under_way[lane]
        if self._waits:
            self._turns, self._quiet = 1, 0  # the deadline stays
        if self._arrived and (self._gathering is None or self._waits):
            self._gather_soon()

    def _gather(self) -> None:
        """Start a batch, unless the loop may soon bring more writes.

        When outcomes arrive, the writes that waited meanwhile wait for those that the outcomes cause. Otherwise two
        groups of callers could alternate for ever, each with small commits of its own. For the same reason a few writes
        wait for the end of a batch under way that had enough.
        """
        self._turns += 1
        if self._turns == 1:
            self._until_s = self._loop.time() + GATHERING_S
        self._quiet = 0 if len(self._arrived) > self._gathered else self._quiet + 1
        self._gathered = len(self._arrived)
        left_s = self._until_s - self._loop.time()
        if self._gathered < ENOUGH and left_s > 0:
            if self._quiet < QUIET_TURNS and self._turns < GATHERING_TURNS:
                self._gather_soon()
                return
            if not self._is_worth_it():
                self._gathering, self._waits = self._loop.call_later(left_s, self._gather), True
                return
        self._gathered = self._turns = self._quiet = 0
        self._gathering, self._waits = None, False
        lane, batch = self._free.pop(), self._batch()
        self._under_way[lane] = len(batch)
        self._write(self, lane, batch)
        if self._arrived and self._free:
            self._gather_soon()

    def _gather_soon(self) -> None:
        """Look at what has arrived in the next turn of the loop."""
        if self._waits and self._gathering is not None:
            self._gathering.cancel()
        self._gathering, self._waits = self._loop.call_soon(self._gather), False

    def _is_worth_it(self) -> bool:
        """Whether what has arrived is worth a statement now, or should wait for a larger batch that is under way."""
        return 2 * len(self._arrived) >= ENOUGH or max(self._under_way.values(), default=0) < ENOUGH

    def _batch(self) -> list[Waiting]:
        arrived = self._arrived
        batch = [arrived.popleft()]
        size = _size(batch[0][0])
        while arrived and len(batch) < BATCH_MAX and (size := size + _size(arrived[0][0])) <= BATCH_BYTES_MAX:
            batch.append(arrived.popleft())
        return batch


def _size(write: Creation | Addition) -> int:
    """The bytes to write, files included."""
    body = write.head if isinstance(write, Creation) else write.record
    return len(write.page) + len(body or b"") + sum(len(file.content) for file in write.files)


def _behind(queue: deque[Waiting] | None, waiting: Waiting) -> deque[Waiting]:
    if queue is None:
        return deque((waiting,))
    queue.append(waiting)
    return queue
