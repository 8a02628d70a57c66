"""The Store protocol on one SQLite file.

Invariant: writes go through the one writer thread; reads never wait for it.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import apsw
from msgspec.structs import replace

from dragoman.model.events import Logged
from dragoman.model.ids import Clock
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskHead, TaskState
from dragoman.store.api import (
    AGENT_ABSENT_S,
    ASIDE,
    ASLEEP,
    NO_REPLICAS,
    Append,
    Appended,
    ContextPage,
    ContextQuery,
    Dedupe,
    Held,
    Listed,
    ListedRows,
    ListQuery,
    Moved,
    NewTask,
    Repeat,
    Stored,
    StoreError,
    Unknown,
    Whose,
    covers,
)
from dragoman.store.audit import AuditTrail
from dragoman.store.budgets import BudgetBook
from dragoman.store.codec import Codec
from dragoman.store.damage import DamageLog
from dragoman.store.encoder import Encoder, note_files
from dragoman.store.figures import StoreFigures
from dragoman.store.files import TaskFiles
from dragoman.store.keyring import KeyRing
from dragoman.store.operator_records import OperatorRecords
from dragoman.store.outage import WriteRecord
from dragoman.store.outbox import Outbox
from dragoman.store.principals import PrincipalRows
from dragoman.store.receipts import Receipts
from dragoman.store.replicas import LocalReplicas, Replicas
from dragoman.store.retention import BATCH_TASKS, BatchSize, Horizon
from dragoman.store.shared import Shared
from dragoman.store.sql.audit import AuditTable
from dragoman.store.sql.budgets import BudgetTable
from dragoman.store.sql.figures import read_figures
from dragoman.store.sql.keys import KeyTable
from dragoman.store.sql.operator_records import RecordTable
from dragoman.store.sql.outbox import OutboxTables
from dragoman.store.sql.principals import PrincipalTable
from dragoman.store.sql.receipts import ReceiptTable
from dragoman.store.sql.state import StateTable
from dragoman.store.sql.statements import statements_for_sqlite
from dragoman.store.sql.tasks import TaskTable
from dragoman.store.sql.teams import TeamTable
from dragoman.store.sql.usage import UsageTable
from dragoman.store.sqlite.answer_counts import AnswerCounts
from dragoman.store.sqlite.audit_trail import add_entries
from dragoman.store.sqlite.connection import ProcessLock, connect, locate, translated
from dragoman.store.sqlite.ledger import SqliteLedger
from dragoman.store.sqlite.listing import list_contexts, list_rows, list_tasks, newest_of_context
from dragoman.store.sqlite.outbox import SqliteOutbox
from dragoman.store.sqlite.pool import ConnectionPool, Readers, SqliteDoor
from dragoman.store.sqlite.principals import FileScopes
from dragoman.store.sqlite.reads import SqliteReads
from dragoman.store.sqlite.recent import RecentTasks
from dragoman.store.sqlite.schema import migrate, migrate_beside, migrations, read_statements
from dragoman.store.sqlite.shared import SharedTable
from dragoman.store.sqlite.statements import SqliteStatements
from dragoman.store.sqlite.sweep import BATCH_S, TASKS_MOST, find_victims
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writer import SqliteWriter
from dragoman.store.sqlite.writes import (
    Act,
    Deletion,
    ProbeWrite,
    Remembrance,
    Stop,
    TaskClaim,
)
from dragoman.store.state import StateStore
from dragoman.store.team_rows import TeamRows
from dragoman.store.usage import AnswerUsage, UsageBook
from dragoman.store.worker_leases import WORKER, DueLeases, HeldLease, LeaseTable, WorkerLease, WorkerLeases

LARGE_BYTES = 1 << 20
"""A task of this size or more is read off the loop: reading it takes 3 ms and more."""


class SqliteStore:
    """Tasks in a SQLite file (`sqlite:///path`), or in this process only (`memory:`)."""

    def __init__(self, url: str, clock: Clock) -> None:
        """Raises StoreError if `url` is not one of this driver's."""
        self._location = locate(url)
        self.clock = clock
        self.writing = WriteRecord(url, clock)
        self._damage = DamageLog()
        self.replicas: Replicas
        self.replicas = self._local = LocalReplicas(clock)
        self._codec = Codec()
        self._files: TaskFiles
        """Made anew with each opening."""
        self._encoder = Encoder(self._codec, clock)
        self._recent = RecentTasks()
        self._lock: ProcessLock | None = None
        self._open = SqliteDoor(self._location.url)
        self._own_writer: SqliteWriter | None = None
        """The writer, for writes that only the owner of the file may make."""
        self._swept = BatchSize(BATCH_TASKS, TASKS_MOST, BATCH_S)
        self._holds: dict[str, SqliteHold] = {}
        self._statements = statements = SqliteStatements(self._open)
        self.outbox: Outbox = OutboxTables(statements, SqliteOutbox(self._open), self._damage)
        self.keys: KeyRing = KeyTable(statements, self._damage)
        self.audit: AuditTrail = AuditTable(statements, partial(add_entries, self._open))
        self.shared: Shared = SharedTable(self._open, clock)
        self.operator_records: OperatorRecords = RecordTable(statements, clock)
        self.receipts: Receipts = ReceiptTable(statements)
        self.teams: TeamRows = TeamTable(statements)
        self.principals: PrincipalRows
        self.principals = PrincipalTable(statements, FileScopes(self._open))
        # The protocol's methods that look at tasks without their logs are the table's own.
        looks = TaskTable(statements, self)
        self.search, self.changes = looks.search, looks.changes
        self.queued, self.missing = looks.queued, looks.missing
        self.leased, self.leased_of, self.cancels = looks.leased, looks.leased_of, looks.cancels
        self.children, self.asking = looks.children, looks.asking
        self.orphans, self.overdue, self.next_wake = looks.orphans, looks.overdue, looks.next_wake
        self.usage: UsageBook
        self.usage = self._usage = UsageTable(statements, AnswerCounts(self._open).add)
        self.budgets: BudgetBook
        self.budgets = self._budgets = BudgetTable(statements)
        self._worker_leases = LeaseTable(time.monotonic)
        self._has_granted = False
        """Whether a worker was to get a lease in this process. It is set before the append that grants one."""
        self._claims: set[asyncio.Future[Any]] = set()
        """The claims under way that take all workers' leases for those of an earlier process."""
        self.worker_leases: WorkerLeases = LocalWorkerLeases(self._worker_leases)
        self.state: StateStore = StateTable(statements, clock, self.worker_leases)

    async def open(self, holder: str | None) -> None:
        """As the protocol says. Nobody who held a lease before is alive."""
        location = self._location
        if location.path is None and holder is None:
            raise StoreError("store 'memory:' is in its server's own memory, where no other process reaches it")
        if location.path is not None and holder is not None:
            self._lock = ProcessLock(location.path)
        gate = location.gate()
        sql = statements_for_sqlite()
        for name in ("queries", "audit", "outbox", "receipts", "shared", "figures", "usage", "budgets"):
            sql |= read_statements(f"{name}.sql")
        connections: list[apsw.Connection] = []
        try:
            if location.path is not None and holder is None:
                migrate_beside(location, location.path, migrations())
            connections.append(connect(location))
            migrate(connections[0], location, migrations())
            tables = Tables(connections[0], sql, self._budgets.changed)
            connections += [connect(location, readonly=True) for _ in range(1 + Readers.THREADS)]
        except (apsw.Error, StoreError) as error:
            for connection in connections:
                connection.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None
            raise error if isinstance(error, StoreError) else translated(error, location) from error
        self._files = TaskFiles(tables.file_numbers)
        _, mine, *others = connections
        reads = SqliteReads(mine, sql, self._codec, gate, self._damage)
        behind = [SqliteReads(connection, sql, self._codec, gate, self._damage) for connection in others]
        readers = Readers(behind, location)
        writer = SqliteWriter(SqliteLedger(tables, self._codec), location, gate, self.clock, self.writing, self._recent)
        self._open.open(ConnectionPool(location, writer, reads, readers, beside=holder is None))
        if holder is not None:
            self._own_writer = writer

    async def close(self) -> None:
        """Finish the writes under way, fold the WAL into the file, end the threads, and release the file."""
        opened = self._open.opened
        if opened is None:
            return
        await self._usage.gathering.close()
        await asyncio.shield(opened.writer.close())
        self._open.close()
        self._own_writer = None
        self._worker_leases.clear()
        self._has_granted = False
        self._local.end()
        opened.readers.close()
        opened.reads.connection.close()
        opened.writer.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def create(self, new: NewTask) -> "asyncio.Future[Appended | Repeat]":
        """One transaction for row, log and remembered call."""
        writer = self._own_writer
        if writer is None:
            return self._failed(self._not_writable())
        try:
            write = self._encoder.creation(new, self._files)
        except (TypeError, ValueError) as error:
            return self._failed(error)
        future = writer.submit(write)
        if write.files:
            note_files(write, self._files, future)
        return future

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """One transaction for row, log, snapshot and remembered call. Raises Moved for a snapshot that does not fit."""
        writer, task_id, change = self._own_writer, append.task_id, append.lease
        if writer is None:
            return self._failed(self._not_writable())
        if self._holds and (hold := self._holds.get(task_id)) is not None and hold.shut:
            return hold.wait(append)
        leases, fault = self._worker_leases, None
        if change is not None:
            if self._claims and change.granted_ms is not None:
                return asyncio.ensure_future(self._grant_later(append, tuple(self._claims)))
            fault = leases.fault(change)
            self._has_granted = self._has_granted or (change.granted_ms is not None and fault is None)
        if append.to_worker and leases.runs(task_id):
            append = replace(append, holder=WORKER)
        try:
            write = self._encoder.addition(append, self._files, self._equal_file, fault)
        except (TypeError, ValueError, Moved) as error:
            return self._failed(error)
        except apsw.Error as error:
            return self._failed(translated(error, self._location))
        future = writer.submit(write, word=change is not None)
        terminal = append.state in TERMINAL
        if fault is not None:
            pass  # nothing is written: the write is refused, or was made before
        elif change is not None or ((terminal or append.state in INTERRUPTED) and task_id in leases.rows):
            future.add_done_callback(partial(self._change_lease, append))
        elif append.to_worker and append.holder is not None:
            future.add_done_callback(partial(self._resume, task_id))
        if terminal or write.files:
            note_files(write, self._files, future)
        return future

    async def _grant_later(self, append: Append, claims: "Sequence[asyncio.Future[Any]]") -> Appended | Repeat:
        """Let a worker take a task after the claims under way, which would take it away at once."""
        await asyncio.wait(claims)
        return await self.append(append)

    def _change_lease(self, append: Append, done: "asyncio.Future[Appended | Repeat]") -> None:
        """Change a worker's lease in memory, before its writer hears of the commit."""
        if not done.cancelled() and isinstance(done.exception() or done.result(), Appended):
            if append.lease is not None:
                asks = append.state in INTERRUPTED
                self._worker_leases.change(append.lease, asks=asks, write=append.write)
            elif append.state in INTERRUPTED:
                self._worker_leases.pause(append.task_id)
            if append.state in TERMINAL:
                self._worker_leases.end(append.task_id)

    def _resume(self, task_id: str, done: "asyncio.Future[Appended | Repeat]") -> None:
        if not done.cancelled() and isinstance(done.exception() or done.result(), Appended):
            self._worker_leases.resume(task_id)

    def _equal_file(self, task_id: str, digest: bytes, content: bytes) -> int | None:
        return self._open().reads.equal_file(task_id, digest, content)

    async def request_cancel(self, task_id: str) -> None:
        """Mark the task's row."""
        await self._writer.submit(Stop(task_id))

    async def remember(self, dedupe: Dedupe, answer: Message, usage: AnswerUsage | None = None) -> Repeat | None:
        """Insert a call without a task."""
        repeat: Repeat | None = await self._writer.submit(Remembrance(dedupe, self._codec.encode(answer), usage))
        return repeat

    async def recall(self, key: bytes) -> Repeat | None:
        """A point read."""
        try:
            return self._reads.recall(key, self.clock.now_ms())
        except apsw.Error as error:
            raise translated(error, self._location) from error

    async def load(self, task_id: str, size: int | None = None) -> Stored | None:
        """From memory if the task was read lately, else on the loop, or on a reader thread if the task is large."""
        kept = self._recent.get(task_id)
        if kept is not None:
            return kept
        files: list[int] = []

        def learn(owner: str, number: int, content: bytes) -> None:
            files.append(number)
            self._files.learn(owner, number, content)

        if size is None:
            size = self._point("size", task_id) or 0
        if size >= LARGE_BYTES:
            return await self._load_large(task_id)
        try:
            stored = self._reads.load(task_id, learn)
        except apsw.Error as error:
            raise translated(error, self._location) from error
        if stored is not None and not files:
            self._recent.keep(stored)
        return stored

    async def find(self, task_id: str, owner: Whose, agent: str, bytes_max: int | None = None) -> Stored | int | None:
        """The head is read before the rest."""
        kept = self._recent.get(task_id)
        if kept is not None:
            return kept if covers(owner, kept.head.owner) and kept.head.agent == agent else None
        found = await self.head(task_id)
        if found is None or not covers(owner, found[0].owner) or found[0].agent != agent:
            return None
        size = self._point("size", task_id) or 0
        if bytes_max is not None and size >= bytes_max:
            return int(size)
        return await self.load(task_id, size)

    async def load_after(self, task_id: str, after: int) -> Stored | None:
        """As `load`: nobody else writes to a file, so that hardly anything is ever read again."""
        return await self.load(task_id)

    async def load_snapshot(self, task_id: str) -> Stored | None:
        """On a reader thread."""
        stored = await self._readers.run(lambda reads: reads.load_snapshot(task_id))
        if stored is not None:
            self._recent.seen(task_id, stored.seq)
        return stored

    async def _load_large(self, task_id: str) -> Stored | None:
        """Load a task on a reader thread; None if it has been deleted.

        A webhook may be registered meanwhile. It must not be missed, since the log does not tell of it.
        """
        stored = await self._readers.run(lambda reads: reads.load(task_id))
        found = self._point("pushed", task_id)
        if stored is None or found is None:
            return None
        self._recent.seen(task_id, stored.seq)
        pushed, version = found
        return replace(stored, pushed=bool(pushed), webhooks_version=version)

    async def size(self, task_id: str) -> int:
        """A point read. A task that was read lately counts as 0, since it is in memory."""
        return 0 if self._recent.has(task_id) else int(self._point("size", task_id) or 0)

    def _point(self, name: str, task_id: str) -> Any:
        """A point read of a number or two about a task."""
        try:
            found: Any = self._reads.point(name, (task_id,))
        except apsw.Error as error:
            raise translated(error, self._location) from error
        return found

    async def head(self, task_id: str) -> tuple[TaskHead, int, TaskState] | None:
        """A point read, from memory if the task was read lately."""
        if (kept := self._recent.get(task_id)) is not None:
            return kept.head, kept.seq, kept.state
        try:
            return self._reads.head(task_id)
        except apsw.Error as error:
            raise translated(error, self._location) from error

    async def read(self, task_id: str, after: int, limit_bytes: int) -> tuple[Logged, ...]:
        """On a reader thread."""
        events = await self._readers.run(lambda reads: reads.read(task_id, after, limit_bytes))
        if events:
            self._recent.seen(task_id, events[-1].seq)
        return events

    async def read_since(self, seen: Sequence[tuple[str, int]], limit_bytes: int) -> Mapping[str, tuple[Logged, ...]]:
        """On a reader thread."""
        found = await self._readers.run(lambda reads: reads.read_since(seen, limit_bytes))
        for task_id, events in found.items():
            self._recent.seen(task_id, events[-1].seq)
        return found

    async def messages(self, owner: str, agent: str, context_id: str, limit: int) -> tuple[Stored, ...]:
        """On a reader thread."""
        tasks = await self._readers.run(lambda reads: newest_of_context(reads, owner, agent, context_id, limit))
        for stored in tasks:
            self._recent.seen(stored.head.id, stored.seq)
        return tasks

    async def list(self, query: ListQuery) -> Listed:
        """On a reader thread."""
        listed = await self._readers.run(lambda reads: list_tasks(reads, query))
        for stored in listed.tasks:
            self._recent.seen(stored.head.id, stored.seq)
        return listed

    async def list_rows(self, query: ListQuery) -> ListedRows:
        """On a reader thread."""
        return await self._readers.run(lambda reads: list_rows(reads, query))

    async def contexts(self, query: ContextQuery) -> ContextPage:
        """A page of contexts."""
        return await self._readers.run(lambda reads: list_contexts(reads, query))

    async def read_head(self, data: bytes, task: int) -> tuple[TaskHead, bool]:
        """The head of the task with a number: see `SqliteReads.head_of`."""
        try:
            return self._reads.head_of(data, task)
        except apsw.Error as error:
            raise translated(error, self._location) from error

    async def claim(
        self,
        holder: str,
        limit: int,
        agents: Collection[str] | None,
        absent_s: float = AGENT_ABSENT_S,
        *,
        queued: bool = True,
    ) -> tuple[Stored, ...]:
        """Leased by the writer, then read on a reader thread."""
        return await self._claim(holder, limit, agents, queued=queued)

    async def claim_woken(
        self, holder: str, limit: int, agents: Collection[str] | None, absent_s: float = AGENT_ABSENT_S
    ) -> tuple[Stored, ...]:
        """As `claim`."""
        return await self._claim(holder, limit, agents, woken=True)

    async def _claim(
        self, holder: str, limit: int, agents: Collection[str] | None, *, queued: bool = True, woken: bool = False
    ) -> tuple[Stored, ...]:
        alive = self._local.living()
        if holder not in alive:
            raise StoreError(f"store {self._location.url!r}: {holder} has not joined it")
        wanted = None if agents is None else tuple(agents)
        alive = (*alive, *NO_REPLICAS) if self._has_granted else (*alive, ASLEEP, ASIDE)
        # Without that, workers' leases have ended with an earlier process.
        claim = TaskClaim(holder, alive, limit, wanted, self._local.served(), queued, woken)
        writing = self._writer.submit(claim)
        if not self._has_granted:
            self._claims.add(writing)
            writing.add_done_callback(self._claims.discard)
        claimed: list[int] = await writing
        return await self._readers.run(lambda reads: reads.whole(claimed)) if claimed else ()

    @asynccontextmanager
    async def hold(self, task_id: str) -> AsyncIterator[Held]:
        """Only in memory, since nobody else writes to the file. Appends of others are submitted at the end."""
        while (other := self._holds.get(task_id)) is not None:
            await asyncio.wait((other.ended,))
        hold = self._holds[task_id] = SqliteHold(self)
        try:
            await self._writer.submit(Act(_nothing))  # what was submitted before is committed now
            stored = await self.load(task_id)
            if stored is None:
                raise Unknown(task_id)
            hold.begin(stored)
            yield hold
        finally:
            del self._holds[task_id]
            hold.end()

    async def sweep(self, now_ms: int, task_age_ms: int, log_age_ms: int, waiting_age_ms: int) -> int:
        """A reader thread finds the rows, and the writer deletes those that have not changed since."""
        horizon, limit = Horizon(now_ms, task_age_ms, log_age_ms, waiting_age_ms), self._swept.limit
        sweep = await self._readers.run(lambda reads: find_victims(reads, horizon, limit))
        if sweep is None:
            return 0
        began_s = time.monotonic()
        gone: int = await self._writer.submit(sweep)
        self._swept.note(time.monotonic() - began_s, full=len(sweep.whole) + len(sweep.logs) == limit)
        return gone

    async def delete(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """A reader thread finds the remembered calls, since no index does."""
        ids = tuple(dict.fromkeys(task_ids))
        calls = await self._readers.run(lambda reads: reads.calls_of(ids))
        deleted: tuple[str, ...] = await self._writer.submit(Deletion(ids, calls))
        return deleted

    async def probe(self) -> None:
        """Overwrite the row of the probe."""
        await self._writer.submit(ProbeWrite())

    async def figures(self) -> StoreFigures:
        """On a reader thread. The size is that of the file and its WAL."""
        path = self._location.path
        size_bytes = await self._readers.run(lambda reads: reads.size_bytes(path))
        return await read_figures(self._statements, size_bytes)

    @property
    def _writer(self) -> SqliteWriter:
        if self._own_writer is None:
            raise self._not_writable()
        return self._own_writer

    @property
    def _reads(self) -> SqliteReads:
        return self._open().reads

    @property
    def _readers(self) -> Readers:
        return self._open().readers

    def _not_writable(self) -> StoreError:
        if self._open.opened is None:
            return self._open.not_open()
        return StoreError(f"store {self._location.url!r} is open beside its server, for keys, outbox and audit only")

    def _failed(self, error: Exception) -> "asyncio.Future[Appended | Repeat]":
        future: asyncio.Future[Appended | Repeat] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future


class LocalWorkerLeases:
    """The WorkerLeases protocol for the leases in memory, which end with their process."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table

    async def get(self, task_id: str) -> HeldLease | None:
        """As the protocol says."""
        return self._table.get(task_id)

    async def renew(self, tokens: Collection[tuple[str, str]], ttl_ms: int) -> Mapping[str, WorkerLease]:
        """As the protocol says."""
        return self._table.renew(tokens, ttl_ms)

    async def note(self, lease: WorkerLease) -> bool:
        """As the protocol says."""
        return self._table.note(lease)

    async def of_agent(self, agent: str) -> tuple[HeldLease, ...]:
        """As the protocol says."""
        return self._table.of_agent(agent)

    async def running(self, tokens: Collection[tuple[str, str]]) -> frozenset[str]:
        """As the protocol says."""
        return self._table.running(tokens)

    async def due(self, limit: int) -> DueLeases:
        """As the protocol says."""
        return self._table.due(limit)


class SqliteHold:
    """A task that is held: see `store.api.Held`. Appends of others wait until it ends."""

    stored: Stored

    def __init__(self, store: SqliteStore) -> None:
        self.shut = True
        """Whether appends wait."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store = store
        self._waiting: deque[tuple[Append, asyncio.Future[Appended | Repeat]]] = deque()

    def begin(self, stored: Stored) -> None:
        """Note the task as it stands, now that all writes before are committed."""
        self.stored = stored

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """As the protocol says."""
        self.shut = False
        try:
            return self._store.append(append)
        finally:
            self.shut = True

    def wait(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """Keep an append of somebody else. The future gets its outcome."""
        future: asyncio.Future[Appended | Repeat] = asyncio.get_running_loop().create_future()
        self._waiting.append((append, future))
        return future

    def end(self) -> None:
        """Submit the appends that wait, in their order."""
        for append, future in self._waiting:
            self._store.append(append).add_done_callback(partial(_pass_on, future))
        self.ended.set_result(None)


def _pass_on(future: "asyncio.Future[Appended | Repeat]", done: "asyncio.Future[Appended | Repeat]") -> None:
    """Give the outcome of a write to the one who waits for it."""
    error = done.exception()
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())


def _nothing(tables: Tables, now_ms: int) -> None:
    """Change nothing: only the place in the queue of writes counts."""
