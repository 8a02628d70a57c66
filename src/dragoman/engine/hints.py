"""Hints: tells other replicas of commits made here, and hears of what they committed to the tasks in memory here.

Invariant: nothing is announced before it is committed (invariant 2). A hint only decides when the store is read: its
page is applied if it continues the prefix, and a poll finds the commits of lost hints (invariant 12).
"""

import asyncio
import logging
from collections.abc import Collection

import msgspec

from dragoman.bus.api import PAGE_BYTES_MAX, Bus, HintInbox, NoBus
from dragoman.engine.log import Log, Page
from dragoman.engine.peer_reader import PeerReader
from dragoman.model.task import TERMINAL
from dragoman.store.api import NO_REPLICAS, Append, Appended, Store

log = logging.getLogger("dragoman.hints")

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
        self._logs: dict[str, Log] = {}
        self._reader = PeerReader(store, self._logs)
        self._followed: set[str] = set()
        self._polled_s = 0.0
        self._living = 0
        """How many other replicas were alive at the last poll."""
        self._inbox = HintInbox()
        self._bus.listen(self._inbox)

    def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """Use this id, and hear of queued work for these agents, from now on.

        The leases of an earlier id are lost, so that its tasks are others' now.
        """
        self._bus.serve(replica_id, agents)
        if replica_id != self._replica_id:
            self._replica_id = replica_id
            self._reader.serve(replica_id)
            for task in self._logs.values():
                self.follow(task)

    def stop(self) -> None:
        """Read nothing more."""
        self._reader.stop()

    # -- what this replica says ----------------------------------------------------------------------------------------

    def tell(self, replica_id: str) -> None:
        """Tell another replica that it has work: one of its tasks was marked, or offered to it."""
        self._bus.tell(replica_id)

    def queued(self, agent: str) -> None:
        """Tell the replicas that serve an agent that one of its tasks waits."""
        self._bus.queued(agent)

    def announce(self, task: Log, append: Append, written: Appended) -> None:
        """Announce a commit to those who follow the task, and to the replica that runs it or keeps its run."""
        if not append.events:
            return
        leases = append.holder is not None
        released = append.release or append.state in TERMINAL
        holder = append.holder if leases else None if released else task.row.holder
        offered = leases and append.holder != self._replica_id
        concerned = append.holder if offered else task.row.holder or task.row.keeper
        to = None if concerned == self._replica_id or concerned in NO_REPLICAS else concerned
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

    def add(self, task: Log) -> None:
        """Note that a task has come into memory."""
        self._logs[task.head.id] = task

    def forget(self, task: Log) -> None:
        """Note that a task has left memory."""
        task_id = task.head.id
        if self._logs.get(task_id) is task:
            del self._logs[task_id]
        if task_id in self._followed:
            self._followed.discard(task_id)
            self._bus.unfollow(task_id)

    def follow(self, task: Log) -> None:
        """Somebody waits for a task, or may. If its lease is elsewhere, hear of it until it leaves memory.

        Hints about a task that runs here reach this replica anyway.
        """
        task_id = task.head.id
        if task.row.holder == self._replica_id or not task.seq or task.terminal or task_id in self._followed:
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
        if self._reader.may_lose(task) and seq is not None and seq >= task.seq:
            self._reader.catch_up(task, seq)  # what became of the lease may be all that is new
        elif seq is not None and seq <= task.seq:
            return
        elif page is None or (decoded := _decode(page)) is None or not task.adopt(decoded):
            self._reader.want(task_id, seq or 0)

    # -- polling -------------------------------------------------------------------------------------------------------

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
            if due or told:
                self._inbox.take_work(looked=due)
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
        await self._reader.read_all()


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
