"""What writes do to webhooks and to what is owed to them; many at once in a few statements.

Invariant: of a webhook `due_ms` is null exactly if nothing is owed to it, and that of its host is never later. Only the
oldest that is owed to it is ever claimed. Everything here runs inside a transaction of the writer's.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from dragoman.model.operations import PushConfig
from dragoman.store.api import Unknown
from dragoman.store.outbox import Delivery, Due, Lane, Settled
from dragoman.store.sqlite.writes import Registering, Removal, Webhook

if TYPE_CHECKING:
    from dragoman.store.sqlite.ledger import Ledger

CLAIM_ROUNDS = 4
"""How often a claim looks for more hosts: some are due no more when looked at, and are then set right."""

T = TypeVar("T")

Row = tuple[object, ...]


class Claim(Struct, frozen=True):
    """What `Outbox.claim` asks for."""

    lane: Lane
    now_ms: int
    until_ms: int
    limit: int
    per_host: int
    busy: tuple[str, ...]


class Told(Struct, frozen=True, array_like=True):
    """A webhook that may be told something: `idle` and `retries` are 0 or 1."""

    task: int
    id: str
    config: int
    host: int
    idle: int
    retries: int


class Standing(Struct, frozen=True, array_like=True):
    """How a delivery stands: `claimed` is what is in flight to its webhook, `other` the oldest other that is owed."""

    number: int
    config: int
    claimed: int | None
    host: int
    lane: int
    other: int | None


def add_webhooks(ledger: "Ledger", webhooks: Sequence[tuple[int, Webhook]]) -> None:
    """Keep the webhooks of tasks that are new, at most one each."""
    hosts = {name: _host(ledger, name) for name in {webhook.host for _, webhook in webhooks}}
    rows = [(task, webhook.id, hosts[webhook.host], webhook.settings) for task, webhook in webhooks]
    ledger.execute_rows("add_webhooks", rows)


def keep_webhook(ledger: "Ledger", task_id: str, webhook: Webhook) -> int:
    """Keep a webhook of any task, in place of one of its id. Returns the task's number, 0 if there is no such task."""
    cursor, sql = ledger.cursor, ledger.sql
    task = cursor.execute(sql["mark_pushed"], (task_id,)).get
    if task is None:
        return 0
    found = cursor.execute(sql["find_webhook"], (task, webhook.id)).get
    if found is None:
        add_webhooks(ledger, [(int(task), webhook)])
        return int(task)
    config, host = found
    here = _host(ledger, webhook.host)
    cursor.execute(sql["replace_webhook"], (config, here, webhook.settings))
    if here != host:
        cursor.execute(sql["align_hosts"], (f"[{here}]",))
        cursor.execute(sql["drop_hosts"], (f"[{host}]",))
    return int(task)


def register(ledger: "Ledger", write: Registering, now_ms: int) -> Unknown | None:
    """Keep a webhook, and what it is told at once."""
    task = keep_webhook(ledger, write.id, write.webhook)
    if not task:
        return Unknown(write.id)
    owe(ledger, [(task, delivery) for delivery in write.deliveries], now_ms)
    return None


def remove(ledger: "Ledger", write: Removal) -> bool:
    """Forget a webhook and what is owed to it."""
    cursor, sql = ledger.cursor, ledger.sql
    found = cursor.execute(sql["remove_webhook"], (write.id, write.config_id)).get
    if found is None:
        return False
    task, config, host = found
    cursor.execute(sql["delete_owed"], (config,))
    cursor.execute(sql["unmark_pushed"], (task,))
    cursor.execute(sql["drop_hosts"], (f"[{host}]",))
    return True


def remove_all(ledger: "Ledger", task: int) -> None:
    """Forget the webhooks of a task that is gone, and what is owed to them."""
    ledger.cursor.execute(ledger.sql["delete_task_owed"], (task,))
    hosts = {host for (host,) in _rows(ledger, "delete_webhooks", task)}
    ledger.cursor.execute(ledger.sql["drop_hosts"], (_numbers(hosts),))


