"""The Store: task rows, logs, snapshots and remembered calls, outbox, keys and audit trail, behind verbs of the domain.

Invariant: state, log and lease of a task change together, in one transaction, or not at all; when a write returns, it
survives the loss of the machine's power. Every driver passes the cases of `dragoman.testing.store_cases`.
"""

from asyncio import Future
from typing import Protocol

from msgspec import Struct

from dragoman.model.events import Event, Logged
from dragoman.model.message import Message
from dragoman.model.task import Record, TaskHead, TaskState
from dragoman.store.audit import AuditTrail
from dragoman.store.keyring import KeyRing
from dragoman.store.outage import Outage
from dragoman.store.outbox import Delivery, Outbox, Registration


class StoreError(Exception):
    """The store cannot do it now: the disk is full, the file is gone, the connection is lost. Nothing was written."""

    reason = "its disk reports an error"
    """Why not, in words for everybody: without a path or what a driver said."""


class StoreFull(StoreError):
    """There is no space left to write. Reads go on; writes work again when there is space."""

    reason = "its disk is full"


class StoreReadOnly(StoreError):
    """The file may not be written by this user, or is on a disk that is mounted for reading."""

    reason = "its file may not be written"


class Refused(Exception):
    """An append that must not happen. Nothing of it was written, and nothing of its neighbours was lost."""


class Unknown(Refused):
    """There is no such task."""


class Ended(Refused):
    """The task is terminal: nothing follows (invariant 4)."""


class Fenced(Refused):
    """The run's epoch is not the task's any more: another run, or nobody, may write now (invariant 5)."""


class Moved(Refused):
    """The task is not at `expected_seq`: read it again and decide anew."""


class OverQuota(Refused):
    """The owner has as many tasks as it may have: `limit` is the quota's name."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class Quota(Struct, frozen=True):
    """How many tasks of one owner there may be: not yet ended, and made within the UTC day `day` (days since 1970).

    0: no limit.
    """

    max_open_tasks: int
    max_daily_tasks: int
    day: int


class Dedupe(Struct, frozen=True):
    """What makes two calls the same call. `key` names it (32 bytes at most), `digest` is over its params.

    Times are milliseconds since the epoch; an entry whose `expires_ms` is past does not count. Nor does one whose task
    is `instead_of`: the new call takes its place, in the same transaction.
    """

    key: bytes
    digest: bytes
    expires_ms: int
    instead_of: str | None = None


class Repeat(Struct, frozen=True):
    """An earlier call with the same dedupe key: the log's length after it, and the `answer` of a direct agent."""

    task_id: str | None
    digest: bytes
    seq: int
    answer: Message | None = None


class NewTask(Struct, frozen=True, kw_only=True):
    """A task to be written. `events` starts with Submitted. With `holder` its first run is leased at once (epoch 1);

    without, it waits in the queue (epoch 0). `push` is kept with it, and `deliveries` are owed from its beginning. With
    a `quota` that is used up, the future raises OverQuota.
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


class Append(Struct, frozen=True, kw_only=True):
    """Events to be added to a task's log, and what becomes of its row with them.

    A run gives its `epoch`; a caller gives `expected_seq`, the seq it decided upon. `state` and `status_ms` are those
    after the events. `holder` starts a new lease (the epoch grows by one), `release` ends the present one; a terminal
    state ends it too. `snapshot` is the record folded up to and including these events; its `seq` is set by the store's
    caller. A terminal append carries one. `push` is kept for the task, `deliveries` tell of the events; those for a
    configuration that is no longer there are not written.
    """

    task_id: str
    events: tuple[Event, ...]
    state: TaskState
    status_ms: int
    epoch: int | None = None
    expected_seq: int | None = None
    holder: str | None = None
    release: bool = False
    snapshot: Record | None = None
    dedupe: Dedupe | None = None
    push: Registration | None = None
    deliveries: tuple[Delivery, ...] = ()


class Appended(Struct, frozen=True):
    """What was written: the seq of the last event, the epoch the row has now, and how many bytes the log grew by."""

    last_seq: int
    epoch: int
    log_bytes: int


class Stored(Struct, frozen=True, kw_only=True):
    """A task as the store has it: fold `events`, which follow `snapshot` (None: from the start), to get the record.

    `pushed` says whether it has webhook configurations: `Outbox.configs` has them.
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


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which tasks of `owner` with `agent` to list, newest status first, ties by id descending.

    `before` is the (status_ms, id) of the last task of the page before. `artifacts` False and `history` 0 tell the
    store that those need not be read; it may read them nevertheless.

    A page ends before the task with which it would have more than `max_bytes`, as the store has them, with the bytes of
    files that are read; it has at least one task if there is one. None sets no limit.
    """

    owner: str
    agent: str
    context_id: str | None = None
    state: TaskState | None = None
    status_after_ms: int | None = None
    limit: int = 50
    before: tuple[int, str] | None = None
    offset: int = 0
    artifacts: bool = False
    history: int | None = None
    max_bytes: int | None = None


class Listed(Struct, frozen=True):
    """A page of tasks. `total` counts what the query's filters match, on all pages; `more` says whether any follow."""

    tasks: tuple[Stored, ...]
    total: int
    more: bool


