"""The whole that a drill harms: a PostgreSQL, a NATS, and replicas behind proxies of their own.

Invariant: everything ends with the test. What a fault does is healed before the next one begins.
"""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg

from tests.drills.clients import Clients
from tests.drills.cluster import ReplicaProcess
from tests.drills.drill import ALLOWED
from tests.drills.proxy import Proxy, before
from tests.nats import NatsServer
from tests.postgres import PostgresServer

LEASE_S = 2.0
BEAT_S = 0.6
GRACE_S = 4.0
WORK = 8
"""So many tasks are made while a fault lasts, or after it."""

CONNECTIONS = "60"
"""So few that a drill can take all of them."""

FLAGS = (
    *("--replica-lease-s", f"{LEASE_S:g}", "--replica-beat-s", f"{BEAT_S:g}", "--shutdown-grace-s", f"{GRACE_S:g}"),
    *ALLOWED,
)


class House:
    """Everything of a drill. `long` says how long a fault lasts that is to be longer than a lease, in seconds."""

    def __init__(
        self, postgres: PostgresServer, nats: NatsServer, replicas: Sequence[ReplicaProcess], chance: random.Random
    ) -> None:
        self.postgres = postgres
        self.nats = nats
        self.replicas = replicas
        self.long_s = 2 * LEASE_S
        self.rounds = 1
        self._chance = chance

    @property
    def urls(self) -> list[str]:
        """Where the replicas are reached."""
        return [replica.url for replica in self.replicas]

    def _any(self) -> ReplicaProcess:
        return self._chance.choice(self.replicas)

    def _to_store(self) -> list[Proxy]:
        return [replica.to_store for replica in self.replicas if replica.to_store is not None]

    def _to_bus(self) -> list[Proxy]:
        return [replica.to_bus for replica in self.replicas if replica.to_bus is not None]

    async def _work(self, clients: Clients) -> None:
        """Let the clients make some tasks meanwhile."""
        await clients.made(clients.count + WORK)

    async def _while_it_lasts(self) -> None:
        await asyncio.sleep(self.long_s)  # the fault itself: nothing tells its end

    # -- the faults ----------------------------------------------------------------------------------------------------

    async def kill_replicas(self, clients: Clients) -> None:
        """SIGKILL at random moments, and a start after that."""
        for _ in range(2 * self.rounds):
            replica = self._any()
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))  # the random moment
            await replica.kill()
            await self._work(clients)
            await replica.start()

    async def stop_a_replica(self, clients: Clients) -> None:
        """SIGSTOP for longer than the lease, then SIGCONT: it wakes up fenced."""
        replica = self._any()
        replica.send(signal.SIGSTOP)
        await self._while_it_lasts()
        replica.send(signal.SIGCONT)
        await self._work(clients)

    async def restart_postgres(self, clients: Clients) -> None:
        """The server ends in its `immediate` way, and starts again."""
        for _ in range(self.rounds):
            await asyncio.to_thread(self.postgres.stop, signal.SIGQUIT)
            await asyncio.to_thread(self.postgres.start)
            await self._work(clients)

    async def take_all_connections(self, clients: Clients) -> None:
        """Everybody loses the connections, and gets no new one."""
        taken: list[asyncpg.Connection] = []
        try:
            for _ in range(3):
                try:
                    while True:
                        taken.append(await asyncpg.connect(self.postgres.url(), timeout=10))
                except (asyncpg.PostgresError, OSError, TimeoutError):
                    pass
                for proxy in self._to_store():
                    proxy.cut()
            await asyncio.sleep(LEASE_S / 3)
        finally:
            for connection in taken:
                connection.terminate()
        await self._work(clients)

    async def stall_postgres(self, clients: Clients) -> None:
        """The network between all replicas and the store passes nothing on, and closes nothing."""
        for proxy in self._to_store():
            proxy.stall()
        await self._while_it_lasts()
        for proxy in self._to_store():
            proxy.heal()
        await self._work(clients)

    async def restart_nats(self, clients: Clients) -> None:
        """The bus is killed, and comes back after a while."""
        for _ in range(self.rounds):
            await asyncio.to_thread(self.nats.stop)
            await self._work(clients)
            await asyncio.to_thread(self.nats.start)
            await self._work(clients)

    async def slow_nats(self, clients: Clients) -> None:
        """Hints come late."""
        for proxy in self._to_bus():
            proxy.delay_s = 0.5
        await self._work(clients)
        for proxy in self._to_bus():
            proxy.heal()

    async def partition_a_replica(self, clients: Clients) -> None:
        """One replica reaches neither store nor bus, for longer than its lease."""
        replica = self._any()
        proxies = [proxy for proxy in (replica.to_store, replica.to_bus) if proxy is not None]
        for proxy in proxies:
            proxy.stall()
        await self._while_it_lasts()
        for proxy in proxies:
            proxy.cut()
            proxy.heal()
        await self._work(clients)

    async def restart_in_turn(self, clients: Clients) -> None:
        """A rolling restart: each in turn ends in its own time."""
        for replica in self.replicas:
            replica.send(signal.SIGTERM)
            assert await replica.ended() == 0
            await replica.start()

    async def cut_commits(self, clients: Clients) -> None:
        """Connections break after the store has got a request, and before it answers."""
        for proxy in self._to_store():
            proxy.cut_requests(0.02, self._chance)
        for _ in range(self.rounds):
            await self._work(clients)
        for proxy in self._to_store():
            proxy.heal()
        assert sum(proxy.cuts for proxy in self._to_store()) > 0
        await self._work(clients)


FAULTS = (
    "kill_replicas",
    "stop_a_replica",
    "restart_postgres",
    "take_all_connections",
    "stall_postgres",
    "restart_nats",
    "slow_nats",
    "partition_a_replica",
    "restart_in_turn",
    "cut_commits",
)


@asynccontextmanager
async def built(folder: Path, chance: random.Random, replicas: int = 3) -> AsyncIterator[House]:
    """A house with that many replicas, all of them listening."""
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(PostgresServer({"max_connections": CONNECTIONS}))
        nats = stack.enter_context(NatsServer())
        made: list[ReplicaProcess] = []
        for number in range(replicas):
            to_store = await stack.enter_async_context(before("127.0.0.1", postgres.port))
            to_bus = await stack.enter_async_context(before("127.0.0.1", nats.port))
            store = postgres.url().replace(f":{postgres.port}/", f":{to_store.port}/")
            flags = (*FLAGS, "--store", f"{store}?timeout_s=3", "--bus", f"nats://127.0.0.1:{to_bus.port}")
            replica = ReplicaProcess(f"r{number + 1}", flags, folder, to_store, to_bus)
            stack.push_async_callback(_end, replica)
            made.append(replica)
        await asyncio.gather(*(replica.start() for replica in made))
        yield House(postgres, nats, made, chance)


async def _end(replica: ReplicaProcess) -> None:
    if replica.process is not None:
        await replica.kill()
