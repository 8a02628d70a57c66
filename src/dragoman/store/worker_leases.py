"""The leases of workers: rows beside the tasks, which say which worker has a task, how long, and what it has told.

Invariant: a lease that has run out never counts again, whoever asks: it is not renewed, and no append is made under it.
The store's own clock decides.

A task that a worker has is leased in its own row to `WORKER`, under an epoch as any other. The lease here says who that
is. It outlives the worker's questions, during which nobody has the task: the append that answers one gives the next
epoch to the same worker, if its lease has not run out (`Append.to_worker`).

```
                  Append.lease, granted                        Append.lease, over: given back, or taken away
    no lease ───────────────────────────────► runs ──────────────────────────────────────────────► over
                                              │  ▲                                                   ▲
                                              │  └── renewed, or noted                               │
                                              └── its time is over ──► run out ── Append.lease, over ┘
```

An append that ends a task ends the lease, too. A lease that is over is known for `KNOWN_MS` more, so that
a worker can be told what became of its task; in memory the newest `OVER_MAX` are.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from copy import copy
from enum import Enum, auto
from math import inf
from typing import Literal, Protocol

from msgspec import Struct

from dragoman.model.task import Usage

WORKER = "worker"
"""The holder, in a task's row, of a task that a worker has. No replica has this id."""

KNOWN_MS = 600_000
"""How long a lease is known after it was over."""

OVER_MAX = 50_000
"""Most leases that are known after they were over, where they are kept in memory: some 40 MB. They are the newest."""


class WorkerLease(Struct, frozen=True, kw_only=True):
    """The lease of a worker on a task.

    It is the `delivery`th lease of that task, and began when the log had `since` events. The caller had sent
    `base` messages by then, beside the first one, that earlier workers have dealt with. The worker has told `reports`
    and `steps`, and put `questions` and `delegations`, each by the number of the newest; it has used `used` tokens. It
    `replays` if it repeats the questions of earlier workers. `deadline_s` is how long it may work at a stretch.
    `version` grows with each change, but for those of `reports` alone. `ended` is what the worker has ended: the task,
    or the lease alone, which it gave back or let run out. None if the lease goes on, or somebody else has ended the
    task.
    """

    task_id: str
    agent: str
    token: str
    worker: str
    replays: bool
    delivery: int
    since: int
    base: int = 0
    reports: int = 0
    questions: int = 0
    delegations: int = 0
    used: Usage | None = None
    deadline_s: float | None = None
    version: int = 0
    ended: Literal["task", "lease"] | None = None
    steps: int = 0


class HeldLease(Struct, frozen=True):
    """A lease as the store has it, which runs for `left_ms` more; 0 or less once it has run out or is `over`."""

    lease: WorkerLease
    left_ms: int
    over: bool = False

    @property
    def runs(self) -> bool:
        """Whether the worker still has the task, or waits for an answer to its question."""
        return not self.over and self.left_ms > 0


class WorkerLeaseChange(Struct, frozen=True):
    """The change of a worker's lease that goes with an append: it becomes `lease`.

    It is granted for `granted_ms`, if nobody has one that runs. Else the append is made under it: it is refused with
    Fenced unless the lease with this token runs, and with Moved unless `lease.version` is the next one. With `over` the
    lease ends. With `silent` it ends because it has run out: the append is refused with Moved unless that is so.

    With `number` the append is a single word, which depends on nothing else that was told since: its number, or 0 if it
    has none. Of the lease only `reports` changes. The append is refused with Moved unless `lease.version` is the
    present one, the number is greater than `reports`, which is at least `confirmed`, the log has come as far as
    `Append.read_seq`, and no status of the task is later than one that is written.
    """

    lease: WorkerLease
    granted_ms: int | None = None
    over: bool = False
    silent: bool = False
    number: int | None = None
    confirmed: int = 0

    @property
    def is_word(self) -> bool:
        """Whether the append is made under the lease."""
        return self.granted_ms is None and not self.silent


class LeaseFault(Enum):
    """The way in which a worker's lease is not what an append needs (`WorkerLeaseChange`)."""

    OVER = auto()  # the append is made under a lease that does not run
    CHANGED = auto()  # the lease runs that should not, or another replica has told a word since


class DueLeases(Struct, frozen=True):
    """Leases to see to: `silent` ones have run out and are not over; the workers of `late` ones, which run, have worked
    for longer than their deadline, without the time in which a task waits for its caller.
    """

    silent: tuple[WorkerLease, ...] = ()
    late: tuple[WorkerLease, ...] = ()


