"""Writes: the values that are submitted to the writer, beside new tasks and appends, already encoded.

Invariant: a write holds everything it needs, so that it can be tried again.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.store.api import Dedupe
from dragoman.store.outbox import Delivery, Settled
from dragoman.store.sqlite.tables import Tables
from dragoman.store.usage import AnswerUsage
from dragoman.store.writes import Addition, Creation


class Webhook(Struct, frozen=True):
    """A webhook configuration, encoded."""

    id: str
    host: str
    settings: bytes
    key: str | None


class Stop(Struct, frozen=True):
    """A request to cancel."""

    id: str


class Registering(Struct, frozen=True):
    """A webhook to store for a task, and its first deliveries."""

    id: str
    webhook: Webhook
    deliveries: tuple[Delivery, ...]


class Removal(Struct, frozen=True):
    """A webhook of a task to delete."""

    id: str
    config_id: str


class Settlement(Struct, frozen=True):
    """The outcome of an attempt to deliver."""

    settled: Settled


class Remembrance(Struct, frozen=True):
    """A direct agent's answer to store, encoded."""

    dedupe: Dedupe
    answer: bytes
    usage: AnswerUsage | None


class ProbeWrite(Struct, frozen=True):
    """A meaningless write, to see whether writes work."""


class TaskClaim(Struct, frozen=True):
    """Leases to `holder` tasks that nobody alive holds; the outcome are their numbers."""

    holder: str
    alive: tuple[str, ...]
    limit: int
    agents: tuple[str, ...] | None
    """The agents whose tasks are claimed; None for all but `served`."""
    served: tuple[str, ...]
    queued: bool
    woken: bool = False
    """Only tasks that slept."""


class Victim(Struct, frozen=True):
    """An expired task, as it was when found."""

    id: str
    task: int
    scope: int
    context: str
    state: int
    seq: int


class Sweep(Struct, frozen=True):
    """A batch of expired rows: whole tasks, tasks whose log is deleted, calls by number, days before one."""

    whole: tuple[Victim, ...]
    logs: tuple[Victim, ...]
    calls: tuple[int, ...]
    now_ms: int
    days_before: int = 0


class Deletion(Struct, frozen=True):
    """Tasks to delete, as far as they have ended. `calls` are the numbers of the calls remembered with them."""

    ids: tuple[str, ...]
    calls: tuple[int, ...]


class Act(Struct, frozen=True):
    """A write that touches no task's row or log: `run` is called with the tables and the time, in the transaction.

    It returns the outcome; if it raises, none of it is written. It may run more than once, after a rollback, so it
    must change nothing but the tables. A returned exception is raised where the outcome is awaited.
    """

    run: Callable[[Tables, int], Any]


Write = (
    Creation
    | Addition
    | Stop
    | Registering
    | Removal
    | Settlement
    | Remembrance
    | ProbeWrite
    | TaskClaim
    | Sweep
    | Deletion
    | Act
)
Outcome = Any
"""The result of a write: Appended, Repeat or Refused; the number of deleted rows of a sweep; the ids of deleted tasks;
the result of an act."""
