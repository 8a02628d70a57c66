"""Servers as processes of their own, on a store file, that a test can end in every way there is."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from dragoman.store.sqlite.schema import check
from tests.durability.caller import Caller
from tests.processes import ENDS_WITH_US

HERE = Path(__file__).parent
DRAGOMAN = Path(sys.executable).parent / "dragoman"
DEADLINE_S = 60.0


class Server:
    """One process. `error` is where it writes its log."""

    def __init__(self, process: asyncio.subprocess.Process, error: Path) -> None:
        self.process = process
        self.error = error
        self.url = ""

    @property
    def pid(self) -> int:
        """The URL of the server itself: nothing stands between."""
        return self.process.pid

    async def listening(self) -> None:
        """Wait for the line that says where it listens."""
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := await self.process.stdout.readline():
                if found := re.search(rb"listens on (http://\S+)/ ", line):
                    self.url = found[1].decode()
                    return
        raise AssertionError(f"the server ended with {await self.ended()}: {self.said()}")

    async def killed(self) -> None:
        """SIGKILL: no time for anything."""
        self.kill()
        await self.ended()

    def kill(self) -> None:
        """The same, without waiting for its end."""
        if self.process.returncode is None:
            self.process.kill()

    def signalled(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has one."""
        async with asyncio.timeout(DEADLINE_S):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode

    def said(self) -> str:
        """Its log so far."""
        return self.error.read_text(errors="replace")

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
        error = tmp_path / f"server-{len(servers)}.log"
        command = [
            *ENDS_WITH_US,
            *prefix,
            str(DRAGOMAN),
            "serve",
            str(HERE / "agents.py"),
            "--store",
            f"sqlite:///{store}",
        ]
        with error.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, "--port", str(port), *flags, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        server = Server(process, error)
        servers.append(server)
        if wait:
            await server.listening()
        return server

    try:
        yield start
    finally:
        for server in servers:  # each, also if one of them does not end
            server.kill()
    for server in servers:
        await server.ended()
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
