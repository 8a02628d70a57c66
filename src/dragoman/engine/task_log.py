"""TaskLog: the log of one task, as far as this process has read it.

Invariant: memory holds a folded prefix of the committed log, which is never wrong, only short.
"""

import logging
from asyncio import AbstractEventLoop, Future, Task, TimerHandle, current_task, get_running_loop, shield
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.announcements import Audience
from dragoman.engine.newest_events import NewestEvents
from dragoman.engine.rules import Decision
from dragoman.engine.writes import WriteQueue
from dragoman.model.events import Event, Logged, StatusChanged
from dragoman.model.ids import new_write, timestamp
from dragoman.model.lifecycle import SETTLED, Fold, fold
from dragoman.model.message import Message, Role
from dragoman.model.operations import CallerCredentials
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskHead, TaskState, Usage
from dragoman.store.api import (
    Append,
    Appended,
    NewTask,
    Store,
    Stored,
    Unknown,
)

logger = logging.getLogger("dragoman.runs")

SNAPSHOT_BYTES_MIN = 16_384
"""The log grows by at least this much between two snapshots, so that all snapshots together stay O(n)."""

WHOLE_LOG_BYTES = 1 << 40
"""A limit that no log reaches, to read a whole log."""


class Page(Struct, frozen=True, array_like=True):
    """Committed events of one task, the first of which has the seq `first`, and what the task's row has after them.

    `epoch` None says that the lease is not known. `log_bytes` is the growth of the log. `snapshot` says that one was
    written with them. Replicas send each other pages: new fields go to the end and have a default.
    """

    first: int
    events: tuple[Event, ...]
    status_ms: int
    log_bytes: int
    epoch: int | None = None
    holder: str | None = None
    snapshot: bool = False


class LogOwner(Protocol):
    """Keeps the logs of a process in memory, and hears from each what concerns the process."""

    def release(self, log: "TaskLog") -> None:
        """Drop a log, because its last write has landed and nothing pins it."""
        ...

    def ended(self, log: "TaskLog", event: StatusChanged, own: bool) -> None:
        """Take note that the end of a task is committed, by this engine if `own`."""
        ...

    async def renew_audience(self, log: "TaskLog", stored: Stored) -> None:
        """Read the webhooks of a task anew, because another engine has changed them. Raises StoreError."""
        ...


class Peers(Protocol):
    """The other engines that write to the store."""

    def announce(self, log: "TaskLog", append: Append, written: Appended) -> None:
        """Tell those that may wait for it of a commit."""
        ...

    def follow(self, log: "TaskLog") -> None:
        """Hear of what they write to a task from now on, because somebody here waits for it."""
        ...


class Attached(Protocol):
    """The run that works on a task in this process, or waits for an answer."""

    def receive(self, message: Message, answers: bool = False) -> None:
        """Take a message that arrived through another engine; `answers` says that it answers the open question."""
        ...

    def leased_anew(self) -> bool:
        """Take note that another engine has leased or ended the task. Returns whether the run goes on nevertheless."""
        ...


class Stopping:
    """The progress of a stop: after `begun` the server takes no new work, after `done` its runs are over."""

    __slots__ = ("begun", "done")

    def __init__(self) -> None:
        self.begun = False
        self.done = False


