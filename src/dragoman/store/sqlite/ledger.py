"""What each write does to the tables, one statement after the other.

Invariant: the first thing an append does to its task is the guarded update of the row; if that misses, nothing else of
it happens. Everything here runs inside a transaction of the writer's.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import apsw
import msgspec

from dragoman.model.operations import PushConfig
from dragoman.store.api import Appended, Dedupe, Refused, Repeat, Unknown
from dragoman.store.sqlite.codec import LARGE_BYTES, Codec
from dragoman.store.sqlite.files import File
from dragoman.store.sqlite.guard import Standing, refusal
from dragoman.store.sqlite.owed import keep_webhook, owe, register, remove, remove_all, settle
from dragoman.store.sqlite.quotas import Room
from dragoman.store.sqlite.rows import addition_row, repeat, task_row
from dragoman.store.sqlite.statements import for_rows
from dragoman.store.sqlite.tally import Tally
from dragoman.store.sqlite.writes import (
    Act,
    Addition,
    Creation,
    Outcome,
    Probe,
    Registering,
    Remembrance,
    Removal,
    Settlement,
    Stop,
    Sweep,
    Write,
)

ROWS_MAX = 32
"""Rows of one statement: more save little, and SQLite's limit of 32,766 values is far."""

SWEPT_DAYS = 500
"""Days of owners that go in one batch of a sweep; each is one small row."""

SCOPES_REMEMBERED = 10_000
"""Numbers of owners with agents that need no look-up."""


