"""PeerReader: reads what other replicas committed to the tasks in memory here.

Invariant: a log is only extended by what follows its prefix. Events that do not, and those that say nothing of a lease
on which a run here depends, are read with the whole task, in a turn to write.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence

from dragoman.engine.log import Log, page_of
from dragoman.model.events import Logged
from dragoman.store.api import Store, StoreError, Unknown

log = logging.getLogger("dragoman.hints")

READ_BYTES = 1 << 20
"""About how many bytes of other replicas' events one read returns."""

EARLY_S = (0.02, 0.1, 0.5)
"""When the store is read again for an announced event that is not visible yet. After these tries its task is read
once more as a whole; then the poll finds it."""


class PeerReader:
    """Reads the `logs` in memory, few of them at a time or all at once. `serve` gives the replica its id."""

    def __init__(self, store: Store, logs: Mapping[str, Log]) -> None:
        self._store = store
        self._logs = logs
        self._replica_id = ""
        self._wanted: dict[str, int] = {}
        """The tasks to read next, by the seq that was announced, 0 if none was."""
        self._reading: asyncio.Task[None] | None = None
        self._underway: set[asyncio.Task[None]] = set()
        self._catching_up: dict[str, int] = {}
        """The tasks that wait for their turn to be read as a whole, by the seq that was announced."""
        self._stopped = False

    def serve(self, replica_id: str) -> None:
        """Use this id from now on."""
        self._replica_id = replica_id

    def stop(self) -> None:
        """Read nothing more."""
        self._stopped = True
        for reading in self._underway:
            reading.cancel()

    def may_lose(self, task: Log) -> bool:
        """Whether a hint about a task may be about its lease: it has a run here, or had one that has met a newer lease.

        Those who wait here for such a task have to hear of it from elsewhere then.
        """
        return task.followers.attached or task.row.holder == self._replica_id

    def want(self, task_id: str, seq: int) -> None:
        """Read a task soon. One read at a time covers all tasks wanted meanwhile."""
        if self._stopped:
            return
        self._wanted[task_id] = max(seq, self._wanted.get(task_id, 0))
        if self._reading is None:
            self._reading = self._spawn(self._read_wanted())

    async def _read_wanted(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                try:
                    await self._read(wanted)
                except StoreError as error:
                    log.warning("events of other replicas cannot be read now: %s", error)
                    return
                self._await_early(wanted)
        finally:
            self._reading = None

    def _await_early(self, wanted: Mapping[str, int], tries: int = 0) -> None:
        """Look again later at tasks whose announced events were not there. At last the tasks are read as a whole.

        A log that has been pruned has no events to read any more, but the task has its end.
        """
        early = {task_id: seq for task_id, seq in wanted.items() if seq and self._misses(task_id, seq)}
        if not early or self._stopped:
            return
        if tries < len(EARLY_S):
            asyncio.get_running_loop().call_later(EARLY_S[tries], self._look_again, early, tries + 1)
            return
        for task_id, seq in early.items():
            if (task := self._behind(task_id, seq)) is not None:
                self.catch_up(task, seq, again=False)

    def _look_again(self, early: Mapping[str, int], tries: int) -> None:
        still = {task_id: seq for task_id, seq in early.items() if self._misses(task_id, seq)}
        for task_id in still:
            self.want(task_id, 0)
        self._await_early(still, tries)

    def _misses(self, task_id: str, seq: int) -> bool:
        """Whether the task lacks events up to `seq`, and nobody is reading it as a whole."""
        return self._behind(task_id, seq) is not None and task_id not in self._catching_up

    async def read_all(self) -> None:
        """Read what other replicas wrote to all the tasks in memory. Raises StoreError."""
        await self._read(dict.fromkeys(self._logs, 0))

    async def _read(self, wanted: Mapping[str, int]) -> None:
        """Read each task up to the wanted seq, or as far as it goes if that is 0. Raises StoreError.

        All are read at once, in as few reads as their size allows. Events written meanwhile are left to the next time.
        """
        left = dict(wanted)
        while seen := [
            (task, seq) for task_id, seq in left.items() if (task := self._behind(task_id, seq)) is not None
        ]:
            history = self._store.replicas.history
            grown = await self._store.read_since([(task.head.id, task.seq) for task, _ in seen], READ_BYTES)
            if not grown:
                return
            full = sum(logged.size for events in grown.values() for logged in events) > READ_BYTES // 2
            for task, seq in seen:
                events = grown.get(task.head.id)
                if events is not None and not (self._take(task, events, history) and (full or seq)):
                    del left[task.head.id]

    def _behind(self, task_id: str, seq: int) -> Log | None:
        """The task, if it is in memory, goes on, and has not got as far as `seq`, if that is not 0."""
        task = self._logs.get(task_id)
        if task is None or not task.seq or task.terminal or (seq and task.seq >= seq):
            return None
        return task

    def _take(self, task: Log, events: Sequence[Logged], history: str) -> bool:
        """Take in events, as they were read in a history. Returns False if the task is read as a whole instead."""
        following = [logged for logged in events if logged.seq > task.seq]
        if not following or task.adopt(page_of(task, following, history)):
            return True
        self.catch_up(task, following[-1].seq)
        return False

    def catch_up(self, task: Log, seq: int, *, again: bool = True) -> None:
        """Read a task as a whole, with its lease, in its turn, unless it has got as far as `seq` by then.

        With `again` it is read again if that is not there yet.
        """
        task_id = task.head.id
        underway = task_id in self._catching_up
        self._catching_up[task_id] = max(seq, self._catching_up.get(task_id, 0))
        if not underway and not self._stopped:
            self._spawn(self._read_whole(task, again=again))

    async def _read_whole(self, task: Log, *, again: bool) -> None:
        task_id = task.head.id
        try:
            async with task.writes.turn(task):
                if self.may_lose(task) or task.seq < self._catching_up[task_id]:
                    await task.refresh()
        except (StoreError, Unknown) as error:
            log.warning("task %s cannot be read now: %s", task_id, error)
        finally:
            seq = self._catching_up.pop(task_id)
        if again:
            self._await_early({task_id: seq})

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._underway.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._underway.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("events of other replicas cannot be applied", exc_info=error)
