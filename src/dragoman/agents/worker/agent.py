"""WorkerAgent: an agent whose work is done by worker processes, which lease its tasks and report on them.

Invariant: no run stands between a worker and its task's log: see `leases`.
"""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from dragoman.agents.worker.leases import LEASE_S, SEEN_S, Leases
from dragoman.engine.api import CheckResult, Run, Runner, Traits
from dragoman.model.card import Profile

NO_WORKER = "no worker has asked for work lately"


class WorkerAgent(Runner):
    """A card whose tasks are leased by workers.

    With `queues`, tasks are accepted while no worker is there; without, they are refused (`offline`).
    """

    def __init__(
        self, profile: Profile, *, queues: bool = False, lease_s: float = LEASE_S, seen_s: float = SEEN_S
    ) -> None:
        self.profile = profile
        self.traits = Traits(kind="worker", restartable=True, waits=True, by_workers=True)
        self.leases = Leases(profile.id, lease_s, seen_s)
        self._queues = queues

    @property
    def offline(self) -> bool:
        """Whether sends are refused, because no worker has been seen lately."""
        return not (self._queues or self.leases.presence.seen)

    @property
    def degraded(self) -> str | None:
        """Why tasks wait: no worker has been seen lately. Else None."""
        return None if self.leases.presence.seen else NO_WORKER

    @property
    def workers(self) -> Leases:
        """See `engine.api.Runner`."""
        return self.leases

    async def check(self) -> AsyncIterator[CheckResult]:
        """Say how to start a worker. Whether one works shows only where it runs, or on the server that it calls."""
        runs = "dragoman worker MODULE:OBJECT --server URL"
        yield CheckResult(True, f"worker processes do its tasks: {runs}, where the object has the id {self.profile.id}")
        if not self._queues:
            yield CheckResult(True, 'while none is there, sends are refused (offline = "queue" would keep them)')

    async def run(self, run: Run) -> None:
        """Raises RuntimeError: the engine starts no run of an agent `by_workers`."""
        raise RuntimeError(f"workers do the tasks of {self.profile.id}")

    def limit(self, deadline_s: float) -> None:
        """Stop the workers that begin from now on after `deadline_s`."""
        self.traits = replace(self.traits, deadline_s=deadline_s)
        self.leases.limit(self.leases.lease_s, deadline_s)

    def succeed(self, former: "WorkerAgent") -> None:
        """Replace an agent with the same id, and take over its workers."""
        former.leases.limit(self.leases.lease_s, self.leases.deadline_s)
        self.leases = former.leases
