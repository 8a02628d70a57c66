"""A process of the demo: a server that can be killed and started again, or the official client.

Invariant: it ends with this process, and so do processes that it has started. Its log is a file in the demo's folder.
"""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dragoman.cli.endings import PROGRAM
from dragoman.cli.tables import printable

START_S = 30.0
"""How long a server may take to listen."""

END_S = 10.0
"""How long a process may take to end once it was asked to."""


class ServerFailed(Exception):
    """A server did not start, ended by itself, or refused its caller. The message says why."""


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class DemoProcess:
    """A module of Python that runs as a program of its own, with these `arguments` and this `environment`."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = (sys.executable, "-P", "-m", "dragoman.cli.demo.child", module, *arguments)
        self._environment = environment
        self._log = log
        self._process: Process | None = None
        self._killed = False

    async def start(self, *, lines: bool = False) -> None:
        """Start it. With `lines` its standard output is read by `read_line`; else nobody reads it."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=PIPE,
                stdout=PIPE if lines else DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the demo alone
            )
        self._killed = False

    async def listen(self, port: int) -> None:
        """Start it, and wait until it accepts connections at the port. Raises ServerFailed."""
        await self.start()
        try:
            async with asyncio.timeout(START_S):
                while not await _accepts(port):
                    if self._running.returncode is not None:
                        raise ServerFailed(self.last_words.removeprefix(f"{PROGRAM}: "))
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ServerFailed(f"it does not listen after {START_S:.0f} s") from None

    async def read_line(self) -> bytes:
        """Return the next line of its standard output; empty at the end."""
        assert self._running.stdout is not None
        return await self._running.stdout.readline()

    async def kill(self) -> None:
        """End it with SIGKILL, and what it has started."""
        self._killed = True
        if self._running.returncode is None:
            os.killpg(self._running.pid, signal.SIGKILL)  # it leads a group of its own
        await self._running.wait()

    async def stop(self) -> None:
        """End it, if it runs."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        with suppress(OSError):  # nothing is left of its group
            os.killpg(process.pid, signal.SIGKILL)

    @property
    def ended_by_itself(self) -> bool:
        """Whether it has ended, and `kill` has not done it."""
        return not self._killed and self._process is not None and self._process.returncode is not None

    @property
    def pid(self) -> int:
        """Its number, once it was started."""
        return self._running.pid

    @property
    def last_words(self) -> str:
        """The last line of its log, or that there is none."""
        lines = self._log.read_text("utf-8", "replace").split("\n") if self._log.exists() else []
        return next((printable(line.strip()) for line in reversed(lines) if line.strip()), "it said nothing")

    @property
    def _running(self) -> Process:
        assert self._process is not None  # it was started
        return self._process


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