class WorkerLeases(Protocol):
    """The leases of workers, by task. Every method raises StoreError if the store cannot do it now.

    They are granted, changed and ended by appends to their tasks: see `WorkerLeaseChange`. A store in memory keeps
    them in memory, until its process ends.
    """

    async def get(self, task_id: str) -> HeldLease | None:
        """The newest lease of a task, while it is known; None if it has none."""
        ...

    async def renew(self, tokens: Collection[tuple[str, str]], ttl_ms: int) -> Mapping[str, WorkerLease]:
        """Let leases, each by task and token, run for `ttl_ms` from now on. Returns those that ran, by token.

        Nothing of the tasks is written.
        """
        ...

    async def note(self, lease: WorkerLease) -> bool:
        """Change a lease that runs, without an append. Returns False unless `lease.version` is the next one."""
        ...

    async def of_agent(self, agent: str) -> tuple[HeldLease, ...]:
        """The leases of an agent's tasks that run."""
        ...

    async def running(self, tokens: Collection[tuple[str, str]]) -> frozenset[str]:
        """The tokens of those leases that run, of some by task and token."""
        ...

    async def due(self, limit: int) -> DueLeases:
        """Leases to see to: at most `limit` of each kind. It is one look at the store.

        Forgets, now and then, those that are not known any more.
        """
        ...


class LeaseRow:
    """A lease in memory, with the times at which it runs out and its deadline passes."""

    __slots__ = ("due_s", "lease", "over", "until_s", "write")

    def __init__(self, lease: WorkerLease, until_s: float) -> None:
        self.lease = lease
        self.until_s = until_s
        self.due_s: float | None = None
        self.over = False
        self.write: int | None = None
        """The id of the append that changed it last."""

    def renew(self, until_s: float) -> None:
        """Let it run until then."""
        self.until_s = until_s

    def change(self, lease: WorkerLease, write: int | None = None) -> None:
        """It has become `lease`, by that append."""
        self.lease, self.write = lease, write

    def count(self, now_s: float) -> None:
        """Count the worker's time from now on."""
        self.due_s = None if self.lease.deadline_s is None else now_s + self.lease.deadline_s

    def pause(self) -> None:
        """Count the worker's time no more: its task waits for the caller."""
        self.due_s = None

    def end(self, known_s: float) -> None:
        """It is over now, and known until then."""
        self.over, self.due_s, self.until_s = True, None, known_s


