"""Assembly of a listening server from a configuration and agents, and the order in which it starts and stops.

Invariant: the listener opens last, and the work that it serves ends first: no request meets a store that is not open.
Nothing that is closed within the time budget of a stop holds the server up longer than its grace period. An observer
that is off is not imported.
"""

import asyncio
import errno
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dragoman import __version__
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.threads import Threads
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.desk import Desk
from dragoman.auth.authenticator import Authenticator
from dragoman.auth.keys import make_key
from dragoman.auth.operator_token import drop_token, kept_token, new_token
from dragoman.auth.signatures import SigningRoom
from dragoman.bindings.app import App, CurrentApp
from dragoman.bindings.listener import Listener, bound_socket
from dragoman.bindings.mcp import Notifications, Sessions
from dragoman.bindings.monitoring import Health, Metrics
from dragoman.bindings.streams import Streams
from dragoman.bindings.traffic import Traffic
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.engine.engine import Engine
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.administration import Administration
from dragoman.engine.handlers.admission import Admission
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.handlers.no_store import NoStore
from dragoman.engine.handlers.tracing import Traced
from dragoman.engine.observer import Observer, Observers
from dragoman.engine.policy import EngineSettings
from dragoman.model.ids import SystemClock, new_id
from dragoman.server.access import close_access_log, open_access_log, run_access_log
from dragoman.server.bus import opened, server_bus
from dragoman.server.callers import IssuerEgress, make_authenticator, warn_if_open
from dragoman.server.console import make_console
from dragoman.server.errors import StartError
from dragoman.server.files import SWEEP_EVERY_S, open_files
from dragoman.server.front import make_app
from dragoman.server.grpc import bind_grpc, close_grpc
from dragoman.server.jobs import Job, sweep
from dragoman.server.queues import QueueWatch
from dragoman.server.reloading import AgentLifetimes, ReadConfigAgain, Reloading, nothing
from dragoman.server.replicas import ClusterWatch, check_replicas
from dragoman.server.usage import make_usage
from dragoman.server.webhooks import make_webhooks
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.store.path import store_path
from dragoman.store.replicas import Heartbeat
from dragoman.telemetry.counts import Counts
from dragoman.telemetry.pulse import Pulse

if TYPE_CHECKING:
    from dragoman.server.tls import ServerTls
    from dragoman.telemetry.opentelemetry import OpenTelemetry


log = logging.getLogger(__name__)

CLOSING_S = 3.0
"""The part of the grace period for everything after the runs. Normally that takes less than 0.5 s. In the worst case
agents that ignore their cancellation take 1 s of it, and answers, webhook calls and programs another second."""

REST_S = 0.8
"""The part of `CLOSING_S` that is reserved for the audit trail, the idle connections and the store."""

POLL_S = 1.0
"""How often a replica reads what others wrote to the tasks that it follows or runs, as long as the bus brings no hints.
While it does, `EngineSettings.healthy_poll_s` counts."""

STORE_S = 0.5
"""The part of `REST_S` that is reserved for the store. It closes within milliseconds on a healthy disk."""


class ListeningServer(Struct, frozen=True):
    """A listening server: its configuration, with the actual port, and whether every caller must authenticate."""

    config: Config
    asks_callers: bool
    reload: Callable[[], None]
    """Reads the configuration again, soon. The log tells the outcome."""

    @property
    def url(self) -> str:
        """The URL on which it listens, without a slash at the end."""
        return _url(self.config)


