"""The processes of a drill: replicas, each behind proxies of its own to PostgreSQL and NATS.

Invariant: all of them end with the test. A replica keeps its port, so that it is reached again after a restart.
"""

import asyncio
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


class ReplicaProcess:
    """One replica. `to_store` and `to_bus` are what stands between it and the two, None if nothing does."""

    def __init__(
        self, name: str, flags: Sequence[str], folder: Path, to_store: Proxy | None = None, to_bus: Proxy | None = None
    ) -> None:
        self.name = name
        self.to_store = to_store
        self.to_bus = to_bus
        self.port = kept_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{name}.log"
        self.process: asyncio.subprocess.Process | None = None
        self._flags = tuple(flags)
        self._folder = folder

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(*ENDS_WITH_US, str(DRAGOMAN), "serve", str(AGENTS), "--port", str(self.port), *self._flags),
                cwd=self._folder,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            while line := await self.process.stdout.readline():
                if re.search(rb"listens on http://", line):
                    return
        raise AssertionError(f"replica {self.name} did not start: {self.said()[-2000:]}")

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
