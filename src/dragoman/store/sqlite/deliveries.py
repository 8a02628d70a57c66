"""Deliveries: the writes to webhooks and their pending deliveries, many at once in a few statements.

Invariant: `due_ms` of a webhook is null exactly when it has no pending delivery. `large` gives the size class of its
oldest one, and the host's due time for that class is never later than the webhook's. Only the oldest pending delivery
is ever claimed. Everything here runs inside a writer's transaction.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from dragoman.store.api import Unknown
from dragoman.store.deliveries import DeliveryStanding, LiveWebhook, Owing, Settlements, settle_first
from dragoman.store.outbox import SMALL_BYTES_MAX, Arrival, Delivery, QueuedAgain, Registration, Settled
from dragoman.store.receipts import RECEIPTS_MAX
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Registering, Removal, Webhook

HOSTS_REMEMBERED = 10_000
"""Numbers of hosts that need no look-up."""

T = TypeVar("T")

Row = tuple[object, ...]

Begun = tuple[int, Webhook, Sequence[Delivery]]
"""The number of a task, a webhook that is new to it, and the first deliveries of that webhook."""


class _Wakes:
    """The new due times of hosts, for small and for large deliveries."""

    def __init__(self) -> None:
        self._due: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def add(self, host: int, due_ms: int, large: bool | int) -> None:
        due = self._due[large]
        due[host] = min(due_ms, due.get(host, due_ms))

    def write(self, tables: Tables) -> None:
        small, large = self._due
        tables.execute_rows("wake_hosts", list(small.items()))
        if large:
            tables.execute_rows("wake_hosts_large", list(large.items()))


def encode_webhook(registration: Registration) -> Webhook:
    """Encode a registration for the file."""
    config = registration.config
    return Webhook(config.id, registration.host, msgspec.msgpack.encode(config), registration.key or None)


def _add_webhooks(tables: Tables, begun: Sequence[Begun], now_ms: int, wakes: _Wakes) -> list[Row]:
    """Insert new webhooks, due at once if they have deliveries. Returns the rows of these deliveries."""
    webhooks: list[Row] = []
    rows: list[Row] = []
    for task, webhook, deliveries in begun:
        host = _host(tables, webhook.host)
        number = next(tables.config_numbers)
        owed = [delivery for delivery in deliveries if delivery.config_id == webhook.id]
        due_ms = now_ms if owed else None
        large = bool(owed) and len(owed[0].body) > SMALL_BYTES_MAX
        webhooks.append((number, task, webhook.id, host, webhook.settings, due_ms, large, webhook.key))
        rows += [_row(number, delivery, now_ms) for delivery in owed]
        if owed:
            wakes.add(host, now_ms, large)
    tables.execute_rows("add_webhooks", webhooks)
    return rows


def keep_webhook(tables: Tables, task_id: str, webhook: Webhook) -> int:
    """Store a webhook of a task, in place of one with its id. Returns the task's number, 0 if there is no such task."""
    cursor, sql = tables.cursor, tables.sql
    task = cursor.execute(sql["mark_pushed"], (task_id,)).get
    if task is None:
        return 0
    found = cursor.execute(sql["find_webhook"], (task, webhook.id)).get
    if found is None:
        _add_webhooks(tables, [(int(task), webhook, ())], 0, _Wakes())
        return int(task)
    config, host = found
    here = _host(tables, webhook.host)
    cursor.execute(sql["replace_webhook"], (config, here, webhook.settings, webhook.key))
    if here != host:
        cursor.execute(sql["align_hosts"], (f"[{here}]",))
        _drop_hosts(tables, (host,))
    return int(task)


def register(tables: Tables, write: Registering, now_ms: int) -> Unknown | None:
    """Store a webhook and its first deliveries."""
    task = keep_webhook(tables, write.id, write.webhook)
    if not task:
        return Unknown(write.id)
    owe(tables, [(task, delivery) for delivery in write.deliveries], now_ms)
    return None


def remove(tables: Tables, write: Removal) -> bool:
    """Delete a webhook and its deliveries."""
    cursor, sql = tables.cursor, tables.sql
    found = cursor.execute(sql["remove_webhook"], (write.id, write.config_id)).get
    if found is None:
        return False
    task, config, host = found
    cursor.execute(sql["delete_owed"], (config,))
    cursor.execute(sql["unmark_pushed"], (task,))
    _drop_hosts(tables, (host,))
    return True


