"""Outbox: the stored webhook configurations and their pending deliveries.

Invariant: a delivery is written in one transaction with the event it reports, and stays until it is settled. A
configuration has one delivery in flight at a time, in the order in which they were written.
"""

from asyncio import Future
from collections.abc import Collection
from enum import Enum, IntEnum
from typing import Literal, Protocol

from msgspec import Struct

from dragoman.model.operations import PushConfig

SMALL_BYTES_MAX = 16 * 1024
"""The largest body that counts as small: one for each concurrent call takes little memory. Drivers store the class."""

BEHIND_MAX = 7
"""Most small deliveries that are claimed together with the one before them."""


class Delivery(Struct, frozen=True, kw_only=True):
    """One pending webhook call, with its rendered body. `id` is the same in every attempt (`webhook-id`).

    `seq` is the seq of the event it reports. If an event has several deliveries, `part` numbers all but the last from
    1. A `kept` delivery is never merged, because it reports the task's end or an artifact, which no later one repeats.
    `dialect` is the dialect of the body, which the configuration may have changed since; empty means that of the
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
        """The position of the delivery among the task's, spelled like stream ids: `7.1`, `7.2`, …, the last `7`."""
        return f"{self.seq}.{self.part}" if self.part else str(self.seq)


class Registration(Struct, frozen=True, kw_only=True):
    """A webhook configuration to store, in place of one with the same id. `host` is `scheme://host:port` of its URL.

    `key` is the id of the key that it is made with; empty for other credentials.
    """

    config: PushConfig
    host: str
    key: str = ""


class Lane(IntEnum):
    """The health of a host: its last delivery arrived, it has had none yet, or its last one failed."""

    HEALTHY = 0
    UNKNOWN = 1
    FAILING = 2


