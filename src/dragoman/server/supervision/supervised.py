"""A server that a supervisor runs as a process of its own, and the socket between the two.

    NONE ── `run` ──► STARTING ── it reports ──► LISTENING ── it ends ──► NONE      `process`, `reported`
                        │ SIGHUP is kept             SIGHUP is passed on            `_reload`: one is kept
                        │ `stop`: SIGTERM once it has a pid                         `_stopping`
                        └── it ends, or cannot be started ──► NONE

Starting it again is not covered (`processes`, `reloader`).

Invariant: the process never outlives its supervisor, whatever becomes of that. Signals of a terminal reach the
supervisor alone, which passes them on once.
"""

import asyncio
import os
import signal
import socket
import threading
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct


class Supervised(Struct, frozen=True):
    """A replica's place in its supervisor: its number, and the descriptor of the socket between them."""

    number: int
    descriptor: int

    @classmethod
    def parse(cls, text: str) -> "Supervised":
        """The place that `spell` wrote. Raises ValueError."""
        number, descriptor = map(int, text.split(":"))
        return cls(number, descriptor)

    def spell(self) -> str:
        """The place as an argument of the command line."""
        return f"{self.number}:{self.descriptor}"

    def end_with_supervisor(self) -> None:
        """Stop this process, as on SIGTERM, once its supervisor has ended. The socket is closed to programs."""
        os.set_inheritable(self.descriptor, False)

        def wait() -> None:
            with suppress(OSError):
                os.read(self.descriptor, 1)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=wait, name="end with the supervisor", daemon=True).start()

    def report(self, text: str) -> None:
        """Tell the supervisor that this replica listens. `text` is what the first replica to listen has printed."""
        with suppress(OSError):
            os.write(self.descriptor, text.encode() + b"\0")


class SupervisedProcess:
    """One place: the process that runs there, if any. `reported` is what the process said when it listened."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.reported = ""
        self._reload = False
        self._stopping = False

    async def run(self, command: Callable[[Supervised], Sequence[str]], on_listens: Callable[[], None]) -> int:
        """Start the `command` of this place, wait for its end, and return its exit code.

        `on_listens` is called once the process has reported that it listens. Raises OSError if it cannot be started.
        """
        self._stopping = self._reload = False
        self.process, self.reported = None, ""  # nobody takes the process before this one for it
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                # In a session of its own, so that Ctrl-C reaches the supervisor alone, which tells it once.
                process = await asyncio.create_subprocess_exec(
                    *command(Supervised(self.number, theirs.fileno())),
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            self.process = process
            if self._stopping:
                self.send(signal.SIGTERM)
            hearing = asyncio.create_task(self._hear(ours, on_listens))
            try:
                return await process.wait()
            finally:
                hearing.cancel()
        finally:
            ours.close()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if one runs."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def stop(self) -> None:
        """Let the process drain and end, also one that is only about to be started."""
        self._stopping = True
        self.send(signal.SIGTERM)

    def request_reload(self) -> None:
        """Pass SIGHUP on. A process that is only starting would die of it, and gets it once it listens."""
        if self.reported:
            self.send(signal.SIGHUP)
        else:
            self._reload = True

    async def _hear(self, ours: socket.socket, on_listens: Callable[[], None]) -> None:
        """Wait for the report that the process listens."""
        ours.setblocking(False)
        said = b""
        while not said.endswith(b"\0"):
            try:
                piece = await asyncio.get_running_loop().sock_recv(ours, 65_536)
            except OSError:
                return
            if not piece:
                return
            said += piece
        self.reported = said[:-1].decode()
        on_listens()
        if self._reload:
            self._reload = False
            self.send(signal.SIGHUP)


def spell_code(code: int) -> str:
    """An exit code for people."""
    return signal.Signals(-code).name if code < 0 else f"code {code}"
