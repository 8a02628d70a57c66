"""The figures of a replica and its cluster, for probes and scrapes.

Invariant: no figure keeps a probe or a scrape waiting for more than `READ_S`.
"""

import asyncio

from dragoman.bus.api import Bus
from dragoman.engine.engine import Engine
from dragoman.store.api import Store, StoreError
from dragoman.store.replicas import Replica
from dragoman.telemetry.figures import BusStatus, ClusterFigures, ReplicaFigures

READ_S = 1.0
"""How long reading the replicas may take. After that, those read last are shown."""

FRESH_S = 1.0
"""The replicas are read at most once in this time."""


class ClusterWatch:
    """The figures of the replica of `engine` and of its cluster. A beat is believed for `lease_s`."""

    def __init__(self, engine: Engine, store: Store, bus: Bus, *, bus_name: str, lease_s: float) -> None:
        self._engine = engine
        self._store = store
        self._bus = bus
        self._bus_name = bus_name
        self._lease_s = lease_s
        self._replicas: tuple[Replica, ...] | None = None
        self._read_s = -FRESH_S
        self._reading = asyncio.Lock()

    async def figures(self) -> ClusterFigures | None:
        """The figures as they stand; None for a server that is alone. The replicas may be those of the last reading."""
        if not self._store.replicas.shared:
            return None
        await self._read()
        figures = self._bus.figures
        return ClusterFigures(
            id=self._engine.replica_id,
            heartbeat_age_s=_rounded(self._store.replicas.beat_age_s),
            taken_over=self._engine.taken_over,
            bus=BusStatus(
                name=self._bus_name,
                healthy=self._bus.healthy,
                others=self._bus.others,
                lag_s=figures.lag_s,
                published=figures.published,
                received=figures.received,
                refused=figures.refused,
                dropped=figures.dropped,
            ),
            replicas=None if self._replicas is None else tuple(map(self._show, self._replicas)),
        )

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._reading:
            if loop.time() - self._read_s < FRESH_S:
                return
            try:
                async with asyncio.timeout(READ_S):
                    self._replicas = await self._store.replicas.all()
            except (StoreError, TimeoutError):
                pass  # `/ready` says so itself; the age of the heartbeats shows how old these are
            self._read_s = loop.time()

    def _show(self, replica: Replica) -> ReplicaFigures:
        age_s = None
        if replica.beats_until_ms is not None:
            left_s = (replica.beats_until_ms - self._store.clock.now_ms()) / 1000
            age_s = _rounded(max(0.0, self._lease_s - left_s))
        return ReplicaFigures(replica.id, replica.address, replica.agents, age_s)


def _rounded(age_s: float | None) -> float | None:
    return None if age_s is None else round(age_s, 3)
