"""Log: the log of one task, as far as this process has read it.

Invariant: memory holds a folded prefix of the committed log, which is never wrong, only short. It changes by what is
committed alone: by a write of this engine (`engine.writes`), by what another engine has written (`engine.log_reader`),
or by its page (`adopt`).
"""

import logging
from asyncio import AbstractEventLoop
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.folding import fold_aside
from dragoman.engine.followers import Followers, Peers
from dragoman.engine.rules import Decision, Row
from dragoman.engine.stopping import Stopping
from dragoman.engine.timer_wheel import TimerWheel
from dragoman.engine.writes import WriteQueue
from dragoman.model.events import Event, Logged, MessageReceived, StatusChanged
from dragoman.model.headers import RequestHeaders, TaskHeaders
from dragoman.model.ids import new_write, timestamp, timestamp_ms
from dragoman.model.lifecycle import SETTLED, Fold, fold
from dragoman.model.message import Role
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskHead, TaskState
from dragoman.store.api import Append, Appended, NewTask, Store, Stored, Unknown
from dragoman.store.budgets import Charge
from dragoman.store.worker_leases import WORKER

logger = logging.getLogger("dragoman.runs")

WHOLE_LOG_BYTES = 1 << 40
"""A limit that no log reaches, to read a whole log."""

SNAPSHOT_BYTES_MIN = 16_384
"""The log grows by at least this much between two snapshots, so that all snapshots together stay O(n)."""


class Page(Struct, frozen=True, array_like=True):
    """Committed events of one task, the first of which has the seq `first`, and what the task's row has after them.

    `epoch` None says that the lease is not known. `log_bytes` is the growth of the log. `snapshot` says that one was
    written with them. `history` is that of the store in which they follow the events before them
    (`Replicas.history`). Replicas send each other pages: new fields go to the end and have a default.
    """

    first: int
    events: tuple[Event, ...]
    status_ms: int
    log_bytes: int
    epoch: int | None = None
    holder: str | None = None
    snapshot: bool = False
    history: str = ""


def page_of(task: "Log", following: Sequence[Logged], history: str) -> Page:
    """Events of the log that follow the prefix, read in a history, as a page. It does not know the lease."""
    status_ms = task.row.status_ms
    for logged in following:
        if isinstance(logged.event, StatusChanged):
            status_ms = timestamp_ms(logged.event.timestamp)
    size = sum(logged.size for logged in following)
    return Page(following[0].seq, tuple(logged.event for logged in following), status_ms, size, history=history)


def row_of(stored: Stored) -> Row:
    """The row of a task that was read from the store."""
    return Row(
        stored.state,
        stored.status_ms,
        stored.epoch,
        stored.holder,
        stored.keeper,
        stored.webhooks_version,
        stored.delivered,
    )


class LogOwner(Protocol):
    """Keeps the logs of a process in memory, and hears from each what concerns the process."""

    def release(self, log: "Log") -> None:
        """Drop a log, because no write of it is under way any more and nothing pins it."""
        ...

    def ended(self, log: "Log", event: StatusChanged, own: bool) -> None:
        """Take note that the end of a task is committed, by this engine if `own`."""
        ...

    def charges(self, record: Record) -> tuple[Charge, ...]:
        """What a task that ends so is charged for what it has reserved of budgets."""
        ...

    async def renew_audience(self, log: "Log", stored: Stored) -> None:
        """Read the webhooks of a task anew, because another engine has changed them. Raises StoreError."""
        ...


