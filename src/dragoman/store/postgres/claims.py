"""Claims: takes due deliveries, each with the ones that may be sent behind it.

Invariant: a webhook is locked before its deliveries are read, in another statement, so that what is claimed is pending
and nobody else has it in flight. Webhooks that somebody else has locked are passed over.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.store.codec import Unreadable, decode
from dragoman.store.deliveries import CLAIM_ROUNDS, PUSH_CONFIGS, UNREADABLE, Behind, DeliveryClaim, Taking
from dragoman.store.outbox import BEHIND_MAX, SMALL_BYTES_MAX, Delivery, Due, Settled
from dragoman.store.postgres.database.connection import DatabaseConnection
from dragoman.store.postgres.database.statements import from_text, to_text
from dragoman.store.postgres.deliveries import settle


async def claim(
    connection: DatabaseConnection, sql: Mapping[str, str], ask: DeliveryClaim, claimant: str
) -> tuple[Due, ...]:
    """Take due deliveries of the hosts that have waited longest, for `claimant`, in a transaction under way."""
    taking = Taking(ask)
    for _ in range(CLAIM_ROUNDS):
        if not await _search(connection, sql, taking, claimant):
            break
    if taking.unreadable:
        dead = [Settled(number=number, outcome="dead", reason=UNREADABLE) for number in taking.unreadable]
        await settle(connection, sql, dead, ask.now_ms)
    if ask.with_behind and (leaders := taking.leaders()):
        configs, numbers = zip(*leaders, strict=True)
        rows = await connection.fetch(sql["behind"], configs, numbers, BEHIND_MAX)
        taking.add_behind(map(_behind, rows))
    return tuple(taking.taken)


async def _search(connection: DatabaseConnection, sql: Mapping[str, str], taking: Taking, claimant: str) -> bool:
    """Search some hosts. Returns whether there may be more."""
    ask, left = taking.ask, taking.left
    if left <= 0:
        return False
    small, large = ([to_text(name) for name in names] for names in taking.passed)
    hosts = await connection.fetch(sql["due_hosts"], int(ask.lane), ask.now_ms, small, left, large, taking.takes_large)
    if not hosts:
        return False
    taking.search([(from_text(name), is_large) for _, name, is_large in hosts])
    values = [host for host, _, _ in hosts], [is_large for _, _, is_large in hosts], ask.now_ms, ask.per_host, left
    locked = [config for (config,) in await connection.fetch(sql["lock_due"], *values)]
    rows = await connection.fetch(sql["oldest"], locked) if locked else []
    claims: dict[int, int | None] = dict.fromkeys(set(locked) - {row[0] for row in rows})
    for config, size, *facts in rows:
        host = from_text(facts[3])
        if taking.may_take(size, host):
            claims[config] = facts[0]
            body = await connection.fetchval(sql["body"], facts[0]) if size > SMALL_BYTES_MAX else facts[11]
            taking.take(config, size, facts[0], _due(facts, body))
    if claims:
        await connection.execute(sql["claim"], list(claims), list(claims.values()), ask.until_ms, claimant)
    return taking.goes_on(len(hosts), left)


def _due(facts: Sequence[Any], body: bytes) -> Due | None:
    """Build a Due from a row of `oldest` without its first two values; None if the webhook cannot be read."""
    number, task_id, agent, host, settings, name, config_id, seq, part, kept, dialect, _, trace, attempts, made = facts
    try:
        config = decode(PUSH_CONFIGS, settings)
    except Unreadable:
        return None
    return Due(
        number=number,
        task_id=from_text(task_id),
        agent=from_text(agent),
        config=config,
        host=from_text(host),
        delivery=_delivery(name, from_text(config_id), seq, part, kept, dialect, body, trace),
        attempts=attempts,
        made_ms=made,
    )


def _behind(row: Sequence[Any]) -> Behind:
    place, number, name, seq, part, kept, dialect, body, trace, attempts, made_ms = row
    delivery = None if body is None else _delivery(name, "", seq, part, kept, dialect, body, trace)
    return Behind(place, number, delivery, attempts, made_ms)


def _delivery(
    name: str, config_id: str, seq: int, part: int, kept: bool, dialect: str, body: bytes, traceparent: str | None
) -> Delivery:
    return Delivery(
        id=from_text(name),
        config_id=config_id,
        seq=seq,
        part=part,
        kept=kept,
        body=body,
        traceparent=None if traceparent is None else from_text(traceparent),
        dialect=from_text(dialect),
    )
