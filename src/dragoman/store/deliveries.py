"""The state machine of a webhook's deliveries, which all drivers share: what a claim takes, what an outcome changes.

A delivery is PENDING from the commit of its event on. The oldest pending delivery of a webhook is the next one:

                        it is the oldest         claimed               delivered
    written ──► in turn ─────────────────► due ──────────► in flight ──────────────────────────► ARRIVED
                 ▲  │                      ▲ ▲              │ │ │ └──── gone ──────────────────► STOPPED
                 │  │ merged               │ └─ released, ──┘ │ └────── dead ──────────► DEAD
                 │  ▼                      │    reclaimed,    │                          │ │
                 │ removed                 │    or too late   └─ retry ─► retrying       │ └─ dropped ─► removed
                 │                         └── at `due_ms`, or hastened ───┘            │
                 └───────────────────────────────── revived ───────────────────────────┘

ARRIVED: the row is deleted; a receipt may stay, from which it can be queued again as another delivery. STOPPED: the
webhook gets no more, and all of its deliveries are deleted. DEAD: it is set aside, and the one behind it is the next.
Merged: behind a delivery that has failed, only the newest of those that are not `kept` stays. A pending delivery may be
dropped, too, unless it is in flight. A claim that cannot read the configuration makes a delivery DEAD.

Due, in flight and retrying are facts of the webhook's row (`due_ms`, `claimed`, `retries`), since one delivery of a
webhook is in flight at a time; only `dead` is one of the delivery's own. A revived delivery may be older than the one
in flight, which is settled first nevertheless. An outcome may be late: the claim ran out, and another one was made. A
late `delivered` or `gone` counts; a late `retry` or `dead` changes nothing. A paused host changes no state: claims pass
over its deliveries.

The machine does not cover how an attempt is judged (`push.outcome`), nor how many are made at once and what becomes of
an outcome that the store does not take (`push.courier`).

Invariant: pure functions. A claim takes large bodies apart from small ones, so that one that finds no room delays no
small one. The caller of `resolve` has read the standing in the same transaction, in which nobody else changes the
deliveries of the webhook.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.operations import PushConfig
from dragoman.store.codec import DamagedRow, decode
from dragoman.store.outbox import SMALL_BYTES_MAX, Delivery, Due, Lane, Settled

CLAIM_ROUNDS = 4
"""How often a claim looks for more hosts. Some turn out not to be due any more, or to be claimed by others."""

PUSH_CONFIGS = msgspec.msgpack.Decoder(PushConfig)

BODY = 11
"""The index of the body in a row for `read_due`."""

UNREADABLE = "its configuration cannot be read"
"""The reason of a delivery that is a dead letter because its configuration cannot be read."""


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
    as_of: int = 0


class Behind(Struct, frozen=True):
    """A pending delivery behind one that was taken, which `place` counts among the leaders.

    `delivery` is None if its body is large.
    """

    place: int
    number: int
    delivery: Delivery | None
    attempts: int
    made_ms: int


class Taking:
    """A claim under way: the deliveries taken so far, and the hosts that need not be searched again."""

    def __init__(self, ask: DeliveryClaim) -> None:
        self.ask = ask
        self.taken: list[Due] = []
        self.unreadable: list[int] = []
        self.passed: tuple[list[str], list[str]] = (list(ask.busy), list(ask.busy))
        """The hosts not to search for small deliveries, and those not to search for large ones."""
        self.takes_large = ask.alone or ask.bytes_max != 0
        self._configs: list[int] = []
        self._by_host: Counter[str] = Counter()
        self._room = ask.bytes_max
        self._alone = ask.alone
        self._reset = False

    @property
    def left(self) -> int:
        """How many deliveries may still be taken."""
        return self.ask.limit - len(self.taken)

    def search(self, hosts: Iterable[tuple[str, bool]]) -> None:
        """Note that these hosts are searched now, each for its small or its large deliveries."""
        self._reset = False
        for name, large in hosts:
            self.passed[large].append(name)

    def goes_on(self, searched: int, wanted: int) -> bool:
        """Whether another search may find more, after one that found `searched` of the `wanted` hosts."""
        return searched == wanted or self._reset

    def may_take(self, size: int, host: str) -> bool:
        """Whether there is room for a delivery of `size` bytes to `host`."""
        if self._by_host[host] >= self.ask.per_host:
            return False
        if size <= SMALL_BYTES_MAX:
            return True
        if not self.takes_large:
            return False
        if self._room is None or self._alone or size <= self._room:
            return True
        # It waits, and so do later large ones, else it would wait for ever. Small ones that were passed over for it are
        # searched again.
        self.takes_large = False
        full = [name for name, count in self._by_host.items() if count >= self.ask.per_host]
        self.passed = ([*self.ask.busy, *full], [])
        self._reset = True
        return False

    def take(self, config: int, size: int, number: int, due: Due | None) -> None:
        """Take a delivery of a webhook. `due` is None if its configuration cannot be read."""
        if size > SMALL_BYTES_MAX:
            self._alone = False
            if self._room is not None:
                self._room = max(0, self._room - size)
        if due is None:
            self.unreadable.append(number)
        else:
            self.taken.append(due)
            self._configs.append(config)
            self._by_host[due.host] += 1

    def leaders(self) -> list[tuple[int, int]]:
        """The webhooks and numbers of the small deliveries that were taken, behind which others may be sent."""
        return [
            (config, due.number)
            for config, due in zip(self._configs, self.taken, strict=True)
            if len(due.delivery.body) <= SMALL_BYTES_MAX
        ]

    def add_behind(self, found: Iterable[Behind]) -> None:
        """Add what may be sent behind the leaders: `found` in order, up to one that is large or has failed before."""
        leaders = [index for index, due in enumerate(self.taken) if len(due.delivery.body) <= SMALL_BYTES_MAX]
        behind: dict[int, list[Due]] = {index: [] for index in leaders}
        ended: set[int] = set()
        for one in found:
            index = leaders[one.place]
            if index in ended or one.delivery is None or one.attempts:
                ended.add(index)
                continue
            due = replace(
                self.taken[index],
                as_of=self.ask.as_of,
                number=one.number,
                delivery=replace(one.delivery, config_id=self.taken[index].config.id),
                attempts=0,
                made_ms=one.made_ms,
            )
            behind[index].append(due)
        for index, dues in behind.items():
            if dues:
                self.taken[index] = replace(self.taken[index], behind=tuple(dues))


def read_due(facts: Sequence[Any]) -> Due | None:
    """Make a Due of the row of a delivery; None if its webhook cannot be read."""
    number, task_id, agent, host, settings, name, config_id, seq, part, kept, dialect, body, trace, attempts, made = (
        facts
    )
    try:
        config = decode(PUSH_CONFIGS, settings)
    except DamagedRow:
        return None
    return Due(
        number=number,
        task_id=task_id,
        agent=agent,
        config=config,
        host=host,
        delivery=_read_delivery(name, config_id, seq, part, kept, dialect, body, trace),
        attempts=attempts,
        made_ms=made,
    )


def read_behind(row: Sequence[Any]) -> Behind:
    """Make a Behind of the row of a delivery, without its body if that is large."""
    place, number, name, seq, part, kept, dialect, body, trace, attempts, made_ms = row
    delivery = None if body is None else _read_delivery(name, "", seq, part, kept, dialect, body, trace)
    return Behind(place, number, delivery, attempts, made_ms)


def _read_delivery(
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


# -- new deliveries ----------------------------------------------------------------------------------------------------


class LiveWebhook(Struct, frozen=True, array_like=True):
    """A webhook of a task that has not stopped. It is `idle` if nothing is pending, and `retries` what has failed."""

    task: int
    id: str
    config: int
    idle: int
    retries: int
    host: int = 0


class Owing:
    """The writes for new deliveries: their rows, each with its webhook, and the changes of these webhooks.

    The deliveries behind the oldest one of the `crowded` are merged. The `woken` ones are due, with large deliveries or
    not. A delivery for a webhook that does not exist or has stopped is not written. Behind one that has failed before,
    only the newest of those that are not `kept` stays.
    """

    def __init__(self, webhooks: Iterable[LiveWebhook], owing: Iterable[tuple[int, Delivery]]) -> None:
        known = {(webhook.task, webhook.id): webhook for webhook in webhooks}
        rows: list[tuple[int, Delivery] | None] = []
        newest: dict[int, int] = {}
        woken: dict[int, tuple[LiveWebhook, bool]] = {}
        for task, delivery in owing:
            webhook = known.get((task, delivery.config_id))
            if webhook is None:
                continue
            config = webhook.config
            if webhook.retries and not delivery.kept:
                if config in newest:
                    rows[newest[config]] = None
                newest[config] = len(rows)
            if webhook.idle:
                woken.setdefault(config, (webhook, len(delivery.body) > SMALL_BYTES_MAX))
            rows.append((config, delivery))
        self.rows = [row for row in rows if row is not None]
        self.crowded = list(newest)
        self.woken = list(woken.values())


# -- outcomes ----------------------------------------------------------------------------------------------------------


class DeliveryStanding(Struct, frozen=True, array_like=True):
    """The standing of a delivery: `claimed` is the one in flight to its webhook, `other` the oldest other pending one.

    Sizes are those of the bodies.
    """

    number: int
    config: int
    claimed: int | None
    size: int
    host: int
    lane: int
    other: int | None
    other_size: int


class DeliveryFate(Enum):
    """The fate of a delivery after an attempt."""

    ARRIVED = auto()  # it is deleted
    PENDING = auto()  # it is tried again
    DEAD = auto()  # it is set aside for the operator
    STOPPED = auto()  # it is deleted, with all others of its webhook, which gets no more


class Settling(Struct, frozen=True):
    """The changes that the outcome of an attempt makes. `lane` is that of the host from now on.

    `frees`: the webhook is not in flight any more, and due at `due_ms` with a body of `size` bytes; `retries` says that
    this has failed before. `merges`: the deliveries behind are merged. `measures`: the webhook has another oldest
    delivery now.
    """

    lane: Lane
    fate: DeliveryFate
    frees: bool = False
    due_ms: int | None = None
    size: int = 0
    retries: bool = False
    merges: bool = False
    measures: bool = False


def resolve(standing: DeliveryStanding, one: Settled, lane: Lane, now_ms: int) -> Settling | None:
    """The changes that the outcome `one` makes. None if its claim ran out and the next claimant settled it."""
    number, other = one.number, standing.other
    claimed = number if standing.claimed in one.before else standing.claimed
    if claimed != number and one.outcome in ("retry", "dead"):
        return None
    lane = _lane(one, lane)
    match one.outcome:
        case "gone":
            return Settling(lane, DeliveryFate.STOPPED)
        case "delivered":
            if claimed != number and (claimed is not None or (other is not None and other < number)):
                return Settling(
                    lane, DeliveryFate.ARRIVED, measures=True
                )  # another is in flight, or waits for its turn
            due_ms = None if other is None else now_ms
            return Settling(lane, DeliveryFate.ARRIVED, frees=True, due_ms=due_ms, size=standing.other_size)
        case "retry" if other is None or other > number:
            return Settling(
                lane,
                DeliveryFate.PENDING,
                frees=True,
                due_ms=one.due_ms,
                size=standing.size,
                retries=True,
                merges=other is not None,
            )
        case "retry":
            return Settling(lane, DeliveryFate.PENDING, frees=True, due_ms=now_ms, size=standing.other_size)
        case "dead":
            due_ms = None if other is None else now_ms
            return Settling(lane, DeliveryFate.DEAD, frees=True, due_ms=due_ms, size=standing.other_size)


class Settlements:
    """The changes that the outcomes of attempts make, of each webhook the first. The `rest` are settled after them.

    Numbers are those of deliveries in `arrived` and `failed` (with whether each is dead, and the reason), and those of
    webhooks in the other lists. `freed` has when each is due, whether it retries, and whether it is large then;
    `woken` the hosts that are due, when, and whether with large deliveries.
    """

    def __init__(self) -> None:
        self.rest: list[Settled] = []
        self.arrived: list[int] = []
        self.failed: list[tuple[int, bool, str]] = []
        self.stopped: list[int] = []
        self.crowded: list[int] = []
        self.freed: list[tuple[int, int | None, bool, bool]] = []
        self.measured: list[int] = []
        self.woken: list[tuple[int, int, bool]] = []

    def add(self, one: Settled, standing: DeliveryStanding, found: Settling) -> None:
        """Add the outcome `one`, which changes what was `found`."""
        config, large = standing.config, found.size > SMALL_BYTES_MAX
        match found.fate:
            case DeliveryFate.ARRIVED:
                self.arrived.append(one.number)
            case DeliveryFate.STOPPED:
                self.stopped.append(config)
            case DeliveryFate.PENDING | DeliveryFate.DEAD:
                self.failed.append((one.number, found.fate is DeliveryFate.DEAD, one.reason))
        if found.frees:
            self.freed.append((config, found.due_ms, found.retries, large))
        if found.merges:
            self.crowded.append(config)
        if found.measures:
            self.measured.append(config)
        if found.due_ms is not None:
            self.woken.append((standing.host, found.due_ms, large))


def settle_first(
    standings: Iterable[DeliveryStanding], outcomes: Iterable[Settled], lanes: dict[int, int], now_ms: int
) -> Settlements:
    """Settle the first outcome of each webhook. The new lanes of hosts are put in `lanes`."""
    known, settled, changes = {each.number: each for each in standings}, set[int](), Settlements()
    for one in outcomes:
        standing = known.get(one.number)
        if standing is None:
            continue
        if standing.config in settled:
            changes.rest.append(one)
            continue
        lane = lanes.get(standing.host, standing.lane)
        found = resolve(standing, one, Lane(lane), now_ms)
        if found is None:
            continue
        settled.add(standing.config)
        if found.lane != lane:
            lanes[standing.host] = int(found.lane)
        changes.add(one, standing, found)
    return changes


def _lane(settled: Settled, lane: Lane) -> Lane:
    """The lane of the host after this outcome."""
    if settled.outcome in ("delivered", "gone"):
        return Lane.HEALTHY
    if not settled.reached:
        return Lane.FAILING
    return Lane.HEALTHY if lane is Lane.UNKNOWN else lane
