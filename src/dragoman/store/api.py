"""The Store protocol: task rows, logs, snapshots, calls, outbox, receipts, keys, audit trail, state, shared entries,
operators' records.

Invariant: the state, log and lease of a task change together in one transaction, or not at all. A write that has
returned survives a power loss. Every driver passes the cases of `tests/store/cases`.
"""

from asyncio import Future
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol

from msgspec import Struct

from dragoman.model.events import Event, Logged
from dragoman.model.ids import Clock
from dragoman.model.message import Message
from dragoman.model.principal import team_of
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.audit import AuditTrail
from dragoman.store.budgets import BudgetBook, BudgetClaim, Charge
from dragoman.store.figures import StoreFigures
from dragoman.store.keyring import KeyRing
from dragoman.store.members import TeamMembers
from dragoman.store.operator_records import OperatorRecords
from dragoman.store.outage import WriteRecord
from dragoman.store.outbox import Delivery, Outbox, Registration
from dragoman.store.principals import PrincipalRows
from dragoman.store.receipts import Receipts
from dragoman.store.replicas import Replicas
from dragoman.store.shared import Shared
from dragoman.store.state import StateStore
from dragoman.store.team_rows import TeamRows
from dragoman.store.usage import AnswerUsage, UsageBook
from dragoman.store.worker_leases import WORKER, WorkerLeaseChange, WorkerLeases

BEGIN_MS = 10_000
"""How long a replica may take for its first write after it claims a task that nobody has begun. After that, others may
claim the task."""

ASLEEP = "asleep"
"""The holder of a task that sleeps. It is no replica, and always alive: its lease is an offer that runs out when the
task wakes. Then anybody may claim the task."""

ASIDE = "aside"
"""The same for a task that is put aside because nobody has the code that it began with, until it is looked at again."""

NO_REPLICAS = frozenset({WORKER, ASLEEP, ASIDE})
"""The holders that are no replicas."""

AGENT_ABSENT_S = 300.0
"""How long the tasks of an agent wait that no replica serves, unless a setting says otherwise: replicas with different
agents may restart at the same moment, and an update may take some minutes."""


class StoreError(Exception):
    """The store cannot do it now: the disk is full, the file is gone, the connection is lost. Nothing was written."""

    reason = "its disk reports an error"
    """The cause in words that anybody may read: no path and no driver message."""


class StoreFull(StoreError):
    """There is no space left to write. Reads go on; writes work again when there is space."""

    reason = "its disk is full"


class StoreReadOnly(StoreError):
    """This user may not write the file, or its disk is mounted read-only."""

    reason = "its file may not be written"


class StoreUnreachable(StoreError):
    """The database does not answer, or takes no connection now. It may be back at any time."""

    reason = "its database cannot be reached"


class StoreStandby(StoreError):
    """The database takes no writes: it is a standby, or was made read-only for a while. Reads may go on."""

    reason = "its database takes no writes"


class OutcomeUnknown(Exception):
    """The connection was lost during a commit, so that the write may have been made or not. SQLite never raises it.

    A repetition of the write under the same id returns what became of it, and does not make it twice.
    """


class Refused(Exception):
    """The base of the errors that refuse a write. None of it was written; other writes in its batch are unaffected."""


class Unknown(Refused):
    """There is no such task."""


class Exists(Refused):
    """There is a task with this id already, written by somebody else."""


class TaskEnded(Refused):
    """The task is terminal: its log takes no further event (invariant 4)."""


class Fenced(Refused):
    """The run's epoch is no longer the task's: another run, or nobody, may write now (invariant 5)."""


class Moved(Refused):
    """The task is not at `expected_seq`, or has other webhooks than expected: read it again and decide anew.

    Or it was read in another history of the store.
    """


class OverQuota(Refused):
    """The owner has used up its quota of tasks, or (`of_team`) its team has: `limit` is the quota's name."""

    def __init__(self, limit: str, *, of_team: bool = False) -> None:
        super().__init__(limit)
        self.limit = limit
        self.of_team = of_team


class OverBudget(Refused):
    """The task would reserve more of an account than its budget has left. `claim` is the one that was refused."""

    def __init__(self, claim: BudgetClaim) -> None:
        super().__init__(claim.reservation.account)
        self.claim = claim