def remove_all(tables: Tables, task: int) -> None:
    """Delete the webhooks of a task that is gone, and their deliveries."""
    tables.cursor.execute(tables.sql["delete_task_owed"], (task,))
    _drop_hosts(tables, {host for (host,) in _rows(tables, "delete_webhooks", task)})


def owe(tables: Tables, owing: Sequence[tuple[int, Delivery]], now_ms: int, begun: Sequence[Begun] = ()) -> None:
    """Write deliveries of tasks, in order, as far as there is a webhook for them. `begun` holds webhooks of new tasks,
    about which nothing need be read.
    """
    wakes = _Wakes()
    rows = _add_webhooks(tables, begun, now_ms, wakes) if begun else []
    if owing:
        rows += _owed_rows(tables, owing, now_ms, wakes)
    if rows:
        tables.execute_rows("add_deliveries", rows)
    wakes.write(tables)


def _owed_rows(tables: Tables, owing: Sequence[tuple[int, Delivery]], now_ms: int, wakes: _Wakes) -> list[Row]:
    """Build the rows of deliveries to existing webhooks, and make those webhooks due that were idle."""
    found = Owing(_read(tables, "webhooks", {task for task, _ in owing}, list[LiveWebhook]), owing)
    idle: tuple[list[int], list[int]] = ([], [])
    for webhook, large in found.woken:
        idle[large].append(webhook.config)
        wakes.add(webhook.host, now_ms, large)
    if found.crowded:
        tables.cursor.execute(tables.sql["merge"], (_numbers(found.crowded),))
    for size, configs in enumerate(idle):
        if configs:
            tables.cursor.execute(tables.sql["wake_webhooks"], (_numbers(configs), now_ms, size))
    return [_row(config, delivery, now_ms) for config, delivery in found.rows]


def _row(config: int, delivery: Delivery, now_ms: int) -> Row:
    """The values of `add_deliveries`."""
    return (
        config,
        delivery.seq,
        delivery.part,
        delivery.kept,
        now_ms,
        delivery.id,
        delivery.traceparent,
        delivery.dialect,
        delivery.body,
    )


def reclaim(tables: Tables, now_ms: int, held: Iterable[int]) -> None:
    """Make every delivery that is in flight due now, but for those held."""
    _wake_now(tables, _rows(tables, "void_claims", now_ms, _numbers(held)), now_ms)


def release(tables: Tables, numbers: Iterable[int], now_ms: int) -> None:
    """Make those of some deliveries that are in flight due now."""
    _wake_now(tables, _rows(tables, "release", now_ms, _numbers(numbers)), now_ms)


def settle(tables: Tables, outcomes: Sequence[Settled], now_ms: int) -> None:
    """Write the outcomes of attempts. Two of one webhook are settled one after the other."""
    _keep_receipts(tables, [arrival for one in outcomes for arrival in one.arrivals])
    _run(tables, "delete_deliveries", [number for one in outcomes for number in one.before])
    lanes: dict[int, int] = {}
    while outcomes:
        standings = _read(tables, "settling", {one.number for one in outcomes}, list[DeliveryStanding])
        changes = settle_first(standings, outcomes, lanes, now_ms)
        _write_settlements(tables, changes)
        outcomes = changes.rest
    tables.execute_rows("change_lanes", list(lanes.items()))


def _keep_receipts(tables: Tables, arrivals: Sequence[Arrival]) -> None:
    """Keep receipts of the pending ones of these deliveries, and no more than the newest receipts of their tasks."""
    if arrivals:
        rows = [(each.number, each.at_ms, each.status, each.took_ms, each.url, each.digest) for each in arrivals]
        tables.execute_rows("keep_receipts", rows)
        numbers = _numbers(each.number for each in arrivals)
        tables.cursor.execute(tables.sql["trim_receipts"], (numbers, RECEIPTS_MAX))


def _write_settlements(tables: Tables, changes: Settlements) -> None:
    for config in changes.stopped:
        tables.cursor.execute(tables.sql["stop_webhook"], (config,))
        tables.cursor.execute(tables.sql["delete_owed"], (config,))
    _run(tables, "delete_deliveries", changes.arrived)
    tables.execute_rows("fail_deliveries", changes.failed)
    _run(tables, "merge_waiting", changes.crowded)
    tables.execute_rows("free_webhooks", changes.freed)
    _wake(tables, changes.woken)
    if changes.measured:
        hosts = {host for (host,) in _rows(tables, "measure", _numbers(changes.measured))}
        tables.cursor.execute(tables.sql["align_hosts"], (_numbers(hosts),))


