"""Deliveries: the rows of webhooks and of pending deliveries that the transactions of other modules write.

Invariant: `due_ms` of a webhook is null exactly when it has no pending delivery, and `large` gives the size class of
its oldest one. A writer that changes the deliveries of a webhook has locked its row in an earlier statement of the
transaction, and so sees all of them.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dragoman.store.deliveries import DeliveryStanding, LiveWebhook, Owing, Settlements, settle_first
from dragoman.store.outbox import Delivery, QueuedAgain, Registration, Settled
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.statements import from_text, to_text
from dragoman.store.postgres.writes import Told
from dragoman.store.receipts import RECEIPTS_MAX
from dragoman.store.sql.outbox import OwedChange

Sql = Mapping[str, str]


async def tell(connection: DatabaseConnection, sql: Sql, told: Sequence[Told], now_ms: int) -> None:
    """Write webhooks and deliveries of tasks that the transaction has locked, in order."""
    begun = [(one.task, one.push) for one in told if one.push is not None]
    if begun:
        await _keep_webhooks(connection, sql, begun)
    owing = [(one.task, delivery) for one in told for delivery in one.deliveries]
    if owing:
        await _owe(connection, sql, owing, now_ms)


async def _keep_webhooks(connection: DatabaseConnection, sql: Sql, begun: Sequence[tuple[int, Registration]]) -> None:
    names = sorted({to_text(push.host) for _, push in begun})
    hosts: dict[str, int] = dict(map(tuple, await connection.fetch(sql["find_hosts"], names)))
    while len(hosts) < len(names):  # one that was found may have been deleted before it was locked
        await connection.execute(sql["add_hosts"], [name for name in names if name not in hosts])
        hosts = dict(map(tuple, await connection.fetch(sql["find_hosts"], names)))
    await connection.execute(
        sql["keep_webhooks"],
        [task for task, _ in begun],
        [to_text(push.config.id) for _, push in begun],
        [hosts[to_text(push.host)] for _, push in begun],
        [msgspec.msgpack.encode(push.config) for _, push in begun],
        [to_text(push.key) if push.key else None for _, push in begun],
    )


async def _owe(connection: DatabaseConnection, sql: Sql, owing: Sequence[tuple[int, Delivery]], now_ms: int) -> None:
    locked = await connection.fetch(sql["lock_webhooks"], sorted({task for task, _ in owing}))
    found = Owing((LiveWebhook(task, from_text(name), *facts) for task, name, *facts in locked), owing)
    if found.crowded:
        await connection.execute(sql["merge"], found.crowded)
    if found.rows:
        await connection.execute(
            sql["owe"],
            [config for config, _ in found.rows],
            [delivery.seq for _, delivery in found.rows],
            [delivery.part for _, delivery in found.rows],
            [delivery.kept for _, delivery in found.rows],
            [to_text(delivery.id) for _, delivery in found.rows],
            [None if delivery.traceparent is None else to_text(delivery.traceparent) for _, delivery in found.rows],
            [to_text(delivery.dialect) for _, delivery in found.rows],
            [delivery.body for _, delivery in found.rows],
            now_ms,
            [webhook.config for webhook, _ in found.woken],
            [large for _, large in found.woken],
        )


async def remove_webhook(connection: DatabaseConnection, sql: Sql, task_id: str, config_id: str) -> bool:
    """Delete a webhook and its pending deliveries. Returns whether there was one."""
    task = await connection.fetchval(sql["lock_task"], to_text(task_id))
    row = None if task is None else await connection.fetchrow(sql["lock_webhook"], task, to_text(config_id))
    if row is None:
        return False
    config, host = row
    await connection.execute(sql["delete_webhooks"], [config])
    await connection.execute(sql["unmark_pushed"], task)
    await _drop_hosts(connection, sql, {host})
    return True


async def remove_webhooks(connection: DatabaseConnection, sql: Sql, tasks: Sequence[int]) -> None:
    """Delete the webhooks of tasks that the transaction has deleted, their pending deliveries, and their receipts."""
    found = await connection.fetch(sql["lock_webhooks_of"], list(tasks))
    if found:
        await connection.execute(sql["delete_webhooks"], [config for config, _ in found])
        await _drop_hosts(connection, sql, {host for _, host in found})
    # Now that the webhooks were locked: a settlement may have written some after the statement that deleted the tasks.
    await connection.execute(sql["delete_receipts"], list(tasks))


async def queue_again(
    connection: DatabaseConnection, sql: Sql, task_id: str, delivery: Delivery, now_ms: int
) -> QueuedAgain:
    """Write a delivery once more, unless it is in the outbox."""
    task = await connection.fetchval(sql["lock_task"], to_text(task_id))
    row = None if task is None else await connection.fetchrow(sql["webhook_stopped"], task, to_text(delivery.config_id))
    if row is None:
        return QueuedAgain.NO_CONFIG
    if row[0]:
        return QueuedAgain.STOPPED
    if await connection.fetch(sql["already_owed"], task, [to_text(delivery.id)]):
        return QueuedAgain.THERE
    await _owe(connection, sql, [(task, delivery)], now_ms)
    return QueuedAgain.QUEUED


async def change_owed(
    connection: DatabaseConnection, sql: Sql, change: OwedChange, numbers: Sequence[int], now_ms: int
) -> int:
    """Change those of some deliveries to which it applies. Their webhooks are locked. Returns how many there were."""
    match change:
        case OwedChange.HASTEN:
            return len(await connection.fetch(sql["hasten"], numbers, now_ms))
        case OwedChange.DROP:
            return len(await connection.fetch(sql["drop_dead"], numbers))
        case OwedChange.DROP_PENDING:
            configs = [config for (config,) in await connection.fetch(sql["drop_pending"], numbers, now_ms)]
            await connection.execute(sql["rearm"], sorted(set(configs)), now_ms)
            return len(configs)
        case OwedChange.REVIVE:
            configs = [config for (config,) in await connection.fetch(sql["revive"], numbers)]
            await connection.execute(sql["wake_revived"], configs, now_ms)
            return len(configs)


async def _drop_hosts(connection: DatabaseConnection, sql: Sql, hosts: Iterable[int]) -> None:
    """Delete those hosts that have no webhooks left, and for which nobody registers one at present."""
    free = [host for (host,) in await connection.fetch(sql["lock_hosts"], list(hosts))]
    if free:
        await connection.execute(sql["drop_hosts"], free)


async def settle(connection: DatabaseConnection, sql: Sql, outcomes: Sequence[Settled], now_ms: int) -> None:
    """Write the outcomes of attempts. Two of one webhook are settled one after the other."""
    before = [number for one in outcomes for number in one.before]
    arrivals = [arrival for one in outcomes for arrival in one.arrivals]
    await connection.fetch(sql["lock_settling"], [*before, *(one.number for one in outcomes)])
    if arrivals:
        await connection.execute(
            sql["keep_receipts"],
            [each.number for each in arrivals],
            [each.at_ms for each in arrivals],
            [each.status for each in arrivals],
            [each.took_ms for each in arrivals],
            [to_text(each.url) for each in arrivals],
            [each.digest for each in arrivals],
            RECEIPTS_MAX,
        )
    if before:
        await connection.execute(sql["delete_deliveries"], before)
    lanes: dict[int, int] = {}
    while outcomes:
        rows = await connection.fetch(sql["settling"], sorted({one.number for one in outcomes}))
        changes = settle_first((DeliveryStanding(*row) for row in rows), outcomes, lanes, now_ms)
        await _write_settlements(connection, sql, changes)
        outcomes = changes.rest
    if lanes:
        hosts = sorted(lanes)
        await connection.execute(sql["change_lanes"], hosts, [lanes[host] for host in hosts])


async def _write_settlements(connection: DatabaseConnection, sql: Sql, changes: Settlements) -> None:
    async def run(name: str, numbers: Sequence[int]) -> None:
        if numbers:
            await connection.execute(sql[name], numbers)

    await run("stop_webhooks", changes.stopped)
    await run("delete_deliveries", changes.arrived)
    if changes.failed:
        numbers, dead, reasons = zip(*changes.failed, strict=True)
        await connection.execute(sql["fail_deliveries"], numbers, dead, list(map(to_text, reasons)))
    await run("merge_waiting", changes.crowded)
    if changes.freed:
        await connection.execute(sql["free_webhooks"], *zip(*changes.freed, strict=True))
    await run("measure", changes.measured)
