"""Servers as processes of their own, on a store file, that a test can end in every way there is."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from dragoman.store.sqlite.schema import check
from tests.durability.caller import Caller
from tests.kit.processes import ServerProcess
from tests.kit.waiting import DEADLINE_S

HERE = Path(__file__).parent


class Server(ServerProcess):
    """One process; nothing stands between its caller and it."""

    def rss_bytes(self) -> int:
        """The memory it holds now."""
        (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return int(kilobytes) * 1024


Serve = Callable[..., Awaitable[Server]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where the store file of this test is."""
    return tmp_path / "store" / "tasks.db"


@pytest.fixture
async def serve(tmp_path: Path, store: Path) -> AsyncIterator[Serve]:
    """Start a server on `store`; with `wait` False it need not come to listen. All are ended with the test."""
    servers: list[Server] = []

    async def start(*flags: str, prefix: tuple[str, ...] = (), wait: bool = True, port: int = 0) -> Server:
        place = ("--store", f"sqlite:///{store}", "--port", str(port))
        server = Server(tmp_path, str(HERE / "agents.py"), *place, *flags, log=f"server-{len(servers)}.log")
        servers.append(server)
        await server.start(prefix=prefix, wait=wait)
        return server

    try:
        yield start
    finally:
        await asyncio.gather(*(server.kill() for server in servers))
    assert not store.is_file() or check(store) == []
    for server in servers:
        assert "Traceback" not in server.said()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Connections without a limit to their number; an answer that takes long is a failure."""
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        yield session


@pytest.fixture
def call(http: aiohttp.ClientSession) -> Callable[[Server], Caller]:
    """A caller of a server."""
    return lambda server: Caller(http, server.url)
