"""Statements: the SQL that SQLite and PostgreSQL share, and the port through which the parts of a store run it.

The files of this package are PostgreSQL's SQL, for tables in the schema `dragoman`. `WORDS` says how SQLite spells it,
and what both make of words that neither knows. `PIECE(name)` stands for another statement of these files. Joins are
written in the order in which SQLite makes them.

Invariant: a statement has the same rows in both databases, and is found by an index in both.
"""

import re
from collections.abc import Awaitable, Callable, Generator
from functools import cache
from importlib.resources import files
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from dragoman.store.api import OutcomeUnknown, StoreError

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
PIECE = re.compile(r"PIECE\((\w+)\)")

T = TypeVar("T")

Value = str | int | bytes | bool | tuple[str, ...] | None
"""A value of a statement. Texts are any; several are an array in PostgreSQL, and JSON in SQLite."""


Rows = list[tuple[Any, ...]]

Procedure = Generator[tuple[Any, ...], Rows, T]
"""A transaction as one text for both databases: it yields statements, each a name with its values, gets the rows of
each, and returns the outcome. It raises Refused or ValueError before its first change, or not at all."""


class Word(Struct, frozen=True):
    """A pattern in the files, and the templates that take its place. None: PostgreSQL knows it."""

    pattern: str
    sqlite: str
    postgres: str | None = None


def covers(name: str, host: str) -> str:
    """SQLite's condition that a paused host's `name` covers a `host`: see `store.outbox.covering_names`."""
    place = f"substr({host}, instr({host}, '://') + 3)"
    return f"{name} IN ({host}, {place}, rtrim(rtrim({place}, '0123456789'), ':'))"


PAUSED_PUSH_HOSTS = f"""(SELECT h.host, p.name
    FROM paused_hosts p CROSS JOIN push_hosts h ON {covers("p.name", "h.name")})"""

COUNTED_SCOPES = """(SELECT s.scope, s.owner, s.agent, sum(n0) AS n0, sum(n1) AS n1, sum(n2) AS n2, sum(n3) AS n3
    FROM dragoman.scopes s JOIN dragoman.counts USING (scope) GROUP BY s.scope)"""

WORDS = (
    Word(r"= ANY \(\$(\d+)::text\[\]\)", r"IN (SELECT value FROM json_each(?\1))"),
    Word(r"\bdragoman\.", ""),
    Word(r"\$(\d+)", r"?\1"),
    Word(r"::\w+(?:\[\])?", ""),
    Word(r"(?<!LEFT )\bJOIN\b", "CROSS JOIN"),
    Word(r"\bstrpos\(", "instr("),
    Word(r"\bleast\(", "min("),
    Word(r"= ANY \(ARRAY\((SELECT [^()]*)\)\)", r"IN (\1)"),  # PostgreSQL could join the latter in a worse way
    Word(r' COLLATE "C"', ""),
    Word(r"\s+FOR (?:UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?\b", ""),  # nobody else writes to a file
    Word(r"\bFALSE\(([\w.]+)\)", r"\1 = 0", r"NOT \1"),  # as the indexes spell it
    Word(r"\bTRUE\(([\w.]+)\)", r"\1 = 1", r"\1"),
    Word(r"\bPAUSED_PUSH_HOSTS\b", PAUSED_PUSH_HOSTS, "dragoman.paused_push_hosts"),  # a view there
    Word(r"\bPLACE_OF_ACT\b", "entry", "xact"),  # in PostgreSQL, entries may be committed in another order
    Word(
        r"\bKIND\((\w)\)",  # 0 for a task that has not ended, 1 if it has, 2 without its log
        r"(\1.state > 3) + \1.pruned",
        r"(CASE WHEN \1.state < 4 THEN 0 WHEN \1.pruned THEN 2 ELSE 1 END)",
    ),
    Word(
        r"\bENTRY_BYTES\b",  # of an entry of state, with its key as it is without PostgreSQL's escapes
        "octet_length(key) + octet_length(value)",
        r"octet_length(replace(key, '\\\\', '\\')) + octet_length(value)",
    ),
    Word(r"\bCOUNTED_SCOPES\b", "scopes", COUNTED_SCOPES),  # PostgreSQL keeps the counts of each replica
    Word(r"\bBY_INDEX\((\w+)\)", r"INDEXED BY \1", ""),  # for an index that SQLite would not choose
)


class Statements(Protocol):
    """Runs statements by their names. A file in SQLite, or tables in PostgreSQL."""

    async def point(self, name: str, *values: Value) -> Any:
        """The one row that a statement finds, as a tuple or its only value; None if it finds none.

        It has to be found at once: SQLite does not leave the loop. Raises StoreError.
        """
        ...

    async def read(self, name: str, *values: Value) -> list[tuple[Any, ...]]:
        """The rows of a statement that changes nothing. Raises StoreError."""
        ...

    async def write(self, *batch: tuple[Any, ...]) -> int:
        """Run statements, each a name with its values, in one transaction, up to one that returns no row.

        Returns how many rows the last one returned that was run. Raises StoreError, or OutcomeUnknown.
        """
        ...

    async def carry_out(self, procedure: Callable[[], Procedure[T]]) -> T:
        """Run a procedure in one transaction, perhaps more than once. Returns its outcome.

        Raises what it raises, StoreError, or OutcomeUnknown.
        """
        ...


def split_statements(text: str) -> dict[str, str]:
    """The statements of a file by their names, without the comments."""
    _, *pieces = NAME.split(text)
    return {name: _bare(body) for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def statements_for_sqlite(*, checks: bool = False) -> dict[str, str]:
    """All statements of this package but the `checks` of a store, or these alone, as SQLite spells them."""
    return {name: _spelled(sql, lambda word: word.sqlite) for name, sql in _read(checks).items()}


def statements_for_postgres(*, checks: bool = False) -> dict[str, str]:
    """The same as PostgreSQL spells them."""
    return {name: _spelled(sql, lambda word: word.postgres) for name, sql in _read(checks).items()}


async def repeated(run: Callable[[], Awaitable[T]]) -> T:
    """Run a write that may safely be repeated, and repeat it if its outcome is unknown. Raises StoreError."""
    try:
        return await run()
    except OutcomeUnknown:
        pass
    return await settled(run())


async def settled(write: Awaitable[T]) -> T:
    """Count an outcome that is unknown as a failure. Raises StoreError."""
    try:
        return await write
    except OutcomeUnknown as error:
        raise StoreError(str(error)) from error


async def sweep_rows(statements: Statements, name: str, before: int, limit: int) -> int:
    """Delete the oldest rows of a kind, and return how many. It looks first, so that no writer waits for nothing."""
    if not (await statements.read(f"old_{name}", before, limit))[0][0]:
        return 0
    return await settled(statements.write((f"sweep_{name}", before, limit)))


@cache
def _read(checks: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in files(__package__).iterdir():
        if entry.name.endswith(".sql") and (entry.name == "checks.sql") is checks:
            found |= split_statements(entry.read_text(encoding="utf-8"))
    return {name: PIECE.sub(lambda hit: found[hit[1]], sql) for name, sql in found.items()}


def _bare(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")


def _spelled(sql: str, spelling: Callable[[Word], str | None]) -> str:
    for word in WORDS:
        if (template := spelling(word)) is not None:
            sql = re.sub(word.pattern, template, sql)
    return sql
