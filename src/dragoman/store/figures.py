"""Figures of a store for its operator: its size, and the tasks that have not ended.

Invariant: they cost no more for more tasks that have ended.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace


class OpenTasks(Struct, frozen=True, kw_only=True):
    """The tasks of an agent that have not ended, of all owners: how many are in each phase, and since when.

    A store counts a task without a holder as idle (`model.task.phase_of`). `queued_since_ms` is when the status of the
    longest-waiting queued task was set; None if no task is queued. The other three are the same for their phases.
    """

    agent: str
    queued: int = 0
    running: int = 0
    sleeping: int = 0
    waiting: int = 0
    queued_since_ms: int | None = None
    running_since_ms: int | None = None
    sleeping_since_ms: int | None = None
    waiting_since_ms: int | None = None


class OldestRows(Struct, frozen=True):
    """The oldest rows of each kind that a retention deletes, by the time from which it counts; None: there is none.

    `tasks_ms` is when a task ended, `logs_ms` when one ended whose events are kept, `waiting_ms` when one began to wait
    for its caller. `usage_day` is a day since 1970, in UTC.
    """

    tasks_ms: int | None = None
    logs_ms: int | None = None
    waiting_ms: int | None = None
    audit_ms: int | None = None
    receipts_ms: int | None = None
    usage_day: int | None = None


class StoreFigures(Struct, frozen=True, kw_only=True):
    """`size_bytes` is what the store takes on its disk, or in memory. `open_tasks` has agents with such tasks only."""

    size_bytes: int
    open_tasks: tuple[OpenTasks, ...]
    oldest: OldestRows = OldestRows()


def read_open_tasks(rows: Iterable[Sequence[Any]]) -> tuple[OpenTasks, ...]:
    """Make the figures from rows. Agents without open tasks are left out.

    A row has the agent, how many tasks are submitted, how many are working, how many of these have no holder and how
    many sleep, how many are interrupted, and the time of the oldest status: of the submitted ones, of the working ones
    without a holder, with one, and asleep, of those in each of the states 2 and 3, and of those that were put aside.
    Those count among the ones without a holder.
    """
    found = []
    for agent, *values in rows:
        submitted, working, idle, asleep, interrupted, *since = (
            None if value is None else int(value) for value in values
        )
        if submitted or working or interrupted:
            found.append(
                OpenTasks(
                    agent=str(agent),
                    queued=(submitted or 0) + (idle or 0),
                    running=max(0, (working or 0) - (idle or 0) - (asleep or 0)),
                    sleeping=asleep or 0,
                    waiting=interrupted or 0,
                    queued_since_ms=_oldest(*since[:2], since[6]),
                    running_since_ms=since[2],
                    sleeping_since_ms=since[3],
                    waiting_since_ms=_oldest(*since[4:6]),
                )
            )
    return tuple(found)


def count_idle(figures: StoreFigures, idle: Iterable[tuple[str, int]]) -> StoreFigures:
    """Count more tasks as queued that the store counts as running: each is an agent and the time of its status."""
    by_agent: dict[str, list[int]] = {}
    for agent, status_ms in idle:
        by_agent.setdefault(agent, []).append(status_ms)
    if not by_agent:
        return figures
    return replace(
        figures, open_tasks=tuple(_count_idle(each, by_agent.get(each.agent)) for each in figures.open_tasks)
    )


def _count_idle(tasks: OpenTasks, idle: list[int] | None) -> OpenTasks:
    if idle is None:
        return tasks
    moved = min(len(idle), tasks.running)  # the figures may be older than the runs
    running = tasks.running - moved
    return replace(
        tasks,
        queued=tasks.queued + moved,
        running=running,
        queued_since_ms=_oldest(tasks.queued_since_ms, min(idle) if moved else None),
        running_since_ms=tasks.running_since_ms if running else None,
    )


def read_oldest(row: Sequence[Any]) -> OldestRows:
    """Make the oldest rows from one row.

    It has the status times of tasks that wait, that have ended, and that have ended and lost their events; then the
    times of an audit entry and a receipt, and a day of usage.
    """
    waiting, ended, pruned, audit, receipt, day = (None if value is None else int(value) for value in row)
    return OldestRows(_oldest(ended, pruned), ended, waiting, audit, receipt, day)


def _oldest(*times_ms: int | None) -> int | None:
    return min((ms for ms in times_ms if ms is not None), default=None)
