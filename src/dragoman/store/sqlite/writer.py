"""Writer: the only thread that writes, with group commit: writes that arrive during a commit go into the next one.

Invariant: every submitted write gets exactly one outcome, after its transaction is durable or undone, even if SQLite or
the code fails. A failing write undoes none of the other writes in its batch.

Workers write again as soon as they have the outcome of a word, but arrive one by one, since they are elsewhere. A batch
of words waits for as many as were under way together when the last commit ended, as long as that commit took. Else two
groups of workers would take turns, each with commits of its own. No other write waits for words.

Savepoints would isolate the writes at the cost of two statements for each. Instead a batch is first tried as one
transaction of a few large statements. If something is unusual, it is rolled back and done again, one write after the
other. If one of these raises, every write gets a transaction of its own.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import apsw

from dragoman.model.ids import Clock
from dragoman.store.api import StoreError
from dragoman.store.outage import WriteRecord
from dragoman.store.sqlite.connection import Location, translated
from dragoman.store.sqlite.ledger import SqliteLedger
from dragoman.store.sqlite.recent import RecentTasks
from dragoman.store.sqlite.writes import Outcome, Write

Waiting = tuple[Write, "asyncio.Future[Any]"]


QUIET_TURNS = 2
"""A batch is handed over after this many turns of the loop without another write. In the next turn come the writes of
agents that went on after the last commit. Handing a batch to the thread and committing it cost more than the statements
of ten writes, so that writes of one moment should form one batch. A lone write waits for some microseconds."""

GATHERING_TURNS = 12
"""A batch waits for at most this many turns."""

GATHERING_S = 0.025
"""A batch waits for at most this long, in case a turn of the loop takes milliseconds: callers would notice twelve."""

EXPECTED_S = 0.005
"""A batch waits for at most this long for the words of workers that are expected. A lone worker waits for nobody."""

Way = Callable[[Sequence[Write], int], list[Outcome]]
"""A way to turn a batch into statements within a transaction, called with the time."""


class SqliteWriter:
    """A ledger and its thread. Made and called on the loop."""

    def __init__(
        self,
        ledger: SqliteLedger,
        location: Location,
        gate: AbstractContextManager[object],
        clock: Clock,
        record: WriteRecord,
        recent: RecentTasks,
    ) -> None:
        """The thread notes in `record` when it has committed, and how long that took. `recent` hears of the writes of a
        batch, on the loop, before their waiters get the outcomes.
        """
        self._record = record
        self._ledger = ledger
        self._tables = ledger.tables
        self._location = location
        self._gate = gate
        self._clock = clock
        self._recent = recent
        self._loop = asyncio.get_running_loop()
        self._arrived: list[Waiting] = []
        self._gathered = 0
        self._turns = self._quiet = 0
        self._until_s = 0.0
        self._words = 0
        """How many of the gathered writes are words of workers."""
        self._words_sent = 0
        """How many of the last batch were."""
        self._expected = 0
        """How many words were under way together when the last outcomes came: in the batch, or gathered meanwhile."""
        self._took_s = 0.0
        """How long the last commit took. The thread says it."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._committed = 0
        """How many transactions have changed something. The thread counts them."""
        self._delivered = 0
        self._batches: SimpleQueue[list[Waiting] | None] = SimpleQueue()
        self._closed = False
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, write: Write, *, word: bool = False) -> "asyncio.Future[Any]":
        """Submit a write, which may be a `word` of a worker.

        The future returns its outcome, or raises Refused or StoreError.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreError(f"store {self._location.url!r} is closed"))
            return future
        if not self._arrived and not self._writing:
            self._loop.call_soon(self._gather)
        self._arrived.append((write, future))
        self._record.note_write()
        self._words += word
        if self._timer is not None and not self._waits_for_words:
            self._hand_over()
        return future

    async def close(self) -> None:
        """Finish the submitted writes, and end the thread."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._batches.put(None)
        await self._done
        self._thread.join()
        self._record.close()

    def release(self) -> None:
        """Release the file; call this after `close`. Closing the last connection folds the WAL into the file."""
        self._tables.connection.close()

    def _gather(self) -> None:
        """Hand the gathered writes to the thread, unless the loop may soon bring more.

        One batch is under way at a time. When its outcomes arrive, the writes gathered meanwhile wait for those that
        the outcomes cause.
        """
        self._turns += 1
        if self._turns == 1:
            self._until_s = self._loop.time() + GATHERING_S
        arrived = len(self._arrived)
        self._quiet = 0 if arrived > self._gathered else self._quiet + 1
        self._gathered = arrived
        few = self._quiet < QUIET_TURNS and self._turns < GATHERING_TURNS
        if few and self._loop.time() < self._until_s:
            self._loop.call_soon(self._gather)
        elif self._waits_for_words:
            self._timer = self._loop.call_later(min(self._took_s, EXPECTED_S), self._hand_over)
        else:
            self._hand_over()

    @property
    def _waits_for_words(self) -> bool:
        """Whether words of workers alone have arrived, and more of them are expected."""
        return 0 < self._words == len(self._arrived) < self._expected

    def _hand_over(self) -> None:
        self._gathered = self._turns = self._quiet = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._arrived:
            batch, self._arrived = self._arrived, []
            self._words_sent, self._words = self._words, 0
            self._writing = True
            self._batches.put(batch)

    def _run(self) -> None:
        try:
            while (batch := self._batches.get()) is not None:
                outcomes = self._write(batch)
                self._loop.call_soon_threadsafe(self._deliver, batch, outcomes)
                del batch, outcomes  # so that the bytes of this batch are not held while the thread waits for the next
            self._loop.call_soon_threadsafe(self._done.set_result, None)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # the loop is gone, and all waiters with it

    def _write(self, batch: Sequence[Waiting]) -> Sequence[Outcome | Exception]:
        writes, _ = zip(*batch, strict=True)
        ways: list[Way] = [self._ledger.write_together]
        if len(writes) > 1:
            ways.append(self._ledger.write_each)
        for way in ways:
            with suppress(Exception):  # a failing write must not harm the others in its batch
                return self._transaction(writes, way)
        return [self._alone(write) for write in writes]

    def _alone(self, write: Write) -> Outcome | Exception:
        try:
            return self._transaction((write,), self._ledger.write_each)[0]
        except apsw.Error as error:
            return translated(error, self._location)
        except Exception as error:  # noqa: BLE001  any error of the thread goes to the waiter
            return error

    def _transaction(self, writes: Sequence[Write], way: Way) -> list[Outcome]:
        tables = self._tables
        with self._gate:
            now_ms, began_s = self._clock.now_ms(), perf_counter()
            before = tables.connection.total_changes()
            try:
                if tables.connection.in_transaction:  # the rollback of the last one failed, too
                    tables.rollback()
                tables.cursor.execute("BEGIN IMMEDIATE")
                outcomes = way(writes, now_ms)
                if tables.counts or tables.usage:
                    tables.write_counts()
                if tables.bookings:
                    tables.write_bookings()
                tables.cursor.execute("COMMIT")  # if that fails SQLite undoes the transaction: nothing was written
            except BaseException:
                tables.rollback()
                raise
        if tables.connection.total_changes() != before:  # else it does not show that the disk can be written
            self._record.note_commit(now_ms)
            self._committed += 1
            self._took_s = perf_counter() - began_s
            self._record.commits.add(self._took_s)
        return outcomes

    def _deliver(self, batch: Sequence[Waiting], outcomes: Sequence[Outcome | Exception]) -> None:
        """Set the outcomes on the futures that are still awaited. Runs on the loop."""
        self._writing = False
        self._expected = self._words_sent + self._words
        writes, futures = zip(*batch, strict=True)
        self._recent.written(writes)
        failures: list[StoreError] = []
        for future, outcome in zip(futures, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                failures.append(outcome)
            if future.done():  # its waiter was canceled
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if self._arrived:  # last, so that in each turn the writes that these outcomes cause come before it is looked
            self._loop.call_soon(self._gather)
        if failures:
            self._record.failed(len(failures), failures[-1].reason, failures[-1])
        committed, self._delivered = self._committed > self._delivered, self._committed
        if committed:  # a write that changed nothing says nothing about the disk
            self._record.committed()
