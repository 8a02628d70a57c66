"""Claims: takes due deliveries, each with the ones that may be sent behind it.

Invariant: a webhook is locked before its deliveries are read, in another statement, so that what is claimed is pending
and nobody else has it in flight. Webhooks that somebody else has locked are passed over.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.store.deliveries import BODY, CLAIM_ROUNDS, UNREADABLE, DeliveryClaim, Taking, read_behind, read_due
from dragoman.store.outbox import BEHIND_MAX, SMALL_BYTES_MAX, Due, Settled
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
        taking.add_behind(map(read_behind, map(_decoded, rows)))
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
    for config, size, *facts in map(_decoded, rows):
        if taking.may_take(size, facts[3]):
            claims[config] = facts[0]
            if size > SMALL_BYTES_MAX:
                facts[BODY] = await connection.fetchval(sql["body"], facts[0])
            taking.take(config, size, facts[0], read_due(facts))
    if claims:
        await connection.execute(sql["claim"], list(claims), list(claims.values()), ask.until_ms, claimant)
    return taking.goes_on(len(hosts), left)


def _decoded(row: Sequence[Any]) -> list[Any]:
    return [from_text(value) if isinstance(value, str) else value for value in row]
