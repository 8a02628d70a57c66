"""Deliveries that arrived, queued once more with a body that is made again from the log."""

import asyncio
from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from dragoman.admin.webhooks import DeadLetters, DeadLettersChanged, NotSentAgain
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.redelivery import SentDeliveries, send_again
from dragoman.engine.announcements import WebhookStep
from dragoman.model.ids import SystemClock
from dragoman.model.task import TaskHead
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.store.outbox import Lane, Settled
from tests.engine.replicas import Counted
from tests.store.cases.bench import by_run, chunk, new_task
from tests.store.cases.deliveries import arrived, telling, webhook

EVENTS = 12


class Sender:
    """Renders one body for each step. Nobody sends here."""

    def possible_bodies(self, head: TaskHead, step: WebhookStep, dialect: str) -> Iterable[bytes]:
        """The body of `telling`, with what the task holds."""
        held = len(step.stands().artifacts[0].parts) if step.seq > 1 else 0
        assert held == min(1, step.seq - 1), "chunks of text are joined"
        return (telling(step.seq).body,)

    def wake(self) -> None:
        pass


async def deliver_all(store: Store, *task_ids: str) -> None:
    """Make tasks that go on in turns, with a delivery for each event, all of which arrive."""
    for task_id in task_ids:
        await store.create(replace(new_task(task_id), push=webhook(), deliveries=(telling(1),)))
    for seq in range(2, EVENTS + 1):
        for task_id in task_ids:
            await store.append(replace(by_run(task_id, chunk("a")), deliveries=(telling(seq),)))
    while dues := [due for lane in Lane for due in await store.outbox.claim(lane, 1 << 50, 1 << 51, 1, 1)]:
        await asyncio.gather(*(store.outbox.settle(arrived(due, 1 << 50)) for due in dues))


async def test_the_log_of_a_task_is_read_once_for_all_of_its_deliveries() -> None:
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        await deliver_all(store, "t1", "t2")
        counted = Counted(store)
        numbers = [receipt.number for receipt in await store.receipts.page()]
        assert await send_again(cast(Store, counted), Sender(), numbers, 0) == SentDeliveries(2 * EVENTS, ())
        assert counted.reads["read"] == 2
        owed = [(each.task_id, each.seq) for each in await store.outbox.owed()]
        assert owed == [(task_id, seq) for task_id in ("t1", "t2") for seq in range(1, EVENTS + 1)]
    finally:
        await store.close()


async def test_a_delivery_that_was_sent_again_in_vain_is_named_with_its_dead_letter() -> None:
    """So are numbers of no delivery."""
    store = open_store("memory:", SystemClock())
    await store.open("h1")
    try:
        await deliver_all(store, "t1")
        deliveries = DeliveryAdministration(store, Sender())

        async def redeliver(wanted: DeadLetters) -> DeadLettersChanged:
            return await deliveries.redeliver(Asked(Operator("key:ops"), wanted))

        first = (await store.receipts.page())[-1].number
        chosen = DeadLetters(numbers=(first, 999), delivered=True)
        assert await redeliver(chosen) == DeadLettersChanged(count=0, again=1, missing=(999,))
        there = NotSentAgain(number=first, reason="it is in the queue again already")
        assert (await redeliver(chosen)).refused == (there,)
        (due,) = [due for lane in Lane for due in await store.outbox.claim(lane, 1 << 50, 1 << 51, 1, 1)]
        await store.outbox.settle(Settled(number=due.number, outcome="dead", reason="HTTP 400"))
        told = NotSentAgain(number=first, reason=f"its id is that of dead letter {due.number}: send that one")
        assert (await redeliver(chosen)).refused == (told,)
        both = DeadLetters(numbers=(first, due.number), delivered=True)
        assert await redeliver(both) == DeadLettersChanged(count=1, refused=(there,))
    finally:
        await store.close()
