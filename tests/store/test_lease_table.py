"""The leases of workers in memory: what is kept of those that are over."""

import pytest

from dragoman.store import worker_leases
from dragoman.store.worker_leases import KNOWN_MS, DueLeases, LeaseTable, WorkerLease, WorkerLeaseChange


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def end_one(table: LeaseTable, task_id: str) -> None:
    """Grant a lease, and end it."""
    lease = WorkerLease(
        task_id=task_id, agent="a", token=f"{task_id}.t", worker="w", replays=False, delivery=1, since=1
    )
    table.change(WorkerLeaseChange(lease, granted_ms=1000), asks=False)
    table.end(task_id)


def known(table: LeaseTable) -> list[str]:
    return [task_id for task_id in map(str, range(5)) if table.get(task_id) is not None]


def test_the_newest_of_many_that_are_over_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_leases, "OVER_MAX", 3)
    table = LeaseTable(Hand())
    for task_id in range(5):
        end_one(table, str(task_id))
    assert known(table) == ["2", "3", "4"]


def test_one_that_is_over_is_known_for_a_while() -> None:
    clock = Hand()
    table = LeaseTable(clock)
    end_one(table, "0")
    clock.now_s = 1.0
    end_one(table, "1")
    clock.now_s = KNOWN_MS / 1000
    assert table.due(10) == DueLeases()
    assert known(table) == ["1"]


def test_a_task_whose_lease_is_over_has_the_next_one() -> None:
    table = LeaseTable(Hand())
    end_one(table, "0")
    lease = WorkerLease(task_id="0", agent="a", token="0.new", worker="w", replays=False, delivery=2, since=1)
    table.change(WorkerLeaseChange(lease, granted_ms=1000), asks=False)
    held = table.get("0")
    assert held is not None
    assert held.runs
    assert held.lease == lease
