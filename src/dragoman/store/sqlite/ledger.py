"""Ledger: applies each write to the tables, one statement after the other.

Invariant: an append first makes the guarded update of its task's row. If that matches no row, nothing else of the
append is written. Everything here runs inside a writer's transaction.
"""

from typing import Any

import apsw
import msgspec

from dragoman.store.api import Appended, Dedupe, Exists, Refused, Repeat, Unknown
from dragoman.store.sqlite.codec import Codec
from dragoman.store.sqlite.guard import refusal
from dragoman.store.sqlite.owed import keep_webhook, owe, register, remove, remove_all, settle
from dragoman.store.sqlite.quotas import Room
from dragoman.store.sqlite.rows import addition_row, repeat, task_row
from dragoman.store.sqlite.tables import Standing, Tables
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
    TaskClaim,
    Write,
)

SWEPT_DAYS = 500
"""Days of owners that one batch of a sweep deletes; each is one small row."""


class Ledger:
    """Applies writes to the tables, one after the other."""

    def __init__(self, tables: Tables, codec: Codec) -> None:
        self.tables = tables
        self._codec = codec

    def write(self, write: Write, now_ms: int) -> Outcome:
        """Apply one write. Returns its outcome or the refusal. Raises apsw.Error if SQLite fails."""
        match write:
            case Creation():
                return self._create(write, now_ms)
            case Addition():
                return self._append(write, now_ms)
            case Stop():
                self.tables.cursor.execute(self.tables.sql["request_cancel"], (write.id,))
                return None
            case Registering():
                return register(self.tables, write, now_ms)
            case Removal():
                return remove(self.tables, write)
            case Settlement():
                settle(self.tables, (write,), now_ms)
                return None
            case Remembrance(dedupe=dedupe):
                known = self._known(dedupe, now_ms)
                if known is None:
                    self._remember(dedupe, None, 0, write.answer, now_ms)
                return known
            case Probe():
                self.tables.cursor.execute(self.tables.sql["probe"], (now_ms,))
                return None
            case TaskClaim():
                return self._claim(write)
            case Sweep():
                return self._sweep(write)
            case Act(run=run):
                return run(self.tables, now_ms)

    def _create(self, new: Creation, now_ms: int) -> Appended | Repeat | Refused:
        if new.dedupe is not None:
            known = self._known(new.dedupe, now_ms)
            if known is not None:
                return self._earlier(new) or known
        room = Room(self.tables)
        refused = room.refusal(new.owner, new.quota)
        if refused is not None:
            return refused
        scope = self.tables.scope(new.owner, new.agent)
        self.tables.last_task += 1
        task, epoch = self.tables.last_task, int(new.holder is not None)
        try:
            self.tables.cursor.execute(self.tables.one_row["add_tasks"], task_row(new, task, scope))
        except apsw.ConstraintError:
            if self.tables.cursor.execute(self.tables.sql["standing"], (new.id,)).get is None:
                raise
            return self._earlier(new) or Exists(new.id)
        room.take(new.owner, new.quota, new.state)
        page = (task, 1, new.events, new.page, new.write, epoch)
        self.tables.cursor.execute(self.tables.one_row["add_pages"], page)
        self.tables.add_files(task, new.files)
        if new.dedupe is not None:
            self._remember(new.dedupe, new.id, new.events, None, now_ms)
        if new.webhook is not None:
            owe(self.tables, (), now_ms, [(task, new.webhook, new.deliveries)])
        self.tables.tally.move(scope, new.context, None, new.state)
        return Appended(new.events, epoch, len(new.page))

    def _append(self, add: Addition, now_ms: int) -> Appended | Repeat | Refused:
        if add.dedupe is not None:
            known = self._known(add.dedupe, now_ms)
            if known is not None:
                return self._earlier(add) or known
        self.tables.standings.pop(add.id, None)
        standing: Standing | None = self.tables.cursor.execute(self.tables.sql["standing"], (add.id,)).get
        if standing is None:
            return Unknown(add.id)
        row = (add.id, *addition_row(add))
        hit: tuple[int, int, int] | None = self.tables.cursor.execute(self.tables.sql["append"], row).get
        if hit is None:
            return self._earlier(add) or refusal(add, standing)
        task, last, epoch = hit
        if add.events:
            page = (task, last - add.events + 1, last, add.page, add.write, epoch)
            self.tables.cursor.execute(self.tables.one_row["add_pages"], page)
        self.tables.add_files(task, add.files)
        if add.snapshot is not None:
            self.tables.put_snapshot(task, last, add.snapshot)
        if add.dedupe is not None:
            self._remember(add.dedupe, add.id, last, None, now_ms)
        if add.webhook is not None:
            keep_webhook(self.tables, add.id, add.webhook)
        owe(self.tables, [(task, delivery) for delivery in add.deliveries], now_ms)
        self.tables.tally.move(standing[1], standing[2], standing[3], add.state)
        return Appended(last, epoch, len(add.page))

    def _earlier(self, write: Creation | Addition) -> Appended | None:
        """The first result of a write that is repeated, because its outcome was unknown; None if it was never made."""
        if write.write is None:
            return None
        read_seq = write.read_seq if isinstance(write, Addition) else 0
        values = (write.id, read_seq, write.write)
        found: tuple[int, int] | None = self.tables.cursor.execute(self.tables.sql["earlier_write"], values).get
        return None if found is None else Appended(*found, len(write.page))

    def _claim(self, claim: TaskClaim) -> list[int]:
        self.tables.standings.clear()
        values = (claim.holder, msgspec.json.encode(claim.alive).decode(), claim.limit)
        rows: list[Any] = self.tables.cursor.execute(self.tables.sql["claim"], values).fetchall()
        return sorted(task for (task,) in rows)

    def _sweep(self, sweep: Sweep) -> int:
        tables = self.tables
        tables.standings.clear()
        before = tables.connection.total_changes()
        for victim in sweep.whole:
            pushed = tables.cursor.execute(tables.sql["delete_task"], (victim.task, victim.state, victim.seq)).get
            if pushed is not None:
                if pushed:
                    remove_all(tables, victim.task)
                for name in ("delete_pages", "delete_snapshot", "delete_files"):
                    tables.cursor.execute(tables.sql[name], (victim.task,))
                tables.tally.move(victim.scope, victim.context, victim.state, None)
        for victim in sweep.logs:
            tables.cursor.execute(tables.sql["prune_task"], (victim.task,))
            tables.cursor.execute(tables.sql["prune_pages"], (victim.task,))
        if sweep.calls:
            tables.cursor.execute(tables.sql["delete_calls"], (str(list(sweep.calls)), sweep.now_ms))
        if sweep.days_before:
            tables.cursor.execute(tables.sql["delete_days"], (sweep.days_before, SWEPT_DAYS))
        return tables.connection.total_changes() - before

    def _known(self, dedupe: Dedupe, now_ms: int) -> Repeat | None:
        if dedupe.instead_of is not None:
            self.tables.cursor.execute(self.tables.sql["forget_call"], (dedupe.key, dedupe.instead_of))
        found = self.tables.cursor.execute(self.tables.sql["find_call"], (dedupe.key, now_ms)).get
        return None if found is None else repeat(found, self._codec)

    def _remember(self, dedupe: Dedupe, task_id: str | None, seq: int, answer: bytes | None, now_ms: int) -> None:
        row = (dedupe.key, dedupe.digest, task_id, seq, answer, dedupe.expires_ms, now_ms)
        self.tables.cursor.execute(self.tables.one_row["add_calls"], row)
