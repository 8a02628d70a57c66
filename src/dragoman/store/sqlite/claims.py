"""Claims: takes due deliveries, each with the ones that may be sent behind it.

Invariant: a claim costs about what it takes. Large bodies are claimed apart from small ones, so that one that finds no
room delays no small one. Unreadable deliveries are set aside. Everything here runs inside a writer's transaction.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.store.outbox import BEHIND_MAX, SMALL_BYTES_MAX, Delivery, Due, Lane, Settled
from dragoman.store.sqlite.deliveries import Row, settle
from dragoman.store.sqlite.tables import Tables
from dragoman.store.sqlite.writes import Settlement

CLAIM_ROUNDS = 4
"""How often a claim looks for more hosts. Some turn out not to be due any more; their times are then corrected."""

UNREADABLE = "its configuration cannot be read"
"""The reason of a delivery that is a dead letter because its configuration cannot be read."""

BODY = 11
"""The index of the body in the facts of a delivery: see `_due`."""


class DeliveryClaim(Struct, frozen=True):
    """The arguments of `Outbox.claim`."""

    lane: Lane
    now_ms: int
    until_ms: int
    limit: int
    per_host: int
    busy: tuple[str, ...]
    bytes_max: int | None
    alone: bool
    with_behind: bool
    as_of: int


def claim(tables: Tables, ask: DeliveryClaim) -> tuple[Due, ...]:
    """Take due deliveries of the hosts that have waited longest. Rows that are not due are not read."""
    taking = _Taking(tables, ask)
    for _ in range(CLAIM_ROUNDS):
        if not taking.go_on():
            break
    return taking.finished()


class _Taking:
    """A claim under way: the deliveries taken so far, and the hosts that need not be searched again."""

    def __init__(self, tables: Tables, ask: DeliveryClaim) -> None:
        self._tables = tables
        self._ask = ask
        self._taken: list[Due] = []
        self._configs: list[int] = []
        self._unreadable: list[int] = []
        self._by_host: Counter[str] = Counter()
        self._seen: set[int] = set()
        self._passed: tuple[list[str], list[str]] = (list(ask.busy), list(ask.busy))
        self._room = ask.bytes_max
        self._alone = ask.alone
        self._large = ask.alone or ask.bytes_max != 0

    def go_on(self) -> bool:
        """Search some hosts. Returns whether there may be more."""
        ask, tables = self._ask, self._tables
        left = ask.limit - len(self._taken)
        hosts = self._due_hosts(left) if left > 0 else []
        if not hosts:
            return False
        passed = self._passed
        for host, name, large in hosts:
            self._seen.add(host)
            self._passed[large].append(name)
        places = msgspec.json.encode([(host, large) for host, _, large in hosts]).decode()
        values = (places, ask.now_ms, ask.per_host, left)
        rows: list[Any] = tables.cursor.execute(tables.sql["due_deliveries"], values).fetchall()
        claims: list[Row] = []
        for config, size, *facts in rows:
            if self._may_take(size, facts[3]):
                claims.append((config, ask.until_ms, facts[0]))
                self._take(config, size, facts)
        tables.execute_rows("claim_webhooks", claims)
        return len(hosts) == left or self._passed is not passed

    def finished(self) -> tuple[Due, ...]:
        """The deliveries that were taken."""
        tables = self._tables
        if self._seen:
            tables.cursor.execute(tables.sql["align_hosts"], (str(list(self._seen)),))
        if self._unreadable:
            _put_aside(tables, self._unreadable, self._ask.now_ms)
        if self._ask.with_behind and self._taken:
            self._follow()
        return tuple(self._taken)

    def _follow(self) -> None:
        """Find the deliveries that may be sent behind those taken."""
        leaders = [index for index, due in enumerate(self._taken) if len(due.delivery.body) <= SMALL_BYTES_MAX]
        places = [(self._configs[index], self._taken[index].number) for index in leaders]
        values = (msgspec.json.encode(places).decode(), BEHIND_MAX)
        behind: dict[int, list[Due]] = {index: [] for index in leaders}
        ended: set[int] = set()
        rows: list[Any] = self._tables.cursor.execute(self._tables.sql["behind"], values).fetchall()
        for place, number, name, seq, part, kept, dialect, body, trace, attempts, made in rows:
            index = leaders[place]
            due = self._taken[index]
            if index in ended or body is None or attempts:
                ended.add(index)
                continue
            delivery = _delivery(name, due.config.id, seq, part, kept, dialect, body, trace)
            behind[index].append(
                replace(due, as_of=self._ask.as_of, number=number, delivery=delivery, attempts=0, made_ms=made)
            )
        for index, dues in behind.items():
            if dues:
                self._taken[index] = replace(self._taken[index], behind=tuple(dues))

    def _due_hosts(self, left: int) -> list[tuple[int, str, int]]:
        small, large = (msgspec.json.encode(names).decode() for names in self._passed)
        name, values = "due_hosts", (int(self._ask.lane), self._ask.now_ms, small, left)
        if self._large:
            name, values = "any_due_hosts", (*values, large)  # type: ignore[assignment]
        row = self._tables.cursor.execute(self._tables.sql[name], values).get
        return msgspec.json.decode(str(row), type=list[tuple[int, str, int]])

    def _may_take(self, size: int, host: str) -> bool:
        if self._by_host[host] >= self._ask.per_host:
            return False
        if size <= SMALL_BYTES_MAX:
            return True
        if not self._large:
            return False
        if self._room is None or self._alone or size <= self._room:
            return True
        # It waits, and so do later large ones, else it would wait for ever. Small ones that were passed over for it are
        # searched again.
        self._large = False
        full = [name for name, count in self._by_host.items() if count >= self._ask.per_host]
        self._passed = ([*self._ask.busy, *full], [])
        return False

    def _take(self, config: int, size: int, facts: list[Any]) -> None:
        if size > SMALL_BYTES_MAX:
            facts[BODY] = self._tables.cursor.execute(self._tables.sql["body"], (facts[0],)).get
            self._alone = False
            if self._room is not None:
                self._room = max(0, self._room - size)
        due = _due(self._tables, facts)
        if due is None:
            self._unreadable.append(facts[0])
        else:
            self._taken.append(due)
            self._configs.append(config)
            self._by_host[due.host] += 1


def _put_aside(tables: Tables, numbers: Iterable[int], now_ms: int) -> None:
    """Make dead letters of claimed deliveries that cannot be read."""
    dead = [Settlement(Settled(number=number, outcome="dead", reason=UNREADABLE)) for number in numbers]
    settle(tables, dead, now_ms)


def _due(tables: Tables, facts: Sequence[Any]) -> Due | None:
    """Build a Due from a row of `due_deliveries` without its first two values; None if the webhook cannot be read."""
    number, task_id, agent, host, settings, name, config_id, seq, part, kept, dialect, body, trace, attempts, made = (
        facts
    )
    try:
        config = tables.push_configs.decode(settings)
    except msgspec.MsgspecError:
        return None
    delivery = _delivery(name, config_id, seq, part, kept, dialect, body, trace)
    return Due(
        number=number,
        task_id=task_id,
        agent=agent,
        config=config,
        host=host,
        delivery=delivery,
        attempts=attempts,
        made_ms=made,
    )


def _delivery(
    name: str, config_id: str, seq: int, part: int, kept: int, dialect: str, body: bytes, traceparent: str | None
) -> Delivery:
    return Delivery(
        id=name,
        config_id=config_id,
        seq=seq,
        part=part,
        kept=bool(kept),
        body=body,
        traceparent=traceparent,
        dialect=dialect,
    )
