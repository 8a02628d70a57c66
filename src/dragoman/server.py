"""Assembly: from a configuration and agents to a server that listens, and the order in which it starts and stops.

Invariant: the listener opens last and what it serves ends first: no request meets a store that is not open.
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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman import __version__
from dragoman.agents.python import Agent
from dragoman.agents.threads import Threads
from dragoman.agents.worker import WorkerAgent
from dragoman.bindings.app import App
from dragoman.bindings.calls import Limits
from dragoman.bindings.cards import Cards
from dragoman.bindings.cors import Cors
from dragoman.bindings.health import Health
from dragoman.bindings.listener import BACKLOG, bound_socket, listener
from dragoman.bindings.metrics import Exposition
from dragoman.bindings.openai import OpenAi
from dragoman.bindings.routes import ALL_MOUNTS
from dragoman.bindings.workers import Workers
from dragoman.config import Config
from dragoman.dialects.mounts import OF_PROFILE, Mount
from dragoman.engine.api import EngineSettings, Handler, Observer, Runner
from dragoman.engine.engine import Engine
from dragoman.engine.observed import Observers, Traced
from dragoman.engine.untasked import Untasked
from dragoman.model.card import Profile
from dragoman.model.ids import Clock, SystemClock, new_id
from dragoman.store.api import Store, StoreError
from dragoman.store.open import open_store
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.logs import log_to

if TYPE_CHECKING:
    from dragoman.telemetry.opentelemetry import OpenTelemetry

log = logging.getLogger(__name__)

LEAVE_S = 2.0
"""How long agents that were canceled may still take, once all else has ended."""

SWEEP_EVERY_S = 60.0
SWEEP_PAUSE_S = 0.05
"""Between two batches of a sweep: writers are never behind more than one of them."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while the event loop waits for it. With the default of 5 ms, an agent that
computes in a thread delays every answer by up to 5 ms."""

GC_THRESHOLDS = (50_000, 20, 100)
"""Of the three generations. Collections of the young one find the cycles of finished requests; one of everything stands
still for as long as there are streams open, so it is rare."""


ARENAS = 1
"""glibc's allocator gives each thread memory of its own, and keeps there what is freed: a task of 10 MB that passes the
loop, the writer and a reader would be held three times. The threads hardly wait for one another's memory: mostly they
wait for the interpreter."""

M_ARENA_MAX = -8
"""malloc.h of glibc."""


class StartError(Exception):
    """The server cannot start. The message names what to change."""


@asynccontextmanager
async def running(
    config: Config, agents: Sequence[Runner], on_drained: Callable[[], None] = lambda: None
) -> AsyncIterator[Config]:
    """A server in the current event loop, listening until the block ends; then it drains.

    Gives the configuration with the port it got. `on_drained` is called when all is done but to wait for agents that
    do not let themselves be canceled. Raises StartError, or StoreError if the store cannot be opened.
    """
    clock = SystemClock()
    threads = Threads(config.threads_max)
    runners = _sharing(threads, agents)
    default = config.default or agents[0].profile.id
    store = open_store(config.store, clock)
    holder = f"{socket.gethostname()}/{os.getpid()}/{new_id()}"
    await store.open(holder)  # migrates, before anybody can connect
    try:
        counts = Counts() if config.metrics else None
        telemetry = _telemetry(config)
        engine = Engine(
            store,
            runners,
            clock=clock,
            settings=_engine_settings(config),
            holder=holder,
            observer=_observer(counts, telemetry),
        )
        handler = engine if telemetry is None else Traced(engine, telemetry)
        stopping = asyncio.Event()
        health = Health(store, clock, lambda: _unready(stopping, threads))
        metrics = None
        if counts is not None:
            metrics = Exposition(counts, config.telemetry_prefix, __version__, lambda: store.writes)
        server = listener(_app(config, handler, runners, default, health, metrics))
        with _bound(config) as bound:
            async with asyncio.TaskGroup() as tasks:
                workers = [agent for agent in agents if isinstance(agent, WorkerAgent)]
                for worker in workers:
                    worker.leases.open()
                await engine.start(tasks)
                sweeper = tasks.create_task(sweep(store, clock, config), name="sweep")
                bound.listen(BACKLOG)
                listening = tasks.create_task(server.serve(sockets=[bound]), name="listener")
                try:
                    yield replace(config, port=bound.getsockname()[1])
                finally:
                    stopping.set()  # /ready says so
                    for worker in workers:
                        worker.leases.close()
                    await engine.drain(config.shutdown_grace_s)  # no new work, streams end, runs get their time
                    server.should_exit = True
                    await listening
                    sweeper.cancel()
                    if telemetry is not None:
                        await asyncio.to_thread(telemetry.flush)
                    on_drained()
    finally:
        await store.close()


@asynccontextmanager
async def serving(config: Config, agents: Sequence[Runner]) -> AsyncIterator[str]:
    """The same for tests and notebooks: a real listener in the current loop; gives its base URL.

    An agent that does not let itself be canceled is left behind in that loop, which will not close before it ends.
    """
    async with running(config, agents) as bound:
        host = f"[{bound.host}]" if ":" in bound.host else bound.host
        yield f"http://{host}:{bound.port}"


def run(config: Config, agents: Sequence[Runner], on_ready: Callable[[Config], None]) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal ends the process at once.

    `on_ready` is given the configuration with the port that was taken. Exits with a message if the server cannot start.
    """
    log_to(sys.stderr, config.log_level, config.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # not musl
        mallopt(M_ARENA_MAX, ARENAS)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_until_signalled(config, agents, on_ready))
        return
    except (StartError, StoreError) as error:
        reason = str(error)
    except ExceptionGroup as group:  # from the TaskGroup
        _, others = group.split(StoreError)
        if others is not None:
            raise
        reason = str(group.exceptions[0])
    sys.exit(f"dragoman: {reason}")


