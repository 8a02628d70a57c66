"""Writes: the values that are submitted to the writer, beside new tasks and appends.

Invariant: a write holds everything it needs, so that it can be tried again.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from dragoman.store.outbox import Delivery, Registration
from dragoman.store.writes import Addition, Creation


class Told(Struct, frozen=True):
    """A new webhook of a task, and deliveries to its webhooks, to write in the transaction of the events they report.

    `task` is the task's number. A delivery whose webhook has been deleted is not written.
    """

    task: int
    push: Registration | None
    deliveries: tuple[Delivery, ...]


class OtherWrite(Struct, frozen=True):
    """Any other write. `run` makes it, on connections that it takes itself, and returns the outcome.

    With the id of a task, it has its place among the writes of that task.
    """

    run: Callable[[], Awaitable[Any]]
    id: str | None = None


class TaskTurn(Struct, frozen=True):
    """A place among the writes of a task: those after it wait until it is over."""

    id: str


Write = Creation | Addition | OtherWrite | TaskTurn
