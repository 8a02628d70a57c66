"""Transfer: the tables of a store as rows of plain values, in which all drivers read and write them.

Invariant: rows have the same numbers in every store, and values that the codec made are not decoded. So a copy is equal
row by row, and digests of both sides can be compared.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from msgspec import Struct


class ColumnType(Enum):
    """The type of a column: None is allowed in each."""

    NUMBER = "number"
    TRUTH = "truth"
    TEXT = "text"
    BYTES = "bytes"
    TEXTS = "texts"


class Table(Struct, frozen=True):
    """A table: its columns in order, of which the first `keys` are the key. Rows come in the order of the key.

    `of` says what they belong to: a task, by its number in the column `task`; or a webhook of one, by `config`. Empty:
    neither. `heavy` is the column of a whole table whose bytes count: see `TransferSource.weigh`.
    """

    name: str
    columns: Mapping[str, ColumnType]
    keys: int = 1
    of: str = ""
    heavy: str = ""


Row = tuple[Any, ...]

UNKNOWN_TEXTS = ["�"]
"""Stands for a list of texts whose bytes cannot be decoded. It names nothing that a key could reach."""


def _table(name: str, columns: str, keys: int = 1, of: str = "", heavy: str = "") -> Table:
    kinds = {
        "": ColumnType.NUMBER,
        "?": ColumnType.TRUTH,
        "'": ColumnType.TEXT,
        "#": ColumnType.BYTES,
        "*": ColumnType.TEXTS,
    }
    found = {word.rstrip("?'#*"): kinds[word[len(word.rstrip("?'#*")) :]] for word in columns.split()}
    return Table(name, found, keys, of, heavy)


WHOLE = (
    _table("scopes", "scope owner' agent'"),
    _table("push_hosts", "host lane name'"),
    _table("paused_hosts", "name' paused_ms paused_by'"),
    _table("calls", "key# digest# task_id' seq answer# expires_ms"),
    _table("quota_days", "day owner' tasks", keys=2),
    _table(
        "usage_days",
        "day scope model' replica' lane runs tasks messages reported input_tokens output_tokens total_tokens "
        "duration_ms cached_tokens uncertain waited_ms",
        keys=5,
    ),
    _table("budget_accounts", "account' ends_ms expires_ms warned told budget' member' owner' unit' most'"),
    _table("budget_balances", "account' replica' lane granted' most' used' reserved'", keys=3),
    _table("budget_lessons", "agent' unit' costs*", keys=2),
    _table(
        "keys",
        "key id' name' role' agents* scopes* digest# made_ms expires_ms revoked_ms limits' rules one_person team'",
    ),
    _table("signing_keys", "kid' jwk# made_ms"),
    _table("audit", "entry at_ms principal' action' agent' task_id' allowed? reason' peer' subject' key'"),
    _table("operator_records", "kind' id' version body# changed_ms revision", keys=3),
    _table("state_spaces", "space ended revision entries bytes agent' owner' context' kind'"),
    _table("state_entries", "space key' version expires_ms value#", keys=2, heavy="value"),
)
"""The tables that are copied as a whole. Counters are made anew, and what expires by itself within minutes is left out:
replicas, rates, sessions and leases of workers."""

OF_TASKS = (
    _table(
        "tasks",
        "task seq status_ms log_bytes deadline_ms offered_until_ms scope epoch webhooks_version delivered state "
        "cancel? files? pruned? pushed? id' context' holder' keeper' parent' dialect' text' title' key' team' head#",
        of="task",
    ),
    _table("pages", "task first_seq last_seq write epoch events#", keys=2, of="task"),
    _table("snapshots", "task seq record#", of="task"),
    _table("files", "task file bytes#", keys=2, of="task"),
    _table("push_configs", "config task due_ms claimed host retries? stopped? large? id' settings# key'", of="task"),
    _table(
        "deliveries",
        "delivery config seq made_ms part attempts kept? dead? id' dialect' traceparent' reason' body#",
        of="config",
    ),
    _table(
        "receipts",
        "delivery task seq part attempts status took_ms bytes made_ms arrived_ms id' config_id' url' dialect' "
        "reason' digest#",
        of="task",
    ),
    _table("state_acts", "task act' version", keys=2, of="task"),
)
"""The tables of what belongs to tasks, which are copied some tasks at a time. Tasks come first."""


class TransferSource(Protocol):
    """A store whose rows are read, as of one moment."""

    name: str
    """The same for the same store, and for no other."""

    async def count(self) -> int:
        """How many tasks there are."""
        ...

    async def sizes(self, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """The numbers of the next tasks after one, in order, each with about how many bytes belong to it."""
        ...

    async def rows(self, table: Table, after: Row | None, limit: int) -> Sequence[Row]:
        """The next rows of a whole table, after the one with a key; None: from the first."""
        ...

    async def weigh(self, table: Table, after: Row | None, limit: int) -> Sequence[int]:
        """How many bytes the heavy column of each of the same rows has."""
        ...

    async def rows_of(self, table: Table, tasks: tuple[int, int]) -> Sequence[Row]:
        """The rows of a table that belong to tasks from one number to another, both included."""
        ...

    async def numbers(self) -> Mapping[str, int]:
        """The last number that was given in each table that never gives one again."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...


class TransferTarget(TransferSource, Protocol):
    """A place beside a store, which takes the store's place once it is whole. Nobody sees it before."""

    async def last_task(self) -> int:
        """The number of the last task that is here; 0 if there is none."""
        ...

    async def last_key(self, table: Table) -> Row | None:
        """The key of the last row of a whole table; None if there is none."""
        ...

    async def write(self, rows: Collection[tuple[Table, Sequence[Row]]]) -> None:
        """Insert rows, all or none."""
        ...

    async def clear(self) -> None:
        """Delete all rows."""
        ...

    async def finish(self, numbers: Mapping[str, int]) -> None:
        """Count the tasks, go on from the source's last numbers, and take the store's place."""
        ...


def digest(rows: Iterable[Row]) -> bytes:
    """A digest of rows, whatever their order: stores may sort text differently."""
    found = blake2b(digest_size=16)
    for row in sorted(map(msgspec.msgpack.encode, rows)):
        found.update(row)
    return found.digest()
