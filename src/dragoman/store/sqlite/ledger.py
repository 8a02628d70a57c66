"""Ledger: applies writes to the tables, a batch at a time in a few statements, or one write after the other.

Invariant: an append begins with the guarded update of its task's row. If that matches no row, nothing else of the
append is written. Both ways come to the same. Everything here runs inside a writer's transaction.

Why batches: at every statement the driver releases the interpreter lock and has to take it again, and each statement
costs Python code around it. Ten statements a batch, instead of four a write, save a tenth of the total time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.store.api import (
    BEGIN_MS,
    Appended,
    Dedupe,
    Exists,
    Refused,
    Repeat,
    Unknown,
)
from dragoman.store.codec import LARGE_BYTES, TERMINAL_FROM, Codec
from dragoman.store.guard import refusal
from dragoman.store.outbox import Delivery, Settled
from dragoman.store.quotas import Room, over_budget
from dragoman.store.sqlite.deliveries import (
    Begun,
    encode_webhook,
    keep_webhook,
    owe,
    register,
    remove,
    settle,
)
from dragoman.store.sqlite.sweep import delete_tasks, delete_victims
from dragoman.store.sqlite.tables import Standing, Tables
from dragoman.store.sqlite.writes import (
    Act,
    Deletion,
    Outcome,
    ProbeWrite,
    Registering,
    Remembrance,
    Removal,
    Settlement,
    Stop,
    Sweep,
    TaskClaim,
    Webhook,
    Write,
)
from dragoman.store.writes import Addition, Creation

STANDINGS_MAX = 20_000
"""How many standings of tasks are cached, working and waiting ones, at some 300 bytes each."""

Row = tuple[object, ...]

STATEMENTS = ("add_calls", "add_tasks", "append", "extend", "add_pages", "put_snapshots")
"""The statements of a batch, in their order. Each changes as many rows as it is given, or the batch is not simple."""


class NotSimple(Exception):
    """A statement changed fewer rows than expected: a call is a repeat, or the guard refused an append."""


class Plan(Struct):
    """The work of a batch: rows for `STATEMENTS`, webhooks and deliveries, and the writes that follow one by one."""

    outcomes: list[Outcome]
    add_calls: list[Row] = []
    add_tasks: list[Row] = []
    append: list[Row] = []
    extend: list[Row] = []
    add_pages: list[Row] = []
    put_snapshots: list[Row] = []
    keep: list[tuple[str, Webhook]] = []
    begun: list[Begun] = []
    owing: list[tuple[int, Delivery]] = []
    settlements: list[Settled] = []
    titles: list[Row] = []
    rest: list[tuple[int, Write]] = []


class Seen(Struct):
    """The tasks and the keys of calls in the writes of a batch so far."""

    ids: set[str]
    keys: set[bytes]

    def first(self, task_id: str, dedupe: Dedupe | None) -> bool:
        """Whether a write is the first of its task, and of its call."""
        first = task_id not in self.ids
        self.ids.add(task_id)
        if dedupe is not None:
            first = first and dedupe.key not in self.keys
            self.keys.add(dedupe.key)
        return first


class SqliteLedger:
    """Applies writes to the tables."""

    def __init__(self, tables: Tables, codec: Codec) -> None:
        self.tables = tables
        self._codec = codec
        self._standings = msgspec.json.Decoder(list[tuple[str, Standing]])
        self._ways: dict[type, Callable[[Any, int], Outcome]] = {
            Creation: self._create,
            Addition: self._append,
            Stop: lambda stop, _: self._execute("request_cancel", stop.id),
            Registering: lambda write, now_ms: register(tables, write, now_ms),
            Removal: lambda removal, _: remove(tables, removal),
            Settlement: lambda write, now_ms: settle(tables, (write.settled,), now_ms),
            Remembrance: self._remember_answer,
            ProbeWrite: lambda _, now_ms: self._execute("probe", now_ms),
            TaskClaim: self._claim,
            Sweep: lambda sweep, _: delete_victims(tables, sweep, codec),
            Deletion: lambda deletion, _: delete_tasks(tables, deletion, codec),
            Act: lambda act, now_ms: act.run(tables, now_ms),
        }

    # -- a batch -------------------------------------------------------------------------------------------------------

    def write_together(self, writes: Sequence[Write], now_ms: int) -> list[Outcome]:
        """Apply all of `writes` in a few statements, each of many rows. Returns their outcomes.

        A write is simple if it is the first of its task, and its dedupe key has not come before. The others follow one
        by one, in order. Raises NotSimple or apsw.Error if one of them is not as simple as it looked.
        """
        plan = Plan([None] * len(writes))
        creations: list[tuple[int, Creation]] = []
        additions: list[tuple[int, Addition]] = []
        seen, alone = Seen(set(), set()), len(writes) == 1  # then it is the first
        for place, write in enumerate(writes):
            if isinstance(write, Creation):
                if alone or seen.first(write.id, write.asked.dedupe):
                    creations.append((place, write))
                    continue
            elif isinstance(write, Addition):
                if alone or seen.first(write.id, write.asked.dedupe):
                    additions.append((place, write))
                    continue
            elif isinstance(write, Settlement):
                plan.settlements.append(write.settled)
                continue
            elif isinstance(write, Stop | Registering | Removal):
                seen.ids.add(write.id)
            elif isinstance(write, Deletion):
                seen.ids.update(write.ids)
            elif isinstance(write, Remembrance):
                seen.keys.add(write.dedupe.key)
            plan.rest.append((place, write))
        if creations:
            self._plan_creations(plan, creations)
        if additions:
            self._plan_additions(plan, additions)
        self._carry_out(plan, now_ms)
        if plan.settlements:
            settle(self.tables, plan.settlements, now_ms)
        for place, write in sorted(plan.rest, key=lambda one: one[0]):
            plan.outcomes[place] = self._ways[type(write)](write, now_ms)
        return plan.outcomes

    def _carry_out(self, plan: Plan, now_ms: int) -> None:
        """Execute the statements of new tasks and appends. Raises NotSimple."""
        tables, cursor, connection = self.tables, self.tables.cursor, self.tables.connection
        for name in STATEMENTS:
            rows = getattr(plan, name)
            if not rows:
                continue
            values = (now_ms,) if name == "add_calls" else ()
            if len(rows) == 1:
                cursor.execute(tables.one_row[name], rows[0] + values)
                if connection.changes() != 1:
                    raise NotSimple(name)
            elif tables.execute_rows(name, rows, *values) != len(rows):
                raise NotSimple(name)
        for row in plan.titles:
            cursor.execute(tables.sql["name_task"], row)
        for task_id, webhook in plan.keep:  # after the guard, which compares the version of the webhooks
            keep_webhook(tables, task_id, webhook)
        if plan.owing or plan.begun:
            owe(tables, plan.owing, now_ms, plan.begun)

    def _plan_creations(self, plan: Plan, creations: Sequence[tuple[int, Creation]]) -> None:
        room: Room | None = None
        for place, creation in creations:
            new = creation.asked
            if new.claims and over_budget(new.claims, self.tables.balance) is not None:
                plan.rest.append((place, creation))  # see below
                continue
            if new.quota is not None and room is None:
                room = self._room()
            if room is not None:
                owner = new.head.owner
                if room.refusal(owner, new.quota) is not None:
                    plan.rest.append((place, creation))  # a write that ends a task may still make room
                    continue
                self.tables.count_days(room.take(owner, new.quota, creation.state))
            plan.outcomes[place] = self._plan_creation(plan, creation)

    def _plan_creation(self, plan: Plan, creation: Creation) -> Appended:
        tables, new, head, page = self.tables, creation.asked, creation.asked.head, creation.page
        scope = tables.scopes.get((head.owner, head.agent)) or tables.scope(head.owner, head.agent)
        task = next(tables.task_numbers)
        leased, last = int(new.holder is not None), len(new.events)
        plan.add_tasks.append(_task_row(task, scope, creation))
        plan.add_pages.append((task, 1, last, page, new.write, leased))
        if new.dedupe is not None:
            plan.add_calls.append(_call_row(new.dedupe, creation.id, last))
        if new.push is not None:
            plan.begun.append((task, encode_webhook(new.push), new.deliveries))
        if creation.files:
            tables.add_files(task, creation.files)
        if new.claims:
            tables.claim(new.claims)
        tables.count(scope, head.context_id, None, creation.state)
        standing = (task, scope, head.context_id, creation.state, last, leased, leased, new.status_ms)
        tables.standings[creation.id] = standing
        return Appended(last, leased, len(page))

    def _plan_additions(self, plan: Plan, additions: Sequence[tuple[int, Addition]]) -> None:
        known = self.tables.standings
        if len(known) > STANDINGS_MAX:
            known.clear()
        unknown = [add.id for _, add in additions if add.id not in known] if len(additions) > 1 else ()
        if unknown or additions[0][1].id not in known:
            self._read_standings(unknown or (additions[0][1].id,))
        for place, add in additions:
            standing = known.get(add.id)
            if standing is None or _refusal(add, standing) is not None:
                plan.rest.append((place, add))
            else:
                plan.outcomes[place] = self._plan_addition(plan, add, standing)

    def _plan_addition(self, plan: Plan, add: Addition, standing: Standing) -> Appended:
        tables, append, page, record = self.tables, add.asked, add.page, add.record
        task, scope, context, state, seq, epoch, leased, status_ms = standing
        count, holds = len(append.events), append.holder is not None
        last, epoch = seq + count, epoch + holds
        same_status = add.state == state and append.status_ms <= status_ms
        same_lease = not holds and not add.ends_lease and append.expected_epoch is None
        if count and same_status and same_lease:
            guard = (append.epoch, add.expected_seq, append.read_seq, append.write, append.webhooks_version)
            plan.extend.append((task, count, len(page), record is not None, bool(add.files), *guard))
        else:
            plan.append.append(_append_row(task, add))
        if count:
            plan.add_pages.append((task, seq + 1, last, page, append.write, epoch))
        if record is not None:
            if len(record) > LARGE_BYTES:
                tables.put_snapshot(task, last, record)
            else:
                plan.put_snapshots.append((task, last, record))
        if append.dedupe is not None:
            plan.add_calls.append(_call_row(append.dedupe, add.id, last))
        if append.push is not None:
            plan.keep.append((add.id, encode_webhook(append.push)))
        for delivery in append.deliveries:
            plan.owing.append((task, delivery))
        if add.title:
            plan.titles.append((task, add.title))
        if add.files:
            tables.add_files(task, add.files)
        if add.state != state:
            tables.count(scope, context, state, add.state)
        if add.state >= TERMINAL_FROM:
            tables.standings.pop(add.id, None)
            tables.count_usage(append.status_ms, scope, add.used)
            if append.charges:
                tables.charge(append.charges)
        else:
            leased = 0 if add.ends_lease else leased or int(holds)
            latest_ms = max(status_ms, append.status_ms)
            tables.standings[add.id] = (task, scope, context, add.state, last, epoch, leased, latest_ms)
        return Appended(last, epoch, len(page))

    def _read_standings(self, ids: Sequence[str]) -> None:
        """Cache the standings of tasks. They are read as one row, which is a single step of the statement."""
        values = (msgspec.json.encode(ids).decode(),)
        row = self.tables.cursor.execute(self.tables.sql["standings"], values).get
        self.tables.standings.update(self._standings.decode(str(row)))

    # -- one after the other -------------------------------------------------------------------------------------------

    def write_each(self, writes: Sequence[Write], now_ms: int) -> list[Outcome]:
        """Apply the writes in order. Returns their outcomes, refusals among them. Raises apsw.Error if SQLite fails."""
        return [self._ways[type(write)](write, now_ms) for write in writes]

    def _create(self, creation: Creation, now_ms: int) -> Appended | Repeat | Refused:
        tables, new, owner, room = self.tables, creation.asked, creation.asked.head.owner, self._room()
        refused: Repeat | Refused | None = self._known(new.dedupe, now_ms) or room.refusal(owner, new.quota)
        if refused is None and new.claims:
            refused = over_budget(new.claims, tables.balance)
        if refused is None and tables.cursor.execute(tables.sql["standing"], (creation.id,)).get is not None:
            refused = Exists(creation.id)
        if refused is not None:
            return self._earlier(creation) or refused
        tables.count_days(room.take(owner, new.quota, creation.state))
        plan = Plan([])
        appended = self._plan_creation(plan, creation)
        self._carry_out(plan, now_ms)
        return appended

    def _append(self, add: Addition, now_ms: int) -> Appended | Repeat | Refused:
        found = self.tables.cursor.execute(self.tables.sql["standing"], (add.id,)).get
        if found is None:
            return self._known(add.asked.dedupe, now_ms) or Unknown(add.id)
        *facts, webhooks_version = found
        standing: Standing = tuple(facts)
        known = self._known(add.asked.dedupe, now_ms)
        stopped = self._earlier(add) or known or _refusal(add, standing, webhooks_version)
        if stopped is not None:
            return stopped
        plan = Plan([])
        appended = self._plan_addition(plan, add, standing)
        self._carry_out(plan, now_ms)
        return appended

    def _earlier(self, write: Creation | Addition) -> Appended | None:
        """The first result of a write that is repeated, because its outcome was unknown; None if it was never made."""
        read_seq = write.asked.read_seq if isinstance(write, Addition) else 0
        if write.asked.write is None:
            return None
        values = (write.id, read_seq, write.asked.write)
        found: tuple[int, int] | None = self.tables.cursor.execute(self.tables.sql["earlier_write"], values).get
        return None if found is None else Appended(*found, len(write.page))

    def _known(self, dedupe: Dedupe | None, now_ms: int) -> Repeat | None:
        if dedupe is None:
            return None
        if dedupe.instead_of is not None:
            self._execute("forget_call", dedupe.key, dedupe.instead_of)
        found = self.tables.cursor.execute(self.tables.sql["find_call"], (dedupe.key, now_ms)).get
        return None if found is None else self._codec.repeat(found)

    def _remember_answer(self, write: Remembrance, now_ms: int) -> Repeat | None:
        known = self._known(write.dedupe, now_ms)
        if known is None:
            self._execute_one("add_calls", (*_call_row(write.dedupe, None, 0, write.answer), now_ms))
            if write.usage is not None:
                self.tables.count_answer(write.usage)
        return known

    def _claim(self, claim: TaskClaim, now_ms: int) -> list[int]:
        self.tables.standings.clear()
        agents = None if claim.agents is None else msgspec.json.encode(claim.agents).decode()
        alive, served = (msgspec.json.encode(names).decode() for names in (claim.alive, claim.served))
        values = (claim.holder, alive, claim.limit, now_ms, agents, served, now_ms + BEGIN_MS)
        name, more = ("claim_woken", ()) if claim.woken else ("claim", (claim.queued,))
        rows: list[Any] = self.tables.cursor.execute(self.tables.sql[name], (*values, *more)).fetchall()
        return sorted(task for (task,) in rows)

    def _room(self) -> Room:
        return Room(self.tables.open_tasks, self.tables.day_tasks)

    def _execute(self, name: str, *values: Any) -> None:
        self.tables.cursor.execute(self.tables.sql[name], values)

    def _execute_one(self, name: str, row: Row) -> None:
        """Execute a statement of many rows with one."""
        self.tables.cursor.execute(self.tables.one_row[name], row)


def _refusal(add: Addition, standing: Standing, webhooks_version: int | None = None) -> Refused | None:
    """Why an append is refused by a task that stands so. Without `webhooks_version` its webhooks are not compared: the
    guard in the statement does that, and sees whether the same write was made before.
    """
    _, _, _, state, seq, epoch, leased, status_ms = standing
    asked, expected, version = add.asked, add.expected_seq, webhooks_version
    return refusal(asked, expected, state, seq, epoch, leased, status_ms, webhooks_version=version, fault=add.fault)


def _task_row(task: int, scope: int, creation: Creation) -> Row:
    """The values of `add_tasks`."""
    new, head = creation.asked, creation.asked.head
    return (
        task,
        creation.id,
        scope,
        head.context_id,
        creation.state,
        new.status_ms,
        len(new.events),
        creation.epoch,
        creation.holder,
        len(creation.page),
        bool(creation.files),
        creation.head,
        new.push is not None,
        None if head.detached else head.parent,
        head.deadline_ms,
        head.dialect,
        creation.text,
        head.key or None,
        head.team or None,
        creation.title or None,
    )


def _append_row(task: int, add: Addition) -> Row:
    """The values of `append`."""
    append, change = add.asked, add.asked.lease
    return (
        task,
        len(append.events),
        add.state,
        append.status_ms,
        append.holder is not None,
        append.holder,
        add.ends_lease,
        len(add.page),
        add.record is not None,
        bool(add.files),
        append.keeper,
        add.offered_until_ms,
        append.epoch,
        add.expected_seq,
        append.read_seq,
        append.write,
        append.webhooks_version,
        append.expected_epoch,
        change is not None and change.granted_ms is not None,
    )


def _call_row(dedupe: Dedupe, task_id: str | None, seq: int, answer: bytes | None = None) -> Row:
    """The values of `add_calls` before the time."""
    return (dedupe.key, dedupe.digest, task_id, seq, answer, dedupe.expires_ms)
