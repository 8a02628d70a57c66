"""Sweep: deletes expired rows a batch at a time. A reader thread finds them, the writer deletes them.

It also deletes the tasks that an operator names.

Invariant: a row is deleted only if it has not changed since it was found.

Later writes reuse freed pages, so that a file with a steady retention does not grow. It does not shrink either:
`auto_vacuum` would cost every large file a page map, and `VACUUM` is left to the operator.
"""

from collections.abc import Collection
from typing import Any

from msgspec.json import encode

from dragoman.store.codec import TERMINAL_FROM, Codec
from dragoman.store.retention import BATCH_ROWS, ENDED, Horizon
from dragoman.store.sqlite.connection import fetch
from dragoman.store.sqlite.deliveries import remove_all
from dragoman.store.sqlite.reads import SqliteReads
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Deletion, Sweep, Victim

TASKS_MOST = 200
BATCH_S = 0.1
"""The limits of a batch, from its hand-over to the writer until it is durable. Other writes wait behind it: for some 20
µs a task. Most of the time of a small batch beside many callers is a wait for their writes."""


def find_victims(reads: SqliteReads, horizon: Horizon, limit: int) -> Sweep | None:
    """Find the next batch of at most `limit` tasks; None if nothing has expired."""
    with reads.moment():
        whole: list[Victim] = []
        for kind, age_ms in horizon.ages:
            whole += _older(reads, kind, horizon.now_ms, age_ms, limit - len(whole))
        older = _older(reads, ENDED, horizon.now_ms, horizon.log_age_ms, limit - len(whole))
        gone = {victim.task for victim in whole}
        logs = [victim for victim in older if victim.task not in gone]
        # calls are stored nearly in the order of their expiry
        front: list[Any] = fetch(reads.cursor, reads.sql["oldest_calls"], (max(BATCH_ROWS, 2 * limit),))
        days = reads.cursor.execute(reads.sql["old_days"], (horizon.yesterday,)).get is not None
    calls = tuple(call for call, expires_ms in front if expires_ms <= horizon.now_ms)
    if not (whole or logs or calls or days):
        return None
    return Sweep(tuple(whole), tuple(logs), calls, horizon.now_ms, horizon.yesterday if days else 0)


def _older(reads: SqliteReads, kind: int, now_ms: int, age_ms: int, limit: int) -> list[Victim]:
    if age_ms < 0 or limit <= 0:
        return []
    rows: list[Any] = fetch(reads.cursor, reads.sql["sweep_tasks"], (kind, now_ms - age_ms, limit))
    return [Victim(*row) for row in rows]


def delete_victims(tables: Tables, sweep: Sweep, codec: Codec) -> int:
    """Delete the rows that are still as they were found. Returns how many. Runs inside a writer's transaction."""
    cursor, sql = tables.cursor, tables.sql
    before = tables.connection.total_changes()
    _delete_rows(tables, [victim.task for victim in sweep.whole if _delete_row(tables, victim, codec)])
    for victim in sweep.logs:
        cursor.execute(sql["prune_task"], (victim.task,))
        cursor.execute(sql["prune_pages"], (victim.task,))
    if sweep.calls:
        cursor.execute(sql["delete_calls"], (str(list(sweep.calls)), sweep.now_ms))
    if sweep.days_before:
        cursor.execute(sql["delete_days"], (sweep.days_before, BATCH_ROWS))
    return tables.connection.total_changes() - before


def delete_tasks(tables: Tables, deletion: Deletion, codec: Codec) -> tuple[str, ...]:
    """Delete those of the tasks that have ended. Returns their ids. Runs inside a writer's transaction."""
    deleted: dict[str, int] = {}
    for task_id in deletion.ids:
        found = tables.cursor.execute(tables.sql["standing"], (task_id,)).get
        if found is None:
            continue
        task, scope, context, state, seq, *_ = found
        victim = Victim(task_id, task, scope, context, state, seq)
        if state >= TERMINAL_FROM and _delete_row(tables, victim, codec):
            deleted[task_id] = task
    _delete_rows(tables, deleted.values())
    if deletion.calls and deleted:
        ids = encode(list(deleted)).decode()
        tables.cursor.execute(tables.sql["delete_calls_of_tasks"], (str(list(deletion.calls)), ids))
    return tuple(deleted)


def _delete_row(tables: Tables, victim: Victim, codec: Codec) -> bool:
    """Delete the row of a task with its webhooks, unless it has changed. Returns whether it was there.

    One that has not ended is charged what it has reserved of budgets.
    """
    tables.standings.pop(victim.id, None)
    found = tables.cursor.execute(tables.sql["delete_task"], (victim.task, victim.state, victim.seq)).get
    if found is None:
        return False
    pushed, head = found
    if head is not None:
        tables.charge(codec.charges(head))
    if pushed:
        remove_all(tables, victim.task)
    tables.count(victim.scope, victim.context, victim.state, None)
    return True


def _delete_rows(tables: Tables, tasks: Collection[int]) -> None:
    """Delete what else belongs to tasks whose rows are gone."""
    if tasks:
        for name in ("delete_pages", "delete_snapshots", "delete_files", "delete_receipts", "delete_acts"):
            tables.cursor.execute(tables.sql[name], (str(list(tasks)),))
