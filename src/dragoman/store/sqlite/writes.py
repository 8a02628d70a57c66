"""What is handed to the writer: each write as a value, encoded already.

Invariant: a write holds all it needs, so that it can be tried again.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.store.api import Dedupe, Quota
from dragoman.store.outbox import Delivery, Settled
from dragoman.store.sqlite.files import File
from dragoman.store.sqlite.tables import Tables


class Webhook(Struct, frozen=True):
    """A webhook configuration, encoded."""

    id: str
    host: str
    settings: bytes


class Creation(Struct, frozen=True):
    """A task to be written, encoded."""

    id: str
    owner: str
    agent: str
    context: str
    state: int
    status_ms: int
    holder: str | None
    head: bytes
    events: int
    page: bytes
    files: tuple[File, ...]
    dedupe: Dedupe | None
    webhook: Webhook | None
    deliveries: tuple[Delivery, ...]
    quota: Quota | None


class Addition(Struct, frozen=True):
    """An append, encoded. `ends_lease` covers both a release and a terminal state."""

    id: str
    state: int
    status_ms: int
    epoch: int | None
    expected_seq: int | None
    holder: str | None
    ends_lease: bool
    events: int
    page: bytes
    snapshot: bytes | bytearray | None
    files: tuple[File, ...]
    dedupe: Dedupe | None
    webhook: Webhook | None
    deliveries: tuple[Delivery, ...]


class Stop(Struct, frozen=True):
    """A request to cancel."""

    id: str


class Registering(Struct, frozen=True):
    """A webhook to be kept for a task, and what it is told at once."""

    id: str
    webhook: Webhook
    deliveries: tuple[Delivery, ...]


class Removal(Struct, frozen=True):
    """A webhook of a task to be forgotten."""

    id: str
    config_id: str


class Settlement(Struct, frozen=True):
    """What became of an attempt to deliver."""

    settled: Settled


class Remembrance(Struct, frozen=True):
    """A direct agent's answer, encoded, to be kept."""

    dedupe: Dedupe
    answer: bytes


class Probe(Struct, frozen=True):
    """A write of no meaning."""


class Victim(Struct, frozen=True):
    """A task that was too old, as it was."""

    task: int
    scope: int
    context: str
    state: int
    status_ms: int
    seq: int


class Sweep(Struct, frozen=True):
    """A batch of what is too old: tasks that go whole, tasks whose log goes, calls by number, days before one."""

    whole: tuple[Victim, ...]
    logs: tuple[Victim, ...]
    calls: tuple[int, ...]
    now_ms: int
    days_before: int = 0


class Act(Struct, frozen=True):
    """A write that touches no task's row or log: `run` is given the tables and the time, inside the transaction.

    What it returns is the outcome; if it raises, nothing of it is written. It may be run more than once, after a
    rollback, so it changes nothing but the tables. An exception that it returns is raised where the outcome is awaited.
    """

    run: Callable[[Tables, int], Any]


Write = Creation | Addition | Stop | Registering | Removal | Settlement | Remembrance | Probe | Sweep | Act
Outcome = Any
"""What became of a write: Appended, Repeat or Refused; of a sweep, how many rows went; of an act, what it returned."""
