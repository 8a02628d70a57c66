"""The outbox of the store: webhook configurations, and the deliveries that are owed to them.

Invariant: a delivery is written with the event it tells of, in one transaction, and stays until it is settled; one
delivery of a configuration is in flight at a time, in the order of their writing (DESIGN §7).
"""

from asyncio import Future
from collections.abc import Collection
from enum import IntEnum
from typing import Literal, Protocol

from msgspec import Struct

from dragoman.model.operations import PushConfig

SMALL_BYTES_MAX = 16 * 1024
"""Bodies that are no larger are small: as many as there are calls at once take little memory. Drivers write it down."""

BEHIND_MAX = 7
"""So many small deliveries are claimed with the one that they follow at most."""


class Delivery(Struct, frozen=True, kw_only=True):
    """One webhook call that is owed, rendered. `id` is the same in every attempt (`webhook-id`).

    `seq` is that of the event it tells of; of several deliveries of one event, `part` numbers those before the last
    from 1. A `kept` one is never merged: it tells of the task's end, or of an artifact, which nothing that follows
    tells again. `dialect` is that of the body, which its configuration may not have any more; empty: that of the
    configuration.
    """

    id: str
    config_id: str
    seq: int
    kept: bool
    body: bytes
    traceparent: str | None = None
    dialect: str = ""
    part: int = 0

    @property
    def place(self) -> str:
        """Where it stands among what is told of the task, as ids of streams say it: `7.1`, `7.2`, …, the last `7`."""
        return f"{self.seq}.{self.part}" if self.part else str(self.seq)


class Registration(Struct, frozen=True, kw_only=True):
    """A webhook configuration to be kept, in place of one of the same id. `host` is `scheme://host:port` of its URL."""

    config: PushConfig
    host: str


class Lane(IntEnum):
    """How a host has done: its last delivery arrived, it has had none yet, its last one failed."""

    HEALTHY = 0
    UNKNOWN = 1
    FAILING = 2


class Due(Struct, frozen=True, kw_only=True):
    """A delivery that was claimed: it is in flight until it is settled, or its claim runs out.

    `number` is its own, in the store. `attempts` are those that failed before. `made_ms` is when it was written.
    `behind` are those that follow it to the same configuration, in order: each may go out when the one before it has
    arrived, and with the last that did all of them are settled. `as_of` is the store's, for `owes`.
    """

    number: int
    task_id: str
    agent: str
    config: PushConfig
    host: str
    delivery: Delivery
    attempts: int
    made_ms: int
    behind: "tuple[Due, ...]" = ()
    as_of: int = 0


class Settled(Struct, frozen=True, kw_only=True):
    """What became of an attempt.

    `delivered` takes it from the outbox. `retry` tries it again at `due_ms`. `dead` puts it aside, from where it can be
    sent again, and the next goes out. `gone` stops the configuration for good (HTTP 410): nothing more is owed to it.
    `reason` says in few words why it failed; it holds no secret. `reached` False: no HTTP answer came.

    The lane of its host after that: HEALTHY if `delivered` or `gone`; FAILING if not `reached`; else it answered, if
    only to refuse: one that was UNKNOWN becomes HEALTHY, any other stays where it is.

    Only what is in flight can fail: a `retry` or `dead` of a claim that ran out, and was settled by who claimed it
    next, changes nothing. `before` are the numbers of those that it was behind, which have arrived.
    """

    number: int
    outcome: Literal["delivered", "retry", "dead", "gone"]
    due_ms: int = 0
    reason: str = ""
    reached: bool = True
    before: tuple[int, ...] = ()


class Owed(Struct, frozen=True, kw_only=True):
    """A delivery as the operator sees it: without body and without secrets."""

    number: int
    id: str
    task_id: str
    agent: str
    config_id: str
    url: str
    seq: int
    attempts: int
    dead: bool
    due_ms: int | None
    made_ms: int
    reason: str


class Outbox(Protocol):
    """Webhook configurations and deliveries. Those that belong to an append are written with it: see `store.api`."""

    def register(self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]) -> "Future[None]":
        """Keep a configuration for a task, also for one that has ended, with what it is told at once.

        In place of one of the same id, what is owed to that stays owed, in its order, and goes where the new one says.
        Under way when this returns, and in order with `create` and `append`. The future raises Unknown.
        """
        ...

    def configs(self, task_id: str) -> tuple[PushConfig, ...]:
        """The configurations of a task, oldest first, secrets included. A point read: short enough for the loop."""
        ...

    async def remove(self, task_id: str, config_id: str) -> bool:
        """Forget a configuration and what is owed to it; whether there was one."""
        ...

    async def reclaim(self, now_ms: int) -> None:
        """At start: claims of the process before are void, what was in flight is due now."""
        ...

    async def claim(
        self,
        lane: Lane,
        now_ms: int,
        until_ms: int,
        limit: int,
        per_host: int,
        busy: Collection[str] = (),
        *,
        bytes_max: int | None = None,
        alone: bool = False,
        with_behind: bool = False,
    ) -> tuple[Due, ...]:
        """Take deliveries that are due, at most `limit`, at most `per_host` of each host, none of a `busy` host.

        Hosts that have waited longest come first. What is taken is in flight until settled; a claim that is not settled
        by `until_ms` runs out, and it is due again. Costs about what it returns, however many are owed.

        Of bodies that are not small it takes at most `bytes_max` together (None: any), but with `alone` the first of
        them whatever its size; behind one that finds no room it takes only small ones. `with_behind`: also what is owed
        behind each that is small, as far as that is small and has not failed before. One of which the configuration
        cannot be read is a dead letter.
        """
        ...

    async def next_due_ms(self) -> int | None:
        """When to look again: the next delivery of any lane is due then, or a claim runs out; None if nothing is owed.

        It may be too early, never too late.
        """
        ...

    def owes(self, due: Due) -> bool:
        """Whether it is still owed, and to the configuration that it was claimed with. At most a point read."""
        ...

    def settle(self, settled: Settled) -> "Future[None]":
        """Write what became of an attempt; under way when this returns. Of one that is no longer there, nothing."""
        ...

    async def owed(self, *, dead: bool | None = None, limit: int = 100, after: int = 0) -> tuple[Owed, ...]:
        """Deliveries by number: those that are dead, those that are not, or all, from the one behind `after`."""
        ...

    async def owed_count(self) -> tuple[int, int]:
        """How many wait, and how many are dead."""
        ...

    async def revive(self, numbers: Collection[int] | None, now_ms: int) -> int:
        """Make dead deliveries (None: all) due now, with no attempts behind them; how many there were.

        Each goes before what is owed to its configuration and was written later, but for what is in flight.
        """
        ...

    async def drop(self, numbers: Collection[int] | None) -> int:
        """Forget dead deliveries (None: all); how many there were."""
        ...