def owe(ledger: "Ledger", owing: Sequence[tuple[int, Delivery]], now_ms: int) -> None:
    """Write deliveries of tasks, in order; those for a webhook that is not there, or has stopped, are left out.

    Behind one that has failed before only the newest is kept of those that tell of no end.
    """
    if not owing:
        return
    found = _read(ledger, "webhooks", {task for task, _ in owing}, list[Told])
    webhooks = {(told.task, told.id): told for told in found}
    rows: list[Row | None] = []
    newest: dict[int, int] = {}
    wakes: dict[int, int] = {}
    for task, delivery in owing:
        told = webhooks.get((task, delivery.config_id))
        if told is None:
            continue
        if told.retries and not delivery.terminal:
            if told.config in newest:
                rows[newest[told.config]] = None
            newest[told.config] = len(rows)
        if told.idle:
            wakes[told.config] = told.host
        rows.append(
            (
                told.config,
                delivery.seq,
                delivery.terminal,
                now_ms,
                delivery.id,
                delivery.traceparent,
                delivery.body,
            )
        )
    if newest:
        ledger.cursor.execute(ledger.sql["merge"], (_numbers(newest),))
    ledger.execute_rows("add_deliveries", [row for row in rows if row is not None])
    if wakes:
        ledger.cursor.execute(ledger.sql["wake_webhooks"], (_numbers(wakes), now_ms))
        ledger.execute_rows("wake_hosts", [(host, now_ms) for host in set(wakes.values())])


def claim(ledger: "Ledger", ask: Claim, decoder: msgspec.msgpack.Decoder[PushConfig]) -> tuple[Due, ...]:
    """Take what is due of the hosts that have waited longest; whatever is not due is not looked at."""
    taken: list[Due] = []
    claims: list[Row] = []
    seen: set[int] = set()
    passed = list(ask.busy)
    for _ in range(CLAIM_ROUNDS):
        left = ask.limit - len(taken)
        if left <= 0:
            break
        values = (int(ask.lane), ask.now_ms, msgspec.json.encode(passed).decode(), left)
        row = ledger.cursor.execute(ledger.sql["due_hosts"], values).get
        hosts = msgspec.json.decode(str(row), type=list[tuple[int, str]])
        if not hosts:
            break
        seen.update(host for host, _ in hosts)
        passed += [name for _, name in hosts]
        numbers = _numbers(host for host, _ in hosts)
        for config, *facts in _rows(ledger, "due_deliveries", numbers, ask.now_ms, ask.per_host, left):
            due = _due(facts, decoder)
            taken.append(due)
            claims.append((config, ask.until_ms, due.number))
    if seen:
        ledger.execute_rows("claim_webhooks", claims)
        ledger.cursor.execute(ledger.sql["align_hosts"], (_numbers(seen),))
    return tuple(taken)


def reclaim(ledger: "Ledger", now_ms: int) -> None:
    """What was in flight is due now."""
    hosts = {host for (host,) in _rows(ledger, "void_claims", now_ms)}
    ledger.execute_rows("wake_hosts", [(host, now_ms) for host in sorted(hosts)])


def settle(ledger: "Ledger", settled: Iterable[Settled], now_ms: int) -> None:
    """Write what became of attempts. Two of one webhook are settled one after the other."""
    waiting = list(settled)
    while waiting:
        waiting = _settle_some(ledger, waiting, now_ms)


