"""Tables: the writer's connection, its statements, its cached rows, and the counters of tasks.

Invariant: cached rows and uncommitted counts hold for the transaction under way: a rollback drops them. The counts of a
scope (an owner with an agent) are the sums over its contexts.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, count

import apsw
import msgspec
from msgspec import Struct

from dragoman.model.task import TOKENS_MAX
from dragoman.store.api import owner_range
from dragoman.store.budgets import LESSONS, BudgetClaim, Charge
from dragoman.store.codec import LARGE_BYTES, TERMINAL_FROM
from dragoman.store.files import File
from dragoman.store.members import TeamMembers
from dragoman.store.sqlite.schema import for_rows
from dragoman.store.usage import DAY_MS, AnswerUsage, Used

SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
"""Numbers of rows for which there are statements. Nulls fill up the rest of the rows. With a statement for each number,
one in ten to fourteen was prepared anew (see `connection.STATEMENTS_MAX`), which takes 20 to 300 µs."""

ROWS_MAX = SIZES[-1]
"""Most rows of one statement. More would save little; SQLite's limit of 32,766 values is far away."""

FITTING = tuple(next(size for size in SIZES if size >= count) for count in range(ROWS_MAX + 1))
"""The size of the statement for each number of rows."""

SCOPES_REMEMBERED = 10_000
"""How many numbers of scopes (an owner with an agent) are cached."""

BALANCES_REMEMBERED = 10_000
"""How many accounts of budgets are cached."""

Standing = tuple[int, int, str, int, int, int, int, int]
"""Number, scope, context, state, seq, epoch of a task, whether it is leased, and the time of its status."""


Balance = tuple[int, int, int]
"""The used and the reserved part of an account, and both together in the rows of a store that was copied here."""


class Booking(Struct):
    """The change of an account by a transaction. `claim` is one of the claims in it, if it has any."""

    used: int = 0
    reserved: int = 0
    claim: BudgetClaim | None = None


