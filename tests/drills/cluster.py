"""The processes of a drill: replicas, each behind proxies of its own to PostgreSQL and NATS, and workers.

Invariant: all of them end with the test. A replica keeps its port, so that it is reached again after a restart.
"""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.drills.proxy import Proxy
from tests.durability.conftest import DEADLINE_S
from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

AGENTS = Path(__file__).with_name("agents.py")
DRAGOMAN = Path(sys.executable).parent / "dragoman"
ROOT = Path(__file__).parents[2]


class DrillProcess:
    """`dragoman` with a command, in the folder of a drill. It is there once it says what `ready` matches."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, ready: str, *, dragoman: Path = DRAGOMAN
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.process: asyncio.subprocess.Process | None = None
        self._command = tuple(command)
        self._folder = folder
        self._ready = ready
        self._dragoman = dragoman

    async def start(self, *, wait: bool = True) -> None:
        """Start it, and `wait` until it is there. Its agents may import what tests do."""
        paths = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(*ENDS_WITH_US, str(self._dragoman), *self._command),
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join((*paths, str(ROOT)))},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        if not wait:
            return
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := (await self.process.stdout.readline()).decode():
                if re.search(self._ready, line):
                    return
        raise AssertionError(f"{self.name} did not start: {self.said()[-2000:]}")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has one."""
        assert self.process is not None
        async with asyncio.timeout(DEADLINE_S):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode

    async def kill(self) -> None:
        """SIGKILL."""
        self.send(signal.SIGKILL)
        await self.ended()

    def said(self) -> str:
        """Its log, over all of its lives."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class ReplicaProcess(DrillProcess):
    """One replica. `to_store` and `to_bus` are what stands between it and the two, None if nothing does.

    `dragoman` is its program.
    """

    def __init__(
        self,
        name: str,
        flags: Sequence[str],
        folder: Path,
        to_store: Proxy | None = None,
        to_bus: Proxy | None = None,
        *,
        dragoman: Path = DRAGOMAN,
    ) -> None:
        self.to_store = to_store
        self.to_bus = to_bus
        self.port = kept_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = "serve", str(AGENTS), "--port", str(self.port), *flags
        super().__init__(name, command, folder, "listens on http://", dragoman=dragoman)


class WorkerProcess(DrillProcess):
    """A worker for the server at `url`, which runs the agent `source` of `AGENTS` as the server's agent `agent`."""

    def __init__(self, folder: Path, url: str, agent: str, source: str) -> None:
        command = "worker", f"{agent}={AGENTS}:{source}", "--server", url, "--name", agent
        super().__init__(f"worker-{agent}", command, folder, "Working for")