def _settle_some(ledger: "Ledger", settled: Sequence[Settled], now_ms: int) -> list[Settled]:
    """Settle the first of each webhook; returns the rest. What waits behind one that failed is merged (see `owe`)."""
    numbers = {one.number for one in settled}
    standings = {standing.number: standing for standing in _read(ledger, "settling", numbers, list[Standing])}
    rest: list[Settled] = []
    freed: dict[int, Row] = {}
    gone: list[int] = []
    failed: list[Row] = []
    crowded: list[int] = []
    wakes: dict[int, int] = {}
    lanes: dict[int, int] = {}
    for one in settled:
        standing = standings.get(one.number)
        if standing is None:
            continue
        config, host, other = standing.config, standing.host, standing.other
        if config in freed:
            rest.append(one)
            continue
        claimed = standing.claimed
        if claimed != one.number and one.outcome in ("retry", "dead"):
            continue  # its claim ran out; whoever claimed it next told what became of it
        before = lanes.get(host, standing.lane)
        lane = _lane(one, Lane(before))
        if lane != before:
            lanes[host] = int(lane)
        if one.outcome == "gone":
            freed[config] = ()
            ledger.cursor.execute(ledger.sql["stop_webhook"], (config,))
            ledger.cursor.execute(ledger.sql["delete_owed"], (config,))
            continue
        if one.outcome == "delivered":
            gone.append(one.number)
            if claimed != one.number and (claimed is not None or (other is not None and other < one.number)):
                freed[config] = ()  # another is in flight, or waits for its turn
                continue
        else:
            failed.append((one.number, one.outcome == "dead", one.reason))
        retries = one.outcome == "retry" and (other is None or other > one.number)
        due_ms = one.due_ms if retries else now_ms if other is not None or one.outcome == "retry" else None
        freed[config] = (config, due_ms, retries)
        if retries and other is not None:
            crowded.append(config)
        if due_ms is not None:
            wakes[host] = min(due_ms, wakes.get(host, due_ms))
    if gone:
        ledger.cursor.execute(ledger.sql["delete_deliveries"], (str(gone),))
    ledger.execute_rows("fail_deliveries", failed)
    if crowded:
        ledger.cursor.execute(ledger.sql["merge_waiting"], (str(crowded),))
    ledger.execute_rows("free_webhooks", [row for row in freed.values() if row])
    ledger.execute_rows("wake_hosts", list(wakes.items()))
    ledger.execute_rows("change_lanes", list(lanes.items()))
    return rest


def revive(ledger: "Ledger", numbers: Sequence[int], now_ms: int) -> int:
    """Owe again what is dead of these."""
    found = _rows(ledger, "some_dead", _numbers(numbers))
    if found:
        ledger.cursor.execute(ledger.sql["revive"], (_numbers(number for number, _, _ in found),))
        ledger.cursor.execute(ledger.sql["wake_revived"], (_numbers({config for _, config, _ in found}), now_ms))
        ledger.execute_rows("wake_hosts", [(host, now_ms) for host in {host for _, _, host in found}])
    return len(found)


def drop(ledger: "Ledger", numbers: Sequence[int]) -> int:
    """Forget what is dead of these."""
    found = _rows(ledger, "some_dead", _numbers(numbers))
    ledger.cursor.execute(ledger.sql["delete_deliveries"], (_numbers(number for number, _, _ in found),))
    return len(found)


def _host(ledger: "Ledger", name: str) -> int:
    found: Any = ledger.cursor.execute(ledger.sql["find_host"], (name,)).get
    if found is None:
        found = ledger.cursor.execute(ledger.sql["add_host"], (name,)).get
    return int(found)


def _lane(settled: Settled, lane: Lane) -> Lane:
    """How its host has done, after that."""
    if settled.outcome in ("delivered", "gone"):
        return Lane.HEALTHY
    if not settled.reached:
        return Lane.FAILING
    return Lane.HEALTHY if lane is Lane.UNKNOWN else lane


def _due(facts: Sequence[Any], decoder: msgspec.msgpack.Decoder[PushConfig]) -> Due:
    number, task_id, agent, host, settings, name, config_id, seq, terminal, body, traceparent, attempts, made_ms = facts
    return Due(
        number=number,
        task_id=task_id,
        agent=agent,
        config=decoder.decode(settings),
        host=host,
        delivery=Delivery(
            id=name, config_id=config_id, seq=seq, terminal=bool(terminal), body=body, traceparent=traceparent
        ),
        attempts=attempts,
        made_ms=made_ms,
    )


def _read(ledger: "Ledger", name: str, numbers: Iterable[int], form: type[T]) -> T:
    """What a statement says in one row about the rows of these numbers."""
    return msgspec.json.decode(str(ledger.cursor.execute(ledger.sql[name], (_numbers(numbers),)).get), type=form)


def _rows(ledger: "Ledger", name: str, *values: object) -> list[Any]:
    rows: list[Any] = ledger.cursor.execute(ledger.sql[name], values).fetchall()
    return rows


def _numbers(numbers: Iterable[int]) -> str:
    return str(list(numbers))
