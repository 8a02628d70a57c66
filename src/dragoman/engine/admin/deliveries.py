"""Deliveries: the pending and dead webhook deliveries, and the paused hosts, as operators read and change them.

Invariant: nothing in an answer is a secret. A URL is shown up to the first segment of its path, and no body at all.
"""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.model.errors import InvalidParams, NotFound
from dragoman.model.ids import Clock, timestamp
from dragoman.net.errors import BadUrl
from dragoman.net.target import shown_url, target
from dragoman.store.outbox import Lane, Outbox, Owed, OwedDetails, PausedHost, covering_names

NUMBERS_SHOWN = 10
"""The audit trail lists up to this many numbers of deliveries; beyond that, only their count."""

NUMBER_CHARS_MAX = 19
"""Most digits of the number of a delivery. More digits are an id."""

DeliveryStatus = Literal["dead", "sending", "paused", "in-turn", "retrying", "due"]

LaneWord = Literal["healthy", "unknown", "failing"]

LANES: dict[Lane, LaneWord] = {Lane.HEALTHY: "healthy", Lane.UNKNOWN: "unknown", Lane.FAILING: "failing"}


class DeliveryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deliveries with numbers above `after`, at most `limit`: the dead ones, the others, or all; those of a `task`."""

    dead: bool | None = None
    task: str | None = None
    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class DeliveryLine(Struct, frozen=True, kw_only=True):
    """A pending or dead delivery. `next` is when it is tried next; null if it is dead, or waits for one before it.

    `host` is that of its URL as `scheme://host:port`. `paused`: it waits until an operator resumes that host.
    """

    number: int
    id: str
    task: str
    agent: str
    config: str
    url: str
    seq: int
    made: str
    failed: int
    dead: bool
    next: str | None
    reason: str
    host: str = ""
    paused: bool = False


class PausedHostLine(Struct, frozen=True, kw_only=True):
    """A host to which nothing is sent, since when and by whom. `waiting` counts the deliveries that wait for it."""

    host: str
    since: str
    by: str
    waiting: int


class DeliveryReport(DeliveryLine, frozen=True, kw_only=True):
    """A pending or dead delivery with its standing. `failed` counts its attempts, `reason` is why the last one failed.

    `status` is `dead` if it was given up; `sending` while it is under way, until `claimed_until` at the latest;
    `paused` if its host is, by `pauses`; `in-turn` while it waits for the `before` deliveries of its configuration;
    `retrying` while it waits for its next attempt; `due` if it is about to be sent. `behind` deliveries wait for it.
    `lane` tells how the last call to the host went.
    """

    status: DeliveryStatus
    part: int
    dialect: str
    size_bytes: int
    lane: LaneWord
    claimed_until: str | None
    before: int
    behind: int
    pauses: tuple[PausedHostLine, ...] = ()


class DeliveryLines(Struct, frozen=True, kw_only=True):
    """Deliveries in their order. More follow if `next_after` is not null: ask again with it as `after`.

    `pending`, `paused` and `dead` count all that there are; those of paused hosts are pending, too.
    """

    deliveries: tuple[DeliveryLine, ...]
    pending: int
    dead: int
    paused: int = 0
    next_after: int | None = None


class DeadLetters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead deliveries by their numbers, or `all` of them. With `pending` also those of the numbers that are pending."""

    numbers: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    all: bool = False
    pending: bool = False


class DeadLettersChanged(Struct, frozen=True, kw_only=True):
    """How many deliveries were changed: the dead ones among those that were named, and those that were pending."""

    count: int
    pending: int = 0


