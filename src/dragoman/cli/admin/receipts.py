"""The webhook deliveries of a task, as a table.

Invariant: on the local store as from afar, the same lines are shown.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dragoman.cli.admin.server import TaskPlace
from dragoman.cli.listing import rows_of, rows_text

if TYPE_CHECKING:
    from dragoman.admin.webhooks import DeliveryLine


def describe_deliveries(place: TaskPlace, task_id: str) -> str:
    """The deliveries of a task as a table, oldest first; empty if there are none."""
    from dragoman.admin.webhooks import READ_DELIVERIES

    found = place.read(lambda desk: desk.answer(READ_DELIVERIES, None, task_id))
    more = "\nThere are more: see `dragoman webhooks list --task`." if found.more else ""
    return rows_text(rows_of(READ_DELIVERIES, found, words=WORDS)) + more if found.deliveries else ""


def answer(line: "DeliveryLine") -> str:
    """The answer to a delivery, or why there was none."""
    return line.reason if line.http_status is None else f"HTTP {line.http_status}"


WORDS: Mapping[str, Callable[[Any], str]] = {
    "failed": lambda line: str(line.failed + (line.state == "delivered")),
    "http_status": answer,
}
