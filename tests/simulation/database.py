"""A database in memory, as the replicas of a simulation share it: rows, logs, dedupe keys, replicas and the outbox.

Each write is committed at once and shown to readers a little later; whoever wrote it hears of it later still. So a
reader may see the state before a write that is durable already.

Invariant: what `dragoman.store.api` says of a store holds for every write, whoever makes it, since there is one guard.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import ArtifactChunk, Event, Logged, MessageReceived, Submitted
from dragoman.model.lifecycle import fold
from dragoman.model.message import Message
from dragoman.model.parts import beginning
from dragoman.model.task import INTERRUPTED, STATES, TERMINAL, Record, TaskHead, TaskState
from dragoman.store.api import (
    ASIDE,
    ASLEEP,
    BEGIN_MS,
    NO_REPLICAS,
    Append,
    Appended,
    Dedupe,
    Exists,
    Fenced,
    HolderRow,
    Listed,
    ListedRows,
    ListOrder,
    ListQuery,
    Moved,
    NewTask,
    OverQuota,
    Quota,
    Refused,
    Repeat,
    Stored,
    StoreError,
    TaskRow,
    Unknown,
    covers,
    owner_range,
)
from dragoman.store.budgets import Charge, charge_task
from dragoman.store.guard import expect_seq, refusal
from dragoman.store.local_state import LocalState
from dragoman.store.members import TeamMembers
from dragoman.store.outbox import Lane
from dragoman.store.quotas import Room, bounds
from dragoman.store.replicas import Replica
from dragoman.store.shared import SharedEntry
from dragoman.store.state import StateGuard, StateScope, StateWrite
from dragoman.store.state_plan import check_scope
from dragoman.store.usage import DAY_MS, AnswerUsage
from dragoman.store.worker_leases import WORKER, LeaseFault, LeaseTable, WorkerLease
from tests.simulation.outbox import OutboxRows, Webhook

EVENT_BYTES = 3_000
"""The size of an event in the log. It is more than events have, so that snapshots are written early."""

MISSED_MAX = 3
"""How many events the writer of a worker's single word is given that it has not read. It reads more of them itself."""

FOR_EVER_MS = 1 << 60

UNTIL_THEN = frozenset({ASLEEP, ASIDE})
"""The holders of tasks that nobody has until a time."""


class Page(Struct, gc=False):
    """The events of one write: its id, who made it, and the epoch of the row after it. `run` is the epoch of a run."""

    first: int
    last: int
    write: int | None
    epoch: int
    by: str
    run: int | None


class Row(Struct):
    """One version of a task's row. `log` and `pages` are shared by all versions, which show as much as their `seq`.

    `bare` is the last write without events, with the seq and the epoch after it.

    The version is shown from `shown_s` on; until then readers see the one `before`.
    """

    number: int
    head: TaskHead
    log: list[Logged]
    pages: list[Page]
    seq: int
    epoch: int
    state: TaskState
    status_ms: int
    holder: str | None
    cancel: bool = False
    snapshot: Record | None = None
    log_bytes: int = 0
    keeper: str | None = None
    offered_until_ms: int | None = None
    webhooks_version: int = 0
    pushed: bool = False
    delivered: int = 0
    bare: tuple[int | None, int, int] | None = None
    pruned: bool = False
    """Whether its log is deleted, for readers. The checks still have it."""
    shown_s: float = 0.0
    before: "Row | None" = None


class ReplicaRow(Struct):
    """A replica: alive until `until_ms`, unless it was declared dead."""

    id: str
    address: str
    agents: tuple[str, ...]
    started_ms: int
    until_ms: int
    dead: bool = False


class SharedRow(Struct):
    """An entry that all replicas see until it expires."""

    value: bytes
    version: int
    until_ms: int


class Account(Struct):
    """An account of a budget: what was claimed of it by all tasks, and what is used and reserved."""

    claimed: int = 0
    used: int = 0
    reserved: int = 0


class Moment(Struct):
    """Everything that was committed until a moment."""

    rows: dict[str, Row]
    replicas: dict[str, ReplicaRow]
    agents_seen_ms: dict[str, int]
    calls: dict[bytes, tuple[Repeat, int, float]]
    days: dict[tuple[int, str], int]
    accounts: dict[str, Account]
    shared: dict[str, SharedRow]
    leases: LeaseTable
    state: LocalState
    numbers: int
    outbox: tuple[dict[tuple[str, str], Webhook], dict[str, Lane]]


