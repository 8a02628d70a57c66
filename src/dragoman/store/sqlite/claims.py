"""Claims: takes due deliveries, each with the ones that may be sent behind it.

Invariant: a claim costs about what it takes. Large bodies are claimed apart from small ones, so that one that finds no
room delays no small one. Unreadable deliveries are set aside. Everything here runs inside a writer's transaction.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from dragoman.store.deliveries import BODY, CLAIM_ROUNDS, UNREADABLE, DeliveryClaim, Taking, read_behind, read_due
from dragoman.store.outbox import BEHIND_MAX, SMALL_BYTES_MAX, Due, Settled
from dragoman.store.sqlite.connection import fetch
from dragoman.store.sqlite.deliveries import Row, settle
from dragoman.store.sqlite.tables import Tables


def claim(tables: Tables, ask: DeliveryClaim) -> tuple[Due, ...]:
    """Take due deliveries of the hosts that have waited longest. Rows that are not due are not read."""
    taking = Taking(ask)
    seen: set[int] = set()
    for _ in range(CLAIM_ROUNDS):
        if not _search(tables, taking, seen):
            break
    if seen:
        tables.cursor.execute(tables.sql["align_hosts"], (str(list(seen)),))
    if taking.unreadable:
        _put_aside(tables, taking.unreadable, ask.now_ms)
    if ask.with_behind and taking.taken:
        _follow(tables, taking)
    return tuple(taking.taken)


def _search(tables: Tables, taking: Taking, seen: set[int]) -> bool:
    """Search some hosts, which are added to `seen`. Returns whether there may be more."""
    ask, left = taking.ask, taking.left
    hosts = _due_hosts(tables, taking, left) if left > 0 else []
    if not hosts:
        return False
    taking.search([(name, bool(large)) for _, name, large in hosts])
    seen.update(host for host, _, _ in hosts)
    places = msgspec.json.encode([(host, large) for host, _, large in hosts]).decode()
    values = (places, ask.now_ms, ask.per_host, left)
    rows: list[Any] = fetch(tables.cursor, tables.sql["due_deliveries"], values)
    claims: list[Row] = []
    for config, size, *facts in rows:
        if taking.may_take(size, facts[3]):
            claims.append((config, ask.until_ms, facts[0]))
            if size > SMALL_BYTES_MAX:
                facts[BODY] = tables.cursor.execute(tables.sql["body"], (facts[0],)).get
            taking.take(config, size, facts[0], read_due(facts))
    tables.execute_rows("claim_webhooks", claims)
    return taking.goes_on(len(hosts), left)


def _due_hosts(tables: Tables, taking: Taking, left: int) -> list[tuple[int, str, int]]:
    small, large = (msgspec.json.encode(names).decode() for names in taking.passed)
    name, values = "due_hosts", (int(taking.ask.lane), taking.ask.now_ms, small, left)
    if taking.takes_large:
        name, values = "any_due_hosts", (*values, large)  # type: ignore[assignment]
    ((row,),) = fetch(tables.cursor, tables.sql[name], values)
    return msgspec.json.decode(str(row), type=list[tuple[int, str, int]])


def _follow(tables: Tables, taking: Taking) -> None:
    """Find the deliveries that may be sent behind those taken."""
    values = (msgspec.json.encode(taking.leaders()).decode(), BEHIND_MAX)
    rows: list[Any] = fetch(tables.cursor, tables.sql["behind"], values)
    taking.add_behind(map(read_behind, rows))


def _put_aside(tables: Tables, numbers: Iterable[int], now_ms: int) -> None:
    """Make dead letters of claimed deliveries that cannot be read."""
    dead = [Settled(number=number, outcome="dead", reason=UNREADABLE) for number in numbers]
    settle(tables, dead, now_ms)
