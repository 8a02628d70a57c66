"""Replicas: the processes that lease tasks of one store, and which of them are alive.

Invariant: a replica that was dead once stays dead. Its process goes on under another id, so that no lease comes back.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from dragoman.model.ids import Clock


class Replica(Struct, frozen=True, kw_only=True):
    """A replica that is alive. `agents` are the ids of those it serves, in order.

    `address` is where other replicas' operators reach it, empty if that is unknown. `beats_until_ms` is until when it
    counts as alive unless it beats again; None if it lives as long as its process. One that is `silent` has not beaten
    for half of its lease.
    """

    id: str
    address: str
    agents: tuple[str, ...]
    started_ms: int
    beats_until_ms: int | None = None
    silent: bool = False


class Heartbeat(Struct, frozen=True):
    """How replicas of a shared store stay alive: one beat every `beat_s`, each good for `lease_s`."""

    lease_s: float = 20.0
    beat_s: float = 5.0

    def __post_init__(self) -> None:
        """Raises ValueError for a lease that two late beats could end."""
        if self.beat_s * 3 > self.lease_s:
            raise ValueError(f"a beat of {self.beat_s:g} s is more than a third of the lease of {self.lease_s:g} s")


class ReplicaFenced(Struct, frozen=True):
    """A replica that joined here cannot prove any more that it is alive.

    Its beats failed for so long that others may take it for dead soon, or one was refused.
    """

    replica_id: str


class ReplicaBuried(Struct, frozen=True):
    """The store answers again after `ReplicaFenced`, and the replica is dead: its process may join under another id.

    Between the two the replica has not joined any more.
    """

    replica_id: str


class StoreRewound(Struct, frozen=True):
    """The store may go on from an earlier moment than this process has seen: events that were read may be gone.

    That happens if a standby takes over that had not received everything.
    """


ReplicaEvent = ReplicaFenced | ReplicaBuried | StoreRewound


class Replicas(Protocol):
    """The replicas that lease tasks of a store. An id is the `holder` of the leases."""

    shared: bool
    """Whether other processes may write to the store."""

    @property
    def history(self) -> str:
        """The name of the store's history, which is the same in all processes; empty if nothing else can come.

        It changes before anything is read from another history, and `StoreRewound` follows. A log that was read under
        another name may be no prefix of what the store has now.
        """
        ...

    @property
    def beat_age_s(self) -> float | None:
        """How long ago the last heartbeat was that the store has answered; None if there are no heartbeats."""
        ...

    async def join(self, replica_id: str, *, address: str, agents: Collection[str]) -> None:
        """Let a replica lease tasks from now on. Its id is one that nobody else has, or ever had.

        Joining again while it is alive changes its address and agents. Raises StoreError if it cannot be written, or
        if the replica is dead.
        """
        ...

    async def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """Change the agents that a replica serves. Does nothing for one that is dead."""
        ...

    async def leave(self, replica_id: str) -> None:
        """Declare a replica dead: others may claim what it has leased. It may not join again."""
        ...

    async def alive(self, replica_id: str) -> bool:
        """Whether a replica is alive. Nobody claims its tasks then."""
        ...

    async def all(self) -> tuple[Replica, ...]:
        """The replicas that are alive, in the order of their start."""
        ...

    async def served_of_late(self, within_s: float) -> frozenset[str]:
        """The agents that somebody alive serves, or that somebody served less than `within_s` ago, or a lease more."""
        ...

    async def next_event(self) -> ReplicaEvent:
        """Wait for the next event that concerns the replicas that joined here, in order, each once. For one reader."""
        ...


class LocalReplicas:
    """The replicas of a store that only one process has open. They live until they leave, and nobody is ever fenced."""

    shared = False
    history = ""
    beat_age_s = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alive: dict[str, Replica] = {}

    async def join(self, replica_id: str, *, address: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        before = self._alive.get(replica_id)
        started_ms = self._clock.now_ms() if before is None else before.started_ms
        self._alive[replica_id] = Replica(
            id=replica_id, address=address, agents=tuple(sorted(agents)), started_ms=started_ms
        )

    async def serve(self, replica_id: str, agents: Collection[str]) -> None:
        """As the protocol says."""
        if (known := self._alive.get(replica_id)) is not None:
            await self.join(replica_id, address=known.address, agents=agents)

    async def leave(self, replica_id: str) -> None:
        """As the protocol says."""
        self._alive.pop(replica_id, None)

    async def alive(self, replica_id: str) -> bool:
        """As the protocol says."""
        return replica_id in self._alive

    async def all(self) -> tuple[Replica, ...]:
        """As the protocol says."""
        return tuple(self._alive.values())

    async def served_of_late(self, within_s: float) -> frozenset[str]:
        """Those that are served now: no other comes back without this process."""
        return frozenset(agent for replica in self._alive.values() for agent in replica.agents)

    async def next_event(self) -> ReplicaEvent:
        """Wait for ever: the lock of the file is the lease of this process, and an open file does not go back."""
        never: asyncio.Future[ReplicaEvent] = asyncio.get_running_loop().create_future()
        return await never

    def end(self) -> None:
        """The store closes: everybody is dead."""
        self._alive.clear()

    def living(self) -> tuple[str, ...]:
        """The ids of those alive."""
        return tuple(self._alive)

    def served(self) -> tuple[str, ...]:
        """The agents that those alive serve."""
        return tuple(sorted({agent for replica in self._alive.values() for agent in replica.agents}))