@asynccontextmanager
async def running(
    config: Config,
    agents: Sequence[Runner],
    on_drained: Callable[[], None] = nothing,
    again: ReadConfigAgain | None = None,
    name: str = "",
    inherited: socket.socket | None = None,
) -> AsyncIterator[ListeningServer]:
    """Run a server in the current event loop until the block ends; then it drains. A reload serves what `again` reads.

    `on_drained` is called when the server has stopped and its store is closed. Agents that ignore their cancellation
    may still run then. `name` tells a replica from others in the access log. An `inherited` socket listens already, at
    the address of the configuration. Raises StartError, or StoreError if the store cannot be opened.
    """
    check_replicas(config)
    access = open_access_log(config, name)
    tls = _make_tls(config)
    threads = Threads(config.threads_max)
    runners = _share_threads(threads, agents)
    store = open_store(config.store, SystemClock(), Heartbeat(config.replica_lease_s, config.replica_beat_s))
    holder = f"{socket.gethostname()}/{os.getpid()}/{new_id()}"
    await store.open(holder)  # migrates before anyone can connect
    clock = store.clock
    try:
        issuers = IssuerEgress.of()
        token = new_token()
        authenticator = await make_authenticator(config, runners, store, clock, issuers, token)
        warn_if_open(config, authenticator, runners)
        counts = Counts() if config.metrics else None
        telemetry = _make_telemetry(config)
        trail = Trail(store.audit, config.audit, counts.refused if counts is not None else lambda reason: None)
        signing = SigningRoom(store.keys, clock)
        files = await open_files(config, store, signing, clock)
        webhooks = await make_webhooks(config, store.outbox, clock, signing, counts, files.engine)
        bus = await server_bus(config, store, signing)
        engine = Engine(
            store,
            runners,
            clock=clock,
            settings=_engine_settings(config, store),
            holder=holder,
            observer=_make_observer(counts, telemetry),
            announcer=webhooks.announcer if config.push else None,
            identified=authenticator.required_for,
            trail=trail,
            name=await _name(config, store, signing, holder),
            files=files.engine,
            bus=bus,
        )
        linked = files.wrap_links(engine)
        usage = make_usage(config, store, holder)

        def admit(behind: Handler) -> Handler:
            rates, streams, exchange = usage.rates, usage.streams, usage.exchange
            return Admission(behind, rates=rates, streams=streams, trail=trail, clock=clock, exchange=exchange)

        handler = admit(linked) if telemetry is None else Traced(admit(linked), telemetry)
        a2a = handler if config.tasks else admit(NoStore(clock))
        stopping = asyncio.Event()
        desk = Desk(store.shared, engine) if store.replicas.shared else None
        lifetimes = AgentLifetimes(counts, desk)
        watch = ClusterWatch(config, store, bus, lambda: engine.replica_id, lambda: engine.taken_over)
        health = Health(store, clock, lambda: _unready(stopping, threads, engine), lifetimes.degraded, watch.figures)
        streams = Streams(config.keepalive_s)
        metrics = None
        if counts is not None:
            metrics = Metrics(
                counts,
                config.telemetry_prefix,
                __version__,
                store,
                clock,
                streams,
                agents=lifetimes.served,
                cluster=watch.figures,
            )
        traffic = None
        if not (counts is None and access is None and telemetry is None):
            traffic = Traffic(counts, access, clock, telemetry)
        pulse = None if counts is None else Pulse(counts, lambda: streams.open, lambda: store.commits)
        administration = Administration(
            engine,
            store,
            trail,
            clock,
            partial(make_key, secrets.token_bytes),
            config.prices,
            files.linked,
            config.keepalive_s,
            pulse,
            bus,
        )
        console = make_console(config, store, trail, authenticator, issuers)
        leaving: dict[str, WorkerAgent] = {}
        notifications = Notifications(usage.listeners, config.keepalive_s, exchange=usage.exchange)
        sessions = Sessions(notifications, store.shared if store.replicas.shared else None, bus)

        def app_for(config: Config, runners: Mapping[str, Runner]) -> App:
            notifications.serve({agent_id: runner.profile for agent_id, runner in runners.items()}, clock.now_ms())
            elsewhere = engine.served_elsewhere if store.replicas.shared else None
            watching = health, metrics, clock, leaving, streams, sessions, files.door, elsewhere, administration
            shown = traffic, console.operators, console.remote, console.provider
            return make_app(config, a2a, handler, runners, authenticator, signing, trail, *watching, *shown)

        current = CurrentApp(app_for(config, runners))
        context = None if tls is None else tls.identity.context
        listener = Listener(current, reader_pause_s=config.reader_pause_s, tls=context, reader_cut=streams.cut)
        reloading = Reloading(
            config,
            agents,
            again,
            current=current,
            app_for=app_for,
            engine=engine,
            authenticator=authenticator,
            lifetimes=lifetimes,
            threads=threads,
            leaving=leaving,
        )

        def reload() -> None:
            reloading.ask()
            if tls is not None:
                tls.ask()

        with inherited or bind(config, shared=config.processes > 1) as bound:
            bound_to = replace(config, port=bound.getsockname()[1])
            files.engine.base = config.public_url or _url(bound_to)
            grpc = bind_grpc(bound_to, lambda: current.app.backend, health.fault, tls)
            async with opened(bus), asyncio.TaskGroup() as tasks:
                lifetimes.serve(agents)
                await lifetimes.open(tasks, agents)
                await engine.start(tasks, config.replica_address or _replica_url(bound_to))
                if config.push:
                    webhooks.courier.start(tasks)
                sweeper = tasks.create_task(sweep(store, clock, config, Job(store, "sweep", holder)), name="sweep")
                files_job = Job(store, "sweep of files", holder, 2 * SWEEP_EVERY_S)
                file_sweeper = tasks.create_task(files.sweep(store, clock, files_job), name="sweep of files")
                hearing = tasks.create_task(trail.hear(), name="acts of commands")
                exchanging = tasks.create_task(usage.run(), name="exchange of usage")
                reading = tasks.create_task(sessions.run(), name="words about calls of MCP")
                serving_workers = tasks.create_task(_run_desk(desk), name="leases of workers")
                noting = tasks.create_task(run_access_log(access), name="access log")
                queues = QueueWatch(store, clock, lifetimes.served, lifetimes.pools, config.queue_warn_s)
                watching_queues = tasks.create_task(queues.run(), name="queues")
                watching_tls = tasks.create_task(_watch_tls(tls, listener), name="certificates")
                pulsing = tasks.create_task(_run_pulse(pulse), name="pulse")
                following = tasks.create_task(administration.run(), name="changes")
                reloading.start(tasks)
                del agents, runners  # so that agents that a reload replaces can be freed
                try:
                    await listener.open(bound)
                    if grpc is not None:
                        await grpc.open()
                    with _operator_token(bound_to, authenticator, token):
                        yield ListeningServer(bound_to, authenticator.required, reload)
                finally:
                    shutdown = Shutdown(config.shutdown_grace_s)
                    stopping.set()  # makes /ready answer 503
                    if store.replicas.shared or inherited is not None:
                        listener.retire()  # others take new requests, or systemd keeps them for the next server
                    await reloading.stop()
                    lifetimes.stop_work()
                    notifications.stop()
                    administration.stop()
                    console.stop()
                    await engine.drain(shutdown.runs_s)  # no new work, streams end, runs get their time
                    await asyncio.gather(
                        listener.close(shutdown.answers_s),
                        close_grpc(grpc, shutdown.answers_s),
                        shutdown.within("a webhook call", webhooks.close()),
                        shutdown.within("an agent", lifetimes.close()),
                    )
                    for task in (
                        sweeper,
                        file_sweeper,
                        hearing,
                        exchanging,
                        reading,
                        serving_workers,
                        noting,
                        watching_queues,
                        watching_tls,
                        pulsing,
                        following,
                    ):
                        task.cancel()
                    shutdown.spend_rest()
                    await asyncio.gather(
                        shutdown.within("the way to an issuer of tokens", issuers.close()),
                        shutdown.within("the way to agents that operators try", console.close()),
                        shutdown.within("the audit trail", trail.stop()),
                        shutdown.within("the bus", bus.close()),
                        shutdown.within("the exchange of usage", usage.close()),
                        shutdown.within("the leases of workers", _close_desk(desk)),
                        shutdown.within("the store of files", files.close()),
                        shutdown.within("OpenTelemetry", _flush(telemetry)),
                        shutdown.within("the access log", close_access_log(access)),
                    )
    finally:
        await store.close()
    on_drained()