class Tables:
    """The writer's connection with its statements, its counters and its cached rows.

    The names of accounts that change are added to `changed`.
    """

    def __init__(self, connection: apsw.Connection, sql: dict[str, str], changed: dict[str, None]) -> None:
        self.connection = connection
        self._changed = changed
        self.cursor = connection.cursor()
        self.sql = sql
        self.one_row = {name: for_rows(text, 1) for name, text in sql.items()}
        self.standings: dict[str, Standing] = {}
        """The standings of tasks that batches wrote lately. They stay true, since nothing else writes to the file."""
        self.scopes: dict[tuple[str, str], int] = {}
        """The numbers of owners with agents: see `scope`."""
        self.hosts: dict[str, int] = {}
        self.day_counts: dict[tuple[int, str], int] = {}
        """Tasks made in this transaction, by day and owner, for owners with a daily limit."""
        self.counts: dict[tuple[int, str], list[int]] = {}
        """How this transaction changes the tasks of each scope and context, by state: see `write_counts`."""
        self.usage: dict[tuple[int, int, str], list[Used]] = {}
        """The usage of the runs that end in this transaction, by day, scope and name."""
        self.balances: dict[str, Balance] = {}
        """The balances of accounts, without the bookings. They stay true, as `standings` do."""
        self.bookings: dict[str, Booking] = {}
        """How this transaction changes accounts: see `write_bookings`."""
        self.lessons: dict[tuple[str, str], list[int]] = {}
        """The costs of the tasks that end in this transaction, by agent and unit, the latest last."""
        self._forms: dict[tuple[str, int], str] = {}
        last_task, last_file, last_config = self.cursor.execute(sql["last_numbers"]).get
        self.task_numbers = count(last_task + 1)
        self.file_numbers = count(last_file + 1)
        self.config_numbers = count(last_config + 1)

    # -- transactions --------------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        """Undo the transaction and the caches that it filled. SQLite may have undone its part already."""
        for known in (self.standings, self.scopes, self.hosts, self.counts, self.day_counts, self.usage):
            known.clear()
        for booked in (self.balances, self.bookings, self.lessons):
            booked.clear()
        if self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")

    # -- rows ----------------------------------------------------------------------------------------------------------

    def scope(self, owner: str, agent: str) -> int:
        """Find the number of an owner with an agent that `scopes` lacks; inserted if there is none."""
        found = self.cursor.execute(self.sql["find_scope"], (owner, agent)).get
        if found is None:
            found = self.cursor.execute(self.sql["add_scope"], (owner, agent)).get
        if len(self.scopes) >= SCOPES_REMEMBERED:
            self.scopes.clear()
        number = self.scopes[owner, agent] = int(found)
        return number

    def put_snapshot(self, task: int, seq: int, record: bytes | bytearray) -> None:
        """Replace a task's snapshot. A large one is written as a blob, since SQLite would copy a bound value twice."""
        large = len(record) > LARGE_BYTES
        self.cursor.execute(self.one_row["put_snapshots"], (task, seq, apsw.zeroblob(len(record)) if large else record))
        if large:
            with self.connection.blob_open("main", "snapshots", "record", task, True) as blob:
                blob.write(record)

    def execute_rows(self, name: str, rows: Sequence[tuple[object, ...]], *values: object) -> int:
        """Execute a statement of many rows, followed by `values`. Returns how many rows changed.

        Up to ROWS_MAX rows go into one statement.
        """
        done = changed = 0
        while done < len(rows):
            some = rows[done : done + ROWS_MAX]
            size = FITTING[len(some)]
            form = self._forms.get((name, size))
            if form is None:
                form = self._forms[name, size] = for_rows(self.sql[name], size)
            nulls = (None,) * (len(some[0]) * (size - len(some)))
            self.cursor.execute(form, [*chain.from_iterable(some), *nulls, *values])
            changed += self.connection.changes()
            done += len(some)
        return changed

    def add_files(self, task: int, files: Iterable[File]) -> None:
        """Insert the files that came with a write."""
        for file in files:
            self.cursor.execute(self.sql["add_file"], (file.number, task, file.digest, file.content))

    # -- counters ------------------------------------------------------------------------------------------------------

    def count(self, scope: int, context: str, old: int | None, new: int | None) -> None:
        """Count one task from state `old` to `new`; None means that the task does not exist."""
        if old == new:
            return
        counts = self.counts.get((scope, context))
        if counts is None:
            counts = self.counts[scope, context] = [0] * 8
        if old is not None and 0 <= old < len(counts):  # a damaged row counts nowhere
            counts[old] -= 1
        if new is not None:
            counts[new] += 1

    def count_usage(self, ended_ms: int, scope: int, used: Iterable[Used]) -> None:
        """Count a run that ended at a time."""
        for each in used:
            self.usage.setdefault((ended_ms // DAY_MS, scope, each.name), []).append(each)

    def count_answer(self, usage: AnswerUsage) -> None:
        """Count a direct answer."""
        scope = self.scopes.get((usage.owner, usage.agent)) or self.scope(usage.owner, usage.agent)
        self.count_usage(usage.ended_ms, scope, usage.used)

    def count_days(self, days: Iterable[tuple[int, str]]) -> None:
        """Count a new task for the days of its owner, and of a team, that are limited."""
        for day in days:
            self.day_counts[day] = self.day_counts.get(day, 0) + 1

    def open_tasks(self, whose: str | TeamMembers) -> int:
        """How many tasks of an owner, or of a team, are open."""
        row = self.cursor.execute(self.sql["open_tasks"], owner_range(whose)).get
        scopes = dict(msgspec.json.decode(str(row), type=list[tuple[int, int]]))
        return sum(scopes.values()) + self._uncommitted_open(scopes)

    def day_tasks(self, of: tuple[int, str | TeamMembers]) -> int:
        """How many tasks were made in a day, by its number and the owner, or the team."""
        day = of[0], owner_range(of[1])[0]
        return int(self.cursor.execute(self.sql["day_tasks"], day).get or 0) + self.day_counts.get(day, 0)

    def claim(self, claims: Iterable[BudgetClaim]) -> None:
        """Book the claims of a new task."""
        for claim in claims:
            booking = self._booking(claim.account)
            booking.claim = claim
            booking.reserved += claim.amount

    def charge(self, charges: Iterable[Charge]) -> None:
        """Book what a task that ends, or is deleted before its end, is charged."""
        for charge in charges:
            booking = self._booking(charge.account)
            booking.reserved -= charge.released
            booking.used += charge.used
            if charge.agent:
                self.lessons.setdefault((charge.agent, charge.unit), []).append(charge.used)

    def _booking(self, account: str) -> Booking:
        booking = self.bookings.get(account)
        if booking is None:
            booking = self.bookings[account] = Booking()
        return booking

    def balance(self, account: str) -> int:
        """How much of an account is used or reserved, by this transaction, too."""
        known, booking = self._balance(account), self.bookings.get(account)
        return sum(known) + (0 if booking is None else booking.used + booking.reserved)

    def _balance(self, account: str) -> Balance:
        known = self.balances.get(account)
        if known is None:
            used = reserved = elsewhere = 0
            for replica, its_used, its_reserved in self.cursor.execute(self.sql["find_balance"], (account,)):
                if replica:
                    elsewhere += int(its_used) + int(its_reserved)
                else:
                    used, reserved = int(its_used), int(its_reserved)
            if len(self.balances) >= BALANCES_REMEMBERED:
                self.balances.clear()
            known = self.balances[account] = used, reserved, elsewhere
        return known

    def write_bookings(self) -> None:
        """Write the changed accounts, each once, and the lessons of this transaction, as its last step."""
        for account, booking in self.bookings.items():
            used, reserved, elsewhere = self._balance(account)
            used, reserved = used + booking.used, reserved + booking.reserved
            claim = booking.claim
            if claim is not None:
                names = (claim.budget, claim.member, claim.owner, claim.reservation.unit)
                self.cursor.execute(self.sql["open_account"], (account, claim.ends_ms, claim.expires_ms, *names))
            self.balances[account] = used, reserved, elsewhere
            self._changed[account] = None
            self.cursor.execute(self.sql["book"], (account, str(used), str(reserved)))
        for key, costs in self.lessons.items():
            found = self.cursor.execute(self.sql["budget_lessons"], key).get
            known = () if found is None else msgspec.json.decode(str(found), type=tuple[str, ...])
            latest = (*map(str, reversed(costs)), *known)[:LESSONS]
            self.cursor.execute(self.sql["put_lessons"], (*key, msgspec.json.encode(latest).decode()))
        self.bookings.clear()
        self.lessons.clear()

    def _uncommitted_open(self, scopes: Iterable[int]) -> int:
        """How many more tasks of these scopes are open than before this transaction."""
        return sum(sum(counts[:TERMINAL_FROM]) for (scope, _), counts in self.counts.items() if scope in scopes)

    def write_counts(self) -> None:
        """Add the changes of this transaction to the counters, as its last step."""
        rows: list[tuple[object, ...]] = []
        by_scope: dict[int, list[list[int]]] = {}
        left: list[tuple[int, str]] = []
        for key, counts in self.counts.items():
            rows.append((*key, *counts))
            by_scope.setdefault(key[0], []).append(counts)
            if sum(counts) < 0:
                left.append(key)
        for scope, parts in by_scope.items():
            total = tuple(map(sum, zip(*parts, strict=True)))
            if any(total):
                self.cursor.execute(self.sql["count_scope"], (scope, *total))
        if len(rows) == 1:
            self.cursor.execute(self.one_row["count_contexts"], rows[0])
        else:
            self.execute_rows("count_contexts", rows)
        for key in left:
            self.cursor.execute(self.sql["drop_context"], key)
            if self.connection.changes():
                self.cursor.execute(self.sql["end_conversation"], key)
        if self.day_counts:
            self.execute_rows("count_days", [(*day, made) for day, made in self.day_counts.items()])
        if self.usage:
            used: list[tuple[object, ...]] = []
            for by, runs in self.usage.items():
                columns = zip(*[run.numbers for run in runs], strict=True)
                numbers = [min(sum(column), TOKENS_MAX) for column in columns]
                used.append((*by, "", 0, *numbers))
            if len(used) == 1:
                self.cursor.execute(self.one_row["add_usage"], used[0])
            else:
                self.execute_rows("add_usage", used)
            self.usage.clear()
        self.counts.clear()
        self.day_counts.clear()