class Ledger:
    """The tables, as the writer's connection has them."""

    def __init__(self, connection: apsw.Connection, sql: dict[str, str], codec: Codec) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.sql = sql
        self.one_row = {name: for_rows(text, 1) for name, text in sql.items()}
        self.tally = Tally()
        self.standings: dict[str, Standing] = {}
        """How tasks stand that were written in batches lately; nothing else writes to the file."""
        self.push_configs = msgspec.msgpack.Decoder(PushConfig)
        self._codec = codec
        self._forms: dict[tuple[str, int], str] = {}
        self._scopes: dict[tuple[str, str], int] = {}
        self.hosts: dict[str, int] = {}
        self.last_task, self.last_file, self.last_config = self.cursor.execute(sql["last_numbers"]).get

    def begin(self) -> None:
        """Start a transaction."""
        if self.connection.in_transaction:  # the last one could not even be rolled back
            self.rollback()
        self.cursor.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Write the counters and make it durable."""
        self.write_tally()
        self.cursor.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, and what was remembered of it; SQLite may have undone its part already."""
        self.tally = Tally()
        for known in (self.standings, self._scopes, self.hosts):
            known.clear()
        if self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")

    def scope(self, owner: str, agent: str) -> int:
        """The number of an owner with an agent; made if there is none."""
        number = self._scopes.get((owner, agent))
        if number is None:
            found = self.cursor.execute(self.sql["find_scope"], (owner, agent)).get
            if found is None:
                found = self.cursor.execute(self.sql["add_scope"], (owner, agent)).get
            number = int(found)
            if len(self._scopes) >= SCOPES_REMEMBERED:
                self._scopes.clear()
            self._scopes[owner, agent] = number
        return number

    def write(self, write: Write, now_ms: int) -> Outcome:
        """One write, or why not. Raises apsw.Error if SQLite cannot."""
        match write:
            case Creation():
                return self._create(write, now_ms)
            case Addition():
                return self._append(write, now_ms)
            case Stop():
                self.cursor.execute(self.sql["request_cancel"], (write.id,))
                return None
            case Registering():
                return register(self, write, now_ms)
            case Removal():
                return remove(self, write)
            case Settlement():
                settle(self, (write,), now_ms)
                return None
            case Remembrance(dedupe=dedupe):
                known = self._known(dedupe, now_ms)
                if known is None:
                    self._remember(dedupe, None, 0, write.answer, now_ms)
                return known
            case Probe():
                self.cursor.execute(self.sql["probe"], (now_ms,))
                return None
            case Sweep():
                return self._sweep(write)
            case Act(run=run):
                return run(self, now_ms)

    def _create(self, new: Creation, now_ms: int) -> Appended | Repeat | Refused:
        if new.dedupe is not None:
            known = self._known(new.dedupe, now_ms)
            if known is not None:
                return known
        room = Room(self)
        refused = room.refusal(new.owner, new.quota)
        if refused is not None:
            return refused
        room.take(new.owner, new.quota, new.state)
        scope = self.scope(new.owner, new.agent)
        self.last_task += 1
        task, epoch = self.last_task, int(new.holder is not None)
        self.cursor.execute(self.one_row["add_tasks"], task_row(new, task, scope))
        self.cursor.execute(self.one_row["add_pages"], (task, 1, new.events, new.page))
        self.add_files(task, new.files)
        if new.dedupe is not None:
            self._remember(new.dedupe, new.id, new.events, None, now_ms)
        if new.webhook is not None:
            owe(self, (), now_ms, [(task, new.webhook, new.deliveries)])
        self.tally.move(scope, new.context, None, new.state)
        return Appended(new.events, epoch, len(new.page))

    def _append(self, add: Addition, now_ms: int) -> Appended | Repeat | Refused:
        if add.dedupe is not None:
            known = self._known(add.dedupe, now_ms)
            if known is not None:
                return known
        self.standings.pop(add.id, None)
        standing: Standing | None = self.cursor.execute(self.sql["standing"], (add.id,)).get
        if standing is None:
            return Unknown(add.id)
        row = (add.id, *addition_row(add))
        hit: tuple[int, int, int] | None = self.cursor.execute(self.sql["append"], row).get
        if hit is None:
            return refusal(add, standing)
        task, last, epoch = hit
        if add.events:
            self.cursor.execute(self.one_row["add_pages"], (task, last - add.events + 1, last, add.page))
        self.add_files(task, add.files)
        if add.snapshot is not None:
            self.put_snapshot(task, last, add.snapshot)
        if add.dedupe is not None:
            self._remember(add.dedupe, add.id, last, None, now_ms)
        if add.webhook is not None:
            keep_webhook(self, add.id, add.webhook)
        owe(self, [(task, delivery) for delivery in add.deliveries], now_ms)
        self.tally.move(standing[1], standing[2], standing[3], add.state)
        return Appended(last, epoch, len(add.page))

    def put_snapshot(self, task: int, seq: int, record: bytes | bytearray) -> None:
        """Replace a task's snapshot. A large one goes into its pages directly: SQLite would copy a value twice."""
        large = len(record) > LARGE_BYTES
        self.cursor.execute(self.one_row["put_snapshots"], (task, seq, apsw.zeroblob(len(record)) if large else record))
        if large:
            with self.connection.blob_open("main", "snapshots", "record", task, True) as blob:
                blob.write(record)

    def _sweep(self, sweep: Sweep) -> int:
        self.standings.clear()
        before = self.connection.total_changes()
        for victim in sweep.whole:
            pushed = self.cursor.execute(self.sql["delete_task"], (victim.task, victim.state, victim.seq)).get
            if pushed is not None:
                if pushed:
                    remove_all(self, victim.task)
                for name in ("delete_pages", "delete_snapshot", "delete_files"):
                    self.cursor.execute(self.sql[name], (victim.task,))
                self.tally.move(victim.scope, victim.context, victim.state, None)
        for victim in sweep.logs:
            self.cursor.execute(self.sql["prune_task"], (victim.task,))
            self.cursor.execute(self.sql["prune_pages"], (victim.task,))
        if sweep.calls:
            self.cursor.execute(self.sql["delete_calls"], (str(list(sweep.calls)), sweep.now_ms))
        if sweep.days_before:
            self.cursor.execute(self.sql["delete_days"], (sweep.days_before, SWEPT_DAYS))
        return self.connection.total_changes() - before

    def execute_rows(self, name: str, rows: Sequence[tuple[object, ...]], *values: object) -> int:
        """Execute a statement of many rows, which `values` follow; returns how many rows changed.

        All of them go in one, up to ROWS_MAX: each number of rows is a form that is prepared once.
        """
        done = changed = 0
        while done < len(rows):
            size = min(len(rows) - done, ROWS_MAX)
            form = self._forms.get((name, size))
            if form is None:
                form = self._forms[name, size] = for_rows(self.sql[name], size)
            self.cursor.execute(form, [*chain.from_iterable(rows[done : done + size]), *values])
            changed += self.connection.changes()
            done += size
        return changed

    def add_files(self, task: int, files: Iterable[File]) -> None:
        """The bytes that came with a write."""
        for file in files:
            self.cursor.execute(self.sql["add_file"], (file.number, task, file.digest, file.content))

    def _known(self, dedupe: Dedupe, now_ms: int) -> Repeat | None:
        if dedupe.instead_of is not None:
            self.cursor.execute(self.sql["forget_call"], (dedupe.key, dedupe.instead_of))
        found = self.cursor.execute(self.sql["find_call"], (dedupe.key, now_ms)).get
        return None if found is None else repeat(found, self._codec)

    def _remember(self, dedupe: Dedupe, task_id: str | None, seq: int, answer: bytes | None, now_ms: int) -> None:
        row = (dedupe.key, dedupe.digest, task_id, seq, answer, dedupe.expires_ms, now_ms)
        self.cursor.execute(self.one_row["add_calls"], row)

    def write_tally(self) -> None:
        """Bring the counters up to this transaction."""
        if not self.tally.contexts:
            return
        self.execute_rows("count_days", [(*day, made) for day, made in self.tally.days.items()])
        for scope, counts in self.tally.scopes().items():
            if any(counts):
                self.cursor.execute(self.sql["count_scope"], (scope, *counts))
        self.execute_rows("count_contexts", [(*key, *counts) for key, counts in self.tally.contexts.items()])
        for key, counts in self.tally.contexts.items():
            if sum(counts) < 0:
                self.cursor.execute(self.sql["drop_context"], key)
        self.tally = Tally()
