"""Ledger: turns batches of writes into statements, and their rows into outcomes.

Invariant: a write is made by one statement together with its guard, in one transaction with its webhook deliveries. Its
outcome says that it was made, why it was not, or (`AGAIN`) that another transaction came between: then it is made
alone, once nobody else can change its task.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg
import msgspec
from asyncpg import DeadlockDetectedError, DivisionByZeroError, SerializationError, UniqueViolationError
from msgspec.structs import asdict

from dragoman.model.events import Logged
from dragoman.model.ids import Clock
from dragoman.store.api import (
    Appended,
    Dedupe,
    Exists,
    Moved,
    OutcomeUnknown,
    OverBudget,
    OverQuota,
    Refused,
    Repeat,
    StoreError,
    Unknown,
    owner_range,
)
from dragoman.store.budgets import BudgetClaim, Charge
from dragoman.store.codec import Codec, DamagedRow
from dragoman.store.files import File
from dragoman.store.guard import has_status, refusal
from dragoman.store.members import TeamMembers
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.history import HistoryChanged
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import from_text, to_text
from dragoman.store.postgres.grants import Grants
from dragoman.store.postgres.worker_leases import encode_change
from dragoman.store.postgres.writes import Told
from dragoman.store.quotas import QuotaBound, Room, bounds
from dragoman.store.usage import DAY_MS, AnswerUsage, Used
from dragoman.store.worker_leases import LeaseFault
from dragoman.store.writes import Addition, Creation

SCOPES_REMEMBERED = 10_000
"""How many numbers of scopes (an owner with an agent) are cached."""

ANSWER_LANE, ANSWER_LANES = 200, 16
"""The first of the counters to which direct answers add, and how many there are. No batch of writes uses them."""

TRIES = 10
"""How often a write is tried alone while others get in its way. Each try sees who came first."""

RACES = (DivisionByZeroError, UniqueViolationError, DeadlockDetectedError, SerializationError)
"""Another transaction came first: it remembered the same call, made the same task, or locked the same rows in the
opposite order. The statement of a batch divides by zero to undo itself."""

FAULTS = ("21", "22", "23", "40", "54")
"""The classes of errors by which one write may spoil its batch. All others concern the server."""


MISSED_BYTES = 1 << 20
"""Missed pages of more bytes are decoded by whoever reads them, off the loop."""


class Again:
    """Stands for the outcome of a write that has to be made again, alone."""


AGAIN: Final = Again()

NO_SEQ = -1
"""A seq that no task has."""

Outcome = Appended | Repeat | Refused | Again

Row = dict[str, int | str | None]
"""Values by the names that the statement of a batch gives them."""

Scopes = Mapping[tuple[str, str], int]
"""The numbers of scopes: an owner with an agent."""

Tell = Callable[[DatabaseConnection, Sequence[Told], int], Awaitable[None]]
"""Writes webhooks and deliveries in a transaction under way, at a time."""


PART = re.compile(r"/\*(\w+):\*/(.*?)/\*:\1\*/", re.DOTALL)
"""A part of the statements that write a batch: see `tasks.sql`."""

Parts = frozenset[str]

NEW, OLD = frozenset(("new",)), frozenset(("old",))
BOTH, ENDS = NEW | OLD | {"both"}, frozenset(("ends",))
"""The parts of the forms for usual batches: of new tasks, of appends, of both, and of appends with a snapshot or usage,
as those have that end a task. There are few forms, since each connection plans every form that it uses."""

SOURCES = {NEW: "fresh", OLD: "moved", BOTH: "done"}
"""Where each of these forms has what it made."""

WriteForms = Mapping[tuple[Parts | None, bool, bool], str]
"""The statements that write a batch, by their parts, and whether they book in accounts of budgets, and note what tasks
have cost. The one for any batch has no parts."""


def write_forms(sql: Mapping[str, str]) -> WriteForms:
    """Every form of the statements that write a batch."""
    forms: dict[tuple[Parts | None, bool, bool], str] = {}
    for parts in (NEW, OLD, OLD | ENDS, BOTH, BOTH | ENDS, None):
        text, source = (sql["write"], "done") if parts is None else (sql["write_usual"], SOURCES[parts - ENDS])
        for booked, learnt in ((False, False), (True, False), (True, True)):
            bookings = sql["bookings"] + (sql["lessons"] if learnt else "") if booked else ""
            form = text.replace("SUMS", sql["sums"]).replace("BOOKINGS", bookings)
            form = form.replace("BOOKED", sql["booked"] if booked else "").replace("SOURCE", source)
            forms[parts, booked, learnt] = _with_parts(form, BOTH | ENDS if parts is None else parts)
    return forms


def _with_parts(text: str, parts: Parts) -> str:
    return PART.sub(lambda part: _with_parts(part[2], parts) if part[1] in parts else "", text)


def usual_parts(writes: Sequence[Creation | Addition]) -> Parts | None:
    """The parts of the form for a usual batch; None if a write has more to it than such a form can write."""
    new = old = ends = False
    for write in writes:
        dedupe = write.asked.dedupe
        if write.files:
            return None
        if isinstance(write, Creation):
            if dedupe is not None and dedupe.instead_of is not None:
                return None
            new = True
        elif dedupe is not None or write.asked.lease is not None or write.asked.to_worker:
            return None
        else:
            old, ends = True, ends or bool(write.used) or write.record is not None
    return (BOTH if new and old else NEW if new else OLD) | (ENDS if ends else frozenset())


class Made:
    """What has become of the writes of a batch so far. `tasks` are the numbers of the tasks of those that were made."""

    __slots__ = ("outcomes", "tasks", "writes")

    def __init__(self, writes: Sequence[Creation | Addition]) -> None:
        self.writes = writes
        self.outcomes: list[Outcome] = [AGAIN] * len(writes)
        self.tasks: dict[int, int] = {}

    @property
    def left(self) -> Sequence[int]:
        """The places of the writes without an outcome."""
        return [place for place, outcome in enumerate(self.outcomes) if outcome is AGAIN]

    def note_usual(self, rows: Sequence[Any]) -> None:
        """Note the rows of the statement for usual batches."""
        for place, task, seq, epoch, *_ in rows:
            self.outcomes[place] = Appended(seq, epoch, len(self.writes[place].page))
            self.tasks[place] = task

    def told(self) -> list[Told]:
        """The webhooks and deliveries of what was made."""
        asked = [(self.tasks[place], self.writes[place].asked) for place in sorted(self.tasks)]
        return [Told(task, each.push, each.deliveries) for task, each in asked if each.push or each.deliveries]


class PostgresLedger:
    """Makes writes through the pool. `own_id` returns a name for the counters that no other process has.

    The names of accounts that change are added to `changed`.
    """

    def __init__(
        self,
        pool: Pool,
        sql: Mapping[str, str],
        codec: Codec,
        clock: Clock,
        own_id: Callable[[], str],
        tell: Tell,
        changed: dict[str, None],
    ) -> None:
        self._pool = pool
        self._sql = sql
        self._codec = codec
        self._clock = clock
        self._tell = tell
        self._own_id = own_id
        self._changed = changed
        self._grants = Grants(sql)
        self._forms = write_forms(sql)
        self._scopes: dict[tuple[str, str], int] = {}
        self._known = pool.history.number
        """The history of the database during which these were read."""

    @property
    def replica(self) -> str:
        """The name of the counters: the id of this process's replica, which is another one after it was fenced."""
        return self._own_id()

    # -- batches -------------------------------------------------------------------------------------------------------

    def is_plain(self, write: Creation | Addition) -> bool:
        """Whether one statement makes the write, so that others need not wait for more on its account."""
        if write.asked.push is not None or write.asked.deliveries:
            return False
        if isinstance(write, Addition):
            return True
        if write.asked.quota is not None or _scope(write) not in self._remembered():
            return False
        return not write.asked.claims or self._grants.knows(write.asked.claims)

    def _needs_more(self, lane: int, writes: Sequence[Creation | Addition]) -> bool:
        """Whether writes need more than the statement of their batch."""
        if any(map(_needs_more, writes)):
            return True
        return not self._grants.suffice((self.replica, lane), _claims(writes), _charges(writes))

    async def write(
        self, lane: int, writes: Sequence[Creation | Addition]
    ) -> Sequence[Outcome | StoreError | OutcomeUnknown]:
        """Make writes of different tasks and dedupe keys, as far as possible.

        Raises StoreError or OutcomeUnknown, which then holds for all of them.
        """
        pool, usual = self._pool, usual_parts(writes)
        while True:
            scopes, during = await self._find_scopes(writes), pool.history.number
            try:
                if self._needs_more(lane, writes):
                    async with pool.transaction() as connection:
                        return await self._write(connection, lane, writes, scopes, usual)
                made = Made(writes)
                statement, values = self._statement(usual, lane, writes, scopes, {})
                rows = await pool.write(statement, *values, during=during)
            except HistoryChanged:
                continue
            except StoreError as error:
                if usual is None:
                    return _all_again(writes, error)
                _check_fault(error)
                usual = None  # it was undone: the statement for any batch finds out why
                continue
            if usual is None:
                self._note_any(made, made.left, rows, {})
                return made.outcomes
            made.note_usual(rows)
            failed = await self._write_left(lane, made, scopes, during)
            return [failed if failed and outcome is AGAIN else outcome for outcome in made.outcomes]

    async def _write_left(
        self, lane: int, made: "Made", scopes: Scopes, during: int
    ) -> StoreError | OutcomeUnknown | None:
        """Write what the statement for usual batches has left. Whatever that one made stays.

        Returns the error of all that is left, unless each may be tried alone.
        """
        if not (left := made.left):
            return None
        writes = [made.writes[place] for place in left]
        statement, values = self._statement(None, lane, writes, scopes, {}, noted=True)
        try:
            rows = await self._pool.write(statement, *values, during=during)
        except HistoryChanged:
            return None
        except (StoreError, OutcomeUnknown) as error:
            return None if _is_fault(error) else error
        self._note_any(made, left, rows, {})
        return None

    async def alone(self, lane: int, write: Creation | Addition) -> Outcome:
        """Make one write, until its outcome is final. Raises StoreError or OutcomeUnknown."""
        tries = 0
        while True:
            tries += 1
            try:
                scopes = await self._find_scopes((write,))
                async with self._pool.transaction() as connection:
                    if isinstance(write, Addition):
                        return await self.append_in(connection, lane, write)
                    return await self._write_one(connection, lane, write, scopes)
            except StoreError as error:
                if not isinstance(error.__cause__, RACES) or tries == TRIES:
                    raise

    async def append_in(self, connection: DatabaseConnection, lane: int, write: Addition) -> Outcome:
        """As `alone`, in a transaction under way."""
        await self.lock(connection, write.id)
        outcome = await self._write_one(connection, lane, write, {})
        return Moved(write.id) if outcome is AGAIN else outcome

    async def lock(self, connection: DatabaseConnection, task_id: str) -> None:
        """Keep everybody else from changing a task until the end of the transaction."""
        await connection.fetch(self._sql["lock_task"], to_text(task_id))

    async def _write_one(
        self, connection: DatabaseConnection, lane: int, write: Creation | Addition, scopes: Scopes
    ) -> Outcome:
        (outcome,) = await self._write(connection, lane, (write,), scopes, None)
        return outcome

    async def _write(
        self,
        connection: DatabaseConnection,
        lane: int,
        writes: Sequence[Creation | Addition],
        scopes: Scopes,
        usual: Parts | None,
    ) -> Sequence[Outcome]:
        limited = [
            (place, write)
            for place, write in enumerate(writes)
            if isinstance(write, Creation) and (write.asked.quota is not None or write.asked.claims)
        ]
        charges = _charges(writes)
        refused = await self._refuse_excess(connection, lane, limited, charges) if limited else {}
        if charges or limited:
            accounts = {claim.account for claim in _claims(writes)} | {charge.account for charge in charges}
            await self._grants.add_rows(connection, (self.replica, lane), accounts)
        made = Made(writes)
        if usual is not None:
            statement, values = self._statement(usual, lane, writes, scopes, refused)
            made.note_usual(await connection.fetch(statement, *values))
        if left := made.left:
            rest = [writes[place] for place in left]
            still = {number: refused[place] for number, place in enumerate(left) if place in refused}
            statement, values = self._statement(None, lane, rest, scopes, still, noted=usual is not None)
            self._note_any(made, left, await connection.fetch(statement, *values), still)
        if limited:
            await self._count_days(connection, [write for place, write in limited if place in made.tasks])
        if told := made.told():
            await self._tell(connection, told, self._clock.now_ms())
        return made.outcomes

    # -- values and rows -----------------------------------------------------------------------------------------------

    def _statement(
        self,
        usual: Parts | None,
        lane: int,
        writes: Sequence[Creation | Addition],
        scopes: Scopes,
        refused: Mapping[int, OverQuota | OverBudget],
        *,
        noted: bool = False,
    ) -> tuple[str, Sequence[object]]:
        """The statement of a batch, and its values. A batch without budgets has nothing to do with them.

        `noted`: another statement has booked it already, as far as the lane knows.
        """
        values, bookings = self._values(usual, lane, writes, scopes, refused), _bookings(writes)
        if not bookings:
            return self._forms[usual, False, False], values
        made = [write for place, write in enumerate(writes) if place not in refused]
        claims, charges = _claims(made), _charges(made)
        if not noted:
            self._grants.note((self.replica, lane), claims, charges)
        accounts = [claim.account for claim in claims] + [charge.account for charge in charges]
        self._changed.update(dict.fromkeys(accounts))
        lessons = any("agent" in row for row in bookings)
        return self._forms[usual, True, lessons], (*values, _json(bookings))

    def _values(
        self,
        usual: Parts | None,
        lane: int,
        writes: Sequence[Creation | Addition],
        scopes: Scopes,
        refused: Mapping[int, OverQuota | OverBudget],
    ) -> Sequence[object]:
        rows: list[Row] = []
        pages: list[bytes] = []
        bodies: list[bytes | None] = []
        for place, write in sorted(enumerate(writes), key=_by_id):
            if usual is not None and place in refused:
                continue  # it may be a repeat: the statement for any batch says so
            if isinstance(write, Creation):
                row = _creation_row(write)
                row["scope"], row["allowed"] = scopes[_scope(write)], place not in refused
                bodies.append(write.head)
            else:
                row = _addition_row(write)
                if self._is_outdated(write):
                    row["expected_seq"] = NO_SEQ
                bodies.append(None if write.record is None else bytes(write.record))
            row["place"] = place
            if write.asked.dedupe is not None:
                row |= _call(write.asked.dedupe)
            rows.append(row)
            pages.append(write.page)
        return (_json(rows), pages, bodies, self._clock.now_ms(), *_files(writes), self.replica, lane, _usage(writes))

    def _note_any(
        self, made: "Made", places: Sequence[int], rows: Sequence[Any], refused: Mapping[int, OverQuota | OverBudget]
    ) -> None:
        """Note the rows of the statement for any batch, which has written the writes at `places`.

        `refused` are numbers of these.
        """
        for row in rows:
            number, task, seq, epoch, earlier_seq, earlier_epoch, call_task, call_digest, call_seq, call_answer = row[
                :10
            ]
            place = places[number]
            write = made.writes[place]
            outcome: Outcome = AGAIN
            if task is not None:
                outcome = Appended(seq, epoch, len(write.page))
                if row[16] is not None:
                    outcome = Appended(seq, epoch, len(write.page), self._missed(row[16], row[11]), row[17])
                made.tasks[place] = task
            elif earlier_seq is not None:
                outcome = Appended(earlier_seq, earlier_epoch, len(write.page))
            elif call_digest is not None:
                outcome = self._repeat(call_task, call_digest, call_seq, call_answer)
            elif isinstance(write, Addition):
                outcome = _refusal(write, *row[10:16]) or self._refuse_outdated(write) or AGAIN
            elif number in refused:
                outcome = refused[number]
            elif row[10] is not None:
                outcome = Exists(write.id)
            made.outcomes[place] = outcome

    def _missed(self, pages: Sequence[bytes], last_seq: int) -> tuple[Logged, ...]:
        """The events of pages that end at a seq, as far as they can be decoded at once."""
        if sum(map(len, pages)) > MISSED_BYTES:
            return ()
        found: list[Logged] = []
        try:
            decoded = [(len(page), self._codec.events(page)) for page in pages]
        except DamagedRow:  # whoever reads the log finds and names it
            return ()
        seq = last_seq - sum(len(events) for _, events in decoded)
        for size, events in decoded:
            for event in events:
                seq += 1
                found.append(Logged(seq, event, size // len(events)))
        return tuple(found)

    def _is_outdated(self, write: Addition) -> bool:
        """Whether an append was decided on another history of the database: only its first attempt can be found."""
        return write.asked.history not in ("", self._pool.history.name)

    def _refuse_outdated(self, write: Addition) -> Refused | None:
        return Moved(f"{write.id}: read in another history of the database") if self._is_outdated(write) else None

    def _repeat(self, task_id: str | None, digest: bytes, seq: int, answer: bytes | None) -> Repeat:
        return self._codec.repeat((None if task_id is None else from_text(task_id), digest, seq, answer))

    # -- scopes and quotas ---------------------------------------------------------------------------------------------

    async def answer_usage(self, key: bytes, usages: Sequence[AnswerUsage]) -> tuple[str, str, int]:
        """The usage of direct answers as JSON, the replica and the lane to which it is added.

        Answers that come at the same moment should have different keys, so that they add to different rows.
        """
        rows: list[Row] = []
        for usage in usages:
            scope = self._remembered().get((usage.owner, usage.agent)) or await self._add_scope(
                usage.owner, usage.agent
            )
            rows += usage_rows(usage.used, usage.ended_ms, scope=scope)
        return _json(rows), self.replica, ANSWER_LANE + key[0] % ANSWER_LANES

    async def count_answers(self, usages: Sequence[AnswerUsage]) -> None:
        """Count direct answers that are not stored. Raises StoreError or OutcomeUnknown."""
        await self._pool.write(self._sql["count_answers"], *await self.answer_usage(b"\0", usages))

    async def _find_scopes(self, writes: Sequence[Creation | Addition]) -> Scopes:
        """The numbers of the scopes of new tasks."""
        found: dict[tuple[str, str], int] = {}
        for write in writes:
            if isinstance(write, Creation):
                scope = _scope(write)
                found[scope] = self._remembered().get(scope) or await self._add_scope(*scope)
        return found

    def _remembered(self) -> dict[tuple[str, str], int]:
        """The scopes that are known, none of them from an earlier history of the database."""
        if self._known != self._pool.history.number:
            self._known = self._pool.history.number
            self._scopes.clear()
            self._grants.forget()
        return self._scopes

    def forget_scopes(self) -> None:
        """Forget the numbers of scopes: another process may have deleted their rows."""
        self._scopes.clear()

    async def _add_scope(self, owner: str, agent: str) -> int:
        names = to_text(owner), to_text(agent)
        rows = await self._pool.read(self._sql["find_scope"], *names)
        while not rows:  # another process may add it at the same moment
            rows = await self._pool.write(self._sql["add_scope"], *names)
            rows = rows or await self._pool.read(self._sql["find_scope"], *names)
        if len(self._scopes) >= SCOPES_REMEMBERED:
            self._scopes.clear()
        number: int = rows[0][0]
        self._scopes[owner, agent] = number
        return number

    async def _refuse_excess(
        self,
        connection: DatabaseConnection,
        lane: int,
        writes: Sequence[tuple[int, Creation]],
        charges: Sequence[Charge],
    ) -> dict[int, OverQuota | OverBudget]:
        """The writes for which their owner's quota or a budget has no room, by their place. Until the end of the
        transaction nobody else makes tasks of these owners, or changes these accounts.

        A call that is repeated takes no room.
        """
        asked = {(bound.day, *_range(bound.of)) for _, write in writes for bound in _bounds(write)}
        days = sorted(asked)
        found: Sequence[Any] = ()
        if days:
            await connection.execute(self._sql["lock_owners"], sorted({first for _, first, _ in days}))
            columns = [first for _, first, _ in days], [last for _, _, last in days], [day for day, _, _ in days]
            found = await connection.fetch(self._sql["used"], *columns)
        claimed = _claims([write for _, write in writes])
        held = await self._grants.hold(connection, (self.replica, lane), claimed, charges)
        keys = [write.asked.dedupe.key for _, write in writes if write.asked.dedupe is not None]
        known = dict(await connection.fetch(self._sql["known_calls"], keys, self._clock.now_ms()))
        open_tasks = {owner: count for owner, _, count, _ in found}
        day_tasks = {(day, owner): count for owner, day, _, count in found}
        room = Room(lambda of: open_tasks[_range(of)[0]], lambda of: day_tasks[of[0], _range(of[1])[0]])
        refused: dict[int, OverQuota | OverBudget] = {}
        for place, write in writes:
            owner, quota, claims = write.asked.head.owner, write.asked.quota, write.asked.claims
            if write.asked.dedupe is not None and _is_repeat(write.asked.dedupe, known):
                continue
            if (over := room.refusal(owner, quota) or held.refusal(claims)) is not None:
                refused[place] = over
            else:
                room.take(owner, quota, write.state)
                held.claim(claims)
        await self._grants.grant(connection, held)
        return refused

    async def _count_days(self, connection: DatabaseConnection, made: Sequence[Creation]) -> None:
        """Count new tasks for the quotas of the days of their owners and teams, where they have one."""
        limited = [bound for write in made for bound in _bounds(write) if bound.daily_tasks]
        days = Counter((bound.day, _range(bound.of)[0]) for bound in limited)
        if days:
            ordered = sorted(days)
            columns = [day for day, _ in ordered], [owner for _, owner in ordered], [days[day] for day in ordered]
            await connection.execute(self._sql["count_days"], *columns)


def _scope(write: Creation) -> tuple[str, str]:
    return write.asked.head.owner, write.asked.head.agent


def _bounds(write: Creation) -> list[QuotaBound]:
    return bounds(write.asked.head.owner, write.asked.quota)


def _range(whose: str | TeamMembers) -> tuple[str, str]:
    first, last = owner_range(whose)
    return to_text(first), to_text(last)


def _creation_row(write: Creation) -> Row:
    """The columns of a new task but those with bytes, the scope and the remembered call."""
    new, head = write.asked, write.asked.head
    return {
        "id": to_text(head.id),
        "agent": to_text(head.agent),
        "context": to_text(head.context_id),
        "state": write.state,
        "status_ms": new.status_ms,
        "events": len(new.events),
        "epoch": write.epoch,
        "holder": write.holder,
        "files": bool(write.files),
        "pushed": new.push is not None,
        "parent": None if head.parent is None or head.detached else to_text(head.parent),
        "deadline_ms": head.deadline_ms,
        "dialect": to_text(head.dialect),
        "text": to_text(write.text),
        "title": to_text(write.title) if write.title else None,
        "key_id": to_text(head.key) if head.key else None,
        "team": head.team or None,
        "read_seq": 0,
        "write": new.write,
    }


def _addition_row(write: Addition) -> Row:
    """The columns of an append but those with bytes and the remembered call."""
    append, change = write.asked, write.asked.lease
    row: Row = {
        "id": to_text(write.id),
        "events": len(append.events),
        "state": write.state,
        "status_ms": append.status_ms,
        "holder": append.holder,
        "ends_lease": write.ends_lease,
        "files": bool(write.files),
        "keeper": append.keeper,
        "offered_until_ms": write.offered_until_ms,
        "run_epoch": append.epoch,
        "expected_seq": write.expected_seq,
        "expected_epoch": append.expected_epoch,
        "read_seq": append.read_seq,
        "write": append.write,
        "webhooks": append.webhooks_version,
    }
    if write.title:
        row["title"] = to_text(write.title)
    if append.to_worker:
        row["to_worker"] = True
    if change is not None:
        row |= encode_change(change)
        if change.number is not None and has_status(append):
            row["dated"] = True
    return row


def _call(dedupe: Dedupe) -> Row:
    """The columns of the call to remember; PostgreSQL takes bytes in JSON as hexadecimal digits."""
    return {
        "key": f"\\x{dedupe.key.hex()}",
        "digest": f"\\x{dedupe.digest.hex()}",
        "expires_ms": dedupe.expires_ms,
        "instead_of": None if dedupe.instead_of is None else to_text(dedupe.instead_of),
    }


def _is_repeat(dedupe: Dedupe, known: Mapping[bytes, str | None]) -> bool:
    """Whether a call is remembered, with another task than the one that it replaces."""
    return dedupe.key in known and (dedupe.instead_of is None or known[dedupe.key] != to_text(dedupe.instead_of))


def _all_again(writes: Sequence[Creation | Addition], error: StoreError) -> Sequence[Outcome]:
    """If one of the writes may have harmed the others, try each alone; otherwise raise the error."""
    _check_fault(error)
    return [AGAIN] * len(writes)


def _check_fault(error: StoreError) -> None:
    """Raise an error, unless one of the writes may have harmed the others."""
    if not _is_fault(error):
        raise error


def _is_fault(error: Exception) -> bool:
    cause = error.__cause__
    return isinstance(cause, asyncpg.PostgresError) and (cause.sqlstate or "")[:2] in FAULTS


def _json(rows: Sequence[Row]) -> str:
    return msgspec.json.encode(rows).decode()


def usage_rows(used: Iterable[Used], ended_ms: int, **more: int) -> list[Row]:
    """The rows of `used` for a run that ended at a time."""
    day = ended_ms // DAY_MS
    return [{**asdict(each), "model": to_text(each.name), "day": day, **more} for each in used]


def _usage(writes: Sequence[Creation | Addition]) -> str:
    """Return the usage of the tasks that end, as JSON."""
    rows: list[Row] = []
    for place, write in enumerate(writes):
        if isinstance(write, Addition) and write.used:
            rows += usage_rows(write.used, write.asked.status_ms, place=place)
    return _json(rows)


def _needs_more(write: Creation | Addition) -> bool:
    """Whether a write needs more than a statement, whatever budgets have left."""
    quota = write.asked.quota if isinstance(write, Creation) else None
    return bool(write.asked.push is not None or write.asked.deliveries or quota is not None)


def _claims(writes: Sequence[Creation | Addition]) -> list[BudgetClaim]:
    return [claim for write in writes if isinstance(write, Creation) for claim in write.asked.claims]


def _charges(writes: Sequence[Creation | Addition]) -> list[Charge]:
    return [charge for write in writes if isinstance(write, Addition) for charge in write.asked.charges]


def _bookings(writes: Sequence[Creation | Addition]) -> list[Row]:
    """The rows of what new tasks claim of accounts, and of what those that end are charged."""
    rows: list[Row] = []
    for place, write in enumerate(writes):
        if isinstance(write, Creation):
            for claim in write.asked.claims:
                held, most = claim.reservation, None if claim.limit is None else str(claim.limit)
                rows.append(
                    {
                        "place": place,
                        "account": to_text(held.account),
                        "reserved": held.amount,
                        "used": "0",
                        "most": most,
                    }
                )
        elif write.asked.charges:
            for charge in write.asked.charges:
                row: Row = {
                    "place": place,
                    "account": to_text(charge.account),
                    "reserved": str(-charge.released),
                    "used": str(charge.used),
                }
                if charge.agent:
                    row["agent"], row["unit"] = to_text(charge.agent), charge.unit
                rows.append(row)
    return rows


def _by_id(placed: tuple[int, Creation | Addition]) -> str:
    return placed[1].id


def _files(writes: Sequence[Creation | Addition]) -> tuple[list[int], list[int], list[bytes]]:
    """The place of the write, the number and the bytes of each file."""
    found: list[tuple[int, File]] = [
        (place, file) for place, write in enumerate(writes) if write.files for file in write.files
    ]
    return [place for place, _ in found], [file.number for _, file in found], [file.content for _, file in found]


def _refusal(
    write: Addition,
    state: int | None,
    seq: int,
    epoch: int,
    leased: bool,
    webhooks_version: int,
    worker_has_it: bool | None,
) -> Refused | None:
    """Why the statement refused an append to a task as it was; None if something else came between."""
    if state is None:
        return Unknown(write.id)
    append, fault = write.asked, None
    if append.lease is not None:
        fault = LeaseFault.OVER if append.lease.is_word and not worker_has_it else LeaseFault.CHANGED
    standing = state, seq, epoch, leased, append.status_ms
    return refusal(append, write.expected_seq, *standing, webhooks_version=webhooks_version, fault=fault)
