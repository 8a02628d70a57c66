"""Webhook deliveries that arrived, and all deliveries of a task, as tables.

Invariant: on the local store as from afar, the same lines are shown.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from dragoman.cli.admin.server import AdminClient, TaskPlace, run
from dragoman.cli.store_commands import at_store
from dragoman.cli.tables import second, table

if TYPE_CHECKING:
    from dragoman.admin.webhooks import DeliveryLine, TaskDeliveries
    from dragoman.store.api import Store

PAGE = 10_000
"""The most that the admin API answers with at once."""


def read_receipts(place: TaskPlace, task_id: str | None, limit: int, before: int | None) -> "Sequence[DeliveryLine]":
    """Deliveries that arrived, newest first."""
    if place.server is not None:
        return run(_read_pages(place.client(), task_id, limit, before))
    return at_store(place.config, lambda store: _read_store(store, task_id, limit, before))


def describe_deliveries(place: TaskPlace, task_id: str) -> str:
    """The deliveries of a task as a table, oldest first; empty if there are none."""
    found = _deliveries_of_task(place, task_id)
    head = ("NUMBER", "STATE", "MADE", "ARRIVED", "SEQ", "URL", "ATTEMPTS", "ANSWER")
    rows = [
        (
            str(line.number),
            line.state,
            second(line.made),
            second(line.arrived),
            str(line.seq),
            line.url,
            str(line.failed + (line.state == "delivered")),
            answer(line),
        )
        for line in found.deliveries
    ]
    more = "\nThere are more: see `dragoman webhooks list --task`." if found.more else ""
    return table(head, rows) + more if rows else ""


def _deliveries_of_task(place: TaskPlace, task_id: str) -> "TaskDeliveries":
    from dragoman.admin.webhooks import TaskDeliveries
    from dragoman.engine.admin.deliveries import list_deliveries_of_task

    if place.server is not None or place.config.store == "memory:":
        return run(place.client().get(f"/tasks/{quote(task_id, safe='')}/deliveries", {}, TaskDeliveries))
    return at_store(place.config, lambda store: list_deliveries_of_task(store, task_id))


async def _read_store(store: "Store", task_id: str | None, limit: int, before: int | None) -> "Sequence[DeliveryLine]":
    from dragoman.engine.admin.deliveries import receipt_line

    return [receipt_line(each) for each in await store.receipts.page(limit=limit, before=before, task_id=task_id)]


async def _read_pages(
    client: AdminClient, task_id: str | None, limit: int, before: int | None
) -> "Sequence[DeliveryLine]":
    from dragoman.admin.webhooks import DeliveryLines

    found: list[DeliveryLine] = []
    while len(found) < limit:
        query = {"state": "delivered", "limit": min(PAGE, limit - len(found)), "before": before, "task": task_id}
        page = await client.get("/webhooks", query, DeliveryLines)
        found += page.deliveries
        before = page.next_before
        if before is None:
            break
    return found


def answer(line: "DeliveryLine") -> str:
    """The answer to a delivery, or why there was none."""
    return line.reason if line.http_status is None else f"HTTP {line.http_status}"
