"""Hints: tells other replicas of commits made here, and reads what they committed to the tasks in memory here.

Invariant: nothing is announced before it is committed (invariant 2). A hint only decides when the store is read: its
page is applied if it continues the prefix, and a poll finds the commits of lost hints (invariant 12).
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence

import msgspec

from dragoman.bus.api import PAGE_BYTES_MAX, Bus, Inbox, NoBus
from dragoman.engine.task_log import Page, TaskLog, page_of
from dragoman.model.events import Logged
from dragoman.model.task import TERMINAL
from dragoman.store.api import Append, Appended, Store, StoreError, Unknown
from dragoman.store.worker_leases import WORKER

log = logging.getLogger("dragoman.hints")

READ_BYTES = 1 << 20
"""About how many bytes of other replicas' events one read returns."""

EARLY_S = (0.02, 0.1, 0.5)
"""When the store is read again for an announced event that is not visible yet. After these tries its task is read
once more as a whole; then the poll finds it."""

_pages = msgspec.msgpack.Decoder(Page)


class Hints:
    """The bus of a replica, and the logs in memory that hints are about.

    `poll_s` is the time between two polls without a healthy bus, `healthy_poll_s` with one on which every other living
    replica is heard: two that have lost each other may both hear themselves. `serve` gives the replica
    its id before anything else happens.
    """

    def __init__(self, store: Store, bus: Bus | None = None, *, poll_s: float, healthy_poll_s: float) -> None:
        self._store = store
        self._bus: Bus = NoBus() if bus is None else bus
        self._poll_s = poll_s
        self._healthy_poll_s = healthy_poll_s
        self._replica_id = ""
        self._logs: dict[str, TaskLog] = {}
        self._followed: set[str] = set()
        self._wanted: dict[str, int] = {}
        """The tasks to read next, by the seq that was announced, 0 if none was."""
        self._reading: asyncio.Task[None] | None = None
        self._underway: set[asyncio.Task[None]] = set()
        self._catching_up: dict[str, int] = {}
        """The tasks that wait for their turn to be read as a whole, by the seq that was announced."""
        self._polled_s = 0.0
        self._living = 0
        """How many other replicas were alive at the last poll."""
        self._inbox = Inbox()
        self._stopped = False
        self._bus.listen(self._inbox)

    def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """Use this id, and hear of queued work for these agents, from now on.

        The leases of an earlier id are lost, so that its tasks are others' now.
        """
        self._bus.serve(replica_id, agents)
        if replica_id != self._replica_id:
            self._replica_id = replica_id
            for task in self._logs.values():
                self.follow(task)

    def stop(self) -> None:
        """Read nothing more."""
        self._stopped = True
        for reading in self._underway:
            reading.cancel()

    # -- what this replica says ----------------------------------------------------------------------------------------

    def tell(self, replica_id: str) -> None:
        """Tell another replica that it has work: one of its tasks was marked, or offered to it."""
        self._bus.tell(replica_id)

    def queued(self, agent: str) -> None:
        """Tell the replicas that serve an agent that one of its tasks waits."""
        self._bus.queued(agent)

    def announce(self, task: TaskLog, append: Append, written: Appended) -> None:
        """Announce a commit to those who follow the task, and to the replica that runs it or keeps its run."""
        if not append.events:
            if append.holder is not None and task.holder not in (None, append.holder):
                self._bus.publish(task.head.id, written.last_seq, to=task.holder)  # its run has lost the lease
            return
        leases = append.holder is not None
        released = append.release or append.state in TERMINAL
        holder = append.holder if leases else None if released else task.holder
        offered = leases and append.holder != self._replica_id
        concerned = append.holder if offered else task.holder or task.row.keeper
        to = concerned if concerned not in (self._replica_id, WORKER) else None
        page: bytes | None = None
        wanted = to is not None or self._bus.wants(task.head.id)
        follows = written.epoch == task.row.epoch + leases and not task.outdated
        if wanted and written.log_bytes <= PAGE_BYTES_MAX and follows:
            page = _encode(
                Page(
                    written.last_seq - len(append.events) + 1,
                    append.events,
                    append.status_ms,
                    written.log_bytes,
                    written.epoch,
                    holder,
                    append.snapshot is not None,
                    task.history,
                )
            )
        self._bus.publish(task.head.id, written.last_seq, page, to=to)

    # -- the tasks in memory -------------------------------------------------------------------------------------------

    def add(self, task: TaskLog) -> None:
        """Note that a task has come into memory."""
        self._logs[task.head.id] = task

    def forget(self, task: TaskLog) -> None:
        """Note that a task has left memory."""
        task_id = task.head.id
        if self._logs.get(task_id) is task:
            del self._logs[task_id]
        if task_id in self._followed:
            self._followed.discard(task_id)
            self._bus.unfollow(task_id)

    def follow(self, task: TaskLog) -> None:
        """Somebody waits for a task, or may. If its lease is elsewhere, hear of it until it leaves memory.

        Hints about a task that runs here reach this replica anyway.
        """
        task_id = task.head.id
        if task.holder == self._replica_id or not task.seq or task.terminal or task_id in self._followed:
            return
        if task_id in self._logs:
            self._followed.add(task_id)
            self._bus.follow(task_id)

    # -- what other replicas say ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take in the hints of other replicas for ever."""
        while True:
            hint = await self._inbox.next()
            try:
                self._moved(*hint)
            except Exception:  # one hint must not end the others; a poll finds what it would have told
                log.exception("a hint about task %s cannot be handled", hint[0])

    def _moved(self, task_id: str, seq: int | None, page: bytes | None) -> None:
        task = self._logs.get(task_id)
        if task is None or not task.seq or task.terminal:
            return
        if self._may_lose(task) and seq is not None and seq >= task.seq:
            self._catch_up(task, seq)  # what became of the lease may be all that is new
        elif seq is not None and seq <= task.seq:
            return
        elif page is None or (decoded := _decode(page)) is None or not task.adopt(decoded):
            self._want(task_id, seq or 0)

    def _may_lose(self, task: TaskLog) -> bool:
        """Whether a hint about a task may be about its lease: it has a run here, or had one that has met a newer lease.

        Those who wait here for such a task have to hear of it from elsewhere then.
        """
        return task.followers.attached or task.holder == self._replica_id

    def _want(self, task_id: str, seq: int) -> None:
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
                self._catch_up(task, seq, again=False)

    def _look_again(self, early: Mapping[str, int], tries: int) -> None:
        still = {task_id: seq for task_id, seq in early.items() if self._misses(task_id, seq)}
        for task_id in still:
            self._want(task_id, 0)
        self._await_early(still, tries)

    def _misses(self, task_id: str, seq: int) -> bool:
        """Whether the task lacks events up to `seq`, and nobody is reading it as a whole."""
        return self._behind(task_id, seq) is not None and task_id not in self._catching_up

    # -- reading -------------------------------------------------------------------------------------------------------

    async def due(self) -> bool:
        """Wait for the next poll, and return True; or return False earlier if this replica was told of work.

        For one caller at a time.
        """
        loop = asyncio.get_running_loop()
        while True:
            all_heard = self._bus.healthy and self._bus.others >= self._living
            every_s = self._healthy_poll_s if all_heard else self._poll_s
            left_s = self._polled_s + every_s - loop.time()
            due, told = left_s <= 0 or self._inbox.dropped, self._inbox.work.is_set()
            if due:
                self._polled_s = loop.time()
                self._inbox.dropped = False
            if due or told:
                self._inbox.work.clear()
                return due
            try:
                async with asyncio.timeout(min(left_s, self._poll_s)):  # the bus may break meanwhile
                    await self._inbox.work.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Read what other replicas wrote to all the tasks in memory, and who they are. Raises StoreError."""
        living = await self._store.replicas.all()
        self._living = sum(replica.id != self._replica_id for replica in living)
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

    def _behind(self, task_id: str, seq: int) -> TaskLog | None:
        """The task, if it is in memory, goes on, and has not got as far as `seq`, if that is not 0."""
        task = self._logs.get(task_id)
        if task is None or not task.seq or task.terminal or (seq and task.seq >= seq):
            return None
        return task

    def _take(self, task: TaskLog, events: Sequence[Logged], history: str) -> bool:
        """Take in events, as they were read in a history. Returns False if the task is read as a whole instead."""
        following = [logged for logged in events if logged.seq > task.seq]
        if not following or task.adopt(page_of(task, following, history)):
            return True
        self._catch_up(task, following[-1].seq)
        return False

    def _catch_up(self, task: TaskLog, seq: int, *, again: bool = True) -> None:
        """Read a task as a whole, with its lease, in its turn, unless it has got as far as `seq` by then.

        With `again` it is read again if that is not there yet.
        """
        task_id = task.head.id
        underway = task_id in self._catching_up
        self._catching_up[task_id] = max(seq, self._catching_up.get(task_id, 0))
        if not underway and not self._stopped:
            self._spawn(self._read_whole(task, again=again))

    async def _read_whole(self, task: TaskLog, *, again: bool) -> None:
        task_id = task.head.id
        try:
            async with task.writes.turn(task):
                if self._may_lose(task) or task.seq < self._catching_up[task_id]:
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


def _encode(page: Page) -> bytes | None:
    """The page as bytes; None if it has no such form, or is too large."""
    try:
        encoded = msgspec.msgpack.encode(page)
    except (TypeError, ValueError, OverflowError):  # an integer beyond 64 bits, for one
        return None
    return encoded if len(encoded) <= PAGE_BYTES_MAX else None


def _decode(page: bytes) -> Page | None:
    """The page of another replica; None if it is of a release that writes it otherwise."""
    try:
        return _pages.decode(page)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
