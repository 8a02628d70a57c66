"""Figures of a store for its operator: its size, and the tasks that have not ended.

Invariant: they cost no more for more tasks that have ended.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct


class OpenTasks(Struct, frozen=True, kw_only=True):
    """The tasks of an agent that have not ended, of all owners: how many there are of each kind, and since when.

    `queued_since_ms` is when the status of the longest-waiting queued task was set; None if no task is queued. So are
    the other two for the tasks at work, and for those that wait for their callers.
    """

    agent: str
    queued: int = 0
    working: int = 0
    interrupted: int = 0
    queued_since_ms: int | None = None
    working_since_ms: int | None = None
    interrupted_since_ms: int | None = None


class StoreFigures(Struct, frozen=True, kw_only=True):
    """`size_bytes` is what the store takes on its disk, or in memory. `open_tasks` has agents with such tasks only."""

    size_bytes: int
    open_tasks: tuple[OpenTasks, ...]


def read_open_tasks(rows: Iterable[Sequence[Any]]) -> tuple[OpenTasks, ...]:
    """Make the figures from rows: agent, three numbers, and the time of the oldest status in each of the states 0 to 3.

    Agents without open tasks are left out.
    """
    found = []
    for agent, *values in rows:
        queued, working, interrupted, *since = (None if value is None else int(value) for value in values)
        if queued or working or interrupted:
            found.append(
                OpenTasks(
                    agent=str(agent),
                    queued=queued or 0,
                    working=working or 0,
                    interrupted=interrupted or 0,
                    queued_since_ms=since[0],
                    working_since_ms=since[1],
                    interrupted_since_ms=min((ms for ms in since[2:] if ms is not None), default=None),
                )
            )
    return tuple(found)
