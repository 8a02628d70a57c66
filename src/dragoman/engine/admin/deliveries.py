"""Deliveries: webhook deliveries that are pending, dead or have arrived, and paused hosts, for operators.

Invariant: nothing in an answer is a secret. A URL is shown up to the first word of its path, and no body at all.
"""

from collections.abc import Collection
from typing import Any

from msgspec.structs import asdict

from dragoman.admin.webhooks import (
    DeadLetters,
    DeadLettersChanged,
    DeliveryGroup,
    DeliveryGroups,
    DeliveryLine,
    DeliveryLines,
    DeliveryQuery,
    DeliveryReport,
    DeliveryStatus,
    HostChanged,
    HostName,
    LaneWord,
    PausedHostLine,
    PausedHostLines,
    TaskDeliveries,
    chosen_numbers,
    read_host,
)
from dragoman.dialects.json_bounds import EXACT_MAX
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.playback import find_head
from dragoman.engine.admin.redelivery import NONE_SENT, NoRedeliverer, Redeliverer, rebuild, send_again
from dragoman.model.errors import InvalidParams, NotFound
from dragoman.model.ids import timestamp
from dragoman.net.errors import BadUrl
from dragoman.net.target import shown_url, target
from dragoman.store.api import Store
from dragoman.store.outbox import Delivery, Lane, Owed, OwedDetails, OwedGroup, PausedHost, covering_names
from dragoman.store.receipts import RECEIPTS_MAX, Receipt

NUMBER_CHARS_MAX = 16
"""The digits of EXACT_MAX, the highest number of a delivery. Above it is an id."""

SENT_AGAIN_MAX = 200
"""Most numbers with which deliveries that arrived may be sent again: for each, the log of its task is read."""

LOOKED_UP_MAX = SENT_AGAIN_MAX
"""Most numbers of which those that do not exist are named: each is looked up."""

TASK_DELIVERIES_MAX = 1_000
"""Most pending and dead deliveries that are listed with a task."""


GROUPS_MAX = 200
"""Most groups of deliveries that are listed."""


LANES: dict[Lane, LaneWord] = {Lane.HEALTHY: "answers", Lane.UNKNOWN: "unknown", Lane.FAILING: "failing"}
"""A host in the healthy lane answers, be it with errors."""