@asynccontextmanager
async def serving(config: Config, agents: Sequence[Runner]) -> AsyncIterator[str]:
    """Run a server as `running` does, for tests and notebooks; yields its base URL.

    An agent that ignores its cancellation is left behind in the loop, which will not close before the agent ends.
    """
    async with running(config, agents) as listening:
        yield listening.url


def runs_s(grace_s: float) -> float:
    """How long running tasks may go on: all but the last 3 s of the grace period, but at least half of it."""
    return max(grace_s - CLOSING_S, grace_s / 2)


def whole_s(grace_s: float) -> float:
    """How long a stop takes at most, from the signal to the end of the process: `grace_s`, if that is 6 s or more."""
    return runs_s(grace_s) + CLOSING_S


class Shutdown:
    """A stop that begins now and has `grace_s` in all."""

    def __init__(self, grace_s: float) -> None:
        self.runs_s = runs_s(grace_s)
        """How long running tasks may go on."""
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + whole_s(grace_s)
        self._kept_s = REST_S

    @property
    def answers_s(self) -> float:
        """How many seconds are left, less the reserved part."""
        return max(0.0, self._end - self._kept_s - self._loop.time())

    def spend_rest(self) -> None:
        """Release the reserve, except for the store's part, because nothing is under way any more."""
        self._kept_s = STORE_S

    async def within(self, name: str, closing: Awaitable[None]) -> None:
        """Await `closing` while there is time, then cancel it and log that `name` was left behind."""
        try:
            async with asyncio.timeout(self.answers_s):
                await closing
        except TimeoutError:
            log.warning("stopping: %s did not close in time and is left behind", name)


def _share_threads(threads: Threads, agents: Sequence[Runner]) -> dict[str, Runner]:
    """Return the agents by id, after giving them all the same threads for plain functions."""
    for agent in agents:
        if isinstance(agent, Agent):
            agent.threads = threads
    return {agent.profile.id: agent for agent in agents}


