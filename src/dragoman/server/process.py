"""The server as a process of its own: it tunes the interpreter and runs until a signal.

Invariant: the first signal drains, the second ends the process at once.
"""

import asyncio
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.server.added_runners import MakeAdded, make_nothing
from dragoman.server.agent_exits import run_to_end
from dragoman.server.entrance import SocketEntrance
from dragoman.server.errors import StartError
from dragoman.server.reloading import ReadConfigAgain
from dragoman.server.running import ListeningServer, running, runs_s, whole_s
from dragoman.server.sockets import inherited_socket, read_with_address, take_address
from dragoman.store.api import StoreError
from dragoman.telemetry.logs import log_to

log = logging.getLogger(__name__)

LEAVE_S = 0.5
"""How long canceled agents and threads may still take after everything else has ended."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while the event loop waits for it. With the default of 5 ms, an agent that
computes in a thread delays every answer by up to 5 ms."""

GC_THRESHOLDS = (50_000, 20, 100)
"""The thresholds of the three generations. Young collections find the cycles of finished requests. A full collection
stops the loop for a time that grows with the open streams, so it is rare."""

USUAL_THRESHOLDS = frozenset({(700, 10, 10), (2000, 10, 10), (2000, 10, 0)})
"""The thresholds that Python 3.11 to 3.14 begin with."""

ARENAS = 1
"""The number of glibc's memory arenas. By default each thread has its own, which keeps freed memory: a task of 10 MB
that passes the loop, the writer and a reader would be held three times. One arena costs little, because the threads
mostly wait for the interpreter anyway."""

FILES_MAX = 65_536
"""Most open files, mostly connections, that a server asks for. At 12 KB a stream, more need several processes."""

M_ARENA_MAX = -8
"""The parameter's number in glibc's malloc.h."""


def run(
    config: Config,
    agents: Sequence[Runner],
    on_ready: Callable[[ListeningServer], None],
    again: ReadConfigAgain | None = None,
    name: str = "",
    make_added: MakeAdded = make_nothing,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal ends the process at once.

    On SIGHUP it serves what `again` reads. A SIGHUP because the terminal was closed acts as SIGTERM.

    If systemd passes a socket, the server listens on that in place of its host and port.

    `on_ready` is called once the server listens, with its port. Each line of the log bears the `name`. Exits with a
    message if the server cannot start.
    """
    log_to(sys.stderr, config.log_level, config.log_format, name)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_connections()
    gc.set_threshold(*GC_THRESHOLDS)
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # not musl
        mallopt(M_ARENA_MAX, ARENAS)
    try:
        if (inherited := inherited_socket()) is not None:
            config, again = take_address(config, inherited), read_with_address(again, inherited)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            serving = _until_signalled(config, agents, on_ready, again, name, inherited, make_added)
            del agents  # so that agents that a reload replaces can be freed
            run_to_end(runner, serving)
        return
    except (StartError, StoreError) as error:
        reason = str(error)
    except ExceptionGroup as group:  # from the TaskGroup
        _, others = group.split((StartError, StoreError))
        if others is not None:
            raise
        reason = str(group.exceptions[0])
    sys.exit(f"dragoman: {reason}")


async def _until_signalled(
    config: Config,
    agents: Sequence[Runner],
    on_ready: Callable[[ListeningServer], None],
    again: ReadConfigAgain | None,
    name: str,
    inherited: socket.socket | None,
    make_added: MakeAdded,
) -> None:
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()
    asked = asyncio.Event()
    reload = asked.set
    starting = asyncio.current_task()

    def stop(number: signal.Signals) -> None:
        if signalled.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        grace_s = config.shutdown_grace_s
        log.info(
            "stopping: running tasks have %g s, the process ends within %g s; a second signal stops at once",
            runs_s(grace_s),
            whole_s(grace_s),
        )
        leave_after(whole_s(grace_s), "stopping: the grace period is over, work under way is left behind")
        signalled.set()
        if starting is not None:  # what agents need may take long to open
            starting.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    if sys.platform != "win32":
        at_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and has_terminal()  # not under nohup
        shown = [number for number in (1, 2) if os.isatty(number)]

        def hung_up() -> None:
            if at_terminal and not has_terminal():
                show_nothing(shown)
                if not signalled.is_set():
                    stop(signal.SIGHUP)
            else:
                reload()

        loop.add_signal_handler(signal.SIGHUP, hung_up)
    serving = running(
        config, agents, _leave_agents_behind, again, name, SocketEntrance(inherited), _leave_refused, make_added
    )
    del agents  # see `run`
    try:
        async with serving as bound:
            starting = None
            on_ready(bound)
            reload = bound.reload
            if asked.is_set():
                reload()
            gc.collect()
            gc.freeze()  # these objects stay for good, so that collections can skip them
            await signalled.wait()
    except asyncio.CancelledError:
        if starting is None or not signalled.is_set():
            raise
    log.info("stopped")


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage as rarely as `run` does, until the block ends, unless the program has chosen how often.

    With Python's own thresholds a message costs a third more, most of it in full collections of what lives anyway.
    """
    before = gc.get_threshold()
    if before in USUAL_THRESHOLDS:
        gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        if before in USUAL_THRESHOLDS and gc.get_threshold() == GC_THRESHOLDS:
            gc.set_threshold(*before)


def has_terminal() -> bool:
    """Whether the process has a terminal that still exists."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def show_nothing(numbers: Sequence[int]) -> None:
    """Send everything written to these descriptors to the null device, because their reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        os.dup2(nowhere, number)
    os.close(nowhere)


def _allow_connections() -> None:
    """Raise the limit of open files as far as the system allows: each stream and each webhook call is a file."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or hard == resource.RLIM_INFINITY:
        wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
        if soft < wanted:
            with suppress(ValueError, OSError):  # macOS allows less than its hard limit
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _leave_agents_behind() -> None:
    """End the process soon, whatever agents still do: their tasks have ended, and the store is closed."""
    leave_after(LEAVE_S, "stopping: an agent or a thread ignores its cancellation and is left behind")


def _leave_refused(error: StartError) -> None:
    """End the process soon, although what an agent opens ignores its cancellation: it does not start."""
    leave_after(LEAVE_S, f"dragoman: {error}", status=1)


def leave_after(delay_s: float, why: str, *, status: int = 0) -> None:
    """End the process after `delay_s` if it still runs. Nothing is lost: every answered write is on disk by then.

    `why` goes to the log; for a failure to standard error, as that of a process that ends by itself.
    """

    def leave() -> None:
        if status:
            sys.stderr.write(f"{why}\n")
            sys.stderr.flush()
        else:
            log.warning(why)
        logging.shutdown()
        os._exit(status)

    timer = threading.Timer(delay_s, leave)
    timer.daemon = True
    timer.start()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
