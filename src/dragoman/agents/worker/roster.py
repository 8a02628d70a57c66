"""Roster: the workers of an agent by name, the last word of each, and the leases that they have.

Invariant: ages are in seconds at the moment when an entry is made, so that entries of other replicas can be compared.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

WORKERS_MAX = 1000
"""The most workers of an agent that are known by name."""

KNOWN_S = 600.0
"""Seconds after its last word during which a worker is remembered."""

WorkerWord = Literal["poll", "heartbeat", "report"]
"""The kind of a call: for work, to renew a lease, or about a task."""


class RosterEntry(Struct, frozen=True, array_like=True):
    """A worker. Its last word was `age_s` seconds ago; None if it has not called where this was made.

    `waits`: it waits for work. `leases` are its tasks, each with the seconds that its lease lasts without another word.
    """

    worker: str
    word: WorkerWord | None
    age_s: float | None
    waits: bool
    leases: tuple[tuple[str, float], ...] = ()


class Roster:
    """The workers that have called this process, with the times of the loop's clock. `lately_s` is how long one counts
    as connected.
    """

    def __init__(self, lately_s: float) -> None:
        self._lately_s = lately_s
        self._calls: dict[str, tuple[float, WorkerWord]] = {}

    def note(self, worker: str, word: WorkerWord, now_s: float) -> None:
        """A worker has called. A new name is not remembered when there are too many."""
        if worker not in self._calls and len(self._calls) >= WORKERS_MAX:
            self.forget(now_s, self._lately_s)
            if len(self._calls) >= WORKERS_MAX:
                return
        self._calls[worker] = now_s, word

    def lately(self, now_s: float) -> set[str]:
        """The workers that count as connected."""
        return {worker for worker, (at_s, _) in self._calls.items() if now_s - at_s <= self._lately_s}

    def forget(self, now_s: float, known_s: float = KNOWN_S) -> None:
        """Forget workers that have been silent for longer than `known_s`."""
        self._calls = {worker: call for worker, call in self._calls.items() if now_s - call[0] <= known_s}

    def entries(
        self, waiting: Collection[str], leases: Mapping[str, Sequence[tuple[str, float]]], now_s: float
    ) -> tuple[RosterEntry, ...]:
        """An entry for each worker that is known, that waits, or that has leases."""
        self.forget(now_s)
        return tuple(
            RosterEntry(
                worker,
                self._calls[worker][1] if worker in self._calls else None,
                max(0.0, now_s - self._calls[worker][0]) if worker in self._calls else None,
                worker in waiting,
                tuple(leases.get(worker, ())),
            )
            for worker in sorted({*self._calls, *waiting, *leases})
        )


def merge_rosters(rosters: Iterable[Sequence[RosterEntry]]) -> tuple[RosterEntry, ...]:
    """One entry for each worker of several replicas: its newest word, and all its leases."""
    merged: dict[str, RosterEntry] = {}
    for entry in (entry for roster in rosters for entry in roster):
        known = merged.get(entry.worker)
        if known is None:
            merged[entry.worker] = entry
            continue
        newest = min(known, entry, key=lambda each: float("inf") if each.age_s is None else each.age_s)
        left = dict(known.leases)
        for task_id, left_s in entry.leases:
            left[task_id] = max(left_s, left.get(task_id, left_s))
        leases = tuple(sorted(left.items()))
        merged[entry.worker] = RosterEntry(entry.worker, newest.word, newest.age_s, known.waits or entry.waits, leases)
    return tuple(merged[worker] for worker in sorted(merged))