def _operator_token(config: Config, authenticator: Authenticator, token: str) -> AbstractContextManager[None]:
    """Keep the operator's token in its file, on a server that asks nobody when it starts."""
    if not authenticator.required:
        return kept_token(token, config.store, config.host, config.port)
    drop_token(config.store, config.port)
    return nullcontext()


def _unready(stopping: asyncio.Event, threads: Threads, engine: Engine) -> str | None:
    if stopping.is_set():
        return "the server is stopping"
    if engine.fenced:
        return "the store has not heard of this replica for too long: it takes no work until the store answers"
    if threads.full:
        return f"all {threads.maximum} threads for agents are taken (threads_max), {threads.left_behind} left behind"
    return None


async def _name(config: Config, store: Store, signing: SigningRoom, holder: str) -> str:
    """A name that tells this server from others, also after a restart. In memory it differs at each start.

    Replicas are one server: their name is that of the key which they share.
    """
    if store.replicas.shared:
        return (await signing.signer()).kid
    path = store_path(config.store)
    return holder if path is None else f"{socket.gethostname()}/{path.absolute()}"


def _url(config: Config) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{config.scheme}://{host}:{config.port}"


def _replica_url(config: Config) -> str:
    """Where operators of several machines find this one: 0.0.0.0 would name every one of them."""
    everywhere = config.host in {"0.0.0.0", "::"}
    return _url(replace(config, host=socket.gethostname()) if everywhere else config)


def _engine_settings(config: Config, store: Store) -> EngineSettings:
    return EngineSettings(
        blocking_timeout_s=config.blocking_timeout_s,
        cancel_grace_s=config.cancel_grace_s,
        keepalive_s=config.keepalive_s,
        suspend_max_s=config.suspend_max_s,
        max_open_tasks=config.max_open_tasks,
        max_daily_tasks=config.max_daily_tasks,
        max_page_bytes=config.max_page_bytes,
        poll_s=POLL_S if store.replicas.shared else 0.0,
    )


def bind(config: Config, *, shared: bool) -> socket.socket:
    """Bind the port, with `shared` as one of several processes. Raises StartError if that fails."""
    try:
        return bound_socket(config.host, config.port, shared=shared)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"cannot listen on {config.host} port {config.port}: {error.strerror}; set another `port`"
            ) from error
        raise StartError(f"cannot listen on {config.host} port {config.port}: {error.strerror}") from error


def _make_observer(counts: Counts | None, telemetry: "OpenTelemetry | None") -> Observer | None:
    """The observer of what happens to tasks. None costs nothing."""
    if counts is not None and telemetry is not None:
        return Observers((counts, telemetry))
    return counts or telemetry


def _make_telemetry(config: Config) -> "OpenTelemetry | None":
    """Make the OpenTelemetry observer, if it is on. It is imported only here: it is large and not always installed.

    Raises StartError if it is on and not installed.
    """
    if not config.telemetry:
        return None
    try:
        from dragoman.telemetry.opentelemetry import OpenTelemetry, installed
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise StartError(
            "telemetry is on, but OpenTelemetry is not installed: "
            "run pip install '.[otel]' in a copy of Dragoman's repository, or turn telemetry off"
        ) from error
    return OpenTelemetry(*installed(__version__), config.telemetry_prefix, __version__)


def _make_tls(config: Config) -> "ServerTls | None":
    """Read the certificate, if there is one. The modules that read it are imported only then. Raises StartError."""
    if (
        config.tls_cert is None
        and config.tls_key is None
        and config.tls_client_ca is None
        and config.tls_client_crl is None
    ):
        return None
    from dragoman.server.tls import make_tls, utc_now

    return make_tls(config, utc_now)


async def _watch_tls(tls: "ServerTls | None", listener: Listener) -> None:
    """Take new certificates for new connections."""
    if tls is not None:
        tls.renewed.append(lambda identity: listener.renew(identity.context))
        await tls.watch()


async def _run_desk(desk: Desk | None) -> None:
    """Keep the leases of workers that other replicas serve, too."""
    if desk is not None:
        await desk.run()


async def _run_pulse(pulse: Pulse | None) -> None:
    """Sample the counts, if there are any."""
    if pulse is not None:
        await pulse.run()


async def _close_desk(desk: Desk | None) -> None:
    """Write what is due for these leases a last time."""
    if desk is not None:
        await desk.close()


async def _flush(telemetry: "OpenTelemetry | None") -> None:
    """Send what OpenTelemetry has not sent yet."""
    if telemetry is not None:
        await asyncio.to_thread(telemetry.flush)