class TaskLog:
    """A task that somebody here runs, waits for, follows or writes to.

    `seq`, `state`, `status_ms` (when that state was reached) and all else show committed events only. `terminal` says
    that the task has ended. `settled_seq` is the seq of the status in which it settled (terminal or interrupted), 0
    while it has not. `holder` has the lease of the task; None if nobody has. `keeper` keeps its suspended run. `writes`
    are those made here. `audience` holds the webhooks of the task as of `webhooks_version`. `children` are the tasks it
    delegated, as far as this process knows; None means that another process may have made some. `shown` holds the
    caller's latest credentials, if an agent of the server passes them on. `taken_on` says that an agent elsewhere is
    known to have the task. `rewound` counts how often the store has lost what was read here; with `gone` it has lost
    the whole task. There are `peers` if other engines write to the store.
    """

    __slots__ = (
        "_attached",
        "_bytes_at_snapshot",
        "_fold",
        "_log_bytes",
        "_owner",
        "_peers",
        "_recent",
        "_refreshing",
        "_store",
        "_waiting",
        "audience",
        "children",
        "epoch",
        "gone",
        "head",
        "holder",
        "keeper",
        "pins",
        "rewound",
        "seq",
        "settled_seq",
        "shown",
        "state",
        "status_ms",
        "taken_on",
        "terminal",
        "webhooks_version",
        "writes",
    )

    def __init__(self, head: TaskHead, store: Store, owner: LogOwner, peers: Peers | None = None) -> None:
        self.head = head
        self.seq = 0
        self.epoch = 0
        self.state = TaskState.SUBMITTED
        self.terminal = False
        self.status_ms = 0
        self.settled_seq = 0
        self.pins = 0
        self.holder: str | None = None
        self.shown: CallerCredentials | None = None
        self.taken_on = False
        self.keeper: str | None = None
        self.audience: Audience | None = None
        self.webhooks_version = 0
        self.rewound = 0
        self.gone = False
        """How often the store had lost something that this log had read."""
        self.children: tuple[str, ...] | None = ()
        self._store = store
        self._owner = owner
        self._peers = peers
        self._attached: Attached | None = None
        self._fold = Fold(head)
        self._recent: NewestEvents | None = None
        self._log_bytes = 0
        self._bytes_at_snapshot = 0
        self._waiting: dict[Future[bool], TimerHandle | None] = {}
        self.writes: WriteQueue[TaskLog] = WriteQueue(store)
        self._refreshing: Task[None] | None = None
        """A refresh that waits for its turn, so that it reads whatever is committed by now."""

    @classmethod
    def of(cls, stored: Stored, store: Store, owner: LogOwner, peers: Peers | None = None) -> "TaskLog":
        """Build the log of a task from what the store has."""
        log = cls(stored.head, store, owner, peers)
        log.children = None
        log.webhooks_version = stored.webhooks_version
        log._take(stored)
        return log

    def _take(self, stored: Stored) -> None:
        """Replace the state of this log by what the store has, or extend it by the events that the store gave."""
        if not stored.after:
            self._fold = Fold(stored.head, stored.snapshot)
        for logged in stored.events:
            if logged.seq > self._fold.seq:
                self._fold.add(logged.seq, logged.event)
        self.seq = stored.seq
        self.epoch = stored.epoch
        self.holder = stored.holder
        self.keeper = stored.keeper
        self.state = stored.state
        self.terminal = stored.state in TERMINAL
        self.status_ms = stored.status_ms
        self.settled_seq = stored.seq if stored.state in SETTLED else 0
        self._bytes_at_snapshot = stored.snapshot_bytes
        self._log_bytes = stored.snapshot_bytes + stored.log_bytes_since

    @property
    def unreadable(self) -> bool:
        """Whether the store cannot read the task: see `Record.unreadable`."""
        return self._fold.unreadable

    @property
    def usage(self) -> Usage | None:
        """The tokens used."""
        return self._fold.usage

    @property
    def joined_artifacts(self) -> tuple[str, ...]:
        """See `Fold.joined_artifacts`."""
        return self._fold.joined_artifacts

    @property
    def question(self) -> Message | None:
        """The open question, for an answer to which the task waits; None if there is none, or it has no words."""
        status = self._fold.status
        return status.message if status is not None and status.state in INTERRUPTED else None

    def record(self) -> Record:
        """The task as it stands."""
        return self._fold.record()

    # -- writing -----------------------------------------------------------------------------------------------------

    def prepare(self, decision: Decision) -> tuple[Append, Fold | None]:
        """See `engine.writes.Prefix`."""
        events, epoch = decision.events, decision.epoch
        state, status_ms = self.state, self.status_ms
        for event in reversed(events):
            if isinstance(event, StatusChanged):
                state, status_ms = event.state, decision.now_ms
                if status_ms < self.status_ms:  # the clock of another replica is ahead
                    status_ms = self.status_ms
                    events = _not_before(status_ms, events)
                break
        grown = self._log_bytes - self._bytes_at_snapshot
        ahead: Fold | None = None
        depends = epoch is None or state in INTERRUPTED
        if decision.expected_epoch is not None:
            depends = False
        elif state in TERMINAL or grown > max(self._bytes_at_snapshot, SNAPSHOT_BYTES_MIN):
            ahead, depends = self._fold.ahead(events), True
        append = Append(
            task_id=self.head.id,
            events=events,
            state=state,
            status_ms=status_ms,
            epoch=epoch,
            expected_seq=self.seq if depends else None,
            expected_epoch=decision.expected_epoch,
            holder=decision.holder,
            release=decision.release,
            snapshot=None if ahead is None else ahead.record(),
            dedupe=decision.dedupe,
            push=decision.push,
            write=new_write(),
            read_seq=self.seq,
            keeper=decision.keeper,
            offered_ms=decision.offered_ms,
            webhooks_version=self.webhooks_version,
            content_bytes=decision.content_bytes if ahead is None else None,
        )
        if self.audience is not None:
            append = self.audience.told(self.head, self._fold, append)
        return append, ahead

    def take_in(self, append: Append, ahead: Fold | None, written: Appended) -> bool:
        """See `engine.writes.Prefix`."""
        if self.audience is not None:
            self.audience.committed(append)
        if self._peers is not None:
            self._peers.announce(self, append, written)
        moved = written.epoch != self.epoch + (append.holder is not None)  # a lease that adds no event came before
        if moved or written.last_seq - len(append.events) != self.seq:
            return False
        if append.holder is not None or append.release:
            self.holder = append.holder
            if append.release:
                self.keeper = append.keeper
        if append.push is not None:
            self.webhooks_version += 1
        self.publish(append.events, written, append.status_ms, ahead)
        return True

    def take_in_new(self, new: NewTask, written: Appended) -> None:
        """See `engine.writes.Prefix`."""
        if self.audience is not None and new.deliveries:
            self.audience.wake()
        if self.seq:  # somebody has loaded the task meanwhile
            self.wake()
        else:
            self.holder = new.holder
            self.publish(new.events, written, new.status_ms)

    def take_lease(self, append: Append, written: Appended) -> None:
        """See `engine.writes.Prefix`."""
        if written.epoch > self.epoch:
            self.epoch, self.holder = written.epoch, append.holder

    def rest(self) -> None:
        """See `engine.writes.Prefix`."""
        if self.pins <= 0:
            self._owner.release(self)

    def publish(
        self, events: Sequence[Event], written: Appended, status_ms: int, ahead: Fold | None = None, *, own: bool = True
    ) -> None:
        """Add committed events that follow the prefix to it, and wake all waiters.

        `ahead` is the fold after them, if a snapshot was written with them. `own` says that they were written here.
        """
        first = written.last_seq - len(events) + 1
        self.epoch = written.epoch
        self.status_ms = status_ms
        self._log_bytes += written.log_bytes
        size = written.log_bytes // len(events) if events else 0
        if ahead is not None:
            self._bytes_at_snapshot = self._log_bytes
            self._fold = ahead
        recent = self._recent
        for seq, event in enumerate(events, first):
            if ahead is None:
                self._fold.add(seq, event)
            self.seq = seq
            if recent is not None:
                recent.keep(seq, event, size)
            if isinstance(event, StatusChanged):
                state = self.state = event.state
                self.settled_seq = seq if state in SETTLED else 0
                if state in TERMINAL:
                    self.terminal = True
                    self.holder = None
                    self._owner.ended(self, event, own)
        if self._waiting:
            self.wake()

    def created(self, stored: Stored) -> None:
        """Take in a task whose first events are committed, before its maker hears of it. Others may have gone on."""
        self.webhooks_version = stored.webhooks_version
        self._go_to(stored)

    # -- what others wrote -------------------------------------------------------------------------------------------

    async def refresh(self) -> bool:
        """Read what the store has beyond the prefix. Returns False if that is nothing. Raises StoreError or Unknown.

        Only during a turn, so that a write of this log is not taken for one of another engine. The run here hears the
        messages that others wrote, unless another engine has leased or ended the task: then the run has lost it.
        """
        stored = await self._store.load_after(self.head.id, 0 if self.unreadable else self.seq)
        if stored is None:
            raise Unknown(self.head.id)
        return await self.catch_up_with(stored)

    async def catch_up_with(self, stored: Stored) -> bool:
        """As `refresh`, with the task as the store has just given it."""
        if stored.webhooks_version != self.webhooks_version:
            await self._owner.renew_audience(self, stored)
            self.webhooks_version = stored.webhooks_version
        return self._go_to(stored)

    def _go_to(self, stored: Stored) -> bool:
        """Extend the prefix to what the store has. Returns whether it has grown."""
        before, epoch = self.seq, self.epoch
        self.lease_of(stored)
        if stored.seq == before:
            self.keeper = stored.keeper
            if stored.epoch == epoch:
                self.holder = stored.holder  # a lease may be given back without an event
        if stored.seq <= before:
            return False
        was_terminal = self.terminal
        heard = 0 if self._attached is None else len(self.record().history)
        self._take(stored)
        following = [logged for logged in stored.events if logged.seq > before]
        if self._recent is not None:
            self._recent.go_on(following)
        if (run := self._attached) is not None:
            withdrawn = bool(following) and isinstance(following[0].event, StatusChanged)
            answers = self.epoch > epoch and not withdrawn  # a suspended run is leased anew with its answer
            for message in self.record().history[heard:]:  # events are missing here that a snapshot holds
                if message.role is Role.USER:
                    run.receive(message, answers)
                    answers = False
        if self.terminal and not was_terminal:
            status = self.record().status
            end = StatusChanged(status.state, status.timestamp, duration_ms=self._fold.duration_ms)
            self._owner.ended(self, end, False)
        if self.terminal and self._attached is not None:  # the run's own end is never written after events of others
            self._lose_run()
        self.wake()
        return True

    def lease_of(self, stored: Stored) -> None:
        """Take in a lease that another engine took or offered, or that was claimed. A claim changes nothing else.

        A run that works under an older one has lost, unless the lease is for it.
        """
        if stored.epoch > self.epoch:
            self.epoch, self.holder = stored.epoch, stored.holder
            self.children = None
            if self._attached is not None and not self._attached.leased_anew():
                self._attached = None
                self.wake()  # those who wait here have to hear of the task from elsewhere now

    async def catch_up(self) -> None:
        """Read what other engines wrote until now. Raises StoreError or Unknown.

        Those who ask while a read is under way share the next one.
        """
        if self._refreshing is None:
            self._refreshing = get_running_loop().create_task(self._refresh_in_turn())
            self._refreshing.add_done_callback(_retrieve)
        await shield(self._refreshing)

    async def _refresh_in_turn(self) -> None:
        try:
            async with self.writes.turn(self):
                self._refreshing = None
                await self.refresh()
        finally:
            if self._refreshing is current_task():  # it never had its turn
                self._refreshing = None

    async def reread(self) -> None:
        """Begin anew with what the store has, if it has lost something that this log has read.

        A run that works on the task has lost it then. Raises StoreError or Unknown.
        """
        async with self.writes.turn(self):
            stored = await self._store.load(self.head.id)
            if stored is None:
                self.gone = True
                self._go_back()
                raise Unknown(self.head.id)
            if await self._continues(stored):
                await self.catch_up_with(stored)
                return
            logger.error(
                "task %s: the store has lost committed events; the task goes on from %d", self.head.id, stored.seq
            )
            if stored.webhooks_version != self.webhooks_version:
                await self._owner.renew_audience(self, stored)
            self.webhooks_version = stored.webhooks_version
            self.children = None
            self._take(stored)
            if self._recent is not None:
                self._recent.go_on(())
            self._go_back()

    def _go_back(self) -> None:
        """Tell everybody here that the store has lost what was read: the run, those who wait, and followers."""
        self.rewound += 1
        if self._attached is not None:
            self._lose_run()
        self.wake()

    async def _continues(self, stored: Stored) -> bool:
        """Whether what the store has begins with this prefix."""
        if stored.seq < self.seq or stored.epoch < self.epoch:
            return False
        if stored.epoch == self.epoch and stored.holder not in (None, self.holder):
            return False  # the lease that was known here is lost, and another one has its number
        if stored.seq == self.seq:
            return fold(stored.head, stored.snapshot, stored.events) == self.record()
        log = await self.whole()
        return fold(self.head, None, (logged for logged in log if logged.seq <= self.seq)) == self.record()

    def adopt(self, page: Page) -> bool:
        """Take in events that another engine committed. Returns False if they have to be read with `catch_up` instead.

        That is so if they do not continue the prefix, while a write is under way here, and if a run works on the task
        here, which has to learn what became of its lease.
        """
        if self.writes.busy or self.attached or page.first != self.seq + 1 or not page.events:
            return False
        if page.epoch is not None and page.epoch >= self.epoch:
            if page.epoch > self.epoch:
                self.children = None
            self.epoch, self.holder = page.epoch, page.holder
        elif any(isinstance(event, StatusChanged) and event.state in INTERRUPTED for event in page.events):
            self.holder = None  # whoever leased it since then is not known
        last = page.first + len(page.events) - 1
        status_ms = max(self.status_ms, page.status_ms)  # a caller's message does not wait for the newest status
        self.publish(page.events, Appended(last, self.epoch, page.log_bytes), status_ms, own=False)
        if page.snapshot:
            self._bytes_at_snapshot = self._log_bytes
        return True

    def attach(self, run: Attached) -> None:
        """Note that a run works on the task here from now on."""
        self._attached = run

    def detach(self) -> None:
        """Note that no run works on the task here any more."""
        self._attached = None

    def _lose_run(self) -> None:
        """Let the run here know that it has lost the task."""
        run, self._attached = self._attached, None
        assert run is not None
        run.leased_anew()

    @property
    def attached(self) -> bool:
        """Whether a run works on the task here, or is suspended here."""
        return self._attached is not None

    # -- following ---------------------------------------------------------------------------------------------------

    def follow(self) -> NewestEvents:
        """Pin the task for a follower, and return its newest events: those committed from now on, for a while."""
        if self._recent is None:
            self._recent = NewestEvents()
        self._recent.followers += 1
        self.pins += 1
        return self._recent

    def unfollow(self) -> None:
        """Undo one `follow`."""
        assert self._recent is not None
        self._recent.followers -= 1
        self.pins -= 1
        if not self._recent.followers:
            self._recent = None

    async def whole(self) -> tuple[Logged, ...]:
        """Read the whole log, as far as it has not been pruned."""
        return await self._store.read(self.head.id, 0, WHOLE_LOG_BYTES)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, loop: AbstractEventLoop, deadline: float | None = None) -> "Future[bool]":
        """Return a future that finishes at the next change with True, or at `deadline`, a loop time, with False."""
        if self._peers is not None:
            self._peers.follow(self)
        future: Future[bool] = loop.create_future()
        self._waiting[future] = None if deadline is None else loop.call_at(deadline, self.expire, future)
        return future

    @property
    def waiting(self) -> int:
        """The number of those who wait for the next change."""
        return len(self._waiting)

    def expire(self, future: "Future[bool]") -> None:
        """Finish a future of `wait` with False."""
        self._waiting.pop(future, None)
        if not future.done():
            future.set_result(False)

    def wake(self) -> None:
        """Wake all waiters, because something changed."""
        waiting, self._waiting = self._waiting, {}
        for future, timer in waiting.items():
            if timer is not None:
                timer.cancel()
            if not future.done():
                future.set_result(True)

    async def settled(
        self, loop: AbstractEventLoop, after: int, timeout_s: float, stopping: Stopping, message_id: str = ""
    ) -> bool:
        """Wait until the task settles with a status later than seq `after`, where a message was written.

        Returns False after `timeout_s`, and when the runs of a stopping server are over. While the store is away the
        task may still settle, so it is waited for. Raises Unknown if the store has lost it, or the message.
        """
        deadline, rewound = loop.time() + timeout_s, self.rewound
        while self.settled_seq <= after or self.gone or self.rewound != rewound:
            if self.gone or self.rewound != rewound:
                rewound = self.rewound
                if self.gone or all(message.message_id != message_id for message in self.record().history):
                    raise Unknown(self.head.id)
                continue
            if stopping.done or (self.settled_seq == 0 and self.terminal):
                return False
            if not await self.wait(loop, deadline):
                return False
        return True

    async def contacted(self, loop: AbstractEventLoop, timeout_s: float, stopping: Stopping) -> None:
        """Wait, `timeout_s` at most, until the task is taken on or settled, or the server is stopping."""
        deadline = loop.time() + timeout_s
        while not (self.taken_on or self.state in SETTLED or stopping.begun):
            if not await self.wait(loop, deadline):
                return


def _retrieve(done: "Task[None]") -> None:
    """Look at the error of a refresh, so that it is not logged when everybody who waited for it has left."""
    if not done.cancelled():
        done.exception()


def _not_before(status_ms: int, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events with the time of the last status moved to `status_ms`."""
    moved = list(events)
    for place in range(len(moved) - 1, -1, -1):
        event = moved[place]
        if isinstance(event, StatusChanged):
            moved[place] = replace(event, timestamp=timestamp(status_ms))
            break
    return tuple(moved)
