"""`dragoman serve` in a process of its own."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kit.waiting import DEADLINE_S, until
from tests.processes import ENDS_WITH_US

DRAGOMAN = Path(sys.executable).parent / "dragoman"


class ServerProcess:
    """A server in a folder, which can be killed and started again. All its lives write one log."""

    def __init__(self, folder: Path, *flags: str, log: str = "log") -> None:
        self.folder = folder
        self.log_file = folder / log
        self.url = ""
        self.process: Process | None = None
        self._flags = flags

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self.process is not None
        return self.process.pid

    async def start(self, *flags: str, prefix: Sequence[str] = (), wait: bool = True, **environ: str) -> None:
        """Start it, by the command `prefix` if there is one, and `wait` until it listens.

        `environ` is added to the environment.
        """
        command = [*ENDS_WITH_US, *prefix, str(DRAGOMAN), "serve", *self._flags, *flags]
        with self.log_file.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, cwd=self.folder, stdout=PIPE, stderr=log, env={**os.environ, **environ}
            )
        if wait:
            await self.listens()

    async def listens(self) -> None:
        """Wait for the line that says where it listens."""
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := await self.process.stdout.readline():
                if found := re.search(rb"listens on (https?://\S+?)/? ", line):
                    self.url = found[1].decode()
                    return
        raise AssertionError(f"the server ended with {await self.ended()}: {self.said()}")

    def said(self) -> str:
        """Its log so far."""
        return self.log_file.read_text(errors="replace")

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has one."""
        assert self.process is not None
        async with asyncio.timeout(DEADLINE_S):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode

    async def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.communicate()


@asynccontextmanager
async def serving_process(folder: Path, *flags: str, log: str = "log", **environ: str) -> AsyncIterator[ServerProcess]:
    """A server until the block ends, which kills it. `environ` is added to the environment."""
    server = ServerProcess(folder, *flags, log=log)
    try:
        await server.start(prefix=(), wait=True, **environ)
        yield server
    finally:
        await server.kill()


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(*pids: int) -> None:
    """Wait until none of the processes runs."""
    await until(lambda: not any(alive(pid) for pid in pids), 0.01)
