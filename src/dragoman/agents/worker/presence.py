"""Presence: the workers of one agent, as this process and other replicas see them, and those that wait for work.

Invariant: somebody who waits for work hears of each offer, or the offer is counted before the next wait begins.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from dragoman.agents.worker.attendance import Attendance
from dragoman.agents.worker.roster import WORKERS_MAX, Roster, RosterEntry, WorkerWord, merge_rosters
from dragoman.engine.served_agents import version_name
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.worker")

CODE_VERSIONS_MAX = 100
"""Most versions of an agent's code that are known; then the one that was seen longest ago is forgotten."""


class Presence:
    """The workers of the agent `agent`. One is seen for `seen_s` after its last call."""

    def __init__(self, agent: str, seen_s: float) -> None:
        self.closed = False
        """Whether no more work is given out, because the server is stopping."""
        self.offers = 0
        """How often there was said to be a task in the queue."""
        self._agent = agent
        self._seen_s = seen_s
        self._seen_at: float | None = None
        self._silent = False
        """Whether the log has said that no worker calls any more."""
        self._watching: asyncio.TimerHandle | None = None
        self._roster = Roster(seen_s)
        self._attendance: Attendance | None = None
        """The workers as other replicas know them; None if there is only one replica."""
        self._idle: dict[asyncio.Future[None], tuple[str, str]] = {}
        """The workers that wait for work, by name and by the version of their code."""
        self._code: dict[str, str] = {}
        """The version of its code that each worker named last."""
        self._code_seen_at: dict[str, float] = {}
        """When a worker with each version of the code was last seen."""
        self._patience_s = 0.0
        """How long a version counts as seen."""

    # -- who they are --------------------------------------------------------------------------------------------------

    @property
    def seen(self) -> bool:
        """Whether a worker waits for work, or has called lately, here or on another replica."""
        if self._idle or (self._seen_at is not None and _now() - self._seen_at <= self._seen_s):
            return True
        return self._attendance is not None and self._attendance.sees(self._agent)

    @property
    def connected(self) -> int:
        """How many workers, by the names that they give, wait for work here or have called lately."""
        return len({*self._roster.lately(_now()), *(worker for worker, _ in self._idle.values())})

    def roster(self) -> tuple[RosterEntry, ...]:
        """The workers as this process knows them, without their leases."""
        return self._roster.entries(frozenset(worker for worker, _ in self._idle.values()), {}, _now())

    async def rosters(self, leases: Mapping[str, Sequence[tuple[str, float]]]) -> tuple[RosterEntry, ...]:
        """The workers as all replicas know them, with their `leases`. Raises StoreError."""
        others = () if self._attendance is None else await self._attendance.rosters(self._agent)
        return merge_rosters((self.roster(), self._roster.entries((), leases, _now()), *others))

    def attend(self, attendance: Attendance) -> None:
        """Share with other replicas who the workers are."""
        self._attendance = attendance
        attendance.serve(self._agent, self)

    def saw(self, worker: str = "", word: WorkerWord = "poll") -> None:
        """Record that a worker has called, by its name if that is known."""
        self._seen_at = _now()
        if worker:
            self._roster.note(worker, word, self._seen_at)
            if self._code and (version := self._code.get(worker)):
                self._note_code(version)
        if self._attendance is not None:
            self._attendance.saw(self._agent, self._seen_s)
        if self._watching is None and not self.closed:
            self._watch()

    def saw_code(self, worker: str, version: str) -> None:
        """Record that a worker has asked for work, with this version of the agent's code; empty if it names none."""
        if version:
            if len(self._code) < WORKERS_MAX or worker in self._code:
                self._code[worker] = version
            self._note_code(version)
        elif self._code:
            self._code.pop(worker, None)
        self.saw(worker)

    def _note_code(self, version: str) -> None:
        self._code_seen_at.pop(version, None)
        self._code_seen_at[version] = _now()
        if len(self._code_seen_at) > CODE_VERSIONS_MAX:
            del self._code_seen_at[next(iter(self._code_seen_at))]
        if self._attendance is not None:
            every_s = self._seen_s / 3
            self._attendance.saw(version_name(self._agent, version), self._patience_s + every_s, every_s)

    def sees_code(self, version: str) -> bool:
        """Whether a worker with this version of the code was seen here or on another replica, not too long ago."""
        seen_at = self._code_seen_at.get(version)
        if seen_at is not None and _now() - seen_at <= self._patience_s:
            return True
        return self._attendance is not None and self._attendance.sees(version_name(self._agent, version))

    def _watch(self) -> None:
        """A worker is there: look from time to time whether one still is."""
        if self._silent:
            self._silent = False
            log.info("agent %s: a worker calls again", self._agent, extra=about(self._agent, agent=self._agent))
        self._watching = asyncio.get_running_loop().call_later(self._seen_s, self._look)

    def _look(self) -> None:
        """Log that no worker has called for long, unless one has, or one still waits for work."""
        self._watching = None
        if self.closed:
            return
        if self.seen:
            self._roster.forget(_now())
            self._forget_code()
            left_s = self._seen_s if self._seen_at is None else self._seen_at + self._seen_s - _now()
            self._watching = asyncio.get_running_loop().call_later(max(left_s, self._seen_s / 10), self._look)
            return
        self._silent = True
        log.warning(
            "agent %s: no worker has called for %g s: nobody does its tasks",
            self._agent,
            self._seen_s,
            extra=about(self._agent, agent=self._agent),
        )

    def _forget_code(self) -> None:
        """Forget the code of workers that are not known any more by name."""
        known = {entry.worker for entry in self.roster()}
        self._code = {worker: version for worker, version in self._code.items() if worker in known}

    # -- who waits for work --------------------------------------------------------------------------------------------

    @property
    def wants(self) -> int:
        """How many more tasks workers wait for here."""
        return len(self._idle)

    def open(self, patience_s: float) -> None:
        """Give out work from now on. A version of the agent's code counts as seen for `patience_s`."""
        self.closed, self._patience_s = False, patience_s

    def close(self) -> None:
        """Give out no more work: nobody waits for it any longer."""
        self.closed = True
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)

    def offer(self, began: str = "") -> None:
        """Let one of those that wait look for a task. One that `began` with a version of the code is not for all."""
        self.offers += 1
        for idle, (_, version) in self._idle.items():
            if not idle.done() and (not began or version in ("", began)):
                idle.set_result(None)
                return

    async def wait(self, worker: str, rest_s: float, version: str = "") -> None:
        """Wait until there is said to be a task for its `version` of the code, at most `rest_s`."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle[idle] = worker, version
        try:
            async with asyncio.timeout(rest_s):
                await idle
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._idle.pop(idle, None)
            if idle.done():
                self.offer()
            raise
        finally:
            self._idle.pop(idle, None)
            self.saw(worker)


def _now() -> float:
    return asyncio.get_running_loop().time()