class StateChanged(Refused):
    """An entry of an agent's state has another version than expected: `version`, 0 if there is no such entry."""

    def __init__(self, key: str, version: int) -> None:
        super().__init__(key)
        self.key = key
        self.version = version


class StateFull(Refused):
    """A scope of an agent's state would have `needed` bytes after the write, and may have `max_bytes`."""

    def __init__(self, max_bytes: int, needed: int) -> None:
        super().__init__(f"{needed} bytes of {max_bytes}")
        self.max_bytes = max_bytes
        self.needed = needed


class RecordChanged(Refused):
    """The record has another version than expected: `version`, 0 if there was none ever."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version}")
        self.version = version


class Owners(Enum):
    """Selects tasks of any owner in a query. It has to be named, so that leaving out an owner never selects all."""

    ALL = "all"


Whose = str | TeamMembers | Owners
"""The owners whose tasks a query is about: one, those of a team, or all."""


def covers(whose: Whose, owner: str) -> bool:
    """Whether an owner is one of them."""
    match whose:
        case str():
            return owner == whose
        case TeamMembers(team=team):
            return team_of(owner) == team
        case Owners.ALL:
            return True


LAST_OWNER = "\U0010ffff"
"""Behind the ids of all owners: it is no character, and an id has nothing but printable ones."""


def owner_range(whose: Whose) -> tuple[str, str]:
    """The first and the last id of the owners, both included."""
    match whose:
        case str():
            return whose, whose
        case TeamMembers():
            return whose.first, whose.last
        case Owners.ALL:
            return "", LAST_OWNER


class Quota(Struct, frozen=True):
    """How many tasks one owner may have open, and may make within the UTC day `day` (days since 1970). 0: no limit.

    `team` is that of the owner, with the same limits for all its members together; None if it has none.
    """

    max_open_tasks: int
    max_daily_tasks: int
    day: int
    team: TeamMembers | None = None
    team_open_tasks: int = 0
    team_daily_tasks: int = 0


class Dedupe(Struct, frozen=True):
    """The identity of a call, by which a repeat is recognised: a `key` of at most 32 bytes, a `digest` of its params.

    `expires_ms` is in milliseconds since the epoch; an expired entry does not count. Nor does an entry whose task is
    `instead_of`: the new call replaces it in the same transaction.
    """

    key: bytes
    digest: bytes
    expires_ms: int
    instead_of: str | None = None


class Repeat(Struct, frozen=True):
    """An earlier call with the same dedupe key. `seq` is the log's length after it; a direct agent left an `answer`.

    `unreadable`: there was an answer, and its bytes cannot be decoded.
    """

    task_id: str | None
    digest: bytes
    seq: int
    answer: Message | None = None
    unreadable: bool = False


class NewTask(Struct, frozen=True, kw_only=True):
    """A task to write. `events` starts with Submitted.

    With `holder` its first run is leased at once (epoch 1); without, it waits in the queue (epoch 0). `push` and the
    first `deliveries` are stored with it. If the `quota` is used up, the future raises OverQuota. `claims` are those of
    the reservations in its head, which are made with it; if one of them goes beyond its limit, it raises OverBudget.
    `write` is as in Append.
    """

    head: TaskHead
    events: tuple[Event, ...]
    state: TaskState
    status_ms: int
    holder: str | None
    dedupe: Dedupe | None = None
    push: Registration | None = None
    deliveries: tuple[Delivery, ...] = ()
    quota: Quota | None = None
    claims: tuple[BudgetClaim, ...] = ()
    write: int | None = None


class Append(Struct, frozen=True, kw_only=True):
    """Events to add to a task's log, and the changes to its row that go with them.

    A run gives its `epoch`. A caller gives `expected_seq`, the seq on which it decided, or, if the events since then do
    not matter, `expected_epoch`: it is refused with Moved if the task has another epoch, or is not in `state` already.
    So it accepts no offer. `state` and `status_ms` are the values after the events; a later `status_ms` in the row
    stays. `holder` starts a new lease, `(holder, epoch)`: the epoch grows by one. `release` or a
    terminal state ends the present one. `snapshot` is the record folded up to and including these events; the store's
    caller sets its `seq`. A terminal append carries one, from which the usage of its task is counted. `push` is a
    webhook to register for the task. `deliveries` report the events to webhooks; one whose configuration has been
    deleted is not written. With `webhooks_version` the append is refused with Moved if the webhooks have changed
    since, so that no event misses one.

    With `offered_ms` the new lease is an offer to its holder, which accepts it by the first write under its epoch.
    After that many milliseconds anybody may claim an offer that has not been accepted. `keeper` goes with `release`:
    the replica that keeps the suspended run in its memory. `wakes_ms` goes with the holders `ASLEEP` and `ASIDE`: when
    the task wakes, in milliseconds since the epoch.

    `write` is the id of this write, a positive number below 2^63 that no other write of the task has. It is stored with
    the events. An append that is repeated with its id changes nothing and returns its first result, whatever was
    written in between. `read_seq` is the seq up to which the writer had read the log: the id is looked for behind it.
    Among a task's appends without events, only the last one is recognised; the guard refuses an earlier one.

    `content_bytes` bounds the size of the parts in `events` and `snapshot`, so that no large files are looked for in a
    small append; None says that nobody has measured them.

    `history` is that of the store in which the log was read (`Replicas.history`); empty if that makes no difference. If
    the store has another one by now, the append is refused with Moved, unless it was made before: what it was decided
    on may be lost.

    `lease` is the change of a worker's lease that goes with it, and a condition: see `store.worker_leases`. A lease
    that is granted counts as a delivery of the task. With `to_worker`, and without `holder`, the new lease is the
    worker's whose own lease runs; if there is none, nobody gets one, and the epoch stays.

    `charges` go with a terminal state: each settles one of the reservations in the task's head.
    """

    task_id: str
    events: tuple[Event, ...]
    state: TaskState
    status_ms: int
    epoch: int | None = None
    expected_seq: int | None = None
    expected_epoch: int | None = None
    holder: str | None = None
    release: bool = False
    snapshot: Record | None = None
    dedupe: Dedupe | None = None
    push: Registration | None = None
    deliveries: tuple[Delivery, ...] = ()
    write: int | None = None
    read_seq: int = 0
    keeper: str | None = None
    offered_ms: int | None = None
    webhooks_version: int | None = None
    content_bytes: int | None = None
    lease: WorkerLeaseChange | None = None
    to_worker: bool = False
    history: str = ""
    wakes_ms: int | None = None
    charges: tuple[Charge, ...] = ()


class Appended(Struct, frozen=True):
    """The result of a write: the seq of the last event, the epoch of the row, and the growth of the log in bytes.

    After a worker's single word (`WorkerLeaseChange.number`), `missed` are the events between `Append.read_seq` and
    this write, if the store gives them at once; then `log_bytes_since` is the size of the log behind the newest
    snapshot.
    """

    last_seq: int
    epoch: int
    log_bytes: int
    missed: tuple[Logged, ...] = ()
    log_bytes_since: int | None = None


class Stored(Struct, frozen=True, kw_only=True):
    """A task as stored: fold `events` onto `snapshot` (None: from the start) to get the record.

    `pushed` says whether the task has webhook configurations; `Outbox.configs` returns them. Each change of them raises
    `webhooks_version`. `keeper` keeps the suspended run, since the lease last ended; None if nobody does. `delivered`
    counts the leases that workers have had. `offered_until_ms` is when an offer of the lease runs out; None once
    something was written under it. A claimed task has one if nobody has worked on it since its caller last said
    something, or since it woke. For a task that sleeps it is when it wakes. `after`: the events are those behind that
    seq, without a snapshot, for a reader who has folded all until there; see `Store.load_after`.
    """

    head: TaskHead
    seq: int
    epoch: int
    state: TaskState
    status_ms: int
    holder: str | None
    cancel_requested: bool
    snapshot: Record | None
    events: tuple[Logged, ...]
    snapshot_bytes: int = 0
    log_bytes_since: int = 0
    pushed: bool = False
    keeper: str | None = None
    offered_until_ms: int | None = None
    webhooks_version: int = 0
    after: int = 0
    delivered: int = 0

    @property
    def unreadable(self) -> bool:
        """Whether the bytes of the task cannot be decoded. `snapshot` is then what its row says: see `Record`."""
        return self.snapshot is not None and self.snapshot.unreadable


class Held(Protocol):
    """A task that nobody else writes to at present. `stored` is the task as it stands."""

    stored: Stored

    def append(self, append: Append) -> Future[Appended | Repeat]:
        """As `Store.append`, for this task. The write is committed when the future finishes."""
        ...


class ListOrder(Enum):
    """The order of a list of tasks.

    NEWEST_CHANGED: newest status first, ties by id descending. OLDEST_CHANGED: the reverse. LONGEST_RUNNING: only tasks
    that are submitted or working, by id, since the ids of tasks grow with the time at which they were made. Such a page
    costs more, the more of these tasks there are.
    """

    NEWEST_CHANGED = "newest-changed"
    OLDEST_CHANGED = "oldest-changed"
    LONGEST_RUNNING = "longest-running"


RUNNING = (TaskState.SUBMITTED, TaskState.WORKING)
"""The states of tasks that ListOrder.LONGEST_RUNNING lists."""


class ListQuery(Struct, frozen=True, kw_only=True):
    """Selects tasks of `owner` with `agent`, in an `order`.

    `Owners.ALL` selects the tasks of everybody, which only an operator may see, `TeamMembers` those of all members of a
    team, and `agent` None those with any agent.
    Such a page costs more, the more owners and agents there are, but no more for more tasks.

    `before` is the (status_ms, id) of the last task of the previous page in this order. Without `artifacts` the events
    that write these are left out; those of the snapshot may be read. `history` 0 tells the store that it need not read
    that; it may read it nevertheless.

    A page ends before the task that would take it past `max_bytes` of stored bytes, including the bytes of files that
    are read. It has at least one task if any matches. None sets no limit.
    """

    owner: Whose
    agent: str | None
    context_id: str | None = None
    state: TaskState | None = None
    status_after_ms: int | None = None
    order: ListOrder = ListOrder.NEWEST_CHANGED
    limit: int = 50
    before: tuple[int, str] | None = None
    offset: int = 0
    artifacts: bool = False
    history: int | None = None
    max_bytes: int | None = None


class TaskSearch(Struct, frozen=True, kw_only=True):
    """Selects tasks by what no index answers, the newest made first, or the `oldest`. Every field that is set must fit.

    With a `team` its tasks alone are looked at.

    `text` is contained in the first 200 characters of the first message, or in the title; the case of the letters a to
    z does not count. `anywhere` is contained in one of these, in the id or, letter by letter, in the context.
    `status_before_ms` is exclusive. `asleep` says whether the holder is `ASLEEP`. At most `scan_max` tasks are looked
    at: those after the task with the number `after`, or from the first one on.
    """

    owner: Whose
    agent: str | None
    context_id: str | None = None
    state: TaskState | None = None
    dialect: str | None = None
    key: str | None = None
    text: str | None = None
    anywhere: str | None = None
    asleep: bool | None = None
    team: str | None = None
    status_after_ms: int | None = None
    status_before_ms: int | None = None
    oldest: bool = False
    limit: int = 50
    after: int | None = None
    scan_max: int = 20_000


class TaskRow(Struct, frozen=True, kw_only=True):
    """A task without its log. `text` begins its first message: it has the first 200 characters. `title` is the one that
    its agent, or else its caller, gave it; empty if neither did.

    `unreadable`: the bytes of its head cannot be decoded. Its log was not looked at.
    """

    head: TaskHead
    state: TaskState
    status_ms: int
    holder: str | None
    cancel_requested: bool
    text: str
    title: str = ""
    unreadable: bool = False


class StatusRow(Struct, frozen=True, kw_only=True):
    """Where a task stands, and since when."""

    id: str
    agent: str
    owner: str
    context_id: str
    state: TaskState
    status_ms: int
    seq: int


class HolderRow(Struct, frozen=True):
    """A task whose lease `holder` has: the id of a replica, or `WORKER`."""

    id: str
    agent: str
    holder: str


class SearchPage(Struct, frozen=True):
    """The tasks that fit, among those that were looked at. The search goes on with `after`; None: it is over."""

    rows: tuple[TaskRow, ...]
    after: int | None


class ContextQuery(Struct, frozen=True, kw_only=True):
    """Selects contexts of `owner` with `agent`, as ListQuery selects tasks: those with the newest status first.

    A page looks at `scan_max` tasks at most, those after the (status_ms, id) `before`.
    """

    owner: Whose
    agent: str | None
    limit: int = 50
    before: tuple[int, str] | None = None
    scan_max: int = 200


CONTEXT_TASKS_MAX = 1000
"""Most tasks of a context that are counted for a list of contexts."""


class ContextRow(Struct, frozen=True, kw_only=True):
    """A context of an owner with an agent: the state of the task that changed last, and when that was.

    `tasks` counts CONTEXT_TASKS_MAX tasks at most. `text` begins the first message, if it is one of these tasks.
    """

    id: str
    owner: str
    agent: str
    state: TaskState
    status_ms: int
    tasks: int
    text: str


class ContextPage(Struct, frozen=True):
    """The contexts whose newest task was looked at. More may follow after `before`; None: there are none."""

    rows: tuple[ContextRow, ...]
    before: tuple[int, str] | None


def make_context_page(query: ContextQuery, looked: Iterable[tuple[int, str, ContextRow | None]]) -> ContextPage:
    """Make a page of the tasks that were looked at, in their order: status, id, and the context of which it is the
    newest task, or None."""
    rows: list[ContextRow] = []
    last: tuple[int, str] | None = None
    count = 0
    for status_ms, task_id, row in looked:
        count += 1
        last = status_ms, task_id
        if row is not None:
            rows.append(row)
            if len(rows) == query.limit:
                break
    ended = count < query.scan_max and len(rows) < query.limit
    return ContextPage(tuple(rows), None if ended else last)


class Listed(Struct, frozen=True):
    """A page of tasks. `total` counts the matches on all pages; `more` says whether another page follows."""

    tasks: tuple[Stored, ...]
    total: int
    more: bool


class ListedRows(Struct, frozen=True):
    """A page of tasks without their logs. `total` and `more` are as in Listed."""

    rows: tuple[TaskRow, ...]
    total: int
    more: bool


class Store(Protocol):
    """The only source of truth about tasks.

    There is one object per server. Its coroutines run on the server's loop, its work on threads of its own.

    A row whose bytes cannot be decoded costs itself alone, and is logged once. A task keeps what the other columns of
    its row say (`Stored.unreadable`), and so does its head. An append may end it; it changes no bytes that are damaged.
    """

    outbox: Outbox
    receipts: Receipts
    keys: KeyRing
    audit: AuditTrail
    replicas: Replicas
    shared: Shared
    operator_records: OperatorRecords
    principals: PrincipalRows
    teams: TeamRows
    usage: UsageBook
    budgets: BudgetBook
    state: StateStore
    worker_leases: WorkerLeases
    writing: WriteRecord
    """The writes of this process."""
    clock: Clock
    """The time of the store, which all replicas share to within some milliseconds."""

    async def open(self, holder: str | None) -> None:
        """Migrate forward, then open the store for a process. Its replica joins `replicas` under the name `holder`.

        With None it is opened beside a server that may be running, for keys, outbox and audit only.

        Raises StoreError, naming the fix, if it cannot be opened, is newer than this program, or (SQLite) is in use by
        another process.
        """
        ...

    async def close(self) -> None:
        """Finish the writes under way, then release the store. Every replica that joined it here is dead then."""
        ...

    async def claim(
        self,
        holder: str,
        limit: int,
        agents: Collection[str] | None,
        absent_s: float = AGENT_ABSENT_S,
        *,
        queued: bool = True,
    ) -> tuple[Stored, ...]:
        """Lease tasks that nobody alive works on to `holder`, at most `limit`: oldest first, under epoch + 1.

        These are the queued tasks, those of dead holders, those that slept and whose time to wake has come, and those
        that were offered to somebody who did not accept in time. Without `queued` the first are left out. A task that a
        worker has is never claimed. So the old holder's writes are refused from now on. Concurrent claims get different
        tasks. A task without `offered_until_ms` may have been worked on; the others are offered to `holder` for
        `BEGIN_MS`.

        Only tasks of `agents` are claimed. None stands for those that nobody alive serves, not even `holder`. If other
        processes may write to the store, their tasks are claimed `absent_s` after the last of three moments: somebody
        served the agent; the task got its state; the oldest of the replicas that are alive started.
        Raises StoreError if `holder` is dead itself.
        """
        ...

    async def claim_woken(
        self, holder: str, limit: int, agents: Collection[str] | None, absent_s: float = AGENT_ABSENT_S
    ) -> tuple[Stored, ...]:
        """As `claim`, but only of tasks that slept and whose time to wake has come: those that woke first come first.

        It reads no others.
        """
        ...

    async def next_wake(self, after_ms: int) -> int | None:
        """The earliest time after `after_ms` at which a task wakes that sleeps, or None. It reads the index alone."""
        ...

    def create(self, new: NewTask) -> Future[Appended | Repeat]:
        """Write a task. If its dedupe key is known and has not expired, write nothing and return the earlier call.

        The future raises Exists if the id is taken, OverQuota, OverBudget, StoreError or OutcomeUnknown.

        Not a coroutine: the write is under way when this returns. Writes of one task commit, and their futures finish,
        in the order of the calls. Cancelling the future does not undo the write.
        """
        ...

    def append(self, append: Append) -> Future[Appended | Repeat]:
        """Add to a task's log (compare-and-append); under way when this returns, as with `create`.

        If the dedupe key is known, nothing is written and the earlier call is returned. The future raises Unknown,
        TaskEnded, Fenced or Moved, StoreError or OutcomeUnknown.
        """
        ...

    def hold(self, task_id: str) -> AbstractAsyncContextManager[Held]:
        """Keep everybody else from appending to a task in the block, which must be brief: their appends wait.

        It serves a write that others have overtaken several times. Those who wait to hold a task get it in turn.
        Raises Unknown, or StoreError if the task cannot be had within a few seconds.
        """
        ...

    async def request_cancel(self, task_id: str) -> None:
        """Mark that the task's run shall stop; survives a restart. Does nothing to a terminal or unknown task."""
        ...

    async def remember(self, dedupe: Dedupe, answer: Message, usage: AnswerUsage | None = None) -> Repeat | None:
        """Keep a direct agent's answer under its dedupe key. If that has an answer or a task, return it instead.

        `usage` is counted if the answer is kept.
        """
        ...

    async def recall(self, key: bytes) -> Repeat | None:
        """The earlier call with this dedupe key; None if there is none or it has expired."""
        ...

    async def load(self, task_id: str, size: int | None = None) -> Stored | None:
        """The task as it stands, webhooks and all, or None. A task of any size is read without blocking the loop.

        `size` is what `size` just returned, if the caller asked; it saves a look.
        """
        ...

    async def load_after(self, task_id: str, after: int) -> Stored | None:
        """The task with the events behind `after` alone, for a reader who knows those until there, or None.

        It is the whole task, as from `load`, if the store has no such events any more, or does not read less for them.
        """
        ...

    async def load_snapshot(self, task_id: str) -> Stored | None:
        """The task without the events that follow its snapshot, or None.

        It serves readers of long tasks, who then `read` these events piece by piece. About half of a log is among them
        at most.
        """
        ...

    async def find(self, task_id: str, owner: Whose, agent: str, bytes_max: int | None = None) -> Stored | int | None:
        """The task as `load` gives it, or None if it is not a task of `owner` with `agent`.

        It reads no more of somebody else's task than of a missing one, so that the time it takes reveals nothing. A
        task of `bytes_max` bytes or more (None: no limit) is not read: the result is its size.
        """
        ...

    async def size(self, task_id: str) -> int:
        """About how many bytes `load` would read, files included; 0 for an unknown or a cached task."""
        ...

    async def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        """Head, seq and state of the task, or None. It costs the same for a task of any size."""
        ...

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        """The events after seq `after`, in order: about `limit_bytes` at most, but at least one if there is any.

        The first seq is larger than `after + 1` if the log was pruned, or if events in between cannot be decoded. No
        gap is behind the first event.
        """
        ...

    async def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> Mapping[str, tuple[Logged, ...]]:
        """The events of many tasks, each after a seq: as `read` for each, by the ids of those that have any.

        They have about `limit_bytes` in all, but at least one event if there is any. Tasks are read in the given order,
        and those that find no room are left out, so that asking again from the new seqs gives the rest.
        """
        ...

    async def messages(self, owner: str, agent: str, context_id: str, limit: int) -> tuple[Stored, ...]:
        """The newest `limit` tasks of a context, oldest first."""
        ...

    async def list(self, query: ListQuery) -> Listed:
        """A page of tasks, with the total of all pages."""
        ...

    async def list_rows(self, query: ListQuery) -> ListedRows:
        """The same page without logs, artifacts and history: a task costs the same, however much it has said.

        The bytes that count against `max_bytes` are those of the heads.
        """
        ...

    async def search(self, query: TaskSearch) -> SearchPage:
        """Look through tasks. The cost grows with `scan_max` and not with the number of tasks."""
        ...

    async def contexts(self, query: ContextQuery) -> ContextPage:
        """A page of contexts. The cost grows with `scan_max` and with the number of owners, but with no other tasks."""
        ...

    async def changes(self, since_ms: int, limit: int, members: TeamMembers | None = None) -> tuple[StatusRow, ...]:
        """The tasks whose status is not older than a time, the oldest status first, at most `limit`.

        With `members` they are those of a team alone.

        The cost grows with the number of these tasks, and with that of owners and agents, but with no other tasks.
        """
        ...

    async def queued(self, agent: str, limit: int) -> tuple[str, ...]:
        """The ids of an agent's tasks that nobody has, oldest first, at most `limit`."""
        ...

    async def missing(self, task_ids: Collection[str]) -> frozenset[str]:
        """Those of the ids of which there is no task."""
        ...

    async def leased(self, holder: str, *, offered: bool = False) -> tuple[str, ...]:
        """The ids of the tasks leased to `holder`. With `offered` only of those whose offer it has not accepted."""
        ...

    async def leased_of(self, agents: Collection[str], limit: int) -> tuple[HolderRow, ...]:
        """The tasks of these agents that replicas and workers have, whoever is alive, at most `limit`.

        Those that sleep, or were put aside, are not among them.
        """
        ...

    async def cancels(self, holder: str) -> tuple[str, ...]:
        """The ids of the tasks leased to `holder` that `request_cancel` has marked."""
        ...

    async def children(self, parent_id: str) -> tuple[TaskHead, ...]:
        """The heads of the tasks that a task delegated, did not detach, and that have not ended, oldest first."""
        ...

    async def asking(self) -> tuple[TaskHead, ...]:
        """The heads of delegated tasks that wait for an answer, oldest first."""
        ...

    async def orphans(self, after: str, limit: int) -> tuple[tuple[TaskHead, ...], str]:
        """The heads of delegated tasks, not detached, that have not ended while the one that delegated them has.

        Looks at the next `limit` parents of tasks that have not ended, in the order of their ids, and at nothing else:
        those after the id `after`, which is empty at first. Also returns the last of them, to go on with, or an empty
        string if there are no more. A parent that has been deleted counts as ended.
        """
        ...

    async def overdue(self, now_ms: int, limit: int) -> tuple[TaskHead, ...]:
        """The heads of delegated tasks, not detached, that have not ended by their deadline: at most `limit`."""
        ...

    async def sweep(self, now_ms: int, task_age_ms: int, log_age_ms: int, waiting_age_ms: int) -> int:
        """Delete one short batch of expired rows. Returns how many rows were deleted, 0 when nothing is left to do.

        Deletes terminal tasks whose status is older than `task_age_ms`, the log (not the snapshot) of terminal tasks
        older than `log_age_ms`, interrupted tasks whose status is older than `waiting_age_ms`, and expired dedupe
        entries. A task is kept as long as the one that delegated it has not ended: that one may not have read its
        outcome yet, and would have it done again. An age below 0 keeps for ever. A batch delays writers no longer than
        one of their own batches does.
        """
        ...

    async def delete(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Delete those of the tasks that have ended. Returns their ids; all others stay as they are.

        Nothing of a deleted task remains: row, log, snapshot, files, webhooks with what is owed to them, receipts, and
        the calls that are remembered with it. Files in a blob store are not the store's. It is one transaction, so that
        callers give some 100 tasks at most.
        """
        ...

    async def probe(self) -> None:
        """Write a meaningless value to see whether writes work. Raises StoreError if they do not."""
        ...

    async def figures(self) -> StoreFigures:
        """The size of the store, and the tasks that have not ended, by agent. It costs as much as there are owners."""
        ...