class DeliveryAdministration:
    """Reads and changes what is in the outbox, and reads the receipts.

    `sender` makes bodies again. Every operation raises A2AError or StoreError.
    """

    def __init__(self, store: Store, sender: Redeliverer | None = None) -> None:
        self._store = store
        self._outbox = store.outbox
        self._clock = store.clock
        self._sender = NoRedeliverer() if sender is None else sender

    async def list(self, asked: Asked[DeliveryQuery]) -> DeliveryLines:
        """A page of deliveries."""
        query, outbox = asked.given, self._outbox
        dead = _dead(query)
        lines: tuple[DeliveryLine, ...]
        if query.state == "delivered":
            receipts = await self._store.receipts.page(limit=query.limit, before=query.before, task_id=query.task)
            lines = tuple(map(_receipt_line, receipts))
        else:
            found = await outbox.owed(
                dead=dead, limit=query.limit, after=query.after, task_id=query.task, host=query.host
            )
            lines = tuple(map(_delivery_line, found))
        last = lines[-1].number if len(lines) == query.limit else None
        waiting, given_up = await outbox.owed_count()
        return DeliveryLines(
            deliveries=lines,
            pending=waiting,
            dead=given_up,
            paused=await outbox.paused_count(),
            next_after=None if query.state == "delivered" else last,
            next_before=last if query.state == "delivered" else None,
        )

    async def group(self, _: Asked[None]) -> DeliveryGroups:
        """Pending and dead deliveries by host and cause."""
        found = await self._outbox.owed_groups(GROUPS_MAX + 1)
        return DeliveryGroups(groups=tuple(map(_group, found[:GROUPS_MAX])), more=len(found) > GROUPS_MAX)

    async def of_task(self, asked: Asked[None]) -> TaskDeliveries:
        """The deliveries of a task."""
        await find_head(self._store, asked.id)
        receipts = await self._store.receipts.page(limit=RECEIPTS_MAX, task_id=asked.id)
        owed = await self._outbox.owed(limit=TASK_DELIVERIES_MAX + 1, task_id=asked.id)
        lines = [*map(_receipt_line, receipts), *map(_delivery_line, owed[:TASK_DELIVERIES_MAX])]
        lines.sort(key=lambda line: line.number)
        return TaskDeliveries(deliveries=tuple(lines), more=len(owed) > TASK_DELIVERIES_MAX)

    async def show(self, asked: Asked[None]) -> DeliveryReport:
        """One delivery, by its number or its id."""
        wanted, outbox = asked.id, self._outbox
        known: int | str = wanted
        if wanted.isascii() and wanted.isdigit() and len(wanted) <= NUMBER_CHARS_MAX and int(wanted) <= EXACT_MAX:
            known = int(wanted)
        found = await outbox.find(known)
        if found is None:
            receipt = await self._store.receipts.find(known)
            if receipt is not None:
                return _report_receipt(receipt, await rebuild(self._store, self._sender, receipt))
            raise NotFound(
                f"there is no delivery {wanted[:100]!r}: those that arrived are kept for delivered_retention"
            )
        pauses: tuple[PausedHostLine, ...] = ()
        if found.owed.paused:
            covering = covering_names(found.owed.host)
            pauses = tuple(_paused_line(each) for each in await outbox.paused() if each.name in covering)
        return _report_owed(found, pauses, self._clock.now_ms())

    async def redeliver(self, asked: Asked[DeadLetters]) -> DeadLettersChanged:
        """Make deliveries due at once."""
        chosen, outbox, now_ms = asked.given, self._outbox, self._clock.now_ms()
        numbers = chosen_numbers(chosen)
        if chosen.delivered and numbers is not None and len(numbers) > SENT_AGAIN_MAX:
            raise InvalidParams("numbers", f"must be at most {SENT_AGAIN_MAX} with delivered")
        arrived, missing = await self._look_up(numbers)  # a dead letter that is revived may arrive at once
        pending = await outbox.hasten(numbers, now_ms) if chosen.pending and numbers is not None else 0
        count, sent = await outbox.revive(numbers, now_ms), NONE_SENT
        if chosen.delivered:
            sent = await send_again(self._store, self._sender, arrived, now_ms)
        self._sender.wake()
        return DeadLettersChanged(count=count, pending=pending, again=sent.count, refused=sent.refused, missing=missing)

    async def drop(self, asked: Asked[DeadLetters]) -> DeadLettersChanged:
        """Delete deliveries."""
        chosen, outbox = asked.given, self._outbox
        if chosen.delivered:
            raise InvalidParams("delivered", "goes with redelivery: what arrived is deleted after delivered_retention")
        numbers = chosen_numbers(chosen)
        _, missing = await self._look_up(numbers)
        pending = 0
        if chosen.pending and numbers is not None:
            pending = await outbox.drop_pending(numbers, self._clock.now_ms())
        return DeadLettersChanged(count=await outbox.drop(numbers), pending=pending, missing=missing)

    async def paused(self, _: Asked[None]) -> PausedHostLines:
        """The paused hosts."""
        hosts = await self._outbox.paused()
        waiting = await self._outbox.paused_count() if hosts else 0
        return PausedHostLines(hosts=tuple(map(_paused_line, hosts)), waiting=waiting)

    async def pause(self, asked: Asked[HostName]) -> HostChanged:
        """Send nothing to a host from now on."""
        host, now_ms = read_host(asked.given.host), self._clock.now_ms()
        changed = await self._outbox.pause(PausedHost(name=host, at_ms=now_ms, by=asked.operator.principal))
        waiting = (await self._outbox.backlog(host, now_ms)).waiting
        return HostChanged(host=host, paused=True, changed=changed, waiting=waiting)

    async def resume(self, asked: Asked[HostName]) -> HostChanged:
        """Send to a host again."""
        host = read_host(asked.given.host)
        backlog = await self._outbox.backlog(host, self._clock.now_ms())
        changed = await self._outbox.resume(host)
        self._sender.wake()
        return HostChanged(
            host=host,
            paused=False,
            changed=changed,
            waiting=backlog.waiting,
            held=backlog.held,
            later=backlog.later,
            next=_moment(backlog.next_ms),
        )

    async def _look_up(self, numbers: Collection[int] | None) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """The numbers of deliveries that arrived, and those of none; these are None if too many are to be looked up."""
        if numbers is None:
            return (), ()
        if len(numbers) > LOOKED_UP_MAX:
            return (), None
        arrived: list[int] = []
        missing: list[int] = []
        for number in numbers:
            owed = await self._outbox.owed(limit=1, after=number - 1)
            if owed and owed[0].number == number:
                continue
            (missing if await self._store.receipts.find(number) is None else arrived).append(number)
        return tuple(arrived), tuple(missing)


