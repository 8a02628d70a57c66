"""Writes: the values that are submitted to the writer, already encoded.

Invariant: a write holds everything it needs, so that it can be tried again.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from dragoman.store.api import Dedupe, Quota
from dragoman.store.files import File
from dragoman.store.outbox import Delivery, Registration
from dragoman.store.usage import Used

Row = dict[str, int | str | None]
"""Values by the names that the statement of a batch gives them."""


class Creation(Struct, frozen=True):
    """A task to insert, encoded. `row` holds the columns but those with bytes, the scope and the remembered call.

    `size` is in bytes, files included.
    """

    id: str
    owner: str
    agent: str
    state: int
    events: int
    epoch: int
    row: Row
    page: bytes
    head: bytes
    files: tuple[File, ...]
    dedupe: Dedupe | None
    push: Registration | None
    deliveries: tuple[Delivery, ...]
    quota: Quota | None
    size: int


class Addition(Struct, frozen=True):
    """An append, encoded. `row` holds the columns but those with bytes and the remembered call.

    `used` is what a task that ends, at `ended_ms`, has used. `history` is that of the database on which it was decided.
    """

    id: str
    row: Row
    epoch: int | None
    expected_seq: int | None
    expected_epoch: int | None
    page: bytes
    record: bytes | None
    files: tuple[File, ...]
    dedupe: Dedupe | None
    push: Registration | None
    deliveries: tuple[Delivery, ...]
    webhooks_version: int | None
    size: int
    terminal: bool
    used: tuple[Used, ...]
    ended_ms: int
    history: str


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


class Turn(Struct, frozen=True):
    """A place among the writes of a task: those after it wait until it is over."""

    id: str


Write = Creation | Addition | OtherWrite | Turn
