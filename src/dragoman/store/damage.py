"""Damage: rows whose bytes cannot be decoded, what is known of such a task, and the one log line about each.

Invariant: a damaged row costs itself alone. A task keeps what the columns of its row say: id, owner, agent, context,
state and time. Nothing here reads or writes the store, and no content of a row reaches the log.
"""

import logging

from msgspec import Struct

from dragoman.model.ids import timestamp
from dragoman.model.principal import team_of
from dragoman.model.task import STATES, Record, TaskHead, TaskState, TaskStatus

log = logging.getLogger("dragoman.store")

NAMED_MAX = 10_000
"""How many damaged rows are remembered as logged. A store with more of them fills no log either: the rest are counted
among those that were logged."""

UNKNOWN_MOUNT = ""
"""The mount of a task whose head cannot be read. No mount is spelled like that."""


def state_of(number: int) -> TaskState:
    """The state with a number in a row. A number that no state has counts as failed, which nothing may follow."""
    return STATES[number] if 0 <= number < len(STATES) else TaskState.FAILED


class RowFacts(Struct, frozen=True):
    """The columns of a task's row, beside its bytes."""

    id: str
    owner: str
    agent: str
    context_id: str
    dialect: str
    parent: str | None
    deadline_ms: int | None
    status_ms: int

    def head(self) -> TaskHead:
        """The head of the task, as far as it is known. It counts as made when its status was reached."""
        return TaskHead(
            id=self.id,
            context_id=self.context_id,
            agent=self.agent,
            owner=self.owner,
            dialect=self.dialect,
            mount=UNKNOWN_MOUNT,
            created_at=timestamp(self.status_ms),
            parent=self.parent,
            deadline_ms=self.deadline_ms,
            team=team_of(self.owner),
        )


def bare_record(head: TaskHead, seq: int, state: TaskState, status_ms: int) -> Record:
    """The record of a task that cannot be read: where it stands, and nothing else."""
    status = TaskStatus(state=state, timestamp=timestamp(status_ms))
    return Record(head=head, seq=seq, status=status, unreadable=True)


class DamageLog:
    """Names each damaged row once in the log of this process. May be used by several threads."""

    def __init__(self) -> None:
        self._named: set[tuple[str, str]] = set()

    def name(self, kind: str, row: str, error: Exception) -> None:
        """Log that a row of this kind cannot be read, unless that was logged before."""
        place = kind, row
        if place in self._named or len(self._named) >= NAMED_MAX:
            return
        self._named.add(place)
        log.error("%s %s cannot be read, and is left as it is: %s", kind, row, str(error)[:200])
