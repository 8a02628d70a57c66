"""The whole that a drill harms: a PostgreSQL, a NATS, and replicas behind proxies of their own.

Invariant: everything ends with the test. The damage of a fault is healed before the next one begins.
"""

import asyncio
import errno
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import asyncpg

from tests.drills.checker import Kept
from tests.drills.clients import Clients
from tests.drills.cluster import ReplicaProcess
from tests.drills.drill import ALLOWED, SLEEPY, read_beside
from tests.drills.proxy import Proxy, before
from tests.durability.conftest import DEADLINE_S
from tests.nats import NatsServer
from tests.postgres import PostgresServer
from tests.soak import times

LEASE_S = 3.0
BEAT_S = 1.0
GRACE_S = 4.0
WORK = times(8, 50)
"""So many tasks are made while a fault lasts, or after it."""

DISK = "600m"
"""The size of PostgreSQL's file system: most of it is its log."""

SETTINGS = {"max_connections": "60", "min_wal_size": "32MB", "max_wal_size": "64MB"}
"""So few connections that a drill can take all of them, and so small a log that the disk has room for it."""

FLAGS = (
    *("--replica-lease-s", f"{LEASE_S:g}", "--replica-beat-s", f"{BEAT_S:g}", "--shutdown-grace-s", f"{GRACE_S:g}"),
    *SLEEPY,
    *ALLOWED,
)


class House:
    """Everything of a drill. `long_s` is how long a fault lasts that is to be longer than a lease.

    `disk` is where the files of PostgreSQL are, if that is a file system of its own. Servers that take its place are
    closed with `stack`.
    """

    def __init__(
        self,
        postgres: PostgresServer,
        nats: NatsServer,
        replicas: Sequence[ReplicaProcess],
        chance: random.Random,
        stack: AsyncExitStack,
        disk: Path | None = None,
    ) -> None:
        self._stack = stack
        self.postgres = postgres
        self.disk = disk
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

    async def read(self) -> dict[str, Kept]:
        """The contents of the store, on the server that is in use now."""
        return await read_beside(self.postgres.url())

    async def whole(self) -> None:
        """Wait until every replica is ready and sees all of them alive: whoever was cut off has come back."""
        async with aiohttp.ClientSession() as http, asyncio.timeout(DEADLINE_S):
            for replica in self.replicas:
                while await _alive(http, replica) != len(self.replicas):
                    await asyncio.sleep(0.1)

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

    async def fail_over(self, clients: Clients) -> None:
        """The server dies, and a standby that each commit has waited for takes its place, at the same address."""
        for _ in range(self.rounds):
            primary, standby = self.postgres, PostgresServer(SETTINGS, follows=self.postgres)
            await asyncio.to_thread(self._stack.enter_context, standby)
            await asyncio.to_thread(primary.wait_for_standby)
            await self._work(clients)
            await asyncio.to_thread(primary.stop, signal.SIGKILL)
            await asyncio.to_thread(standby.promote)
            self.postgres = standby
            for proxy in self._to_store():
                proxy.lead_to(standby.port)
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

    async def fill_disk(self, clients: Clients) -> None:
        """PostgreSQL has not one byte left, and may end of it. Then there is room again."""
        if self.disk is None:
            return
        filler = self.disk / "filler"
        await asyncio.to_thread(fill, filler)
        await asyncio.sleep(LEASE_S)  # the fault itself
        filler.unlink()
        if not self.postgres.running:
            await asyncio.to_thread(self.postgres.stop)
            await asyncio.to_thread(self.postgres.start)
        await self._work(clients)

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
    "fill_disk",
    "fail_over",
)


@asynccontextmanager
async def built(folder: Path, chance: random.Random, replicas: int = 3) -> AsyncIterator[House]:
    """A house with that many replicas, all of them listening."""
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk())
        postgres = stack.enter_context(PostgresServer(SETTINGS, within=disk))
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
        yield House(postgres, nats, made, chance, stack, disk)


@contextmanager
def small_disk() -> Iterator[Path | None]:
    """A file system of its own, in memory, whose files any user may reach; None where this user may not mount one."""
    at = Path(tempfile.mkdtemp(prefix="dragoman-disk-"))
    at.chmod(0o755)  # PostgreSQL runs as another user if the tests run as root
    mounted = (
        shutil.which("mount") is not None
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0777", "tmpfs", at], capture_output=True, check=False
        ).returncode
    )
    try:
        yield at if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", at], check=True)
        at.rmdir()


def fill(file: Path) -> None:
    """Write to a file until its disk has no byte left."""
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    filler.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


async def _alive(http: aiohttp.ClientSession, replica: ReplicaProcess) -> int:
    """How many replicas are alive, as one that is ready itself sees it; 0 if it is not ready or not alive."""
    async with http.get(f"{replica.url}/ready") as answer:
        cluster = (await answer.json())["cluster"]
    alive = {each["id"] for each in cluster["replicas"] or ()}
    return len(alive) if answer.status == 200 and cluster["id"] in alive else 0


async def _end(replica: ReplicaProcess) -> None:
    if replica.process is not None:
        await replica.kill()