class Witness(Protocol):
    """Hears of everything that is committed, in that order."""

    def committed(
        self, by: str, row: Row, events: Sequence[Event], run: int | None, token: str | None, runs: bool
    ) -> None:
        """Events were added to a task's log. `run` is the epoch that guarded the write of a run, or of a worker.

        A worker has the lease `token`, and `runs` says whether that has not run out.
        """
        ...

    def leased(self, by: str, row: Row, before: str | None, before_alive: bool, offered: bool) -> None:
        """The task has a new epoch. `before` held it last; `offered` says that it had not accepted an offer in time."""
        ...

    def held(self, row: Row) -> None:
        """The lease of the task has changed: who has it, or whether that is an offer."""
        ...

    def granted(self, task_id: str, worker: str) -> None:
        """A worker is given a lease of the task. It has not heard of it yet."""
        ...

    def remembered(self, by: str, task_id: str, epoch: int) -> None:
        """The state of an agent was written by a run, under an epoch."""
        ...

    def beat(self, replica: ReplicaRow, was_alive: bool) -> None:
        """A replica joined, or renewed its heartbeat."""
        ...

    def renewed(self, token: str, ran: bool) -> None:
        """A worker's lease was renewed, which `ran` until then, or had run out."""
        ...

    def gone(self, replica_id: str) -> None:
        """A replica was declared dead."""
        ...

    def swept(self, row: Row) -> None:
        """A task was deleted."""
        ...

    def rewound(self, rows: Mapping[str, Row]) -> None:
        """What was committed last is lost. These are the rows that are left, as they are now."""
        ...


class Guard:
    """The rules that a mutation can break."""

    ignores_epoch = False
    claims_from_the_living = False
    renews_the_expired = False
    keeps_offers_for_ever = False
    wakes_early = False
    forgets_sleepers = False
    takes_over_in_the_same_epoch = False
    ignores_changed_webhooks = False
    sweeps_what_is_open = False
    ignores_the_end_of_leases = False
    takes_words_of_earlier_leases = False
    claims_what_readers_see = False
    owes_before_the_commit = False
    writes_state_under_old_epochs = False


