"""Redelivery: webhook deliveries that arrived are sent once more, with the body and the `webhook-id` that they had.

The body is not kept, so it is rendered again from the log of the task.

Invariant: a body is sent again only if its digest is that of the first one. A receiver that knows the id may ignore it.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Protocol

from msgspec import Struct

from dragoman.admin.webhooks import NotSentAgain
from dragoman.engine.admin.folded_places import LOG_BYTES
from dragoman.engine.announcements import WebhookStep, standing_step, steps_of
from dragoman.engine.folding import fold_aside
from dragoman.model.events import Event, Logged
from dragoman.model.lifecycle import Fold
from dragoman.model.task import TaskHead
from dragoman.store.api import Store
from dragoman.store.outbox import Delivery, QueuedAgain
from dragoman.store.receipts import Receipt, digest_of_body


class Redeliverer(Protocol):
    """Makes the bodies of deliveries again, and has them sent."""

    def possible_bodies(self, head: TaskHead, step: WebhookStep, dialect: str) -> Iterable[bytes]:
        """Render the bodies that a step of a task may have had in a dialect."""
        ...

    def wake(self) -> None:
        """Start sending, because deliveries are due."""
        ...


class NoRedeliverer:
    """Makes no body again, on a server without webhooks."""

    def possible_bodies(self, head: TaskHead, step: WebhookStep, dialect: str) -> Iterable[bytes]:
        """See `Redeliverer`."""
        return ()

    def wake(self) -> None:
        """See `Redeliverer`."""


REMOVED = "its webhook has been removed"
STOPPED = "its webhook has ended: the receiver answered 410 Gone"
THERE = "it is in the queue again already"
PRUNED = "the events of its task have been deleted (log_retention)"
OTHER_BODY = "its body cannot be made again: it linked to files, or an earlier version wrote it"

REFUSALS = {QueuedAgain.NO_CONFIG: REMOVED, QueuedAgain.STOPPED: STOPPED}


class SentDeliveries(Struct, frozen=True):
    """How many deliveries that arrived are queued again, and those that are not."""

    count: int
    refused: tuple[NotSentAgain, ...]


NONE_SENT = SentDeliveries(0, ())


async def send_again(store: Store, sender: Redeliverer, numbers: Collection[int], now_ms: int) -> SentDeliveries:
    """Queue those of these deliveries that arrived once more, those of each task in their order. Raises StoreError."""
    logs = EventReader(store)
    count, refused = 0, []
    found = [await store.receipts.find(number) for number in sorted(set(numbers))]
    arrived = [receipt for receipt in found if receipt is not None]
    for receipt in sorted(arrived, key=lambda each: each.task_id):  # task by task, so that each log is read once
        made = await rebuild(store, sender, receipt, logs)
        if isinstance(made, Delivery):
            queued = await store.outbox.queue_again(receipt.task_id, made, now_ms)
            if queued is QueuedAgain.QUEUED:
                count += 1
                continue
            made = await _standing(store, receipt) if queued is QueuedAgain.THERE else REFUSALS[queued]
        refused.append(NotSentAgain(number=receipt.number, reason=made))
    return SentDeliveries(count, tuple(sorted(refused, key=lambda each: each.number)))


async def _standing(store: Store, receipt: Receipt) -> str:
    """Why a delivery is not queued whose id is in the outbox already, pending or dead. Raises StoreError."""
    found = await store.outbox.find(receipt.id)
    if found is None or not found.owed.dead:
        return THERE
    return f"its id is that of dead letter {found.owed.number}: send that one"


async def rebuild(
    store: Store, sender: Redeliverer, receipt: Receipt, logs: "EventReader | None" = None
) -> Delivery | str:
    """A delivery as it was when it arrived, or why it cannot be made again. Raises StoreError."""
    logs = logs or EventReader(store)
    configs = await store.outbox.configs(receipt.task_id)
    config = next((each for each in configs if each.id == receipt.config_id), None)
    found = await store.head(receipt.task_id)
    if config is None or found is None:
        return REMOVED
    head, dialect = found[0], receipt.dialect or config.dialect
    logged = await logs.read_until(head, receipt.seq)
    if logged is None:
        return PRUNED
    fold, event = logged
    after = fold.ahead((event,)).record()
    for step in (*steps_of(fold, (event,), after), standing_step(after)):
        for body in sender.possible_bodies(head, step, dialect):
            if digest_of_body(body) == receipt.digest:
                return Delivery(
                    id=receipt.id,
                    config_id=receipt.config_id,
                    seq=receipt.seq,
                    part=receipt.part,
                    kept=True,
                    body=body,
                    traceparent=head.traceparent,
                    dialect=dialect,
                )
    return OTHER_BODY


class EventReader:
    """Reads logs up to events; for rising seqs each once. A task has up to a hundred deliveries that arrived."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._task_id = ""
        self._fold: Fold | None = None
        self._page: deque[Logged] = deque()
        """Events that were read and are not folded yet."""

    async def read_until(self, head: TaskHead, seq: int) -> tuple[Fold, Event] | None:
        """The task before its event `seq`, and that event; None if the log does not have them any more.

        The fold goes on with the next call. Raises StoreError.
        """
        fold = self._fold
        if fold is None or self._task_id != head.id or fold.seq >= seq:
            fold = self._fold = Fold(head)
            self._task_id = head.id
            self._page.clear()
        while True:
            if not self._page:
                self._page.extend(await self._store.read(head.id, fold.seq, LOG_BYTES))
            if not self._page or self._page[0].seq != fold.seq + 1:
                return None
            if self._page[0].seq == seq:
                return fold, self._page[0].event
            await fold_aside(len(self._page), lambda: self._fold_page(fold, seq))

    def _fold_page(self, fold: Fold, seq: int) -> None:
        """Fold what was read, up to the event before `seq`."""
        while self._page and self._page[0].seq == fold.seq + 1 != seq:
            logged = self._page.popleft()
            fold.add(logged.seq, logged.event)
