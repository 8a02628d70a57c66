"""Damage check: finds the rows of a store whose bytes cannot be decoded, and names each.

Invariant: it only reads, some rows at a time, and no content of a row is in what it says.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dragoman.model.operations import PushConfig
from dragoman.model.parts import every_part
from dragoman.model.principal import AccessRole, Scope
from dragoman.model.task import TaskHead
from dragoman.store.codec import Codec, DamagedRow, decode
from dragoman.store.copying import STEP_ROWS, steps
from dragoman.store.keyring import read_limits
from dragoman.store.transfer import OF_TASKS, UNKNOWN_TEXTS, WHOLE, ColumnType, Row, Table, TransferSource

PUSH_CONFIGS = msgspec.msgpack.Decoder(PushConfig)

NOBODY = TaskHead(id="", context_id="", agent="", owner="", dialect="", mount="", created_at="")
"""The head with which snapshots are decoded, which hold none."""

Columns = Mapping[str, Any]


def _check_call(codec: Codec, row: Columns) -> None:
    if row["answer"] is not None:
        codec.message(row["answer"])


def _check_key(codec: Codec, row: Columns) -> None:
    AccessRole(row["role"])
    for scope in row["scopes"] or ():
        Scope(scope)
    read_limits(row["limits"])


def _check_signing_key(codec: Codec, row: Columns) -> None:
    msgspec.json.decode(row["jwk"], type=dict[str, Any])


def _check_task(codec: Codec, row: Columns) -> None:
    codec.head(row["head"])


def _check_page(codec: Codec, row: Columns) -> None:
    codec.events(row["events"])


def _check_snapshot(codec: Codec, row: Columns) -> None:
    codec.record(row["record"], NOBODY, lambda _: None)


def _check_webhook(codec: Codec, row: Columns) -> None:
    decode(PUSH_CONFIGS, row["settings"])


def _check_nothing(codec: Codec, row: Columns) -> None:
    """Check nothing: the row has no encoded bytes."""


CHECKS: Mapping[str, tuple[str, Callable[[Codec, Columns], None]]] = {
    "calls": ("the answer to a call", _check_call),
    "keys": ("key {id}", _check_key),
    "signing_keys": ("the key for signatures {kid}", _check_signing_key),
    "tasks": ("task {task_id}: its record", _check_task),
    "pages": ("task {task_id}: the events from {first_seq} on", _check_page),
    "snapshots": ("task {task_id}: its snapshot", _check_snapshot),
    "push_configs": ("task {task_id}: its webhook {id}", _check_webhook),
}
"""By table, how a row is named and what is decoded of it."""

NAMING = ("task_id", "id", "kid", "first_seq")
"""The columns, and the id of the task, by which rows are named."""


async def find_damage(source: TransferSource) -> list[str]:
    """One line for each row that cannot be read; none if all is well. Raises StoreError."""
    codec, faults = Codec(), list[str]()
    for table in WHOLE:
        after: Row | None = None
        while rows := await source.rows(table, after, STEP_ROWS):
            faults += _faults(codec, table, rows, {})
            after = rows[-1][: table.keys]
    async for first, last, _ in steps(source, 0):
        of_step = {table.name: (table, await source.rows_of(table, (first, last))) for table in OF_TASKS}
        whole, rows = of_step["tasks"]
        tasks = [_columns(whole, row) for row in rows]
        ids = {task["task"]: task["id"] for task in tasks}
        for table, rows in of_step.values():
            faults += _faults(codec, table, rows, ids)
        with_files = {task["task"] for task in tasks if task["files"]}
        there = {(row[0], row[1]) for row in of_step["files"][1]}
        named = {place for name in ("pages", "snapshots") for place in _named_files(codec, *of_step[name], with_files)}
        for task, file in sorted(named - there):
            faults.append(f"damaged: task {_shown(ids.get(task, task))}: its file {file} is missing")
    return faults


def _faults(codec: Codec, table: Table, rows: Sequence[Row], ids: Mapping[int, str]) -> Iterator[str]:
    """The faults in rows of a table. `ids` has the ids of tasks by their numbers."""
    name, check = CHECKS.get(table.name, (f"a row of {table.name}", _check_nothing))
    for row in rows:
        columns = _columns(table, row)
        try:
            _check_texts(table, row)
            check(codec, columns)
        except (DamagedRow, msgspec.MsgspecError, ValueError) as error:
            columns["task_id"] = ids.get(columns.get("task", 0), "")
            shown = {field: _shown(columns[field]) for field in NAMING if field in columns}
            yield f"damaged: {name.format(**shown)}: {str(error)[:200]}"


def _columns(table: Table, row: Row) -> dict[str, Any]:
    return dict(zip(table.columns, row, strict=True))


def _check_texts(table: Table, row: Row) -> None:
    for kind, value in zip(table.columns.values(), row, strict=True):
        if kind is ColumnType.TEXT and value and not value.isascii() and any("\udc80" <= c <= "\udcff" for c in value):
            raise DamagedRow("a text in it is no UTF-8")
        if kind is ColumnType.TEXTS and value == UNKNOWN_TEXTS:
            raise DamagedRow("a list in it cannot be decoded")


def _shown(value: object) -> str:
    return str(value).encode(errors="replace").decode()


def _named_files(
    codec: Codec, table: Table, rows: Sequence[Row], with_files: Container[int]
) -> Iterator[tuple[int, int]]:
    """The task and the number of each file in pages or snapshots, as far as these can be decoded."""
    for row in rows:
        columns = _columns(table, row)
        if columns["task"] not in with_files:
            continue
        try:
            if table.name == "pages":
                parts = every_part(codec.events(columns["events"]))
            else:
                parts = every_part((), codec.record(columns["record"], NOBODY, lambda _: None))
        except DamagedRow:
            continue
        for part in parts:
            if part.blob is not None:
                yield columns["task"], part.blob
