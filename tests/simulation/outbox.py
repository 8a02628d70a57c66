"""The outbox of a simulated database: webhook configurations, and what is owed to them.

Invariant: a configuration has one delivery in flight, in the order in which they were written.
"""

from collections.abc import Collection, Sequence
from copy import copy
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman.model.operations import PushConfig
from dragoman.store.api import Refused, Unknown
from dragoman.store.outbox import Delivery, Due, Lane, Owed, Registration, Settled

if TYPE_CHECKING:
    from tests.simulation.database import Database


class Owing(Struct):
    """A delivery that is pending, or dead. It is in flight until `claimed_until_ms`, 0 if it is not."""

    number: int
    delivery: Delivery
    made_ms: int
    due_ms: int
    claimed_until_ms: int = 0
    claimant: str = ""
    attempts: int = 0
    dead: bool = False
    reason: str = ""


class Webhook(Struct):
    """A configuration and what is owed to it, in order."""

    task_id: str
    registration: Registration
    owing: list[Owing]


class OutboxRows:
    """As `store.outbox.Outbox`, without waiting."""

    def __init__(self, database: "Database") -> None:
        self._database = database
        self._webhooks: dict[tuple[str, str], Webhook] = {}
        self._lanes: dict[str, Lane] = {}
        self._numbers = 0

    def moment(self) -> tuple[dict[tuple[str, str], Webhook], dict[str, Lane]]:
        """Everything as it stands, to go back to."""
        webhooks = {
            key: Webhook(hook.task_id, hook.registration, [copy(owing) for owing in hook.owing])
            for key, hook in self._webhooks.items()
        }
        return webhooks, dict(self._lanes)

    def go_back(self, moment: tuple[dict[tuple[str, str], Webhook], dict[str, Lane]]) -> None:
        """Forget everything after a moment."""
        self._webhooks, self._lanes = moment

    def keep(self, task_id: str, registration: Registration) -> None:
        """Store a configuration, in place of one with the same id."""
        key = (task_id, registration.config.id)
        if (known := self._webhooks.get(key)) is not None:
            known.registration = registration
        else:
            self._webhooks[key] = Webhook(task_id, registration, [])
        self._lanes.setdefault(registration.host, Lane.UNKNOWN)

    def owe(self, task_id: str, deliveries: Sequence[Delivery], now_ms: int) -> None:
        """Add deliveries. One whose configuration is gone is not written."""
        for delivery in deliveries:
            webhook = self._webhooks.get((task_id, delivery.config_id))
            if webhook is not None:
                self._numbers += 1
                webhook.owing.append(Owing(self._numbers, delivery, now_ms, now_ms))

    def register(self, task_id: str, registration: Registration, deliveries: Sequence[Delivery]) -> Refused | None:
        """As the protocol says; a refusal is returned."""
        row = self._database.rows.get(task_id)
        if row is None:
            return Unknown(task_id)
        self.keep(task_id, registration)
        self.owe(task_id, deliveries, self._database.now_ms())
        self._database.change(task_id, pushed=True, webhooks_version=row.webhooks_version + 1)
        return None

    def configs(self, task_id: str) -> tuple[PushConfig, ...]:
        """As the protocol says."""
        return tuple(hook.registration.config for hook in self._webhooks.values() if hook.task_id == task_id)

    def remove(self, task_id: str, config_id: str) -> bool:
        """As the protocol says."""
        if self._webhooks.pop((task_id, config_id), None) is None:
            return False
        version = self._database.rows[task_id].webhooks_version + 1
        self._database.change(task_id, pushed=bool(self.configs(task_id)), webhooks_version=version)
        return True

    def sweep(self, task_id: str) -> None:
        """Delete the configurations of a task, with what is owed to them."""
        for key in [key for key in self._webhooks if key[0] == task_id]:
            del self._webhooks[key]

    def reclaim(self, by: str, now_ms: int, held: Collection[int]) -> None:
        """As the protocol says: the claims of other replicas run out by themselves."""
        one = self._database.lease_ms is None
        for webhook in self._webhooks.values():
            for owing in webhook.owing:
                if owing.claimed_until_ms and owing.number not in held and (one or (by and owing.claimant == by)):
                    owing.claimed_until_ms, owing.due_ms = 0, now_ms

    def release(self, numbers: Collection[int], now_ms: int) -> None:
        """As the protocol says."""
        for webhook in self._webhooks.values():
            for owing in webhook.owing:
                if owing.number in numbers and owing.claimed_until_ms:
                    owing.claimed_until_ms, owing.due_ms = 0, now_ms

    def _front(self, webhook: Webhook) -> Owing | None:
        return next((owing for owing in webhook.owing if not owing.dead), None)

    def claim(
        self,
        by: str,
        lane: Lane,
        now_ms: int,
        until_ms: int,
        limit: int,
        per_host: int,
        busy: Collection[str],
    ) -> tuple[Due, ...]:
        """As the protocol says. Nothing comes along behind a delivery."""
        fronts: list[tuple[int, str, int, Webhook, Owing]] = []
        for webhook in self._webhooks.values():
            host, owing = webhook.registration.host, self._front(webhook)
            if owing is None or self._lanes[host] is not lane or host in busy:
                continue
            due_ms = owing.claimed_until_ms or owing.due_ms
            if due_ms <= now_ms:
                fronts.append((due_ms, host, owing.number, webhook, owing))
        taken: list[Due] = []
        by_host: dict[str, int] = {}
        for _, host, _, webhook, owing in sorted(fronts, key=lambda front: front[:3]):
            if len(taken) >= limit or by_host.get(host, 0) >= per_host:
                continue
            by_host[host] = by_host.get(host, 0) + 1
            owing.claimed_until_ms, owing.claimant = until_ms, by
            row = self._database.rows[webhook.task_id]
            due = Due(
                number=owing.number,
                task_id=webhook.task_id,
                agent=row.head.agent,
                config=webhook.registration.config,
                host=host,
                delivery=owing.delivery,
                attempts=owing.attempts,
                made_ms=owing.made_ms,
            )
            taken.append(due)
        return tuple(taken)

    def next_due_ms(self) -> int | None:
        """As the protocol says."""
        fronts = [front for front in map(self._front, self._webhooks.values()) if front is not None]
        return min((front.claimed_until_ms or front.due_ms for front in fronts), default=None)

    def owes(self, due: Due) -> bool:
        """As the protocol says."""
        webhook = self._webhooks.get((due.task_id, due.delivery.config_id))
        return webhook is not None and any(owing.number == due.number for owing in webhook.owing)

    def settle(self, settled: Settled) -> None:
        """As the protocol says."""
        for key, webhook in self._webhooks.items():
            for place, owing in enumerate(webhook.owing):
                if owing.number == settled.number:
                    self._settle(key, webhook, place, settled)
                    return

    def _settle(self, key: tuple[str, str], webhook: Webhook, place: int, settled: Settled) -> None:
        owing, host = webhook.owing[place], webhook.registration.host
        if settled.outcome in ("retry", "dead") and not owing.claimed_until_ms:
            return
        match settled.outcome:
            case "delivered":
                gone = {settled.number, *settled.before}
                webhook.owing = [each for each in webhook.owing if each.number not in gone]
            case "retry":
                owing.claimed_until_ms, owing.due_ms = 0, settled.due_ms
                owing.attempts += 1
            case "dead":
                owing.claimed_until_ms, owing.dead, owing.reason = 0, True, settled.reason
            case "gone":
                webhook.owing.clear()
        if settled.outcome in ("delivered", "gone"):
            self._lanes[host] = Lane.HEALTHY
        elif not settled.reached:
            self._lanes[host] = Lane.FAILING
        elif self._lanes[host] is Lane.UNKNOWN:
            self._lanes[host] = Lane.HEALTHY

    def owed(self, dead: bool | None, limit: int, after: int) -> tuple[Owed, ...]:
        """As the protocol says."""
        found = [
            Owed(
                number=owing.number,
                id=owing.delivery.id,
                task_id=webhook.task_id,
                agent=self._database.rows[webhook.task_id].head.agent,
                config_id=owing.delivery.config_id,
                url=webhook.registration.config.url,
                seq=owing.delivery.seq,
                attempts=owing.attempts,
                dead=owing.dead,
                due_ms=None if owing.dead else owing.due_ms,
                made_ms=owing.made_ms,
                reason=owing.reason,
            )
            for webhook in self._webhooks.values()
            for owing in webhook.owing
            if owing.number > after and dead in (None, owing.dead)
        ]
        return tuple(sorted(found, key=lambda owed: owed.number)[:limit])

    def owed_count(self) -> tuple[int, int]:
        """As the protocol says."""
        owing = [owing for webhook in self._webhooks.values() for owing in webhook.owing]
        dead = sum(each.dead for each in owing)
        return len(owing) - dead, dead