class HostName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host of webhooks: `hooks.example.org`, one port of it `hooks.example.org:8443`, or `https://hooks.example.org`."""

    host: str


class PausedHostLines(Struct, frozen=True, kw_only=True):
    """The paused hosts, by name. `waiting` counts all deliveries that wait, each once."""

    hosts: tuple[PausedHostLine, ...]
    waiting: int


class HostChanged(Struct, frozen=True, kw_only=True):
    """A host that is paused now, or not any more. `changed` is false if it was so before.

    `waiting` counts the deliveries that wait, or that were waiting.
    """

    host: str
    paused: bool
    changed: bool
    waiting: int


class DeliveryAdministration:
    """Reads and changes what is in the outbox."""

    def __init__(self, outbox: Outbox, notes: AccessNotes, clock: Clock) -> None:
        self._outbox = outbox
        self._notes = notes
        self._clock = clock

    async def list(self, operator: Operator, query: DeliveryQuery) -> DeliveryLines:
        """Pending and dead deliveries. Raises A2AError."""
        return await self._notes.noted(operator, "webhooks.list", self._list(query))

    async def redeliver(self, operator: Operator, chosen: DeadLetters) -> DeadLettersChanged:
        """Make deliveries due at once. Raises A2AError."""
        subject = _subject(_chosen(chosen))
        work = redeliver(self._outbox, chosen, self._clock.now_ms())
        return await self._notes.noted(operator, "push.retry", work, subject=subject)

    async def drop(self, operator: Operator, chosen: DeadLetters) -> DeadLettersChanged:
        """Delete deliveries. Raises A2AError."""
        subject = _subject(_chosen(chosen))
        work = drop(self._outbox, chosen, self._clock.now_ms())
        return await self._notes.noted(operator, "push.drop", work, subject=subject)

    async def show(self, operator: Operator, wanted: str) -> DeliveryReport:
        """One pending or dead delivery, by its number or its id. Raises A2AError."""
        work = report_delivery(self._outbox, wanted, self._clock.now_ms())
        return await self._notes.noted(operator, "webhooks.show", work, subject=wanted[:100])

    async def paused(self, operator: Operator) -> PausedHostLines:
        """The paused hosts. Raises A2AError."""
        return await self._notes.noted(operator, "webhooks.paused.list", list_paused(self._outbox))

    async def pause(self, operator: Operator, wanted: HostName) -> HostChanged:
        """Send nothing to a host from now on. Raises A2AError."""
        host = read_host(wanted.host)
        work = pause_host(self._outbox, host, operator.principal, self._clock.now_ms())
        return await self._notes.noted(operator, "webhooks.pause", work, subject=host)

    async def resume(self, operator: Operator, wanted: HostName) -> HostChanged:
        """Send to a host again. Raises A2AError."""
        host = read_host(wanted.host)
        work = resume_host(self._outbox, host)
        return await self._notes.noted(operator, "webhooks.resume", work, subject=host)

    async def _list(self, query: DeliveryQuery) -> DeliveryLines:
        outbox = self._outbox
        found = await outbox.owed(dead=query.dead, limit=query.limit, after=query.after, task_id=query.task)
        pending, dead = await outbox.owed_count()
        return DeliveryLines(
            deliveries=tuple(map(delivery_line, found)),
            pending=pending,
            dead=dead,
            paused=await outbox.paused_count(),
            next_after=found[-1].number if len(found) == query.limit else None,
        )


def read_host(text: str) -> str:
    """The name of a host as it is stored: `host`, `host:port` or `scheme://host:port`. Raises InvalidParams."""
    scheme, separator, place = text.strip().rpartition("://")
    try:
        to = target(f"{scheme or 'http'}://{place}")
    except BadUrl as error:
        raise InvalidParams(
            "host", f"must be like hooks.example.org or https://hooks.example.org:8443: {error}"
        ) from None
    if to.url.partition("://")[2].partition("/")[2]:
        raise InvalidParams("host", "must be without a path, like hooks.example.org or https://hooks.example.org:8443")
    if separator:
        return to.origin
    whole = to.origin.partition("://")[2]
    return whole if place.removesuffix("/").endswith(f":{to.port}") else whole.rpartition(":")[0]


async def redeliver(outbox: Outbox, chosen: DeadLetters, now_ms: int) -> DeadLettersChanged:
    """Make deliveries due at once. Raises InvalidParams or StoreError."""
    numbers = _chosen(chosen)
    pending = await outbox.hasten(numbers, now_ms) if chosen.pending and numbers is not None else 0
    return DeadLettersChanged(count=await outbox.revive(numbers, now_ms), pending=pending)


async def drop(outbox: Outbox, chosen: DeadLetters, now_ms: int) -> DeadLettersChanged:
    """Delete deliveries. Raises InvalidParams or StoreError."""
    numbers = _chosen(chosen)
    pending = await outbox.discard(numbers, now_ms) if chosen.pending and numbers is not None else 0
    return DeadLettersChanged(count=await outbox.drop(numbers), pending=pending)


async def report_delivery(outbox: Outbox, wanted: str, now_ms: int) -> DeliveryReport:
    """One pending or dead delivery, by its number or its id. Raises NotFound or StoreError."""
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) < NUMBER_CHARS_MAX else None
    found = await outbox.find(wanted if number is None else number)
    if found is None:
        raise NotFound(f"there is no delivery {wanted[:100]!r}: those that arrived are not kept")
    pauses: tuple[PausedHostLine, ...] = ()
    if found.owed.paused:
        covering = covering_names(found.owed.host)
        pauses = tuple(_paused_line(each) for each in await outbox.paused() if each.name in covering)
    sending = found.claimed_until_ms is not None and found.claimed_until_ms > now_ms
    line: dict[str, Any] = asdict(delivery_line(found.owed))
    return DeliveryReport(
        **line,
        status=_status(found, sending),
        part=found.part,
        dialect=found.dialect,
        size_bytes=found.size_bytes,
        lane=LANES[found.lane],
        claimed_until=timestamp(found.claimed_until_ms) if sending and found.claimed_until_ms is not None else None,
        before=found.before,
        behind=found.behind,
        pauses=pauses,
    )


async def list_paused(outbox: Outbox) -> PausedHostLines:
    """The paused hosts. Raises StoreError."""
    hosts = await outbox.paused()
    return PausedHostLines(hosts=tuple(map(_paused_line, hosts)), waiting=await outbox.paused_count() if hosts else 0)


async def pause_host(outbox: Outbox, host: str, by: str, now_ms: int) -> HostChanged:
    """Send nothing to a host from now on. Raises StoreError."""
    changed = await outbox.pause(PausedHost(name=host, at_ms=now_ms, by=by))
    return HostChanged(host=host, paused=True, changed=changed, waiting=await _waiting(outbox, host))


async def resume_host(outbox: Outbox, host: str) -> HostChanged:
    """Send to a host again. Raises StoreError."""
    waiting = await _waiting(outbox, host)
    changed = await outbox.resume(host)
    return HostChanged(host=host, paused=False, changed=changed, waiting=waiting)


async def _waiting(outbox: Outbox, host: str) -> int:
    return next((each.waiting for each in await outbox.paused() if each.name == host), 0)


def _paused_line(host: PausedHost) -> PausedHostLine:
    return PausedHostLine(host=host.name, since=timestamp(host.at_ms), by=host.by, waiting=host.waiting)


def _status(found: OwedDetails, sending: bool) -> DeliveryStatus:
    owed = found.owed
    if owed.dead:
        return "dead"
    if sending:
        return "sending"
    if owed.paused:
        return "paused"
    if found.before:
        return "in-turn"
    return "retrying" if owed.attempts else "due"


def delivery_line(owed: Owed) -> DeliveryLine:
    """A delivery as operators see it."""
    return DeliveryLine(
        number=owed.number,
        id=owed.id,
        task=owed.task_id,
        agent=owed.agent,
        config=owed.config_id,
        url=shown_url(owed.url),
        seq=owed.seq,
        made=timestamp(owed.made_ms),
        failed=owed.attempts,
        dead=owed.dead,
        next=None if owed.dead or owed.paused or owed.due_ms is None else timestamp(owed.due_ms),
        reason=owed.reason,
        host=owed.host,
        paused=owed.paused,
    )


def _chosen(chosen: DeadLetters) -> Collection[int] | None:
    if chosen.all == bool(chosen.numbers):
        raise InvalidParams("numbers", "names the dead deliveries, or else set all: one of the two")
    if chosen.all and chosen.pending:
        raise InvalidParams("pending", "goes with numbers, not with all")
    return None if chosen.all else sorted(set(chosen.numbers))


def _subject(numbers: Collection[int] | None) -> str:
    if numbers is None:
        return "all"
    return ",".join(map(str, numbers)) if len(numbers) <= NUMBERS_SHOWN else f"{len(numbers)} chosen"
