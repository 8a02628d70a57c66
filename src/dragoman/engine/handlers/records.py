"""Records: the audit trail and the pending webhook deliveries, as operators read and change them.

Invariant: nothing in an answer is a secret. A URL is shown up to the first segment of its path, and no body at all.
"""

from collections.abc import Collection
from typing import Annotated

from msgspec import Meta, Struct

from dragoman.engine.handlers.access import AccessNotes, Operator
from dragoman.model.errors import InvalidParams
from dragoman.model.ids import Clock, timestamp
from dragoman.store.api import Store
from dragoman.store.audit import AuditEntry
from dragoman.store.outbox import Owed

NUMBERS_SHOWN = 10
"""The audit trail lists up to this many numbers of deliveries; beyond that, only their count."""


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest entries that fit every field that is set, at most `limit`. `since_ms` counts from 1970."""

    principal: str | None = None
    refused: bool = False
    since_ms: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class AuditLine(Struct, frozen=True, kw_only=True):
    """An entry of the audit trail: see `store.audit.AuditEntry`."""

    at: str
    principal: str
    action: str
    agent: str
    task: str
    subject: str
    peer: str
    allowed: bool
    reason: str


class AuditLines(Struct, frozen=True, kw_only=True):
    """Entries of the audit trail, oldest first."""

    entries: tuple[AuditLine, ...]


class DeliveryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deliveries with numbers above `after`, at most `limit`: the dead ones, the others, or all."""

    dead: bool | None = None
    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class DeliveryLine(Struct, frozen=True, kw_only=True):
    """A pending or dead delivery. `next` is when it is tried next; null if it is dead, or waits for one before it."""

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


class DeliveryLines(Struct, frozen=True, kw_only=True):
    """Deliveries in their order. More follow if `next_after` is not null: ask again with it as `after`.

    `pending` and `dead` count all that there are.
    """

    deliveries: tuple[DeliveryLine, ...]
    pending: int
    dead: int
    next_after: int | None = None


class DeadLetters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead deliveries by their numbers, or `all` of them."""

    numbers: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    all: bool = False


class DeadLettersChanged(Struct, frozen=True, kw_only=True):
    """How many dead deliveries there were among those that were named."""

    count: int


class Records:
    """Reads the audit trail and the outbox, and changes dead deliveries."""

    def __init__(self, store: Store, notes: AccessNotes, clock: Clock) -> None:
        self._store = store
        self._notes = notes
        self._clock = clock

    async def audit(self, operator: Operator, query: AuditQuery) -> AuditLines:
        """Entries of the audit trail. Raises A2AError."""
        work = self._store.audit.read(
            principal=query.principal, refused_only=query.refused, since_ms=query.since_ms, limit=query.limit
        )
        entries = await self._notes.noted(operator, "audit.list", work)
        return AuditLines(entries=tuple(map(_audit_line, entries)))

    async def deliveries(self, operator: Operator, query: DeliveryQuery) -> DeliveryLines:
        """Pending and dead deliveries. Raises A2AError."""
        return await self._notes.noted(operator, "webhooks.list", self._deliveries(query))

    async def redeliver(self, operator: Operator, chosen: DeadLetters) -> DeadLettersChanged:
        """Make dead deliveries due at once. Raises A2AError."""
        numbers = _chosen(chosen)
        work = self._store.outbox.revive(numbers, self._clock.now_ms())
        count = await self._notes.noted(operator, "push.retry", work, subject=_subject(numbers))
        return DeadLettersChanged(count=count)

    async def drop(self, operator: Operator, chosen: DeadLetters) -> DeadLettersChanged:
        """Delete dead deliveries. Raises A2AError."""
        numbers = _chosen(chosen)
        work = self._store.outbox.drop(numbers)
        count = await self._notes.noted(operator, "push.drop", work, subject=_subject(numbers))
        return DeadLettersChanged(count=count)

    async def _deliveries(self, query: DeliveryQuery) -> DeliveryLines:
        outbox = self._store.outbox
        found = await outbox.owed(dead=query.dead, limit=query.limit, after=query.after)
        pending, dead = await outbox.owed_count()
        more = found[-1].number if len(found) == query.limit else None
        return DeliveryLines(deliveries=tuple(map(delivery_line, found)), pending=pending, dead=dead, next_after=more)


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
        next=None if owed.dead or owed.due_ms is None else timestamp(owed.due_ms),
        reason=owed.reason,
    )


def shown_url(url: str) -> str:
    """The URL's host and the first segment of its path. The rest may contain secrets."""
    scheme, separator, rest = url.partition("?")[0].partition("#")[0].partition("://")
    host, *path = rest.split("/", 2)
    if len(path) > 1 and path[1]:
        path[1] = "…"
    return scheme + separator + "/".join((host, *path))


def _audit_line(entry: AuditEntry) -> AuditLine:
    return AuditLine(
        at=timestamp(entry.at_ms),
        principal=entry.principal,
        action=entry.action,
        agent=entry.agent,
        task=entry.task_id,
        subject=entry.subject,
        peer=entry.peer,
        allowed=entry.allowed,
        reason=entry.reason,
    )


def _chosen(chosen: DeadLetters) -> Collection[int] | None:
    if chosen.all == bool(chosen.numbers):
        raise InvalidParams("numbers", "names the dead deliveries, or else set all: one of the two")
    return None if chosen.all else sorted(set(chosen.numbers))


def _subject(numbers: Collection[int] | None) -> str:
    if numbers is None:
        return "all"
    return ",".join(map(str, numbers)) if len(numbers) <= NUMBERS_SHOWN else f"{len(numbers)} chosen"
