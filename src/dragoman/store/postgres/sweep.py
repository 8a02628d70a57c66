"""Sweep: deletes expired rows a batch at a time, and the tasks that an operator names.

Invariant: a row is deleted only if it has expired, or its task has ended, as it stands, locked. Several replicas may
sweep at once: they take different rows.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from dragoman.store.budgets import Charge
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import to_text
from dragoman.store.retention import BATCH_ROWS, BATCH_TASKS, ENDED, INTERRUPTED, PRUNED, BatchSize, Horizon

BATCH_S = 0.1
TASKS_MOST, CALLS_MOST = 2_000, 10_000
"""The limits of a batch. No writer waits for its rows: they have expired, and its counters are its own."""

MERGED_ROWS = 10_000
"""Counters of replicas that are gone, added up in one transaction. Nobody waits for their locks."""

MERGE_EVERY_S = 60.0
"""How often they are added up while there is always something to delete: finding them reads all counters."""

LANE = 100
"""The counters to which a sweep adds. No batch of writes uses them."""

RemoveWebhooks = Callable[[DatabaseConnection, list[int]], Awaitable[None]]
"""Deletes the webhooks of tasks, by their numbers, with all that is owed to them."""

ChargesOfDeleted = Callable[[bytes], Sequence[Charge]]
"""What a task is charged that is deleted before its end, by its encoded head."""

Batch = tuple[int, int | None, int]
"""How many tasks or calls were deleted, the newest time among them, and how many rows these were in all."""


class SweepFront:
    """The place to which the sweep of one kind of rows has come in their index, and the limit of its next batch.

    Until the next vacuum an index leads to all that was deleted. Each batch would pass what those before it deleted.
    """

    def __init__(self, least: int, most: int) -> None:
        self._size = BatchSize(least, most, BATCH_S)
        self._since_ms = 0

    async def delete(self, batch: Callable[[int, int], Awaitable[Batch]]) -> tuple[int, bool]:
        """Delete what `batch` does, which is given the first time and the limit.

        Returns how many rows, and whether it was as many as the limit. A batch leaves what somebody else holds, so that
        the rows before the front are looked at again when few are left behind it.
        """
        limit, began_s = self._size.limit, time.monotonic()
        deleted, newest_ms, rows = await batch(self._since_ms, limit)
        if self._since_ms and deleted < limit:
            self._since_ms = 0
            earlier, newest_ms, rows_earlier = await batch(0, limit - deleted)
            deleted, rows = deleted + earlier, rows + rows_earlier
        elif deleted == limit and newest_ms is not None:
            self._since_ms = newest_ms
        full = deleted == limit
        self._size.note(time.monotonic() - began_s, full=full)
        return rows, full


class TaskSweep:
    """Deletes tasks, their logs, remembered calls, and what else has no retention of its own."""

    def __init__(self, sql: Mapping[str, str], remove_webhooks: RemoveWebhooks, charges: ChargesOfDeleted) -> None:
        self._sql = sql
        self._remove_webhooks = remove_webhooks
        self._charges = charges
        self._tasks = {kind: SweepFront(BATCH_TASKS, TASKS_MOST) for kind in (PRUNED, ENDED, INTERRUPTED)}
        self._logs = SweepFront(BATCH_TASKS, TASKS_MOST)
        self._calls = SweepFront(BATCH_ROWS, CALLS_MOST)
        self._merged_s = float("-inf")
        """When all of them were added up last."""

    async def sweep(self, pool: Pool, replica: str, horizon: Horizon) -> int:
        """Delete one batch of each kind. Returns how many rows, 0 when nothing is left to do.

        Raises StoreError or OutcomeUnknown.
        """
        rows, with_logs = 0, horizon.log_age_ms >= 0
        for kind, age_ms in horizon.ages:
            if age_ms >= 0:
                deleted, full = await self._sweep_tasks(pool, replica, kind, horizon.now_ms - age_ms)
                rows += deleted
                if kind == ENDED and full:  # the oldest logs go with their tasks
                    with_logs = False
        if with_logs:
            rows += await self._sweep(pool, "sweep_logs", self._logs, horizon.now_ms - horizon.log_age_ms)
        rows += await self._sweep(pool, "sweep_calls", self._calls, horizon.now_ms)
        rows += await _count(pool, self._sql["sweep_days"], horizon.yesterday, BATCH_ROWS)
        if not rows or time.monotonic() >= self._merged_s + MERGE_EVERY_S:
            await _count(pool, self._sql["forget_contexts"])
            for name in ("merge_counts", "merge_usage", "merge_balances"):
                if await _count(pool, self._sql[name], MERGED_ROWS) == MERGED_ROWS:
                    return rows + MERGED_ROWS
            self._merged_s = time.monotonic()
        return rows

    async def delete(self, pool: Pool, replica: str, task_ids: list[str]) -> tuple[str, ...]:
        """Delete those of the tasks that have ended. Returns their ids. Raises StoreError or OutcomeUnknown."""
        async with pool.transaction() as connection:
            deleted, pushed, *contexts = await connection.fetchrow(self._sql["delete_tasks"], task_ids, replica, LANE)
            if pushed:
                await self._remove_webhooks(connection, pushed)
            await self._end_conversations(connection, contexts)
        return tuple(deleted)

    async def _sweep(self, pool: Pool, name: str, front: SweepFront, before_ms: int) -> int:
        """Delete a batch by one statement. Returns how many rows."""

        async def batch(since_ms: int, limit: int) -> Batch:
            deleted, newest_ms = (await pool.write(self._sql[name], before_ms, limit, since_ms))[0]
            return deleted, newest_ms, deleted

        return (await front.delete(batch))[0]

    async def _sweep_tasks(self, pool: Pool, replica: str, kind: int, before_ms: int) -> tuple[int, bool]:
        """Delete a batch of whole tasks of a kind. Returns how many rows, and whether more are probably left."""

        async def batch(since_ms: int, limit: int) -> Batch:
            async with pool.transaction() as connection:
                values = kind, before_ms, limit, replica, LANE, since_ms
                row = await connection.fetchrow(self._sql["sweep_tasks"], *values)
                deleted, newest_ms, rows, pushed, heads, *contexts = row
                if pushed:
                    await self._remove_webhooks(connection, pushed)
                await self._end_conversations(connection, contexts)
                await self._charge(connection, replica, [charge for head in heads for charge in self._charges(head)])
            return deleted, newest_ms, rows

        return await self._tasks[kind].delete(batch)

    async def _charge(self, connection: DatabaseConnection, replica: str, charges: Sequence[Charge]) -> None:
        """Charge tasks that were deleted before their end what they had reserved of budgets."""
        released: Counter[str] = Counter()
        used: Counter[str] = Counter()
        for charge in charges:
            released[to_text(charge.account)] += charge.released
            used[to_text(charge.account)] += charge.used
        if released:
            accounts = sorted(released)
            values = [str(released[each]) for each in accounts], [str(used[each]) for each in accounts]
            await connection.fetch(self._sql["charge_deleted"], accounts, *values, replica, LANE)

    async def _end_conversations(self, connection: DatabaseConnection, contexts: Sequence[Sequence[object]]) -> None:
        """End the state of conversations that have no tasks left: deleted tasks' scopes, and their contexts."""
        if contexts[0]:
            held = await connection.fetch(self._sql["hold_conversations"], *contexts)
            if held:
                await connection.execute(self._sql["end_conversations"], sorted({row[0] for row in held}))


async def _count(pool: Pool, statement: str, *values: object) -> int:
    """The number that a statement returns."""
    deleted: int = (await pool.write(statement, *values))[0][0]
    return deleted
