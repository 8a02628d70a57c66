"""The Store protocol on PostgreSQL, which any number of replicas share.

Invariant: nothing about a task is kept in memory between two calls. The rows decide, whoever wrote them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import randbits
from typing import Any

from msgspec import Struct

from dragoman.model.ids import Clock
from dragoman.model.message import Message
from dragoman.model.task import TERMINAL
from dragoman.store.api import (
    AGENT_ABSENT_S,
    BEGIN_MS,
    Append,
    Appended,
    Dedupe,
    Held,
    Moved,
    NewTask,
    OutcomeUnknown,
    Refused,
    Repeat,
    Stored,
    StoreError,
    Unknown,
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
from dragoman.store.postgres.audit_trail import AuditWriter
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.history import HistoryCount
from dragoman.store.postgres.database.opening import PostgresDoor, open_pool
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import from_text, read_statements, to_text
from dragoman.store.postgres.ledger import Again, PostgresLedger
from dragoman.store.postgres.listing import TaskLists
from dragoman.store.postgres.outbox import PostgresOutbox
from dragoman.store.postgres.principals import DatabaseScopes
from dragoman.store.postgres.reads import PostgresReads
from dragoman.store.postgres.replicas import SharedReplicas
from dragoman.store.postgres.shared import SharedRows
from dragoman.store.postgres.statements import PostgresStatements
from dragoman.store.postgres.submission import Submission
from dragoman.store.postgres.sweep import TaskSweep
from dragoman.store.postgres.worker_leases import LeaseRows
from dragoman.store.postgres.writer import PostgresWriter
from dragoman.store.principals import PrincipalRows
from dragoman.store.receipts import Receipts
from dragoman.store.replicas import Heartbeat, Replicas
from dragoman.store.retention import Horizon
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
from dragoman.store.sql.tasks import TaskTable
from dragoman.store.sql.teams import TeamTable
from dragoman.store.sql.usage import UsageTable
from dragoman.store.state import StateStore
from dragoman.store.team_rows import TeamRows
from dragoman.store.usage import AnswerUsage, UsageBook
from dragoman.store.worker_leases import WorkerLeases
from dragoman.store.writes import Addition


class StoreParts(Struct, frozen=True):
    """The parts of an open store. `ledger` and `writer` are None beside a server."""

    pool: Pool
    ledger: PostgresLedger
    writer: PostgresWriter


class PostgresStore:
    """Tasks in the tables of a database (`postgresql://user@host:5432/database`)."""

    def __init__(self, url: str, clock: Clock, heartbeat: Heartbeat | None = None) -> None:
        """Raises StoreError if `url` is not one of this driver's, or does not fit the `heartbeat`."""
        self._address = parse_address(url, None if heartbeat is None else heartbeat.lease_s)
        self.clock = clock
        self.writing = WriteRecord(self._address.shown, clock)
        self._damage = DamageLog()
        self.replicas: Replicas
        self._pool = door = PostgresDoor(self._address)
        self._submission = submission = Submission(door)
        self._history = HistoryCount()
        self.replicas = self._replicas = SharedReplicas(
            door, self._address, clock, heartbeat or Heartbeat(), self._history
        )
        self._statements = statements = PostgresStatements(door, self._address.schema)
        self.shared: Shared = SharedRows(door, self._address.schema)
        self.worker_leases: WorkerLeases = LeaseRows(door, self._address.schema)
        self.state: StateStore = StateTable(statements, clock, self.worker_leases)
        self.operator_records: OperatorRecords = RecordTable(statements, clock)
        self.keys: KeyRing = KeyTable(statements, self._damage)
        self._webhooks = PostgresOutbox(door, submission.start, clock, self._replicas.current, self._address.schema)
        self.outbox: Outbox = OutboxTables(statements, self._webhooks, self._damage)
        self.receipts: Receipts = ReceiptTable(statements)
        self.teams: TeamRows = TeamTable(statements)
        self.principals: PrincipalRows
        self.principals = PrincipalTable(statements, DatabaseScopes(statements, submission))
        self.usage: UsageBook
        self.usage = self._usage = UsageTable(statements, submission.add_answers)
        self.budgets: BudgetBook
        self.budgets = self._budgets = BudgetTable(statements)
        entries = AuditWriter(door, submission.start_audit, self._address.schema)
        self.audit: AuditTrail = AuditTable(statements, entries.add)
        self._codec = Codec()
        self._files = TaskFiles(_any_numbers())
        self._files_history = 0
        """The history of the database during which the remembered files were written."""
        self._encoder = Encoder(self._codec, clock)
        self._sql = read_statements("tasks.sql", self._address.schema)
        # The protocol's methods that one part of the store carries out alone are that part's own.
        self._reads = reads = PostgresReads(door, self._sql, self._codec, self._damage)
        self.find, self.load_after, self.size, self.head = reads.find, reads.load_after, reads.size, reads.head
        self.read, self.read_since = reads.read, reads.read_since
        lists = TaskLists(door, reads, read_statements("lists.sql", self._address.schema), submission.start)
        self.messages, self.contexts = lists.newest_of_context, lists.contexts
        self.list, self.list_rows = lists.page, lists.rows
        looks = TaskTable(statements, reads)
        self.search, self.changes = looks.search, looks.changes
        self.queued, self.missing = looks.queued, looks.missing
        self.leased, self.leased_of, self.cancels = looks.leased, looks.leased_of, looks.cancels
        self.children, self.asking = looks.children, looks.asking
        self.orphans, self.overdue, self.next_wake = looks.orphans, looks.overdue, looks.next_wake
        statements_of_sweep = read_statements("sweep.sql", self._address.schema)
        self._sweep = TaskSweep(statements_of_sweep, self._webhooks.remove_webhooks, self._codec.charges)
        self._opened: StoreParts | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, holder: str | None) -> None:
        """As the protocol says."""
        pool = await open_pool(self._address, self._history)
        self._reads.open()
        self._replicas.open(holder)
        ledger = PostgresLedger(
            pool,
            self._sql,
            self._codec,
            self.clock,
            self._replicas.own_id,
            self._webhooks.tell,
            self._budgets.changed,
        )
        writer = PostgresWriter(ledger, self.clock, self.writing, self._address.shown)
        self._opened = StoreParts(pool, ledger, writer)
        self._pool.open(pool)
        self._submission.open(ledger, writer)
        self._watching = asyncio.get_running_loop().create_task(self._watch_history(), name="history of the database")

    async def close(self) -> None:
        """Finish the writes under way, and close the connections."""
        if self._opened is None:
            return
        opened = self._opened
        await self._usage.gathering.close()
        await asyncio.shield(opened.writer.close())
        await self._reads.close()
        await self._replicas.close()
        if self._watching is not None:
            self._watching.cancel()
        self._opened = None
        self._pool.close()
        self._submission.close()
        await opened.pool.close()

    async def _watch_history(self) -> None:
        """Let the replica know for ever whenever another history of the database has come."""
        while True:
            await self._history.changed()
            self._webhooks.rewound()
            self._replicas.rewound()

    def _remembered_files(self) -> TaskFiles:
        """The files of live tasks: none that an earlier history of the database had."""
        if self._files_history != self._history.number:
            self._files_history = self._history.number
            self._files.forget_all()
        return self._files

    def _encode(self, append: Append) -> Addition:
        return self._encoder.addition(append, self._remembered_files())

    # -- writes --------------------------------------------------------------------------------------------------------

    def create(self, new: NewTask) -> "asyncio.Future[Appended | Repeat]":
        """One statement for all new tasks and appends of a moment."""
        opened = self._opened
        if opened is None:
            return _failed(self._pool.not_open())
        try:
            write = self._encoder.creation(new, self._remembered_files())
        except (TypeError, ValueError) as error:
            return _failed(error)
        future = opened.writer.submit(write)
        if write.files:
            note_files(write, self._files, future)
        return future

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """One statement for all new tasks and appends of a moment.

        Raises Moved for a snapshot that does not fit.
        """
        opened = self._opened
        if opened is None:
            return _failed(self._pool.not_open())
        try:
            write = self._encode(append)
        except (TypeError, ValueError, Moved) as error:
            return _failed(error)
        future = opened.writer.submit(write)
        if append.state in TERMINAL or write.files:
            note_files(write, self._files, future)
        return future

    @asynccontextmanager
    async def hold(self, task_id: str) -> AsyncIterator[Held]:
        """A turn among the writes of this process, and the row locked against those of others."""
        opened = self._open()
        async with opened.writer.turn(task_id), AsyncExitStack() as locked:
            hold = PostgresHold(opened, self._reads, self._encode, task_id, locked)
            await hold.lock()
            yield hold

    async def request_cancel(self, task_id: str) -> None:
        """Mark the task's row, after the writes of the task that are under way."""
        await self._submit(self._statement("request_cancel", to_text(task_id)), task_id)

    async def claim(
        self,
        holder: str,
        limit: int,
        agents: Collection[str] | None,
        absent_s: float = AGENT_ABSENT_S,
        *,
        queued: bool = True,
    ) -> tuple[Stored, ...]:
        """Those who have not beaten in time are declared dead before."""
        return await self._claim(holder, limit, agents, absent_s, queued=queued)

    async def claim_woken(
        self, holder: str, limit: int, agents: Collection[str] | None, absent_s: float = AGENT_ABSENT_S
    ) -> tuple[Stored, ...]:
        """As `claim`."""
        return await self._claim(holder, limit, agents, absent_s, woken=True)

    async def _claim(
        self,
        holder: str,
        limit: int,
        agents: Collection[str] | None,
        absent_s: float,
        *,
        queued: bool = False,
        woken: bool = False,
    ) -> tuple[Stored, ...]:
        if not await self.replicas.alive(holder):
            raise StoreError(f"store {self._address.shown!r}: {holder} has not joined it")
        await self._replicas.bury()
        wanted = None if agents is None else list(agents)

        async def run() -> list[int]:
            now_ms = self.clock.now_ms()
            values = holder, limit, now_ms, wanted, now_ms + BEGIN_MS, absent_s, queued, woken
            return [row[0] for row in await self._pool().write(self._sql["claim"], *values)]

        claimed: list[int] = await self._submit(run)
        return await self._reads.load_many(sorted(claimed)) if claimed else ()

    async def sweep(self, now_ms: int, task_age_ms: int, log_age_ms: int, waiting_age_ms: int) -> int:
        """Each kind of rows in a transaction of its own, more at once while more is left."""
        horizon = Horizon(now_ms, task_age_ms, log_age_ms, waiting_age_ms)
        replica = self._open().ledger.replica

        async def run() -> int:
            return await self._sweep.sweep(self._pool(), replica, horizon)

        deleted: int = await self._submit(run)
        return deleted

    async def delete(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """One statement, and more for the webhooks. A repeated attempt does not tell what the first one deleted."""
        replica, ids = self._open().ledger.replica, sorted({to_text(task_id) for task_id in task_ids})

        async def run() -> tuple[str, ...]:
            return await self._sweep.delete(self._pool(), replica, ids)

        deleted: tuple[str, ...] = await self._submit(run)
        return tuple(map(from_text, deleted))

    async def remember(self, dedupe: Dedupe, answer: Message, usage: AnswerUsage | None = None) -> Repeat | None:
        """Insert a call without a task."""
        content = self._codec.encode(answer)

        async def run() -> Repeat | None:
            pool, reads = self._open().pool, self._reads
            instead_of = None if dedupe.instead_of is None else to_text(dedupe.instead_of)
            spent = await self._open().ledger.answer_usage(dedupe.key, () if usage is None else (usage,))
            while True:
                now_ms = self.clock.now_ms()
                values = dedupe.key, dedupe.digest, content, dedupe.expires_ms, now_ms, instead_of
                if await pool.write(self._sql["remember"], *values, *spent):
                    return None
                known = await reads.recall(dedupe.key, now_ms)
                if known is not None:  # else it has been swept in between
                    return known

        repeat: Repeat | None = await self._submit(run)
        return repeat

    async def probe(self) -> None:
        """Overwrite the row of the probe."""
        await self._submit(self._statement("probe", self._open().ledger.replica, self.clock.now_ms()))

    def _statement(self, name: str, *values: object) -> Callable[[], Awaitable[None]]:
        """A write of one statement that may be repeated without harm."""

        async def run() -> None:
            pool = self._open().pool
            try:
                await pool.write(self._sql[name], *values)
            except OutcomeUnknown:
                await pool.write(self._sql[name], *values)

        return run

    async def _submit(self, run: Callable[[], Awaitable[Any]], task_id: str | None = None) -> Any:
        """Make a write that may be repeated without harm, so that a lost outcome counts as a failure."""
        try:
            return await self._submission.start(run, task_id)
        except OutcomeUnknown as error:
            raise StoreError(str(error)) from error

    # -- reads ---------------------------------------------------------------------------------------------------------

    async def recall(self, key: bytes) -> Repeat | None:
        """A point read."""
        return await self._reads.recall(key, self.clock.now_ms())

    async def load(self, task_id: str, size: int | None = None) -> Stored | None:
        """One statement, and another for the task's files if it has any."""
        return await self._reads.load(task_id)

    async def load_snapshot(self, task_id: str) -> Stored | None:
        """One statement."""
        return await self._reads.load(task_id, "load_snapshot")

    # -- state ---------------------------------------------------------------------------------------------------------

    async def figures(self) -> StoreFigures:
        """The size is that of the tables with their indexes."""
        ((size_bytes,),) = await self._statements.read("size_bytes", self._address.schema)
        return await read_figures(self._statements, size_bytes)

    def _open(self) -> StoreParts:
        if self._opened is None:
            raise self._pool.not_open()
        return self._opened


class PostgresHold:
    """A task that is held: see `store.api.Held`.

    An append commits the transaction that has the row locked. From then on, other processes may write.
    """

    stored: Stored

    def __init__(
        self,
        opened: StoreParts,
        reads: PostgresReads,
        encode: Callable[[Append], Addition],
        task_id: str,
        locked: AsyncExitStack,
    ) -> None:
        """`locked` is left at the end of the block."""
        self._opened = opened
        self._reads = reads
        self._encode = encode
        self._task_id = task_id
        self._locked = locked
        self._connection: DatabaseConnection | None = None

    async def lock(self) -> None:
        """Lock the row, and read the task. Raises Unknown or StoreError."""
        self._connection = connection = await self._locked.enter_async_context(self._opened.pool.transaction())
        await self._opened.ledger.lock(connection, self._task_id)
        stored = await self._reads.load_in(connection, self._task_id)
        if stored is None:
            raise Unknown(self._task_id)
        self.stored = stored

    def append(self, append: Append) -> "asyncio.Future[Appended | Repeat]":
        """As the protocol says."""
        return asyncio.ensure_future(self._opened.writer.write_in_turn(self._append(append)))

    async def _append(self, append: Append) -> Appended | Repeat:
        write = self._encode(append)
        ledger, connection = self._opened.ledger, self._connection
        if connection is None:
            outcome = await ledger.alone(0, write)
        else:
            self._connection = None
            outcome = await ledger.append_in(connection, 0, write)
            await self._locked.aclose()
        if isinstance(outcome, Refused):
            raise outcome
        assert not isinstance(outcome, Again)
        return outcome


def _any_numbers() -> Iterator[int]:
    """Numbers for files, each of which no other file of its task has."""
    while True:
        yield randbits(62)


def _failed(error: Exception) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
