"""Several replicas on one port of one machine: the supervisor that starts them, and what a replica does for it.

Invariant: the supervisor serves nothing and opens no store. A replica that ends is started again, after a pause that
grows while it keeps ending. No replica outlives the supervisor, whatever becomes of it, and all end within the grace
period.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from dragoman.config import Config, ConfigError
from dragoman.server.errors import StartError
from dragoman.server.process import has_terminal, show_nothing
from dragoman.server.replicas import check_replicas
from dragoman.server.running import bind, whole_s
from dragoman.telemetry.logs import log_to

log = logging.getLogger(__name__)

PAUSE_S = 0.5
"""The pause before a replica is started again for the first time. It doubles each time, up to `PAUSE_MAX_S`."""

PAUSE_MAX_S = 30.0

OWN_SETTINGS = ("processes", "port")
"""The settings that the replicas get from the supervisor, so that they see no change of them."""

STEADY_S = 60.0
"""A replica that has run for so long counts as healthy: the pauses begin anew when it ends."""

KILL_S = 0.5
"""How long after the grace period a replica is killed. It ends itself before that, unless it is stopped or stuck."""


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


Command = Callable[[Supervised, int], Sequence[str]]
"""The command that starts a replica at its place, listening on that port."""


def supervise(
    config: Config, command: Command, on_ready: Callable[[str], None], again: Callable[[], Config] | None = None
) -> None:
    """Run `config.processes` replicas until SIGTERM or SIGINT, which they are told; a second signal kills them.

    SIGHUP is passed on, so that all reload; what `again` reads then says whether settings have changed that only a
    restart of the supervisor applies. `on_ready` gets what the first replica to listen reports. The first one is
    started alone; if it ends before it listens, the supervisor ends with its exit code. Exits with a message if the
    settings contradict each other or the port is taken.
    """
    log_to(sys.stderr, config.log_level, config.log_format)
    try:
        check_replicas(config)
        with _reserve(config) as reserved:
            code = asyncio.run(_Supervisor(config, command, reserved.getsockname()[1], on_ready, again).run())
    except StartError as error:
        sys.exit(f"dragoman: {error}")
    if code:
        sys.exit(code)


def _reserve(config: Config) -> socket.socket:
    """Bind the port without listening on it, so that it stays ours while a replica is down. Raises StartError."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise StartError("processes needs SO_REUSEPORT, which this system lacks: run one server a machine")
    bind(config, shared=False).close()  # fails if replicas of another supervisor listen there
    return bind(config, shared=True)


class _Replica:
    """One place: the process that runs there, if any. `reported` is what the process said when it listened."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.reported = ""
        self.reload = False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if one runs."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def ask_reload(self) -> None:
        """Pass SIGHUP on. A process that is only starting would die of it, and gets it once it listens."""
        if self.reported:
            self.send(signal.SIGHUP)
        else:
            self.reload = True

    def listens(self, text: str) -> None:
        """The process listens."""
        self.reported = text
        if self.reload:
            self.reload = False
            self.send(signal.SIGHUP)


class _Supervisor:
    def __init__(
        self,
        config: Config,
        command: Command,
        port: int,
        on_ready: Callable[[str], None],
        again: Callable[[], Config] | None,
    ) -> None:
        self._config = config
        self._again = again
        self._command = command
        self._port = port
        self._on_ready = on_ready
        self._replicas = [_Replica(number) for number in range(1, config.processes + 1)]
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal. Returns the exit code."""
        self._heed_signals()
        first, *others = self._replicas
        first_listens: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        code = 0
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self._keep(first, first_listens))
            await asyncio.wait((keeping, first_listens), return_when=asyncio.FIRST_COMPLETED)
            if not first_listens.done():
                code = keeping.result()
            elif not self._stopping.is_set():
                self._on_ready(first.reported)
                for replica in others:
                    group.create_task(self._keep(replica))
        first_listens.cancel()
        return code

    async def _keep(self, replica: _Replica, listens: "asyncio.Future[None] | None" = None) -> int:
        """Keep a replica running until the supervisor stops. If it ends before it `listens`, returns its exit code."""
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S
        while not self._stopping.is_set():
            began = loop.time()
            try:
                ended = _spell(code := await self._run(replica, listens))
            except OSError as error:  # no memory or no process left
                ended, code = f"{error.strerror} before it began", 1
            if self._stopping.is_set():
                break
            if listens is not None and not listens.done():
                return code or 1
            pause_s = PAUSE_S if loop.time() - began >= STEADY_S else pause_s
            log.warning("replica %d ended with %s; it is started again in %g s", replica.number, ended, pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return 0

    async def _run(self, replica: _Replica, listens: "asyncio.Future[None] | None") -> int:
        """Start the process of a replica and wait for its end. Returns its exit code."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                # In a session of its own, so that Ctrl-C reaches the supervisor alone, which tells it once.
                process = await asyncio.create_subprocess_exec(
                    *self._command(Supervised(replica.number, theirs.fileno()), self._port),
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            replica.process, replica.reported = process, ""
            if self._stopping.is_set():
                replica.send(signal.SIGTERM)
            hearing = asyncio.create_task(self._hear(replica, ours, listens))
            try:
                return await process.wait()
            finally:
                hearing.cancel()
        finally:
            ours.close()

    async def _hear(self, replica: _Replica, ours: socket.socket, listens: "asyncio.Future[None] | None") -> None:
        """Wait for the report of a replica that it listens."""
        assert replica.process is not None
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
        log.info("replica %d listens (pid %d)", replica.number, replica.process.pid)
        replica.listens(said[:-1].decode())
        if listens is not None and not listens.done():
            listens.set_result(None)

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        at_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and has_terminal()
        shown = [number for number in (1, 2) if os.isatty(number)]

        def stop() -> None:
            if self._stopping.is_set():
                self._send(signal.SIGKILL)
                return
            self._stopping.set()
            grace_s = whole_s(self._config.shutdown_grace_s)
            log.info("stopping all replicas within %g s; a second signal stops at once", grace_s)
            self._send(signal.SIGTERM)
            loop.call_later(grace_s + KILL_S, self._send, signal.SIGKILL)

        def hang_up() -> None:
            if at_terminal and not has_terminal():
                show_nothing(shown)
                if not self._stopping.is_set():
                    stop()
            else:
                self._show_ignored()
                for replica in self._replicas:
                    replica.ask_reload()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, hang_up)

    def _show_ignored(self) -> None:
        """Log which settings have changed that only the supervisor can tell."""
        if self._again is None:
            return
        try:
            config = self._again()
        except ConfigError:
            return  # the replicas say what is wrong
        for name in OWN_SETTINGS:
            if getattr(config, name) != getattr(self._config, name):
                log.warning("%s has changed: restart the server to apply it", name)

    def _send(self, number: signal.Signals) -> None:
        for replica in self._replicas:
            replica.send(number)


def _spell(code: int) -> str:
    """An exit code for people."""
    return signal.Signals(-code).name if code < 0 else f"code {code}"