def queue_again(tables: Tables, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
    """Write a delivery once more, unless it is in the outbox."""
    found = tables.cursor.execute(tables.sql["webhook_stopped"], (task_id, delivery.config_id)).get
    if found is None:
        return QueuedAgain.NO_CONFIG
    task, stopped = found
    if stopped:
        return QueuedAgain.STOPPED
    if tables.cursor.execute(tables.sql["owed_already"], (task, delivery.config_id, delivery.id)).get:
        return QueuedAgain.THERE
    owe(tables, [(task, delivery)], now_ms)
    return QueuedAgain.QUEUED


def revive(tables: Tables, numbers: Sequence[int], now_ms: int) -> int:
    """Make the dead ones of these deliveries pending again."""
    found = _rows(tables, "some_dead", _numbers(numbers))
    if found:
        tables.cursor.execute(tables.sql["revive"], (_numbers(number for number, _, _ in found),))
        configs = _numbers({config for _, config, _ in found})
        _wake_now(tables, _rows(tables, "wake_revived", configs, now_ms), now_ms)
    return len(found)


def drop(tables: Tables, numbers: Sequence[int], _: int) -> int:
    """Delete the dead ones of these deliveries."""
    found = _rows(tables, "some_dead", _numbers(numbers))
    tables.cursor.execute(tables.sql["delete_deliveries"], (_numbers(number for number, _, _ in found),))
    return len(found)


def hasten(tables: Tables, numbers: Sequence[int], now_ms: int) -> int:
    """Make the webhooks of the pending ones of these deliveries due now, unless they have one in flight."""
    found = _rows(tables, "some_pending", _numbers(numbers), now_ms)
    if found:
        configs = _numbers({config for _, config, _ in found})
        _wake_now(tables, _rows(tables, "hasten", configs, now_ms), now_ms)
    return len(found)


def drop_pending(tables: Tables, numbers: Sequence[int], now_ms: int) -> int:
    """Delete the pending ones of these deliveries that are not in flight."""
    found = [
        (number, config)
        for number, config, in_flight in _rows(tables, "some_pending", _numbers(numbers), now_ms)
        if not in_flight
    ]
    if found:
        tables.cursor.execute(tables.sql["delete_deliveries"], (_numbers(number for number, _ in found),))
        configs = _numbers({config for _, config in found})
        hosts = {host for (host,) in _rows(tables, "rearm", configs, now_ms)}
        tables.cursor.execute(tables.sql["align_hosts"], (_numbers(hosts),))
    return len(found)


def _wake_now(tables: Tables, places: Iterable[tuple[int, int]], now_ms: int) -> None:
    """Make hosts due now, each for its small (0) or large (1) deliveries."""
    _wake(tables, [(host, now_ms, large) for host, large in places])


def _wake(tables: Tables, woken: Iterable[tuple[int, int, bool | int]]) -> None:
    wakes = _Wakes()
    for host, due_ms, large in woken:
        wakes.add(host, due_ms, large)
    wakes.write(tables)


def _run(tables: Tables, name: str, numbers: Sequence[int]) -> None:
    """Run a statement about the rows with these numbers, if there are any."""
    if numbers:
        tables.cursor.execute(tables.sql[name], (_numbers(numbers),))


def _host(tables: Tables, name: str) -> int:
    number = tables.hosts.get(name)
    if number is None:
        found: Any = tables.cursor.execute(tables.sql["find_host"], (name,)).get
        if found is None:
            found = tables.cursor.execute(tables.sql["add_host"], (name,)).get
        if len(tables.hosts) >= HOSTS_REMEMBERED:
            tables.hosts.clear()
        number = tables.hosts[name] = int(found)
    return number


def _drop_hosts(tables: Tables, hosts: Iterable[int]) -> None:
    """Delete the hosts that have no webhooks left. Only the writer adds or deletes hosts."""
    tables.hosts.clear()
    tables.cursor.execute(tables.sql["drop_hosts"], (_numbers(hosts),))


def _read(tables: Tables, name: str, numbers: Iterable[int], form: type[T]) -> T:
    """Run a statement that returns one JSON row about the rows with these numbers, and decode it."""
    return msgspec.json.decode(str(tables.cursor.execute(tables.sql[name], (_numbers(numbers),)).get), type=form)


def _rows(tables: Tables, name: str, *values: object) -> list[Any]:
    rows: list[Any] = tables.cursor.execute(tables.sql[name], values).fetchall()
    return rows


def _numbers(numbers: Iterable[int]) -> str:
    return str(list(numbers))