async def _until_signalled(config: Config, agents: Sequence[Runner], on_ready: Callable[[Config], None]) -> None:
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()

    def stop(number: signal.Signals) -> None:
        if signalled.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        log.info("stopping: running tasks get %g s; a second signal stops at once", config.shutdown_grace_s)
        signalled.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    async with running(config, agents, on_drained=_leave_agents_behind) as bound:
        on_ready(bound)
        gc.collect()
        gc.freeze()  # what is there now stays: no collection need look at it again
        await signalled.wait()


def _leave_agents_behind() -> None:
    """End the process soon, whatever agents do: their tasks have ended, and what is committed is on the disk."""

    def leave() -> None:
        log.warning("an agent does not let itself be canceled: leaving it behind")
        logging.shutdown()
        os._exit(0)

    timer = threading.Timer(LEAVE_S, leave)
    timer.daemon = True
    timer.start()


async def sweep(store: Store, clock: Clock, config: Config) -> None:
    """Delete for ever what is older than its retention, in short batches with pauses."""
    ages = [_age_ms(age) for age in (config.task_retention, config.log_retention, config.waiting_retention)]
    while True:
        try:
            deleted = await store.sweep(clock.now_ms(), *ages)
        except StoreError as error:
            log.warning("the sweep of old tasks failed, the next is in %g s: %s", SWEEP_EVERY_S, error)
            deleted = 0
        await asyncio.sleep(SWEEP_PAUSE_S if deleted else SWEEP_EVERY_S)


def _age_ms(age: timedelta | None) -> int:
    return -1 if age is None else int(age.total_seconds() * 1000)


def _sharing(threads: Threads, agents: Sequence[Runner]) -> dict[str, Runner]:
    """The agents by id; the threads for plain functions are counted over all of them."""
    for agent in agents:
        if isinstance(agent, Agent):
            agent.threads = threads
    return {agent.profile.id: agent for agent in agents}


def _unready(stopping: asyncio.Event, threads: Threads) -> str | None:
    if stopping.is_set():
        return "the server is stopping"
    if threads.full:
        return f"all {threads.maximum} threads for agents are taken (threads_max), {threads.left_behind} left behind"
    return None


def _engine_settings(config: Config) -> EngineSettings:
    return EngineSettings(
        blocking_timeout_s=config.blocking_timeout_s,
        cancel_grace_s=config.cancel_grace_s,
        keepalive_s=config.keepalive_s,
        suspend_max_s=config.suspend_max_s,
    )


def _keys(config: Config, agents: Iterable[str]) -> dict[str, str]:
    """The key of each agent that wants one. Raises StartError for a profile that is nothing without."""
    own = {entry.id: entry.api_key for entry in config.agents if entry.api_key}
    keys = {agent: key for agent in agents if (key := own.get(agent, config.api_key))}
    if config.profile == "evoai" and (bare := [agent for agent in agents if agent not in keys]):
        raise StartError(
            f"profile evoai asks every caller for a key, and there is none for {', '.join(bare)}: set api_key, "
            "EVO_AI_API_KEY, or api_key in the agent's table"
        )
    return keys


def _cards(config: Config, profiles: dict[str, Profile], keys: dict[str, str], mounts: Collection[Mount]) -> Cards:
    return Cards(
        profiles,
        config.public_url,
        config.card_max_age_s,
        root="/" if Mount.ROOT in mounts else next(iter(mounts)).value,
        keyed=keys,
        protocols=("jsonrpc",) if config.tasks else (),
        history=config.profile == "kaos" and config.tasks,
        tenants=Mount.TENANT in mounts,
    )


def _observer(counts: Counts | None, telemetry: "OpenTelemetry | None") -> Observer | None:
    """Who is told what happens to tasks; None costs nothing."""
    if counts is not None and telemetry is not None:
        return Observers((counts, telemetry))
    return counts or telemetry


def _telemetry(config: Config) -> "OpenTelemetry | None":
    """OpenTelemetry, which is imported only here and only if it is on: it is large, and not in every installation."""
    if not config.telemetry:
        return None
    try:
        from dragoman.telemetry.opentelemetry import OpenTelemetry, installed
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise StartError(
            "telemetry is on, but OpenTelemetry is not installed: pip install 'dragoman[otel]', or turn telemetry off"
        ) from error
    return OpenTelemetry(*installed(__version__), config.telemetry_prefix, __version__)


def _app(
    config: Config,
    handler: Handler,
    runners: dict[str, Runner],
    default: str,
    health: Health,
    metrics: Exposition | None,
) -> App:
    profiles = {agent_id: runner.profile for agent_id, runner in runners.items()}
    mounts = ALL_MOUNTS if config.profile is None else (OF_PROFILE[config.profile],)
    workers = {agent_id: runner for agent_id, runner in runners.items() if isinstance(runner, WorkerAgent)}
    keys = _keys(config, profiles)
    limits = Limits(config.max_body_bytes, config.max_depth, config.max_parts, keys=keys)
    return App(
        handler if config.tasks else Untasked(SystemClock()),
        profiles,
        default,
        limits=limits,
        cards=_cards(config, profiles, keys, mounts),
        health=health,
        cors=Cors(config.cors_origins) if config.cors_origins else None,
        mounts=mounts,
        openai=OpenAi(handler, profiles, default, limits, SystemClock()) if Mount.ROOT in mounts else None,
        metrics=metrics,
        workers=Workers(handler, workers, limits) if workers else None,
    )


def _bound(config: Config) -> socket.socket:
    try:
        return bound_socket(config.host, config.port)
    except OSError as error:
        raise StartError(f"cannot listen on {config.host} port {config.port}: {error.strerror}") from error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