class Log:
    """A task that somebody here runs, waits for, follows or writes to.

    `seq`, `row`, `fold` and all else show committed events only. `settled_seq` is the seq of the status in which it
    settled (terminal or interrupted), 0 while it has not, and `last_settled_seq` that of the newest such status that is
    known here, even if the task has gone on since. `writes` are those made here, and `followers` hear of these and of
    what others wrote. `pins` keep the log in memory. `children` are the tasks it delegated, as far as this process
    knows; None means that another process may have made some. `headers` are those of the requests with its newest
    messages, if an agent of the server is given any. `history` is that of the store (`Replicas.history`) in which the
    prefix was read, and `rewound` counts how often the store has lost what was read here; with `gone` it has lost the
    whole task.
    """

    __slots__ = (
        "_bytes_at_snapshot",
        "_log_bytes",
        "_owner",
        "children",
        "fold",
        "followers",
        "gone",
        "head",
        "headers",
        "history",
        "last_settled_seq",
        "pins",
        "rewound",
        "row",
        "seq",
        "settled_seq",
        "store",
        "writes",
    )

    def __init__(
        self,
        head: TaskHead,
        store: Store,
        owner: LogOwner,
        peers: "Peers[Log] | None" = None,
        headers: TaskHeaders | None = None,
        pins: int = 0,
    ) -> None:
        """There are `peers` if other engines write to the store."""
        self.head = head
        self.seq = 0
        self.row = Row()
        self.fold = Fold(head)
        self.settled_seq = self.last_settled_seq = 0
        self.followers: Followers[Log] = Followers(peers)
        self.store = store
        self.history = store.replicas.history
        self.writes: WriteQueue[Log] = WriteQueue(store)
        self.pins = pins
        self.headers = headers
        self.rewound = 0
        self.gone = False
        self.children: tuple[str, ...] | None = ()
        self._owner = owner
        self._log_bytes = 0
        self._bytes_at_snapshot = 0

    @classmethod
    def of(cls, stored: Stored, store: Store, owner: LogOwner, peers: "Peers[Log] | None" = None) -> "Log":
        """Build the log of a task from what the store has."""
        log = cls(stored.head, store, owner, peers)
        log.children = None
        log._take(stored)
        return log

    def _take(self, stored: Stored) -> None:
        """Replace the state of this log by what the store has, or extend it by the events that the store gave."""
        if not stored.after:
            self.fold = Fold(stored.head, stored.snapshot)
        for logged in stored.events:
            if logged.seq > self.fold.seq:
                self.fold.add(logged.seq, logged.event)
            if isinstance(logged.event, StatusChanged) and logged.event.state in SETTLED:
                self.last_settled_seq = logged.seq
        self.seq = stored.seq
        self.row = row_of(stored)
        self.settled_seq = stored.seq if stored.state in SETTLED else 0
        self._bytes_at_snapshot = stored.snapshot_bytes
        self._log_bytes = stored.snapshot_bytes + stored.log_bytes_since

    # -- as it stands ------------------------------------------------------------------------------------------------
    # The code that every send or event passes reads `row` itself, which costs no call.

    @property
    def state(self) -> TaskState:
        """The state of the task."""
        return self.row.state

    @property
    def terminal(self) -> bool:
        """Whether the task has ended."""
        return self.row.state in TERMINAL

    @property
    def outdated(self) -> bool:
        """Whether the store has another history than the prefix, so that the two have to be compared."""
        return self.history != self.store.replicas.history

    def record(self) -> Record:
        """The task as it stands."""
        return self.fold.record()

    # -- for those who work on it ------------------------------------------------------------------------------------

    def pin(self) -> None:
        """Keep the log in memory until `unpin`."""
        self.pins += 1

    def unpin(self) -> None:
        """Undo one `pin`. The owner drops a log that is neither pinned nor written to."""
        self.pins -= 1
        if self.pins <= 0 and not self.writes.busy:
            self._owner.release(self)

    def note_headers(self, message_id: str, request: RequestHeaders) -> None:
        """Keep the headers of the request that brought a message."""
        known = self.headers
        self.headers = TaskHeaders({message_id: request}) if known is None else known.followed_by(message_id, request)

    def add_child(self, child_id: str) -> None:
        """Keep the id of a task that this one delegates, unless another process may have made some."""
        if self.children is not None and child_id not in self.children:
            self.children = (*self.children, child_id)

    # -- writing -----------------------------------------------------------------------------------------------------

    def prepare(self, decision: Decision) -> tuple[Append, Fold | None]:
        """See `engine.writes.Prefix`."""
        events, epoch = decision.events, decision.epoch
        row = self.row
        state, status_ms = row.state, row.status_ms
        for event in reversed(events):
            if isinstance(event, StatusChanged):
                state, status_ms = event.state, decision.now_ms
                if status_ms < row.status_ms:  # the clock of another replica is ahead
                    status_ms = row.status_ms
                    events = _not_before(status_ms, events)
                break
        grown = self._log_bytes - self._bytes_at_snapshot
        ahead: Fold | None = None
        lease = decision.lease
        depends = epoch is None or state in INTERRUPTED or decision.depends
        if lease is not None and (lease.number is None or self.followers.audience is not None):
            depends = True  # webhooks tell of whole artifacts
        if decision.expected_epoch is not None:
            depends = decision.depends
        elif state in TERMINAL or grown > max(self._bytes_at_snapshot, SNAPSHOT_BYTES_MIN):
            ahead, depends = self.fold.ahead(events), True
        record = None if ahead is None else ahead.record()
        ends = state in TERMINAL
        append = Append(
            task_id=self.head.id,
            events=events,
            state=state,
            status_ms=status_ms,
            epoch=epoch,
            expected_seq=self.seq if depends else None,
            holder=decision.holder,
            release=decision.release,
            snapshot=record,
            write=new_write(),
            read_seq=self.seq,
            webhooks_version=row.webhooks_version,
            content_bytes=decision.content_bytes if ahead is None else None,
            history=self.history,
            charges=self._owner.charges(record) if ends and record is not None and self.head.reservations else (),
        )  # of more than 15 named arguments CPython makes a dict first
        if not decision.plain:
            append = replace(
                append,
                expected_epoch=decision.expected_epoch,
                dedupe=decision.dedupe,
                push=decision.push,
                keeper=decision.keeper,
                offered_ms=decision.offered_ms,
                lease=decision.lease,
                to_worker=decision.to_worker,
                wakes_ms=decision.wakes_ms,
            )
        audience = self.followers.audience
        return append if audience is None else audience.told(self.head, self.fold, append), ahead

    def take_in(self, append: Append, ahead: Fold | None, written: Appended) -> bool:
        """See `engine.writes.Prefix`."""
        followers = self.followers
        if followers.audience is not None or followers.peers is not None:
            followers.committed(self, append, written)
        row, leases = self.row, append.holder is not None
        holder = append.holder
        if append.to_worker and written.epoch > row.epoch:
            leases, holder = True, WORKER
        granted = append.lease is not None and append.lease.granted_ms is not None
        moved = written.epoch != row.epoch + leases  # a lease that adds no event came before
        status_ms = append.status_ms
        if followers.peers is not None and self.outdated:
            return False
        if (missed := written.missed) and not moved:  # others wrote it under the present lease before this
            if missed[0].seq == self.seq + 1:
                page = page_of(self, missed, self.history)
                before = Appended(missed[-1].seq, row.epoch, page.log_bytes)
                self.publish(page.events, before, page.status_ms, own=False)
            row, status_ms = self.row, max(self.row.status_ms, status_ms)
        if moved or written.last_seq - len(append.events) != self.seq:
            return False
        if leases or append.release or append.push is not None:
            self.row = Row(
                row.state,
                row.status_ms,
                row.epoch,
                holder if leases or append.release else row.holder,
                append.keeper if append.release else row.keeper,
                row.webhooks_version + (append.push is not None),
                row.delivered + granted,
            )
        self.publish(append.events, written, status_ms, ahead)
        if written.log_bytes_since is not None:  # another engine may have written a snapshot
            self._bytes_at_snapshot = max(self._bytes_at_snapshot, self._log_bytes - written.log_bytes_since)
        return True

    def rest(self) -> None:
        """See `engine.writes.Prefix`."""
        if self.pins <= 0:
            self._owner.release(self)

    def take_in_new(self, new: NewTask, written: Appended) -> None:
        """See `engine.writes.Prefix`."""
        if self.followers.audience is not None and new.deliveries:
            self.followers.audience.wake()
        if self.seq:  # somebody has loaded the task meanwhile
            self.followers.wake()
        else:
            self.row = Row(holder=new.holder)
            self.publish(new.events, written, new.status_ms)

    def take_lease(self, append: Append, written: Appended) -> None:
        """See `engine.writes.Prefix`."""
        if written.epoch > self.row.epoch:
            holder = append.holder or (WORKER if append.to_worker else None)
            self.row = replace(self.row, epoch=written.epoch, holder=holder)

    def publish(
        self, events: Sequence[Event], written: Appended, status_ms: int, ahead: Fold | None = None, *, own: bool = True
    ) -> None:
        """Add committed events that follow the prefix to it, and wake all waiters.

        `ahead` is the fold after them, if a snapshot was written with them. `own` says that they were written here.
        """
        first = written.last_seq - len(events) + 1
        self._log_bytes += written.log_bytes
        if ahead is not None:
            self._bytes_at_snapshot = self._log_bytes
            self.fold = ahead
        row, recent, fold = self.row, self.followers.newest, self.fold
        state, end = row.state, None
        for seq, event in enumerate(events, first):
            if ahead is None:
                fold.add(seq, event)
            if recent is not None:
                recent.keep(seq, event, written.log_bytes // len(events))
            if isinstance(event, StatusChanged):
                state = event.state
                if state not in SETTLED:
                    self.settled_seq = 0
                    continue
                self.settled_seq = self.last_settled_seq = seq
                if state in TERMINAL:
                    end = event
        if events:
            self.seq = written.last_seq
        if end is not None or state is not row.state or status_ms != row.status_ms or written.epoch != row.epoch:
            holder = None if end is not None else row.holder
            self.row = Row(state, status_ms, written.epoch, holder, row.keeper, row.webhooks_version, row.delivered)
        if end is not None:
            self._owner.ended(self, end, own)
        if self.followers.waiters or self.followers.parked:
            self.followers.wake()

    # -- what others wrote -------------------------------------------------------------------------------------------

    async def refresh(self) -> bool:
        """Read what the store has beyond the prefix. Returns False if that is nothing. Raises StoreError or Unknown.

        Only during a turn, so that a write of this log is not taken for one of another engine. If the store has
        another history by now, the prefix is compared with it: see `reread`.
        """
        stored = await self.store.load_after(self.head.id, 0 if self.fold.unreadable else self.seq)
        if self.outdated:
            return await reread(self)
        if stored is None:
            raise Unknown(self.head.id)
        return await self.catch_up_with(stored)

    async def catch_up_with(self, stored: Stored) -> bool:
        """As `refresh`, with the task as the store has just given it."""
        await self.renew_audience(stored)
        return self.extend_to(stored)

    async def renew_audience(self, stored: Stored) -> None:
        """Read the webhooks anew, if another engine has changed them. Raises StoreError."""
        if stored.webhooks_version != self.row.webhooks_version:
            await self._owner.renew_audience(self, stored)
            self.change_webhooks(stored.webhooks_version)

    def extend_to(self, stored: Stored, history: str | None = None) -> bool:
        """Extend the prefix to what the store has, in `history` if that is another one. Returns whether it has grown.

        The run here hears the messages that others wrote, unless another engine has leased or ended the task: then the
        run has lost it.
        """
        if history is not None:
            self.history = history
        before, epoch, state = self.seq, self.row.epoch, self.row.state
        self.lease_of(stored)
        if stored.seq == before:  # a lease may be given back without an event
            holder = stored.holder if stored.epoch == epoch else self.row.holder
            self.row = replace(self.row, keeper=stored.keeper, holder=holder, delivered=stored.delivered)
        if stored.seq <= before:
            return False
        was_terminal, followers = self.terminal, self.followers
        heard = len(self.record().history) if followers.attached else 0
        self._take(stored)
        following = [logged for logged in stored.events if logged.seq > before]
        if followers.newest is not None:
            followers.newest.extend(following)
        if followers.attached:
            said = self.record().history[heard:]  # events are missing here that a snapshot holds
            said = tuple(message for message in said if message.role is Role.USER)
            followers.hear(self, said, answers=_answers(state, following))
        if self.terminal:
            if not was_terminal:
                status = self.record().status
                end = StatusChanged(status.state, status.timestamp, duration_ms=self.fold.duration_ms)
                self._owner.ended(self, end, False)
            followers.lose_run(self)  # the run's own end is never written after events of others
        followers.wake()
        return True

    def lease_of(self, stored: Stored) -> None:
        """Take in a lease that another engine took or offered, or that was claimed. A claim changes nothing else.

        A run that works under an older one has lost, unless the lease is for it.
        """
        if stored.epoch > self.row.epoch:
            self.row = replace(self.row, epoch=stored.epoch, holder=stored.holder, delivered=stored.delivered)
            self.children = None
            self.followers.lease_moved(self)

    async def compare(self) -> None:
        """Compare the prefix with the store if a failover may have lost some of it, before a caller is shown it.

        A pinned log only. Raises StoreError or Unknown.
        """
        while self.outdated:
            async with self.writes.turn(self):
                if self.outdated:
                    await reread(self)

    def change_webhooks(self, version: int) -> None:
        """Note that the webhooks among the followers are those of a version."""
        self.row = replace(self.row, webhooks_version=version)

    def rewind(self, stored: Stored | None, history: str = "") -> None:
        """Begin anew with what the store has, because it has lost what was read here; None if that is nothing.

        The run has lost the task.
        """
        if stored is None:
            self.gone = True
        else:
            self.children, self.last_settled_seq, self.history = None, 0, history
            self._take(stored)
            if self.followers.newest is not None:
                self.followers.newest.extend(())
        self.rewound += 1
        self.followers.lose_run(self)
        self.followers.wake()

    def adopt(self, page: Page) -> bool:
        """Take in events that another engine committed. Returns False if they have to be read with `catch_up` instead.

        That is so if they do not continue the prefix, or not in this history of the store, while a write is under way
        here, and if a run works on the task here, which has to learn what became of its lease.
        """
        row = self.row
        if page.history != self.history or self.outdated:
            return False
        if self.writes.busy or self.followers.attached or page.first != self.seq + 1 or not page.events:
            return False
        if page.epoch is not None and page.epoch >= row.epoch:
            if page.epoch > row.epoch:
                self.children = None
            self.row = replace(row, epoch=page.epoch, holder=page.holder)
        elif any(isinstance(event, StatusChanged) and event.state in INTERRUPTED for event in page.events):
            self.row = replace(row, holder=None)  # whoever leased it since then is not known
        last = page.first + len(page.events) - 1
        status_ms = max(row.status_ms, page.status_ms)  # a caller's message does not wait for the newest status
        self.publish(page.events, Appended(last, self.row.epoch, page.log_bytes), status_ms, own=False)
        if page.snapshot:
            self._bytes_at_snapshot = self._log_bytes
        return True


async def read_whole(task: Log) -> tuple[Logged, ...]:
    """Read the whole log, as far as it has not been pruned. Raises StoreError."""
    return await task.store.read(task.head.id, 0, WHOLE_LOG_BYTES)


async def read_record(task: Log, seq: int) -> Record | None:
    """The task as it stood after the event `seq`; None if its log has been pruned. Raises StoreError."""
    log = [logged for logged in await read_whole(task) if logged.seq <= seq]
    return await fold_aside(len(log), lambda: fold(task.head, None, log)) if len(log) == seq else None


async def reread(log: Log) -> bool:
    """Begin anew with what the store has, if it has lost something that the log has read, or may have lost what its run
    has remembered and not yet recorded; else extend the prefix.

    A run that works on the task has lost it then. Only during a turn. Returns False if nothing has changed. Raises
    StoreError or Unknown.
    """
    replicas = log.store.replicas
    while True:
        history = replicas.history
        stored = await log.store.load(log.head.id)
        if stored is None:
            log.rewind(None)
            raise Unknown(log.head.id)
        continues = await _continues(log, stored)
        await log.renew_audience(stored)
        if replicas.history != history:
            continue
        remembers = continues and history != log.history and log.followers.remembers_more(log)
        if continues and not remembers:
            return log.extend_to(stored, history)
        if remembers:
            logger.warning("task %s: the store may have lost what its run has remembered: it runs again", log.head.id)
        else:
            seq = stored.seq
            logger.error("task %s: the store has lost committed events; the task goes on from %d", log.head.id, seq)
        log.rewind(stored, history)
        return True


async def _continues(log: Log, stored: Stored) -> bool:
    """Whether what the store has begins with the log's prefix."""
    if stored.seq < log.seq or stored.epoch < log.row.epoch:
        return False
    if stored.epoch == log.row.epoch and stored.holder not in (None, log.row.holder):
        return False  # the lease that was known here is lost, and another one has its number
    if stored.seq == log.seq:
        kept = fold(stored.head, stored.snapshot, stored.events)
    else:
        whole = await read_whole(log)
        kept = fold(log.head, None, (logged for logged in whole if logged.seq <= log.seq))
    known = log.record()
    # A snapshot of a program from before `revised` does not say it, also while replicas are replaced one by one.
    return replace(kept, revised=known.revised) == known


def _answers(state: TaskState, following: Sequence[Logged]) -> bool:
    """Whether the first message after a state answers a question. None does that if the question was withdrawn."""
    for logged in following:
        if isinstance(logged.event, MessageReceived):
            break
        if isinstance(logged.event, StatusChanged):
            state = logged.event.state
    return state in INTERRUPTED


def check_kept(task: Log, message_id: str) -> None:
    """Check that a message is still in the log. Raises Unknown if the store has lost it, or the task."""
    if task.gone or all(message.message_id != message_id for message in task.record().history):
        raise Unknown(task.head.id)


async def await_settled(
    task: Log,
    loop: AbstractEventLoop,
    wheel: TimerWheel,
    after: int,
    timeout_s: float,
    stopping: Stopping,
    message_id: str = "",
    known: int = 0,
) -> int:
    """Wait until the task settles with a status later than seq `after`, where a message was written.

    Returns the seq of that status. The task may have gone on since, if somebody else has answered its question at once:
    that is heeded only if the status is later than seq `known`, too. Returns 0 after `timeout_s`, and when the runs of
    a stopping server are over. While the store is away the task may still settle, so it is waited for. Raises Unknown
    if the store has lost it, or the message, and StoreError if it cannot say.
    """
    deadline, rewound, timed_out = loop.time() + timeout_s, task.rewound, False
    gone_on = max(after, known)
    while True:
        if task.gone or task.rewound != rewound:
            rewound = task.rewound
            check_kept(task, message_id)
        settled = task.settled_seq > after or task.last_settled_seq > gone_on
        if settled or timed_out or stopping.done or (task.settled_seq == 0 and task.row.state in TERMINAL):
            if not task.outdated:
                return (task.settled_seq or task.last_settled_seq) if settled else 0
            await task.compare()
        else:
            timed_out = not await task.followers.wait(task, loop, deadline, wheel)


async def await_contact(task: Log, loop: AbstractEventLoop, timeout_s: float, stopping: Stopping) -> None:
    """Wait, `timeout_s` at most, until the task is taken on or settled, or the server is stopping."""
    deadline = loop.time() + timeout_s
    task.followers.contact_awaited = True
    while not (task.followers.taken_on or task.state in SETTLED or stopping.begun):
        if not await task.followers.wait(task, loop, deadline):
            return


def _not_before(status_ms: int, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events with the time of the last status moved to `status_ms`."""
    moved = list(events)
    for place in range(len(moved) - 1, -1, -1):
        event = moved[place]
        if isinstance(event, StatusChanged):
            moved[place] = replace(event, timestamp=timestamp(status_ms))
            break
    return tuple(moved)