class Database:
    """All rows. `now_s` is the time of the loop, `now_ms` that of the database's clock.

    `lag_s` says how long a commit stays unseen. A replica that joins for `lease_ms` (None: for ever) must beat.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        now_ms: Callable[[], int],
        *,
        lag_s: Callable[[], float] = lambda: 0.0,
        lease_ms: int | None = None,
        witness: Witness | None = None,
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.replicas: dict[str, ReplicaRow] = {}
        self._agents_seen_ms: dict[str, int] = {}
        """When agents were last served that a replica serves no longer."""
        self.guard = Guard()
        self.now_s = now_s
        self.now_ms = now_ms
        self.lease_ms = lease_ms
        self.outbox = OutboxRows(self)
        self.state = LocalState(self, self._check_state)
        self.seen_s = 0.0
        """When readers see the last write."""
        self._witness = witness
        self._lag_s = lag_s
        self._calls: dict[bytes, tuple[Repeat, int, float]] = {}
        self._days: dict[tuple[int, str], int] = {}
        self.accounts: dict[str, Account] = {}
        self._shared: dict[str, SharedRow] = {}
        self.leases = LeaseTable(now_s)
        """The leases of workers."""
        self._numbers = 0

    # -- a standby that takes over -------------------------------------------------------------------------------------

    def moment(self) -> Moment:
        """Everything as it stands: a standby that receives nothing more has this."""
        rows = {row.head.id: copy(row) for row in self.rows.values()}
        for row in rows.values():
            row.log, row.pages, row.before = row.log[: row.seq], list(row.pages), None
        return Moment(
            rows=rows,
            replicas={name: copy(row) for name, row in self.replicas.items()},
            agents_seen_ms=dict(self._agents_seen_ms),
            calls=dict(self._calls),
            days=dict(self._days),
            accounts={name: copy(account) for name, account in self.accounts.items()},
            shared={key: copy(row) for key, row in self._shared.items()},
            leases=self.leases.copy(),
            state=self.state.copy(),
            numbers=self._numbers,
            outbox=self.outbox.moment(),
        )

    def go_back(self, moment: Moment) -> None:
        """Go on from a moment: what was committed after it is lost."""
        self.rows, self.replicas, self._agents_seen_ms = moment.rows, moment.replicas, moment.agents_seen_ms
        self._calls, self._days, self._shared = moment.calls, moment.days, moment.shared
        self.accounts = moment.accounts
        self.leases, self.state, self._numbers = moment.leases, moment.state, moment.numbers
        self.outbox.go_back(moment.outbox)
        if self._witness is not None:
            self._witness.rewound(self.rows)

    # -- writes --------------------------------------------------------------------------------------------------------

    def create(self, by: str, new: NewTask) -> Appended | Repeat | Refused:
        """As `Store.create`; a refusal is returned."""
        now_ms, head, dedupe = self.now_ms(), new.head, new.dedupe
        self._await_others(self.rows.get(head.id), dedupe)
        if dedupe is not None and (known := self._known(dedupe)) is not None:
            return self._first(new.write, head.id, 0) or known
        if (refused := self._over(head.owner, new.quota)) is not None:
            return self._first(new.write, head.id, 0) or refused
        if head.id in self.rows:
            return self._first(new.write, head.id, 0) or Exists(head.id)
        row = Row(
            number=len(self.rows),
            head=head,
            log=[],
            pages=[],
            seq=0,
            epoch=int(new.holder is not None),
            state=new.state,
            status_ms=new.status_ms,
            holder=None if new.state in TERMINAL else new.holder,
        )
        self._add(by, row, new.events, new.write, None)
        for bound in bounds(head.owner, new.quota):
            if bound.daily_tasks:
                day = (bound.day, owner_range(bound.of)[0])
                self._days[day] = self._days.get(day, 0) + 1
        for claim in new.claims:
            account = self.accounts.setdefault(claim.account, Account())
            account.claimed += claim.amount
            account.reserved += claim.amount
        if new.push is not None:
            row.pushed = True
            row.webhooks_version = 1
            self.outbox.keep(head.id, new.push)
        self.outbox.owe(head.id, new.deliveries, now_ms)
        self._show(row)
        if dedupe is not None:
            self._calls[dedupe.key] = (Repeat(head.id, dedupe.digest, row.seq), dedupe.expires_ms, row.shown_s)
        return Appended(row.seq, row.epoch, EVENT_BYTES * len(new.events))

    def append(self, by: str, append: Append, *, outdated: bool = False) -> Appended | Repeat | Refused:
        """As `Store.append`; a refusal is returned."""
        dedupe, before = append.dedupe, self.rows.get(append.task_id)
        self._await_others(before, dedupe)
        if dedupe is not None and (known := self._known(dedupe)) is not None:
            return self._first(append.write, append.task_id, append.read_seq) or known
        if before is None:
            return Unknown(append.task_id)
        if (first := self._first(append.write, append.task_id, append.read_seq)) is not None:
            return first
        if self.guard.owes_before_the_commit:
            self.outbox.owe(append.task_id, append.deliveries, self.now_ms())
        if (refused := self._refusal(before, append)) is not None:
            return refused
        if outdated:
            return Moved("read in another history")
        resumes = append.to_worker and append.holder is None and self.leases.runs(append.task_id)
        if resumes:
            append = replace(append, holder=WORKER)
        now_ms, row = self.now_ms(), copy(before)
        ends_lease = append.state in TERMINAL or (append.release and append.holder is None)
        leases = append.holder is not None
        row.epoch += leases and not (self.guard.takes_over_in_the_same_epoch and not append.events)
        row.state, row.status_ms = append.state, max(before.status_ms, append.status_ms)
        row.holder = None if ends_lease else append.holder or before.holder
        if ends_lease:
            row.keeper = append.keeper
        if leases or ends_lease or append.epoch is not None:
            row.offered_until_ms = append.wakes_ms if append.offered_ms is None else now_ms + append.offered_ms
        change = append.lease
        token = None if change is None or change.granted_ms is not None or change.silent else change.lease.token
        missed: tuple[Logged, ...] = ()
        if change is not None and change.number is not None and row.seq - append.read_seq <= MISSED_MAX:
            missed = tuple(Logged(each.seq, each.event, each.size) for each in row.log if each.seq > append.read_seq)
        held = self.leases.get(append.task_id)
        runs = held is not None and held.runs and held.lease.token == token
        self._add(by, row, append.events, append.write, append.epoch, token, runs=runs)
        if append.lease is not None:
            if append.lease.granted_ms is not None:
                row.delivered += 1
                if self._witness is not None:
                    self._witness.granted(append.task_id, append.lease.lease.worker)
            self.leases.change(append.lease, asks=append.state in INTERRUPTED)
        elif resumes:
            self.leases.resume(append.task_id)
        elif append.state in INTERRUPTED:
            self.leases.pause(append.task_id)
        if append.state in TERMINAL:
            self.leases.end(append.task_id)
        self._charge(append.charges)
        if leases:
            self._lease(by, row, before)
        if not append.events:
            row.bare = (append.write, row.seq, row.epoch)
        if append.snapshot is not None:
            row.snapshot = append.snapshot
        if append.push is not None:
            row.pushed = True
            row.webhooks_version += 1
            self.outbox.keep(append.task_id, append.push)
        if not self.guard.owes_before_the_commit:
            self.outbox.owe(append.task_id, append.deliveries, now_ms)
        self._show(row)
        if dedupe is not None:
            self._calls[dedupe.key] = (Repeat(append.task_id, dedupe.digest, row.seq), dedupe.expires_ms, row.shown_s)
        written = Appended(row.seq, row.epoch, EVENT_BYTES * len(append.events))
        if not missed:
            return written
        since = 0 if row.snapshot is None else row.snapshot.seq
        return replace(written, missed=missed, log_bytes_since=EVENT_BYTES * (row.seq - since))

    def _await_others(self, row: Row | None, dedupe: Dedupe | None) -> None:
        """A write waits for those before it: its outcome is known only when readers see what it met."""
        if row is not None:
            self.seen_s = max(self.seen_s, row.shown_s)
        if dedupe is not None and (found := self._calls.get(dedupe.key)) is not None:
            self.seen_s = max(self.seen_s, found[2])

    def _refusal(self, row: Row, append: Append) -> Refused | None:
        """As the product decides, upon a row that nobody else changes meanwhile: the checks know no guard."""
        guard, change, leases = self.guard, append.lease, self.leases
        if guard.takes_words_of_earlier_leases and change is not None and change.is_word and row.state not in TERMINAL:
            return None
        fault = None if change is None else leases.fault(change)
        if guard.ignores_the_end_of_leases and change is not None and fault is LeaseFault.OVER:
            known = leases.rows.get(append.task_id)
            fault = None if known is not None and known.lease.token == change.lease.token else LeaseFault.CHANGED
        asked = replace(append, epoch=None) if guard.ignores_epoch else append
        try:
            expected = expect_seq(append)
        except Moved as moved:
            return moved
        version = None if guard.ignores_changed_webhooks else row.webhooks_version
        standing = STATES.index(row.state), row.seq, row.epoch, row.holder is not None, row.status_ms
        return refusal(asked, expected, *standing, webhooks_version=version, fault=fault)

    def _first(self, write: int | None, task_id: str, after: int) -> Appended | None:
        """The result of a write that was made before."""
        row = self.rows.get(task_id)
        if row is None or write is None:
            return None
        if row.bare is not None and row.bare[0] == write:
            return Appended(row.bare[1], row.bare[2], 0)
        for page in reversed(row.pages):
            if page.first <= after:
                break
            if page.write == write:
                return Appended(page.last, page.epoch, EVENT_BYTES * (page.last - page.first + 1))
        return None

    def _add(
        self,
        by: str,
        row: Row,
        events: Sequence[Event],
        write: int | None,
        run: int | None,
        token: str | None = None,
        *,
        runs: bool = False,
    ) -> None:
        first = row.seq + 1
        for seq, event in enumerate(events, first):
            row.log.append(Logged(seq, event, EVENT_BYTES))
        row.seq += len(events)
        row.log_bytes += EVENT_BYTES * len(events)
        if events:
            row.pages.append(Page(first, row.seq, write, row.epoch, by, run))
            if self._witness is not None:
                self._witness.committed(by, row, events, run, token, runs)

    def _lease(self, by: str, row: Row, before: Row) -> None:
        if self._witness is not None:
            offered = before.offered_until_ms is not None and before.offered_until_ms <= self.now_ms()
            alive = before.holder is not None and self.is_alive(before.holder)
            if before.holder in UNTIL_THEN:  # until its time comes, or a message
                alive = not any(isinstance(each.event, MessageReceived) for each in row.log[before.seq : row.seq])
            self._witness.leased(by, row, before.holder, alive, offered)

    def _show(self, row: Row) -> None:
        """Make a row the newest version of its task."""
        row.before = self.rows.get(row.head.id)
        row.shown_s = self.now_s() + self._lag_s()
        if row.before is not None:
            row.shown_s = max(row.shown_s, row.before.shown_s)
            if row.before.shown_s <= self.now_s():
                row.before.before = None
        self.rows[row.head.id] = row
        self.seen_s = max(self.seen_s, row.shown_s)
        if self._witness is not None and (row.before is None or _lease(row) != _lease(row.before)):
            self._witness.held(row)

    @property
    def held(self) -> bool:
        """Whether somebody has a task that has not ended, or one is asleep."""
        return any(row.holder is not None and row.state not in TERMINAL for row in self.rows.values())

    def change(self, task_id: str, **fields: object) -> None:
        """Change fields of a row that need no event."""
        row = copy(self.rows[task_id])
        for name, value in fields.items():
            setattr(row, name, value)
        self._show(row)

    def request_cancel(self, task_id: str) -> None:
        """As the protocol says."""
        row = self.rows.get(task_id)
        if row is not None and row.state not in TERMINAL and not row.cancel:
            self.change(task_id, cancel=True)

    def remember(self, dedupe: Dedupe, answer: Message, usage: AnswerUsage | None = None) -> Repeat | None:
        """As the protocol says."""
        if (known := self._known(dedupe)) is None:
            self._calls[dedupe.key] = (Repeat(None, dedupe.digest, 0, answer), dedupe.expires_ms, self.now_s())
        return known

    def _known(self, dedupe: Dedupe) -> Repeat | None:
        found = self._calls.get(dedupe.key)
        if found is None or found[1] <= self.now_ms() or found[0].task_id == (dedupe.instead_of or ""):
            return None
        return found[0]

    def _over(self, owner: str, quota: Quota | None) -> OverQuota | None:
        def open_tasks(whose: str | TeamMembers) -> int:
            return sum(covers(whose, row.head.owner) and row.state not in TERMINAL for row in self.rows.values())

        def day_tasks(of: tuple[int, str | TeamMembers]) -> int:
            return self._days.get((of[0], owner_range(of[1])[0]), 0)

        return Room(open_tasks, day_tasks).refusal(owner, quota)

    def write_state(self, by: str, write: StateWrite) -> int | Refused:
        """As `StateStore.write_entries`; a refusal is returned."""
        try:
            version = self.state.make_write(write)
        except Refused as refused:
            return refused
        if self._witness is not None and write.guard is not None:
            self._witness.remembered(by, write.guard.task_id, write.guard.epoch)
        return version

    def _check_state(self, guard: StateGuard, scope: StateScope) -> None:
        row = self.rows.get(guard.task_id)
        held = row is not None and (row.holder is not None or row.state in INTERRUPTED) and row.state not in TERMINAL
        held = held and (guard.token is None or bool(self.leases.running([(guard.task_id, guard.token)])))
        if row is None or not ((held and row.epoch == guard.epoch) or self.guard.writes_state_under_old_epochs):
            raise Fenced(guard.task_id)
        check_scope(scope, row.head.agent, row.head.owner, row.head.context_id)

    def _forget_state(self, gone: Row) -> None:
        """Forget the acts of a task that is gone, and the state of its conversation if that has no others."""
        conversation = gone.head.agent, gone.head.owner, gone.head.context_id
        self.state.forget_task(gone.head.id)
        left = ((row.head.agent, row.head.owner, row.head.context_id) for row in self.rows.values())
        if conversation not in left:
            self.state.end_conversation(*conversation)

    def _charge(self, charges: Iterable[Charge]) -> None:
        for charge in charges:
            account = self.accounts[charge.account]
            account.reserved -= charge.released
            account.used += charge.used

    def sweep(self, now_ms: int, task_age_ms: int, log_age_ms: int, waiting_age_ms: int) -> int:
        """As the protocol says, all at once. A row whose last version is not shown yet is locked, and left out."""
        deleted, now_s = 0, self.now_s()
        for task_id, row in tuple(self.rows.items()):
            ended = row.state in TERMINAL or self.guard.sweeps_what_is_open
            waits = row.state in INTERRUPTED and row.holder is None
            parent = None if row.head.parent is None or row.head.detached else self.rows.get(row.head.parent)
            if row.shown_s > now_s or (parent is not None and parent.state not in TERMINAL):
                continue
            if _expired(row, now_ms, task_age_ms, ended) or _expired(row, now_ms, waiting_age_ms, waits):
                del self.rows[task_id]
                self.outbox.sweep(task_id)
                self._forget_state(row)
                if row.state not in TERMINAL:
                    self._charge(charge_task(row.head.reservations, row.head.agent, {}))
                deleted += 1
                if self._witness is not None:
                    self._witness.swept(row)
            elif _expired(row, now_ms, log_age_ms, row.state in TERMINAL) and not row.pruned:
                self.change(task_id, pruned=True, snapshot=self.record(task_id))
                deleted += 1
        expired = [key for key, (_, until_ms, _) in self._calls.items() if until_ms <= now_ms]
        past = [key for key in self._days if key[0] < now_ms // DAY_MS - 1]
        for call in expired:
            del self._calls[call]
        for day in past:
            del self._days[day]
        return deleted + len(expired) + len(past)

    def renew_leases(self, tokens: Collection[tuple[str, str]], ttl_ms: int) -> Mapping[str, WorkerLease]:
        """As `WorkerLeases.renew`."""
        run = {token for task_id, token in tokens if self.leases.runs(task_id)}
        renewed = self.leases.renew(tokens, ttl_ms)
        if self._witness is not None:
            for token in renewed:
                self._witness.renewed(token, token in run)
        return renewed

    # -- entries that expire -------------------------------------------------------------------------------------------

    def entry(self, key: str) -> SharedEntry | None:
        """As `Shared.get`."""
        row, now_ms = self._shared.get(key), self.now_ms()
        if row is None or row.until_ms <= now_ms:
            return None
        return SharedEntry(key, row.value, row.version, row.until_ms - now_ms)

    def entries(self, prefix: str) -> tuple[SharedEntry, ...]:
        """As `Shared.scan`."""
        found = [self.entry(key) for key in sorted(self._shared) if key.startswith(prefix)]
        return tuple([entry for entry in found if entry is not None])

    def put_entry(self, key: str, value: bytes, ttl_ms: int, version: int | None) -> int | None:
        """As `Shared.put`."""
        known = self.entry(key)
        before = 0 if known is None else known.version
        if version is not None and version != before:
            return None
        self._numbers += 1
        self._shared[key] = SharedRow(value, self._numbers, self.now_ms() + ttl_ms)
        return self._numbers

    def renew_entries(self, keys: Collection[str], ttl_ms: int) -> frozenset[str]:
        """As `Shared.renew`."""
        alive = [key for key in keys if self.entry(key) is not None]
        for key in alive:
            self._shared[key].until_ms = max(self._shared[key].until_ms, self.now_ms() + ttl_ms)
        return frozenset(alive)

    def delete_entry(self, key: str, version: int | None) -> bool:
        """As `Shared.delete`."""
        known = self.entry(key)
        if known is None or version not in (None, known.version):
            return False
        del self._shared[key]
        return True

    # -- replicas ------------------------------------------------------------------------------------------------------

    def join(self, replica_id: str, address: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        now_ms, known = self.now_ms(), self.replicas.get(replica_id)
        if known is not None and not self.is_alive(replica_id):
            raise StoreError(f"replica {replica_id} is dead")
        until = FOR_EVER_MS if self.lease_ms is None else now_ms + self.lease_ms
        started_ms = now_ms if known is None else known.started_ms
        self.replicas[replica_id] = ReplicaRow(replica_id, address, tuple(sorted(agents)), started_ms, until)
        if self._witness is not None:
            self._witness.beat(self.replicas[replica_id], True)

    def beat(self, replica_id: str) -> bool:
        """Renew a heartbeat. Returns False if that came too late."""
        row = self.replicas.get(replica_id)
        if row is None:
            return False
        alive = self.is_alive(replica_id)
        if not alive and not self.guard.renews_the_expired:
            return False
        row.dead = False
        row.until_ms = self.now_ms() + (self.lease_ms or FOR_EVER_MS)
        if self._witness is not None:
            self._witness.beat(row, alive)
        return True

    def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        if self.is_alive(replica_id):
            for agent in set(self.replicas[replica_id].agents) - set(agents):
                self._agents_seen_ms[agent] = self.now_ms()
            self.replicas[replica_id].agents = tuple(sorted(agents))

    def leave(self, replica_id: str) -> None:
        """As the protocol says."""
        if (row := self.replicas.get(replica_id)) is not None and not row.dead:
            row.dead = True
            if self._witness is not None:
                self._witness.gone(replica_id)

    def is_alive(self, replica_id: str) -> bool:
        """As the protocol says."""
        row = self.replicas.get(replica_id)
        return row is not None and not row.dead and row.until_ms > self.now_ms()

    def living(self) -> tuple[Replica, ...]:
        """As `Replicas.all`."""
        return tuple(
            Replica(
                id=row.id,
                address=row.address,
                agents=row.agents,
                started_ms=row.started_ms,
                beats_until_ms=None if self.lease_ms is None else row.until_ms,
            )
            for row in self.replicas.values()
            if self.is_alive(row.id)
        )

    def served_since(self, since_ms: float) -> set[str]:
        """The agents that somebody served at a time or later."""
        recent = [replica for replica in self.replicas.values() if replica.until_ms > since_ms]
        served = {agent for replica in recent for agent in replica.agents}
        return served | {agent for agent, seen_ms in self._agents_seen_ms.items() if seen_ms > since_ms}

    def served_of_late(self, within_s: float) -> frozenset[str]:
        """As the protocol says."""
        return frozenset(self.served_since(self.now_ms() - within_s * 1000))

    def claim(
        self,
        by: str,
        holder: str,
        limit: int,
        agents: Collection[str] | None,
        absent_s: float,
        queued: bool,
        woken: bool = False,
    ) -> tuple[Stored, ...]:
        """As the protocol says. A row whose last version is not shown yet is locked, and left out."""
        if not self.is_alive(holder):
            raise StoreError(f"{holder} has not joined")
        now_ms, now_s = self.now_ms(), self.now_s()
        for replica in self.replicas.values():
            if not replica.dead and replica.until_ms <= now_ms:
                self.leave(replica.id)
        since_ms = now_ms - absent_s * 1000
        served = self.served_since(since_ms)
        settled = min(replica.started_ms for replica in self.living()) <= since_ms
        claimed: list[Stored] = []
        rows = self.rows.values()
        if woken:
            rows = sorted((row for row in rows if row.holder in UNTIL_THEN), key=lambda row: row.offered_until_ms or 0)
        for row in tuple(rows):
            if len(claimed) == limit:
                break
            if row.shown_s > now_s:
                shown = self.shown(row.head.id) if self.guard.claims_what_readers_see else None
                if shown is None:
                    continue
                row = shown
            if row.state in TERMINAL or (row.state in INTERRUPTED and row.holder is None):
                continue
            lapsed = row.offered_until_ms is not None and row.offered_until_ms <= now_ms
            if self.guard.keeps_offers_for_ever:
                lapsed = False
            if row.holder in UNTIL_THEN and (self.guard.wakes_early or self.guard.forgets_sleepers):
                lapsed = self.guard.wakes_early
            free = (row.holder is None and queued) or lapsed
            free = free or (row.holder is not None and row.holder not in NO_REPLICAS and not self.is_alive(row.holder))
            if woken and row.holder not in UNTIL_THEN:
                free = False
            if self.guard.claims_from_the_living and row.holder != holder:
                free = True
            if agents is None:
                wanted = settled and row.head.agent not in served and row.status_ms <= since_ms
            else:
                wanted = row.head.agent in agents
            if not (free and wanted):
                continue
            anew, fresh = copy(row), row.holder is None or row.offered_until_ms is not None
            anew.holder, anew.epoch = holder, row.epoch + 1
            anew.offered_until_ms = now_ms + BEGIN_MS if fresh else None
            self._lease(by, anew, row)
            self._show(anew)
            claimed.append(self._stored(anew))
        return tuple(claimed)

    # -- reads ---------------------------------------------------------------------------------------------------------

    def shown(self, task_id: str) -> Row | None:
        """The version of a row that readers see."""
        row, now_s = self.rows.get(task_id), self.now_s()
        while row is not None and row.shown_s > now_s:
            row = row.before
        return row

    def _all_shown(self) -> Iterable[Row]:
        for task_id in self.rows:
            row = self.shown(task_id)
            if row is not None:
                yield row

    def _stored(self, row: Row) -> Stored:
        after = 0 if row.snapshot is None else row.snapshot.seq
        return Stored(
            head=row.head,
            seq=row.seq,
            epoch=row.epoch,
            state=row.state,
            status_ms=row.status_ms,
            holder=row.holder,
            cancel_requested=row.cancel,
            snapshot=row.snapshot,
            events=tuple(row.log[after : row.seq]),
            snapshot_bytes=EVENT_BYTES if row.snapshot is not None else 0,
            log_bytes_since=EVENT_BYTES * (row.seq - after),
            pushed=row.pushed,
            keeper=row.keeper,
            offered_until_ms=row.offered_until_ms,
            webhooks_version=row.webhooks_version,
            delivered=row.delivered,
        )

    def load(self, task_id: str) -> Stored | None:
        """As the protocol says."""
        row = self.shown(task_id)
        return None if row is None else self._stored(row)

    def newest(self, task_id: str) -> Stored | None:
        """As `load`, of the newest version, for one who has locked the row."""
        row = self.rows.get(task_id)
        return None if row is None else self._stored(row)

    def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        """As the protocol says."""
        row = self.shown(task_id)
        return None if row is None else (row.head, row.seq, row.state)

    def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        """As the protocol says."""
        row = self.shown(task_id)
        if row is None or row.pruned:
            return ()
        return tuple(row.log[after : min(row.seq, after + max(1, -(-limit_bytes // EVENT_BYTES)))])

    def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> dict[str, tuple[Logged, ...]]:
        """As the protocol says."""
        found: dict[str, tuple[Logged, ...]] = {}
        for task_id, after in seen:
            if limit_bytes <= 0:
                break
            row = self.shown(task_id)
            if row is not None and row.seq > after and not row.pruned:
                found[task_id] = self.read(task_id, after, limit_bytes)
                limit_bytes -= EVENT_BYTES * len(found[task_id])
        return found

    def recall(self, key: bytes) -> Repeat | None:
        """As the protocol says."""
        found = self._calls.get(key)
        if found is None or found[1] <= self.now_ms() or found[2] > self.now_s():
            return None
        return found[0]

    def messages(self, owner: str, agent: str, context_id: str, limit: int) -> tuple[Stored, ...]:
        """As the protocol says."""
        found = [
            self._stored(row)
            for row in self._all_shown()
            if (row.head.owner, row.head.agent, row.head.context_id) == (owner, agent, context_id)
        ]
        return tuple(found[-limit:])

    def list(self, query: ListQuery) -> Listed:
        """As the protocol says."""
        rows = [
            row
            for row in self._all_shown()
            if query.agent in (None, row.head.agent)
            and covers(query.owner, row.head.owner)
            and (query.context_id is None or row.head.context_id == query.context_id)
            and (query.state is None or row.state is query.state)
            and (query.status_after_ms is None or row.status_ms >= query.status_after_ms)
        ]
        assert query.order is ListOrder.NEWEST_CHANGED, "no simulation lists in another order"
        rows.sort(key=lambda row: (row.status_ms, row.head.id), reverse=True)
        before = query.before
        page = [row for row in rows if before is None or (row.status_ms, row.head.id) < before][query.offset :]
        taken = page[: query.limit]
        tasks = tuple([self._stored(row) for row in taken])
        if not query.artifacts:
            tasks = tuple([_without_chunks(stored) for stored in tasks])
        return Listed(tasks, len(rows), len(page) > len(taken))

    def list_rows(self, query: ListQuery) -> ListedRows:
        """As the protocol says."""
        listed = self.list(query)
        return ListedRows(tuple(map(self._task_row, listed.tasks)), listed.total, listed.more)

    def _task_row(self, stored: Stored) -> TaskRow:
        first = self.rows[stored.head.id].log[0].event
        return TaskRow(
            head=stored.head,
            state=stored.state,
            status_ms=stored.status_ms,
            holder=stored.holder,
            cancel_requested=stored.cancel_requested,
            text=beginning(first.message.parts) if isinstance(first, Submitted) else "",
        )

    def missing(self, task_ids: Collection[str]) -> frozenset[str]:
        """As the protocol says."""
        return frozenset(task_ids) - {row.head.id for row in self._all_shown()}

    def queued(self, agent: str, limit: int) -> tuple[str, ...]:
        """As the protocol says."""
        rows = [row for row in self._all_shown() if row.head.agent == agent and row.holder is None]
        waiting = [row.head.id for row in rows if row.state not in TERMINAL | INTERRUPTED]
        return tuple(waiting[:limit])

    def next_wake(self, after_ms: int) -> int | None:
        """As the protocol says."""
        sleeping = (row.offered_until_ms or 0 for row in self._all_shown() if row.holder in UNTIL_THEN)
        return min((wakes_ms for wakes_ms in sleeping if wakes_ms > after_ms), default=None)

    def leased(self, holder: str, *, offered: bool) -> tuple[str, ...]:
        """As the protocol says."""
        return tuple(
            row.head.id
            for row in self._all_shown()
            if row.holder == holder and (not offered or row.offered_until_ms is not None)
        )

    def leased_of(self, agents: Collection[str], limit: int) -> tuple[HolderRow, ...]:
        """As the protocol says."""
        held = (
            HolderRow(row.head.id, row.head.agent, row.holder)
            for row in self._all_shown()
            if row.head.agent in agents and row.holder not in (None, ASLEEP, ASIDE) and row.state not in TERMINAL
        )
        return tuple(islice(held, limit))

    def cancels(self, holder: str) -> tuple[str, ...]:
        """As the protocol says."""
        return tuple(row.head.id for row in self._all_shown() if row.cancel and row.holder == holder)

    def heads(self, wanted: Callable[[Row], bool]) -> tuple[TaskHead, ...]:
        """The heads of delegated tasks, not detached, that have not ended and of which `wanted` is true."""
        return tuple(
            row.head
            for row in self._all_shown()
            if row.head.parent is not None and not row.head.detached and row.state not in TERMINAL and wanted(row)
        )

    def orphaned(self, row: Row) -> bool:
        """Whether the task's parent has ended or is gone."""
        parent = self.shown(row.head.parent or "")
        return parent is None or parent.state in TERMINAL

    def record(self, task_id: str) -> Record:
        """A task as it stands in the end, folded from its whole log."""
        row = self.rows[task_id]
        return fold(row.head, None, row.log[: row.seq])


def _expired(row: Row, now_ms: int, age_ms: int, may: bool) -> bool:
    return may and age_ms >= 0 and row.status_ms < now_ms - age_ms


def _lease(row: Row) -> tuple[object, ...]:
    """The parts of a row that say who works on the task."""
    return row.holder, row.epoch, row.offered_until_ms is not None, row.state in TERMINAL, row.state in INTERRUPTED


def _without_chunks(stored: Stored) -> Stored:
    """The task without the events that write artifacts."""
    return replace(stored, events=tuple([each for each in stored.events if not isinstance(each.event, ArtifactChunk)]))
