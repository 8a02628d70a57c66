"""Tables: the writer's connection, its counters and caches, and the statements that several writes share.

Invariant: cached rows hold for the transaction under way: a rollback drops them.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import apsw
import msgspec

from dragoman.model.operations import PushConfig
from dragoman.store.api import OutcomeUnknown
from dragoman.store.sqlite.codec import LARGE_BYTES
from dragoman.store.sqlite.files import File
from dragoman.store.sqlite.statements import for_rows
from dragoman.store.sqlite.tally import Tally

ROWS_MAX = 32
"""Most rows of one statement. More would save little; SQLite's limit of 32,766 values is far away."""

SCOPES_REMEMBERED = 10_000
"""How many numbers of scopes (an owner with an agent) are cached."""

Standing = tuple[int, int, str, int, int, int, int, int]
"""Number, scope, context, state, seq, epoch of a task, whether it is leased, and the time of its status."""


class Tables:
    """The writer's connection with its statements, its counters and its cached rows."""

    def __init__(self, connection: apsw.Connection, sql: dict[str, str]) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.sql = sql
        self.one_row = {name: for_rows(text, 1) for name, text in sql.items()}
        self.tally = Tally()
        self.standings: dict[str, Standing] = {}
        """The standings of tasks that batches wrote lately. They stay true, since nothing else writes to the file."""
        self.push_configs = msgspec.msgpack.Decoder(PushConfig)
        self._forms: dict[tuple[str, int], str] = {}
        self._scopes: dict[tuple[str, str], int] = {}
        self.hosts: dict[str, int] = {}
        self.last_task, self.last_file, self.last_config = self.cursor.execute(sql["last_numbers"]).get

    def begin(self) -> None:
        """Start a transaction."""
        if self.connection.in_transaction:  # the rollback of the last one failed, too
            self.rollback()
        self.cursor.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Write the counters and make the transaction durable. Raises OutcomeUnknown if the disk fails meanwhile."""
        self.write_tally()
        try:
            self.cursor.execute("COMMIT")
        except apsw.IOError as error:  # the disk may have the last page of the transaction, or not
            raise OutcomeUnknown(str(error)) from error

    def rollback(self) -> None:
        """Undo the transaction and the caches that it filled. SQLite may have undone its part already."""
        self.tally = Tally()
        for known in (self.standings, self._scopes, self.hosts):
            known.clear()
        if self.connection.in_transaction:
            self.cursor.execute("ROLLBACK")

    def scope(self, owner: str, agent: str) -> int:
        """The number of an owner with an agent; inserted if there is none."""
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

    def put_snapshot(self, task: int, seq: int, record: bytes | bytearray) -> None:
        """Replace a task's snapshot. A large one is written as a blob, since SQLite would copy a bound value twice."""
        large = len(record) > LARGE_BYTES
        self.cursor.execute(self.one_row["put_snapshots"], (task, seq, apsw.zeroblob(len(record)) if large else record))
        if large:
            with self.connection.blob_open("main", "snapshots", "record", task, True) as blob:
                blob.write(record)

    def execute_rows(self, name: str, rows: Sequence[tuple[object, ...]], *values: object) -> int:
        """Execute a statement of many rows, followed by `values`. Returns how many rows changed.

        Up to ROWS_MAX rows go into one statement; the statement for each number of rows is prepared once.
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
        """Insert the files that came with a write."""
        for file in files:
            self.cursor.execute(self.sql["add_file"], (file.number, task, file.digest, file.content))

    def write_tally(self) -> None:
        """Add the changes of this transaction to the counters."""
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