class LeaseTable:
    """The leases of a store that keeps them in memory. `now_s` is a clock that never goes back.

    Its methods are those of `WorkerLeases`, without a wait, and the part of the guard that concerns leases.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.rows: dict[str, LeaseRow] = {}
        """Those that are not over."""
        self._over: OrderedDict[str, LeaseRow] = OrderedDict()
        """Those that are, the longest first. Nothing goes through them all."""
        self._now_s = now_s
        self._next_s = 0.0
        """Before this time no lease runs out."""
        self._next_due_s = inf
        """Before this time no deadline passes. To go through a hundred thousand leases takes 5 ms."""

    def clear(self) -> None:
        """Forget all leases."""
        self.rows.clear()
        self._over.clear()

    def copy(self) -> "LeaseTable":
        """A table with the same rows, which change on their own."""
        other = LeaseTable(self._now_s)
        other.rows = {task_id: copy(row) for task_id, row in self.rows.items()}
        other._over = OrderedDict(self._over)  # they change no more
        other._next_due_s = self._next_due_s
        return other

    def get(self, task_id: str) -> HeldLease | None:
        """See `WorkerLeases`."""
        row = self._known(task_id)
        return None if row is None else self._held(row)

    def _known(self, task_id: str) -> LeaseRow | None:
        return self.rows.get(task_id) or self._over.get(task_id)

    def runs(self, task_id: str) -> bool:
        """Whether a task has a lease that runs."""
        row = self.rows.get(task_id)
        return row is not None and row.until_s > self._now_s()

    def fault(self, change: WorkerLeaseChange) -> LeaseFault | None:
        """The reason why an append with that change may not be made; None if it may."""
        lease = change.lease
        row = self.rows.get(lease.task_id)
        runs = row is not None and row.until_s > self._now_s()
        if change.granted_ms is not None:
            return LeaseFault.CHANGED if runs else None
        if row is None or row.lease.token != lease.token:
            return LeaseFault.CHANGED if change.silent else LeaseFault.OVER
        if change.silent:
            return LeaseFault.CHANGED if runs else None
        if not runs:
            return LeaseFault.OVER
        return LeaseFault.CHANGED if _differs(row.lease, change) else None

    def made(self, task_id: str, write: int | None) -> bool:
        """Whether the append with that id has made its change already, so that it is repeated now."""
        row = self._known(task_id)
        return row is not None and write is not None and row.write == write

    def change(self, change: WorkerLeaseChange, *, asks: bool, write: int | None = None) -> None:
        """Make the change of an append that is committed. If it `asks`, the worker's time is not counted."""
        if self.made(change.lease.task_id, write):
            return
        lease, now_s = change.lease, self._now_s()
        row = self._known(lease.task_id)
        if change.granted_ms is not None:
            self._over.pop(lease.task_id, None)
            row = self.rows[lease.task_id] = LeaseRow(lease, now_s + change.granted_ms / 1000)
            self._count(row)
            self._next_s = min(self._next_s, row.until_s)
        assert row is not None
        row.change(row.lease if change.number == 0 else lease, write)
        if asks:
            row.pause()
        if change.over or change.silent:
            self.end(lease.task_id)

    def pause(self, task_id: str) -> None:
        """Count the time of a worker no more, because somebody else asks the caller of its task."""
        if (row := self.rows.get(task_id)) is not None:
            row.pause()

    def resume(self, task_id: str) -> None:
        """Count the time of a worker anew, because its question was answered."""
        if (row := self.rows.get(task_id)) is not None:
            self._count(row)

    def _count(self, row: LeaseRow) -> None:
        row.count(self._now_s())
        if row.due_s is not None:
            self._next_due_s = min(self._next_due_s, row.due_s)

    def renew(self, tokens: Collection[tuple[str, str]], ttl_ms: int) -> Mapping[str, WorkerLease]:
        """See `WorkerLeases`."""
        renewed: dict[str, WorkerLease] = {}
        for task_id, token in tokens:
            row = self.rows.get(task_id)
            if row is not None and row.lease.token == token and self.runs(task_id):
                row.renew(self._now_s() + ttl_ms / 1000)
                self._next_s = min(self._next_s, row.until_s)
                renewed[token] = row.lease
        return renewed

    def note(self, lease: WorkerLease) -> bool:
        """See `WorkerLeases`."""
        if self.fault(WorkerLeaseChange(lease)) is not None:
            return False
        row = self.rows[lease.task_id]
        row.change(lease, row.write)
        return True

    def of_agent(self, agent: str) -> tuple[HeldLease, ...]:
        """See `WorkerLeases`."""
        rows = [row for task_id, row in self.rows.items() if row.lease.agent == agent and self.runs(task_id)]
        return tuple(map(self._held, rows))

    def running(self, tokens: Collection[tuple[str, str]]) -> frozenset[str]:
        """See `WorkerLeases`."""
        return frozenset(
            token for task_id, token in tokens if self.runs(task_id) and self.rows[task_id].lease.token == token
        )

    def due(self, limit: int) -> DueLeases:
        """See `WorkerLeases`."""
        now_s = self._now_s()
        return DueLeases(self._silent(now_s)[:limit], self._late(now_s)[:limit])

    def _silent(self, now_s: float) -> tuple[WorkerLease, ...]:
        while self._over and next(iter(self._over.values())).until_s <= now_s:
            self._over.popitem(last=False)
        if now_s < self._next_s:
            return ()
        found = tuple(row.lease for row in self.rows.values() if row.until_s <= now_s)
        self._next_s = now_s if found else min((row.until_s for row in self.rows.values()), default=now_s)
        return found

    def _late(self, now_s: float) -> tuple[WorkerLease, ...]:
        if now_s < self._next_due_s:
            return ()
        due = [(row.due_s, row.lease) for row in self.rows.values() if row.due_s is not None]
        self._next_due_s = min((due_s for due_s, _ in due), default=inf)
        return tuple(lease for due_s, lease in due if due_s <= now_s and self.runs(lease.task_id))

    def end(self, task_id: str) -> None:
        """End the lease of a task that has ended."""
        row = self.rows.pop(task_id, None)
        if row is not None:
            row.end(self._now_s() + KNOWN_MS / 1000)
            self._over[task_id] = row
            if len(self._over) > OVER_MAX:
                self._over.popitem(last=False)

    def _held(self, row: LeaseRow) -> HeldLease:
        left_ms = 0 if row.over else max(0, round((row.until_s - self._now_s()) * 1000))
        return HeldLease(row.lease, left_ms, row.over)


def _differs(known: WorkerLease, change: WorkerLeaseChange) -> bool:
    """Whether a lease is not as the writer of a word thought."""
    lease, number = change.lease, change.number
    if number is not None:
        return known.version != lease.version or 0 < number <= known.reports or known.reports < change.confirmed
    return known.version + 1 != lease.version or known.reports > lease.reports