def _dead(query: DeliveryQuery) -> bool | None:
    """Whether the dead deliveries are asked for, the pending ones, or both. Raises InvalidParams."""
    if query.state is not None and query.dead is not None:
        raise InvalidParams("dead", "goes without state")
    if query.host is not None and (query.state == "delivered" or query.task is not None):
        raise InvalidParams("host", "goes with pending and dead deliveries, without task")
    if query.state == "delivered" and query.after:
        raise InvalidParams("after", "goes with pending and dead deliveries; use before")
    if query.state != "delivered" and query.before is not None:
        raise InvalidParams("before", "goes with state=delivered; use after")
    return query.dead if query.state is None else query.state == "dead"


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


def _delivery_line(owed: Owed) -> DeliveryLine:
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
        state="dead" if owed.dead else "pending",
    )


def _group(found: OwedGroup) -> DeliveryGroup:
    return DeliveryGroup(
        host=found.host,
        dead=found.dead,
        cause=found.cause,
        deliveries=found.calls,
        webhooks=found.webhooks,
        made=timestamp(found.made_ms),
        paused=found.paused,
    )


def _receipt_line(receipt: Receipt) -> DeliveryLine:
    return DeliveryLine(
        number=receipt.number,
        id=receipt.id,
        task=receipt.task_id,
        agent=receipt.agent,
        config=receipt.config_id,
        url=receipt.url,
        seq=receipt.seq,
        made=timestamp(receipt.made_ms),
        failed=receipt.attempts,
        dead=False,
        next=None,
        reason=receipt.reason,
        host=_origin(receipt.url),
        state="delivered",
        arrived=timestamp(receipt.arrived_ms),
        http_status=receipt.status,
        took_ms=receipt.took_ms,
    )


def _origin(shown: str) -> str:
    """The host of a URL of which only the beginning is known."""
    try:
        return target(shown.removesuffix("…")).origin
    except BadUrl:
        return ""


def _paused_line(host: PausedHost) -> PausedHostLine:
    return PausedHostLine(host=host.name, since=timestamp(host.at_ms), by=host.by, waiting=host.waiting)


def _report_owed(found: OwedDetails, pauses: tuple[PausedHostLine, ...], now_ms: int) -> DeliveryReport:
    sending = found.claimed_until_ms is not None and found.claimed_until_ms > now_ms
    line: dict[str, Any] = asdict(_delivery_line(found.owed))
    return DeliveryReport(
        **line,
        status=_status(found, sending),
        part=found.part,
        dialect=found.dialect,
        size_bytes=found.size_bytes,
        lane=LANES[found.lane],
        claimed_until=_moment(found.claimed_until_ms) if sending else None,
        before=found.before,
        behind=found.behind,
        pauses=pauses,
    )


def _report_receipt(receipt: Receipt, made: Delivery | str) -> DeliveryReport:
    """`made` is the delivery as it would be sent again, or why it cannot be."""
    line: dict[str, Any] = asdict(_receipt_line(receipt))
    return DeliveryReport(
        **line,
        status="delivered",
        part=receipt.part,
        dialect=receipt.dialect,
        size_bytes=receipt.size_bytes,
        lane=None,
        claimed_until=None,
        before=0,
        behind=0,
        obstacle=made if isinstance(made, str) else None,
    )


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else timestamp(at_ms)