class Due(Struct, frozen=True, kw_only=True):
    """A claimed delivery. It is in flight until it is settled, or its claim runs out.

    `number` identifies it in the store. `attempts` counts the failed attempts so far. `made_ms` is when it was written.
    `behind` holds the next deliveries to the same configuration, in order. Each may be sent when the one before it has
    arrived; settling the last one that arrived settles all before it. `as_of` belongs to the store, for `owes`.
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


class Arrival(Struct, frozen=True, kw_only=True):
    """The arrival of a delivery, of which the store keeps a receipt. See `store.receipts.Receipt`."""

    number: int
    at_ms: int
    status: int
    took_ms: int
    url: str
    digest: bytes


class Settled(Struct, frozen=True, kw_only=True):
    """The outcome of an attempt.

    `delivered` removes the delivery from the outbox. `retry` makes it due again at `due_ms`. `dead` sets it aside for
    the operator, and the next one is sent. `gone` stops the configuration for good (HTTP 410): it has no pending
    deliveries any more. `reason` briefly says why the attempt failed; it holds no secret. `reached` False means that no
    HTTP answer came.

    The outcome also moves the host to a lane: HEALTHY if `delivered` or `gone`, FAILING if not `reached`. After any
    other answer an UNKNOWN host becomes HEALTHY, and any other host stays in its lane.

    Only a delivery in flight can fail. A late `retry` or `dead`, whose claim ran out and was settled by the next
    claimant, changes nothing. `before` holds the numbers of the deliveries ahead of this one that have arrived.
    `arrivals` describes those that arrived and are to leave a receipt, of `before` and this one.
    """

    number: int
    outcome: Literal["delivered", "retry", "dead", "gone"]
    due_ms: int = 0
    reason: str = ""
    reached: bool = True
    before: tuple[int, ...] = ()
    arrivals: tuple[Arrival, ...] = ()


class Owed(Struct, frozen=True, kw_only=True):
    """A pending or dead delivery as the operator sees it: without body and without secrets.

    `host` is that of its configuration, `paused` whether that host is.
    """

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
    host: str = ""
    paused: bool = False


class OwedGroup(Struct, frozen=True):
    """The `calls` to a host that have one cause, all pending or all `dead`. The oldest was made at `made_ms`.

    The cause of a pending one is that of its webhook's last attempt, empty if there was none.
    """

    host: str
    dead: bool
    cause: str
    calls: int
    webhooks: int
    made_ms: int
    paused: bool


class OwedDetails(Struct, frozen=True, kw_only=True):
    """A pending or dead delivery with its standing. `part`, `kept` and `dialect` are as in `Delivery`.

    `claimed_until_ms` is when the claim of the delivery in flight runs out; None if it is not in flight. `before`
    counts the pending deliveries of the configuration that come before it, and `behind` those after it.
    """

    owed: Owed
    part: int
    kept: bool
    dialect: str
    size_bytes: int
    lane: Lane
    claimed_until_ms: int | None
    before: int
    behind: int


class KeyWebhook(Struct, frozen=True, kw_only=True):
    """A webhook configuration that was made with a key. `host` is `scheme://host:port` of its URL."""

    task_id: str
    agent: str
    config_id: str
    host: str


class QueuedAgain(Enum):
    """The outcome for a delivery that was to be queued again."""

    QUEUED = "queued"
    THERE = "there"
    """A delivery with its id is in the outbox already, pending or dead."""
    NO_CONFIG = "no-config"
    """Its configuration has been removed."""
    STOPPED = "stopped"
    """Its configuration has been stopped, because the receiver wanted no more."""


class PausedHost(Struct, frozen=True, kw_only=True):
    """A host to which nothing is sent. `name` covers a host, `host:port`, or `scheme://host:port`.

    `waiting` counts the pending deliveries to it.
    """

    name: str
    at_ms: int
    by: str
    waiting: int = 0


class HostBacklog(Struct, frozen=True, kw_only=True):
    """The pending deliveries that wait for a paused host.

    Without that pause, `held` of the `waiting` ones would still wait for another paused host that covers theirs, and
    `later` others for their next attempt or for one before them: the first of these is due at `next_ms`.
    """

    waiting: int = 0
    held: int = 0
    later: int = 0
    next_ms: int | None = None


def covering_names(host: str) -> tuple[str, str, str]:
    """The names of paused hosts that cover `scheme://host:port`."""
    place = host.partition("://")[2]
    return host, place, place.rpartition(":")[0]


class Outbox(Protocol):
    """Webhook configurations and deliveries. Those of an append are written with it: see `store.api`."""

    def register(self, task_id: str, registration: Registration, deliveries: tuple[Delivery, ...]) -> "Future[None]":
        """Store a configuration for a task, which may have ended, with its first deliveries.

        It replaces one with the same id, whose pending deliveries stay in order and go to the new URL. The write is
        under way when this returns, in the order of the task's other writes. The future raises Unknown.
        """
        ...

    async def configs(self, task_id: str) -> tuple[PushConfig, ...]:
        """The configurations of a task, oldest first, secrets included."""
        ...

    async def made_with(self, key_id: str, limit: int) -> tuple[KeyWebhook, ...]:
        """The configurations that were made with this key (`Registration.key`), oldest first, at most `limit`."""
        ...

    async def keyless(self, owner: str) -> int:
        """How many configurations of open tasks of an owner have no key noted."""
        ...

    async def remove(self, task_id: str, config_id: str) -> bool:
        """Delete a configuration and its deliveries. Returns whether there was one."""
        ...

    @property
    def rewinds(self) -> int:
        """How often the store may have lost commits, as this process has noticed: `store.replicas.StoreRewound`."""
        ...

    async def reclaim(self, now_ms: int, held: Collection[int] = ()) -> None:
        """Void the claims of processes that are gone, at the start. Deliveries that they had in flight are due now.

        So are those that this process has in flight, but for those `held`, by their numbers: it does not know of them
        after a failover that lost their outcomes.

        Those of a replica that dies later are due as soon as `Store.claim` finds that it is dead, and those of one that
        has left once its last lease is over.
        """
        ...

    async def release(self, numbers: Collection[int], now_ms: int) -> None:
        """Give up claims without an outcome: these deliveries are due now, unless they are not in flight any more."""
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
        """Take due deliveries: at most `limit`, at most `per_host` for each host, none for a `busy` host.

        Hosts that have waited longest come first. A claimed delivery is in flight until it is settled; if that has not
        happened by `until_ms`, the claim runs out and the delivery is due again. The cost grows with the number of
        deliveries returned, not with that of pending ones.

        Bodies that are not small may have `bytes_max` in total (None: any), but with `alone` the first of them is taken
        whatever its size. After one that finds no room only small ones are taken. `with_behind` also takes the next
        deliveries behind each small one, as long as they are small and have not failed before. A delivery whose
        configuration cannot be read becomes a dead letter.
        """
        ...

    async def next_due_ms(self) -> int | None:
        """When the next delivery of any lane is due, or the next claim runs out; None if nothing is pending.

        The time may be too early, never too late.
        """
        ...

    async def owes(self, due: Due) -> bool:
        """Whether a delivery is still pending, with the configuration of its claim, and its host is not paused."""
        ...

    def settle(self, settled: Settled) -> "Future[None]":
        """Write the outcome of an attempt; under way when this returns. Ignores a delivery that no longer exists."""
        ...

    async def owed(
        self,
        *,
        dead: bool | None = None,
        limit: int = 100,
        after: int = 0,
        task_id: str | None = None,
        host: str | None = None,
    ) -> tuple[Owed, ...]:
        """Deliveries with numbers above `after`, in order: the dead ones, the others, or all (None).

        With `task_id` only those of one task; otherwise with `host` (`scheme://host:port`) only those to it.
        """
        ...

    async def owed_groups(self, limit: int) -> tuple[OwedGroup, ...]:
        """The deliveries by host, cause and whether they are dead, the largest groups first. Reads all."""
        ...

    async def owed_count(self) -> tuple[int, int]:
        """How many deliveries are pending, and how many are dead."""
        ...

    async def find(self, wanted: int | str) -> OwedDetails | None:
        """The pending or dead delivery with this number, or with this id; None if there is none. By id it is slow."""
        ...

    async def pause(self, host: PausedHost) -> bool:
        """Let nothing be claimed that goes to a host. Returns False, and changes nothing, if it is paused already.

        Deliveries to it wait, in their order, and no attempt is counted. Those in flight are not stopped.
        """
        ...

    async def resume(self, name: str) -> bool:
        """End a pause: deliveries are due as they were. Returns whether there was one of that name."""
        ...

    async def paused(self) -> tuple[PausedHost, ...]:
        """The paused hosts, by name."""
        ...

    async def backlog(self, name: str, now_ms: int) -> HostBacklog:
        """The deliveries that wait for the paused host of that name. Without such a pause there are none."""
        ...

    async def paused_count(self) -> int:
        """How many deliveries wait for a paused host."""
        ...

    async def revive(self, numbers: Collection[int] | None, now_ms: int) -> int:
        """Make dead deliveries (None: all) due now, with no failed attempts. Returns how many there were.

        Each is sent before later deliveries of its configuration, except for one in flight.
        """
        ...

    async def drop(self, numbers: Collection[int] | None) -> int:
        """Delete dead deliveries (None: all). Returns how many there were."""
        ...

    async def hasten(self, numbers: Collection[int], now_ms: int) -> int:
        """Make pending deliveries due now, without forgetting their failed attempts. Returns how many there were.

        Those before them are sent first.
        """
        ...

    async def drop_pending(self, numbers: Collection[int], now_ms: int) -> int:
        """Delete pending deliveries that are not in flight. Returns how many there were."""
        ...

    async def queue_again(self, task_id: str, delivery: Delivery, now_ms: int) -> QueuedAgain:
        """Write a delivery to a configuration of a task once more, under a new number, behind what is pending."""
        ...
