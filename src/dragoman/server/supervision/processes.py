"""Several replicas on one port of one machine: the supervisor that starts them, and what a replica does for it.

A replica's place, from its first start on (`_keep`; `supervised` has the signals that it gets meanwhile):

    STARTING ── it says so ──► LISTENING      STARTING, LISTENING ── ends, or cannot be started ──► PAUSED
        ▲                                                                                             │
        └──── after `PAUSE_S`, doubled up to `PAUSE_MAX_S`; anew after a run of `STEADY_S` ───────────┘
    each ── a signal to stop ──► STOPPING ── drained; killed after the grace period, or by a second signal ──► over

The supervisor:

    FIRST ── replica 1 listens ──► OTHERS ── each listens or has ended once, or `ALL_LISTEN_S` is over ──► READY
      │ replica 1 ends before it listens          each ── a signal to stop ──► STOPPING ── all are over ──┐
      └────────────────────────────────────────────────────────────────────────────────────────► ended ◄──┘

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from dragoman.config import Config, ConfigError
from dragoman.server.errors import StartError
from dragoman.server.process import has_terminal, show_nothing
from dragoman.server.replicas import check_replicas
from dragoman.server.running import whole_s
from dragoman.server.sockets import bind, inherited_socket, take_address
from dragoman.server.supervision.supervised import Supervised, SupervisedProcess, spell_code
from dragoman.telemetry.logs import log_to

log = logging.getLogger(__name__)

PAUSE_S = 0.5
"""The pause before a replica is started again for the first time. It doubles each time, up to `PAUSE_MAX_S`."""

PAUSE_MAX_S = 30.0

OWN_SETTINGS = ("processes", "port")
"""The settings that the replicas get from the supervisor, so that they see no change of them."""

STEADY_S = 60.0
"""A replica that has run for so long counts as healthy: the pauses begin anew when it ends."""

ALL_LISTEN_S = 30.0
"""How long the supervisor waits for all replicas to listen before it reports that it is ready."""

KILL_S = 0.5
"""How long after the grace period a replica is killed. It ends itself before that, unless it is stopped or stuck."""


Command = Callable[[Supervised, int], Sequence[str]]
"""The command that starts a replica at its place, listening on that port."""


def supervise(
    config: Config, command: Command, on_ready: Callable[[str], None], again: Callable[[], Config] | None = None
) -> None:
    """Run `config.processes` replicas until SIGTERM or SIGINT, which they are told; a second signal kills them.

    SIGHUP is passed on, so that all reload; what `again` reads then says whether settings have changed that only a
    restart of the supervisor applies. `on_ready` gets what the first replica has reported, once all listen; it waits
    for no replica that ends before it listens, and for none longer than `ALL_LISTEN_S`. The first one is started alone;
    if it ends before it listens, the supervisor ends with its exit code. Exits with a message if the settings
    contradict each other or the port is taken.
    """
    log_to(sys.stderr, config.log_level, config.log_format)
    try:
        check_replicas(config)
        if (inherited := inherited_socket()) is not None:
            take_address(config, inherited)  # raises: replicas listen themselves
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
        self._replicas = [SupervisedProcess(number) for number in range(1, config.processes + 1)]
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal. Returns the exit code."""
        self._heed_signals()
        first, *others = self._replicas
        async with asyncio.TaskGroup() as group:
            begun = _Beginning()
            code = await self._begin(group, first, begun)
            if begun.listens and not self._stopping.is_set():
                beginnings = {replica.number: _Beginning() for replica in others}
                for replica in others:
                    group.create_task(self._keep(replica, beginnings[replica.number]))
                await self._await_all(beginnings)
                if not self._stopping.is_set():
                    self._on_ready(first.reported)
        return code

    async def _begin(self, group: asyncio.TaskGroup, first: SupervisedProcess, begun: "_Beginning") -> int:
        """Start the first replica, and wait until it listens or has ended. Returns its exit code then."""
        keeping = group.create_task(self._keep(first, begun, alone=True))
        known = asyncio.create_task(begun.known.wait())
        await asyncio.wait((keeping, known), return_when=asyncio.FIRST_COMPLETED)
        known.cancel()
        return keeping.result() if keeping.done() else 0

    async def _await_all(self, beginnings: "Mapping[int, _Beginning]") -> None:
        """Wait until it is known of each replica whether it listens, or until the supervisor is to stop."""
        stopped = asyncio.create_task(self._stopping.wait())
        waits = [asyncio.create_task(begun.known.wait()) for begun in beginnings.values()]
        everything = asyncio.gather(*waits)
        await asyncio.wait((everything, stopped), timeout=ALL_LISTEN_S, return_when=asyncio.FIRST_COMPLETED)
        for task in (everything, stopped):
            task.cancel()
        if missing := [number for number, begun in beginnings.items() if not begun.listens]:
            log.warning("replicas that do not listen yet: %s", ", ".join(map(str, missing)))

    async def _keep(self, replica: SupervisedProcess, begun: "_Beginning", *, alone: bool = False) -> int:
        """Keep a replica running until the supervisor stops.

        One that is `alone` is not started again if it ends before it has listened: its exit code is returned.
        """
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S
        while not self._stopping.is_set():
            began = loop.time()
            try:
                ended = spell_code(code := await replica.run(self._place, partial(_note, replica, begun)))
            except OSError as error:  # no memory or no process left
                ended, code = f"{error.strerror} before it began", 1
            if self._stopping.is_set():
                break
            if alone and not begun.listens:
                return code or 1
            begun.known.set()
            pause_s = PAUSE_S if loop.time() - began >= STEADY_S else pause_s
            log.warning("replica %d ended with %s; it is started again in %g s", replica.number, ended, pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return 0

    def _place(self, place: Supervised) -> Sequence[str]:
        return self._command(place, self._port)

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
            for replica in self._replicas:
                replica.stop()
            loop.call_later(grace_s + KILL_S, self._send, signal.SIGKILL)

        def hang_up() -> None:
            if at_terminal and not has_terminal():
                show_nothing(shown)
                if not self._stopping.is_set():
                    stop()
            else:
                self._show_ignored()
                for replica in self._replicas:
                    replica.request_reload()

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


class _Beginning:
    """How the first start of a replica went: `known` is set once it listens, or has ended."""

    def __init__(self) -> None:
        self.known = asyncio.Event()
        self.listens = False


def _note(replica: SupervisedProcess, begun: _Beginning) -> None:
    """Log that a replica listens."""
    assert replica.process is not None
    log.info("replica %d listens (pid %d)", replica.number, replica.process.pid)
    begun.listens = True
    begun.known.set()