class Store(Protocol):
    """The truth. One object per server; its coroutines run on the server's loop, its work on threads of its own."""

    outbox: Outbox
    keys: KeyRing
    audit: AuditTrail

    async def open(self, holder: str | None) -> None:
        """Migrate forward, then take the store for `holder`, a name no other process has.

        With None it is opened beside a server that may be running, for keys, outbox and audit only.

        Raises StoreError, naming the fix, if it cannot be opened, is newer than this program, or (SQLite) is in use by
        another process.
        """
        ...

    async def close(self) -> None:
        """Finish the writes under way and let go."""
        ...

    def create(self, new: NewTask) -> Future[Appended | Repeat]:
        """Write a task. If its dedupe key is known and not expired, write nothing and answer the earlier call.

        NOT a coroutine: the write is under way when this returns; writes commit, and their futures finish, in the order
        of the calls. Cancelling the future does not undo the write.
        """
        ...

    def append(self, append: Append) -> Future[Appended | Repeat]:
        """Add to a task's log (compare-and-append); under way when this returns, as with `create`.

        The future raises Unknown, Ended, Fenced or Moved. A dedupe key that is known: nothing is written, the earlier
        call answers.
        """
        ...

    async def request_cancel(self, task_id: str) -> None:
        """Mark that the task's run shall stop; survives a restart. Nothing happens to a terminal or unknown task."""
        ...

    async def remember(self, dedupe: Dedupe, answer: Message) -> Repeat | None:
        """Keep a direct agent's answer under its dedupe key; if there is one already, keep that and return it."""
        ...

    async def recall(self, key: bytes) -> Repeat | None:
        """The call of that dedupe key, unless expired."""
        ...

    def load(self, task_id: str) -> Stored | None:
        """The task, or None. A point read: short enough for the loop."""
        ...

    def size(self, task_id: str) -> int:
        """About how many bytes `load` would read, files included; 0 for an unknown task, and one that is at hand."""
        ...

    async def load_apart(self, task_id: str) -> Stored | None:
        """The same as `load`, of a task of any size: the loop goes on meanwhile."""
        ...

    def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        """Head, seq and state of the task, or None. A point read: short enough for the loop."""
        ...

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        """The events that follow seq `after`, in order, at least one if there is one, about `limit_bytes` at most.

        If the log was pruned, what is left of it: the first seq may be larger than `after + 1`.
        """
        ...

    async def messages(self, owner: str, agent: str, context_id: str, limit: int) -> tuple[Stored, ...]:
        """The newest `limit` tasks of a context, oldest first."""
        ...

    async def list(self, query: ListQuery) -> Listed:
        """A page of tasks, with the total of all pages."""
        ...

    async def unfinished(self) -> tuple[Stored, ...]:
        """Every task that is leased or queued, oldest first: after `open`, those a previous process left behind."""
        ...

    async def asking(self) -> tuple[TaskHead, ...]:
        """The heads of tasks that another task's agent delegated, and that wait for an answer, oldest first."""
        ...

    async def sweep(self, now_ms: int, task_age_ms: int, log_age_ms: int, waiting_age_ms: int) -> int:
        """Delete one short batch of what is too old; returns how many rows went, 0 when nothing is left to do.

        Terminal tasks whose status is older than `task_age_ms` go whole; the log (not the snapshot) of terminal tasks
        older than `log_age_ms` goes; interrupted tasks whose status is older than `waiting_age_ms` go whole; expired
        dedupe entries go. An age below 0 keeps for ever. Writers wait no longer for a batch than for one of their own.
        """
        ...

    async def probe(self) -> None:
        """Write something of no meaning. Raises StoreError if that fails."""
        ...

    @property
    def written_ms(self) -> int:
        """When the last write was committed, milliseconds since the epoch; 0 before the first."""
        ...

    @property
    def writes(self) -> int:
        """How many writes it was given since it was opened."""
        ...

    @property
    def failed_writes(self) -> int:
        """How many of them failed with StoreError."""
        ...

    @property
    def outage(self) -> Outage | None:
        """That it cannot be written, as far as writes have shown; None if it can."""
        ...
