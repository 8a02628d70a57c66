"""`serve --reload`: a server for developers, which follows every change of its code and its configuration.

    RUNNING ── only agents have changed ──► RUNNING: SIGHUP        RUNNING ── it ends by itself ──► DOWN
      │  ▲                                                                                           │
      │  └─────────────── STARTING ◄── files have changed, and the configuration can be read ────────┘
      │                      ▲
      └── others changed ──► ENDING: drained, or killed after the grace period
    each ── a signal to stop ──► STOPPING ── it has ended ──► over

A change counts once the files have stayed as they are for `SETTLE_S`.

Invariant: the reloader serves nothing and imports no code of users, so that no mistake in it ends the reloader. A
change of agents reaches the running server as SIGHUP does, and cuts no stream; only a change of other settings restarts
it.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dragoman.config import Config, ConfigError
from dragoman.server.errors import StartError
from dragoman.server.process import has_terminal, show_nothing
from dragoman.server.running import whole_s
from dragoman.server.sockets import bind
from dragoman.server.supervision.supervised import Supervised, SupervisedProcess, spell_code
from dragoman.telemetry.logs import log_to

log = logging.getLogger("dragoman.reload")

LOOK_S = 0.4
"""How often the files are looked at."""

SETTLE_S = 0.1
"""After a change the files are looked at this often until they stay as they are: a check-out changes many of them."""

KILL_S = 0.5
"""How long after the grace period the server is killed. It ends itself before that, unless it is stuck."""

RELOADED = ("agents", "default")
"""The settings that a running server reads again."""

Seen = Mapping[str, object]
"""The files by their paths, each with a value that differs once the file has changed."""

Look = Callable[[], Seen]
"""Looks at the files whose changes count. It is called in a thread."""

Command = Callable[[Supervised, int], Sequence[str]]
"""The command that starts the server at its place, listening on that port."""


def reload_on_change(
    config: Config,
    command: Command,
    look: Look,
    on_ready: Callable[[str], None],
    again: Callable[[], Config],
) -> None:
    """Run the server until SIGTERM or SIGINT, which it is told; a second signal kills it.

    When what `look` sees changes, `again` reads the configuration, and the server reloads or is started again. A server
    that has ended by itself, because its code cannot be imported, is started again after the next change. `on_ready`
    gets what the server reports when it listens for the first time. Exits with a message if the port is taken.
    """
    log_to(sys.stderr, config.log_level, config.log_format)
    try:
        with bind(config, shared=False) as bound:
            port = bound.getsockname()[1]  # each server after the first one gets the same, also if any would do
    except StartError as error:
        sys.exit(f"dragoman: {error}")
    asyncio.run(_Reloader(config, command, port, look, on_ready, again).run())


class _Reloader:
    def __init__(
        self,
        config: Config,
        command: Command,
        port: int,
        look: Look,
        on_ready: Callable[[str], None],
        again: Callable[[], Config],
    ) -> None:
        self._config = config
        self._command = command
        self._port = port
        self._any_port = config.port == 0
        self._look = look
        self._on_ready = on_ready
        self._again = again
        self._server = SupervisedProcess(1)
        self._stopping = asyncio.Event()
        self._started = False

    async def run(self) -> None:
        """Run until a signal."""
        self._heed_signals()
        seen = await asyncio.to_thread(self._look)
        stopped = asyncio.create_task(self._stopping.wait())
        running = self._start()
        while not self._stopping.is_set():
            watching = asyncio.create_task(self._change(seen))
            if not running.done():
                await asyncio.wait((running, watching, stopped), return_when=asyncio.FIRST_COMPLETED)
                if running.done() and not self._stopping.is_set():
                    self._show_end(running)
            await asyncio.wait((watching, stopped), return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                watching.cancel()
                break
            seen, changed = watching.result()
            if await self._follow(changed, running) and not self._stopping.is_set():
                running = self._start()
        await asyncio.wait((running,))

    def _start(self) -> "asyncio.Task[int]":
        return asyncio.create_task(self._server.run(self._place, self._listens))

    async def _change(self, seen: Seen) -> tuple[Seen, str]:
        """Wait until files differ from what was `seen`, and stay so. Returns how they are, and names some."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = await asyncio.to_thread(self._look)
            if now == seen:
                continue
            while True:
                await asyncio.sleep(SETTLE_S)
                later = await asyncio.to_thread(self._look)
                if later == now:
                    break
                now = later
            if changed := _describe_changes(seen, now):
                return now, changed

    async def _follow(self, changed: str, running: "asyncio.Task[int]") -> bool:
        """Tell the server of a change. Returns whether it has ended, and is to be started again."""
        try:
            config = self._again()
        except ConfigError as error:
            log.error("%s changed, but the configuration cannot be used: %s", changed, error)
            return False
        former, self._config = self._config, config
        if running.done():
            log.info("%s changed: starting again", changed)
            return True
        restarting = [
            name
            for name in Config.__struct_fields__
            if name not in RELOADED and getattr(config, name) != getattr(former, name)
        ]
        if not restarting:
            log.info("%s changed", changed)
            self._server.request_reload()
            return False
        log.info("%s changed: restarting for %s", changed, ", ".join(restarting))
        if former.store == "memory:":
            log.warning("the store was in memory: its tasks are gone")
        self._server.stop()
        await asyncio.wait((running,), timeout=whole_s(former.shutdown_grace_s) + KILL_S)
        self._server.send(signal.SIGKILL)
        await asyncio.wait((running,))
        return True

    def _place(self, place: Supervised) -> Sequence[str]:
        config = replace(self._config, port=self._port) if self._any_port else self._config
        return self._command(place, config.port)

    def _listens(self) -> None:
        if not self._started:
            self._on_ready(self._server.reported)
        else:
            log.info("the server listens again: %s", self._server.reported.partition("\n")[0])  # perhaps elsewhere
        self._started = True

    def _show_end(self, running: "asyncio.Task[int]") -> None:
        """Log that the server has ended by itself; it has said why."""
        error = running.exception()
        ended = spell_code(running.result()) if error is None else str(error)
        log.error("the server ended with %s; it is started again after the next change", ended)

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        at_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and has_terminal()

        def stop() -> None:
            if self._stopping.is_set():
                self._server.send(signal.SIGKILL)
                return
            self._stopping.set()
            self._server.stop()
            loop.call_later(whole_s(self._config.shutdown_grace_s) + KILL_S, self._server.send, signal.SIGKILL)

        def hang_up() -> None:
            if at_terminal and not has_terminal():
                show_nothing((1, 2))
                stop()
            else:
                self._server.request_reload()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, hang_up)


def _describe_changes(before: Seen, now: Seen) -> str:
    """The names of up to three files that differ, and how many others do; empty if none does."""
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    names = [os.path.basename(path) for path in changed[:3]]
    if len(changed) > len(names):
        names.append(f"{len(changed) - len(names)} others")
    return ", ".join(names)
