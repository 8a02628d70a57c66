"""Assembly: from a configuration and agents to a server that listens, and the order in which it starts and stops.

Invariant: the listener opens last and what it serves ends first: no request meets a store that is not open.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec.structs import replace

from dragoman.agents.python import Agent
from dragoman.agents.threads import Threads
from dragoman.bindings.app import App
from dragoman.bindings.calls import Limits
from dragoman.bindings.cards import Cards
from dragoman.bindings.cors import Cors
from dragoman.bindings.health import Health
from dragoman.bindings.listener import BACKLOG, bound_socket, listener
from dragoman.config import Config
from dragoman.engine.api import EngineSettings, Runner
from dragoman.engine.engine import Engine
from dragoman.model.ids import Clock, SystemClock, new_id
from dragoman.store.api import Store, StoreError
from dragoman.store.open import open_store
from dragoman.telemetry.logs import log_to

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
        engine = Engine(store, runners, clock=clock, settings=_engine_settings(config), holder=holder)
        stopping = asyncio.Event()
        health = Health(store, clock, lambda: _unready(stopping, threads))
        server = listener(_app(config, engine, runners, default, health))
        with _bound(config) as bound:
            async with asyncio.TaskGroup() as tasks:
                await engine.start(tasks)
                sweeper = tasks.create_task(sweep(store, clock, config), name="sweep")
                bound.listen(BACKLOG)
                listening = tasks.create_task(server.serve(sockets=[bound]), name="listener")
                try:
                    yield replace(config, port=bound.getsockname()[1])
                finally:
                    stopping.set()  # /ready says so
                    await engine.drain(config.shutdown_grace_s)  # no new work, streams end, runs get their time
                    server.should_exit = True
                    await listening
                    sweeper.cancel()
                    on_drained()
    finally:
        await store.close()


@asynccontextmanager
async def serving(config: Config, agents: Sequence[Runner]) -> AsyncIterator[str]:
    """The same for tests and notebooks: a real listener in the current loop; gives its base URL."""
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


def _app(config: Config, engine: Engine, runners: dict[str, Runner], default: str, health: Health) -> App:
    profiles = {agent_id: runner.profile for agent_id, runner in runners.items()}
    return App(
        engine,
        profiles,
        default,
        limits=Limits(config.max_body_bytes, config.max_depth, config.max_parts),
        cards=Cards(profiles, config.public_url, config.card_max_age_s),
        health=health,
        cors=Cors(config.cors_origins) if config.cors_origins else None,
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
