"""Sweep: deletes expired rows a short batch at a time, and the tasks that an operator names.

Invariant: a row is deleted only if it has expired, or its task has ended, as it stands, locked. Several replicas may
sweep at once: they take different rows.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from dragoman.store.budgets import Charge
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.pool import Pool
from dragoman.store.postgres.database.statements import to_text
from dragoman.store.retention import BATCH_ROWS, BATCH_TASKS, Horizon

MERGED_ROWS = 10_000
"""Counters of replicas that are gone, added up in one transaction once nothing else is left to do. Finding them reads
all counters. Nobody waits for their locks."""

LANE = 100
"""The counters to which a sweep adds. No batch of writes uses them."""


RemoveWebhooks = Callable[[DatabaseConnection, list[int]], Awaitable[None]]
"""Deletes the webhooks of tasks, by their numbers, with all that is owed to them."""

ChargesOfDeleted = Callable[[bytes], Sequence[Charge]]
"""What a task is charged that is deleted before its end, by its encoded head."""


async def sweep(
    pool: Pool,
    sql: Mapping[str, str],
    replica: str,
    horizon: Horizon,
    remove_webhooks: RemoveWebhooks,
    charges: ChargesOfDeleted,
) -> int:
    """Delete one batch. Returns how many rows, 0 when nothing is left to do. Raises StoreError or OutcomeUnknown."""
    deleted = await _sweep_tasks(pool, sql, replica, horizon, remove_webhooks, charges)
    if not deleted and horizon.log_age_ms >= 0:
        deleted = await _count(pool, sql["sweep_logs"], horizon.now_ms - horizon.log_age_ms, BATCH_TASKS)
    deleted += await _count(pool, sql["sweep_calls"], horizon.now_ms, BATCH_ROWS)
    deleted += await _count(pool, sql["sweep_days"], horizon.yesterday, BATCH_ROWS)
    if not deleted:
        await _count(pool, sql["forget_contexts"])
        for name in ("merge_counts", "merge_usage", "merge_balances"):
            if await _count(pool, sql[name], MERGED_ROWS) == MERGED_ROWS:
                return MERGED_ROWS
    return deleted


async def delete_tasks(
    pool: Pool, sql: Mapping[str, str], replica: str, task_ids: list[str], remove_webhooks: RemoveWebhooks
) -> tuple[str, ...]:
    """Delete those of the tasks that have ended. Returns their ids. Raises StoreError or OutcomeUnknown."""
    async with pool.transaction() as connection:
        deleted, pushed, *contexts = await connection.fetchrow(sql["delete_tasks"], task_ids, replica, LANE)
        if pushed:
            await remove_webhooks(connection, pushed)
        await _end_conversations(connection, sql, contexts)
    return tuple(deleted)


async def _sweep_tasks(
    pool: Pool,
    sql: Mapping[str, str],
    replica: str,
    horizon: Horizon,
    remove_webhooks: RemoveWebhooks,
    charges: ChargesOfDeleted,
) -> int:
    deleted, left = 0, BATCH_TASKS
    for kind, age_ms in horizon.ages:
        if age_ms < 0 or left <= 0:
            continue
        async with pool.transaction() as connection:
            values = kind, horizon.now_ms - age_ms, left, replica, LANE
            rows, tasks, pushed, *contexts, heads = await connection.fetchrow(sql["sweep_tasks"], *values)
            if pushed:
                await remove_webhooks(connection, pushed)
            await _end_conversations(connection, sql, contexts)
            await _charge_deleted(connection, sql, replica, [charge for head in heads for charge in charges(head)])
        deleted += rows
        left -= tasks
    return deleted


async def _charge_deleted(
    connection: DatabaseConnection, sql: Mapping[str, str], replica: str, charges: Sequence[Charge]
) -> None:
    """Charge tasks that were deleted before their end what they had reserved of budgets."""
    released: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for charge in charges:
        released[to_text(charge.account)] += charge.released
        used[to_text(charge.account)] += charge.used
    if released:
        accounts = sorted(released)
        values = [str(released[each]) for each in accounts], [str(used[each]) for each in accounts]
        await connection.fetch(sql["charge_deleted"], accounts, *values, replica, LANE)


async def _end_conversations(
    connection: DatabaseConnection, sql: Mapping[str, str], contexts: Sequence[Sequence[object]]
) -> None:
    """End the state of conversations that have no tasks left: deleted tasks' scopes, and their contexts."""
    if contexts[0]:
        held = await connection.fetch(sql["hold_conversations"], *contexts)
        if held:
            await connection.execute(sql["end_conversations"], sorted({row[0] for row in held}))


async def _count(pool: Pool, statement: str, *values: object) -> int:
    """The number that a statement returns."""
    deleted: int = (await pool.write(statement, *values))[0][0]
    return deleted
