"""The side of a server that callers meet: what every application of it shares, and the application itself.

Invariant: a card matches what the server does, because both are made from one configuration. The set of agents of an
application never changes; a reload makes another one. The profile of an agent on another server may change.
"""

import secrets
from collections import ChainMap
from collections.abc import Mapping
from functools import cache, partial

from msgspec import Struct

from dragoman import __version__
from dragoman.admin.tasks import CANCEL_TASK, CancelReason
from dragoman.agents.kinds import worker_agents
from dragoman.agents.lifetimes import AgentLifetimes
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.auth.authenticator import Authenticator
from dragoman.auth.keys import make_key
from dragoman.auth.proxies import TrustedProxies
from dragoman.bindings.admin import Admin
from dragoman.bindings.app import App
from dragoman.bindings.callers import CallerRefusals, Callers
from dragoman.bindings.calls import Reception
from dragoman.bindings.cards import Cards, GrpcAddress
from dragoman.bindings.cluster import ClusterWatch
from dragoman.bindings.console import Console, Pages
from dragoman.bindings.cors import Cors, Origins
from dragoman.bindings.endpoints import OptionalBindings
from dragoman.bindings.home import Home
from dragoman.bindings.http1.bounds import ConnectionBounds, ConnectionCounter
from dragoman.bindings.limits import Limits, make_limits
from dragoman.bindings.mcp import Mcp, Notifications, Sessions
from dragoman.bindings.monitoring import Health, Metrics
from dragoman.bindings.obstacles import Obstacles
from dragoman.bindings.openai import OpenAi
from dragoman.bindings.openapi import Description
from dragoman.bindings.openapi.operations import ServedPaths
from dragoman.bindings.request import Request
from dragoman.bindings.streams import Streams
from dragoman.bindings.traffic import Traffic
from dragoman.bindings.workers import Workers
from dragoman.config import Config
from dragoman.dialects.extensions import DEDUPES, EVENT_IDS
from dragoman.dialects.registry import load_profile, load_system
from dragoman.dialects.resolve import MOUNTS, SYSTEMS
from dragoman.dialects.system import ROOT, Mount
from dragoman.engine.admin.administration import Administration
from dragoman.engine.admin.answers import Asked
from dragoman.engine.api import Runner
from dragoman.model.card import AgentExtension
from dragoman.server.callers import CallerParts, hosts_of
from dragoman.server.console import ConsoleParts, make_console
from dragoman.server.engine import EngineParts
from dragoman.server.facts import ServedAgents
from dragoman.server.handlers import Handlers, make_handlers
from dragoman.server.key_stops import KeyStopper
from dragoman.server.observation import Observation
from dragoman.server.replicas import bus_name
from dragoman.server.retention import RetentionWatch
from dragoman.telemetry.pulse import Pulse


class Front(Struct, frozen=True):
    """The parts that all applications of a server share, so that a reload loses nothing.

    Workers may finish the tasks of agents that are `leaving`, by agent id. `streams` are the open ones, `connections`
    counts those of HTTP, and `retention` watches the sweep.
    """

    parts: EngineParts
    handlers: Handlers
    authenticator: Authenticator
    health: Health
    metrics: Metrics | None
    traffic: Traffic | None
    pulse: Pulse | None
    streams: Streams
    connections: ConnectionCounter
    retention: RetentionWatch
    sessions: Sessions
    notifications: Notifications
    administration: Administration
    console: ConsoleParts
    stopper: KeyStopper
    leaving: dict[str, WorkerAgent]

    def make_app(self, config: Config, runners: Mapping[str, Runner]) -> App:
        """Make the application for these agents. Sessions of MCP are told that their tools have changed."""
        parts, handlers, console = self.parts, self.handlers, self.console
        clock, default = parts.store.clock, config.default or next(iter(runners))
        self.notifications.serve({agent_id: runner.profile for agent_id, runner in runners.items()}, clock.now_ms())
        mounts, reception = _mounts(config), self._make_reception(config, runners)
        return App(
            handlers.a2a,
            reception,
            default,
            cards=self._make_cards(config, runners, mounts, reception.extensions),
            health=self.health,
            home=Home(runners, default, mounts, config.public_url, console=console.operators is not None),
            cors=Cors(config.cors_origins) if config.cors_origins else None,
            mounts=mounts,
            optional=self._make_optional(config, runners, reception, default, mounts),
            streams=self.streams,
            elsewhere=parts.engine.operations.check_elsewhere if parts.store.replicas.shared else None,
            traffic=self.traffic,
        )

    def _make_optional(
        self,
        config: Config,
        runners: Mapping[str, Runner],
        reception: Reception,
        default: str,
        mounts: tuple[Mount, ...],
    ) -> OptionalBindings:
        """Make the bindings that the configuration asks for. A server that poses as another system has that one's."""
        handler, bounds, console = self.handlers.agents, reception.limits, self.console
        plain, operators = config.profile is None, console.operators
        served = worker_agents(runners.values())
        workers = None
        if served or self.leaving:
            workers = Workers(handler, ChainMap(served, self.leaving), bounds, self.handlers.stops)
        admin = page = None
        if config.tasks and plain:
            admin = Admin(
                self.administration, bounds, ServedAgents(runners, self.streams), console.remote, self.handlers.stops
            )
        if operators is not None:
            page = Console(_pages(), operators, reception.callers, bounds, config.public_url, console.provider)
        return OptionalBindings(
            openai=OpenAi(handler, reception, default, self.parts.store.clock) if ROOT in mounts else None,
            mcp=self._make_mcp(config, reception) if plain else None,
            metrics=self.metrics,
            workers=workers,
            files=self.parts.files.door,
            admin=admin,
            console=page,
            description=_description(config, default) if plain else None,
        )

    async def run_pulse(self) -> None:
        """Sample the counts for ever, if there are any."""
        if self.pulse is not None:
            await self.pulse.run()

    def _make_reception(self, config: Config, runners: Mapping[str, Runner]) -> Reception:
        parts = self.parts
        return Reception(
            runners,
            Callers(
                self.authenticator,
                hosts_of(config),
                refusals=CallerRefusals(parts.trail, parts.store.clock, runners),
                agents=runners,
                origins=Origins(config.cors_origins, config.public_url),
            ),
            _make_limits(config),
            forwards=any(runner.traits.forwards for runner in runners.values()),
            base=None if parts.files.door is None else partial(Request.base_url, public_url=config.public_url),
            extensions=_extensions(config),
            proxies=TrustedProxies(config.trusted_proxies) if config.trusted_proxies else None,
        )

    def _make_cards(
        self,
        config: Config,
        runners: Mapping[str, Runner],
        mounts: tuple[Mount, ...],
        extensions: Mapping[Mount, tuple[AgentExtension, ...]],
    ) -> Cards:
        signing = self.parts.signing
        return Cards(
            runners,
            config.public_url,
            config.card_max_age_s,
            authenticator=self.authenticator,
            signing=signing if config.sign_cards else None,
            keys=signing if config.sign_cards or config.push_jwt else None,
            root="/" if ROOT in mounts else mounts[0].path,
            protocols=("jsonrpc",) if config.tasks else (),
            history=config.tasks and config.profile is not None and load_profile(config.profile).history,
            tasks=config.tasks,
            pushes=config.push,
            tenants=any(mount.catches_all for mount in mounts),
            extensions=extensions,
            grpc=GrpcAddress(config.grpc_port, config.grpc_public_url) if config.grpc_port else None,
        )

    def _make_mcp(self, config: Config, reception: Reception) -> Mcp:
        return Mcp(
            self.handlers.agents,
            reception,
            self.parts.store.clock,
            self.sessions,
            version=__version__,
            wait_s=config.blocking_timeout_s,
        )


def make_front(
    config: Config,
    parts: EngineParts,
    observation: Observation,
    callers: CallerParts,
    lifetimes: AgentLifetimes,
    obstacles: Obstacles,
) -> Front:
    """Make it around an engine. Raises StartError."""
    store, engine, counts = parts.store, parts.engine, observation.counts
    clock, shared = store.clock, store.replicas.shared
    handlers = make_handlers(config, parts, observation)
    usage, streams = handlers.usage, Streams(config.keepalive_s)
    cluster = ClusterWatch(engine, store, parts.bus, bus_name=bus_name(config), lease_s=config.replica_lease_s)
    retention = RetentionWatch(engine.operated.figures, clock, config)
    connections = ConnectionCounter(_connection_bounds(config))
    metrics = pulse = None
    if counts is not None:
        metrics = Metrics(
            counts,
            config.telemetry_prefix,
            __version__,
            store,
            clock,
            streams,
            figures=engine.operated.figures,
            agents=lifetimes.served,
            cluster=cluster.figures,
            job_failures=observation.jobs.counts,
            connections=connections,
            sweep_behind_s=retention.behind_s,
            breakers=lifetimes.breakers,
        )
        pulse = Pulse(counts, store.commits)
    notifications = Notifications(usage.listeners, config.keepalive_s, exchange=usage.exchange)
    administration = Administration(
        engine.operations,
        engine.operated,
        store,
        parts.trail,
        clock,
        partial(make_key, secrets.token_bytes),
        config.prices,
        parts.files.linked,
        config.keepalive_s,
        pulse,
        parts.bus,
        parts.webhooks.announcer,
        observation.jobs.describe,
        handlers.stops,
    )
    authenticator = callers.authenticator
    return Front(
        parts,
        handlers,
        authenticator,
        health=Health(store, clock, obstacles.first, lifetimes.degraded, cluster.figures, observation.jobs.describe),
        metrics=metrics,
        traffic=observation.make_traffic(clock),
        pulse=pulse,
        streams=streams,
        connections=connections,
        retention=retention,
        sessions=Sessions(notifications, store.shared if shared else None, parts.bus),
        notifications=notifications,
        administration=administration,
        console=make_console(config, store, parts.trail, authenticator, callers.issuers),
        stopper=KeyStopper(
            store,
            handlers.stops,
            streams,
            lambda operator, task_id, reason: administration.answer(
                CANCEL_TASK, Asked(operator, CancelReason(reason=reason), task_id)
            ),
            parts.holder,
            authenticator,
        ),
        leaving={},
    )


@cache
def _pages() -> Pages:
    """The console's files: read once, whatever is reloaded."""
    return Pages.load()


def _connection_bounds(config: Config) -> ConnectionBounds:
    proxies = TrustedProxies(config.trusted_proxies)
    return ConnectionBounds(config.max_connections, config.max_connections_per_address, proxies.trusts)


def _make_limits(config: Config) -> Limits:
    return make_limits(
        config.max_body_bytes,
        config.max_depth,
        config.max_parts,
        body_pause_s=config.body_pause_s,
        max_text=config.max_text,
        max_values=config.max_values,
        max_unread_bytes=config.max_unread_bytes,
        max_page_bytes=config.max_page_bytes,
    )


def _description(config: Config, default: str) -> Description:
    keys = config.sign_cards or config.push_jwt
    return Description(ServedPaths(default, metrics=config.metrics, keys=keys))


def _mounts(config: Config) -> tuple[Mount, ...]:
    """The mounts of the server: all, or only that of the system that it poses as."""
    if config.profile is None:
        return MOUNTS
    mount = load_system(config.profile).mount
    assert mount is not None
    return (mount,)


def _extensions(config: Config) -> Mapping[Mount, tuple[AgentExtension, ...]]:
    """The extensions of each mount; a server that makes no tasks has none."""
    if not config.tasks:
        return {}
    ours: tuple[AgentExtension, ...] = (DEDUPES,) if config.profile is None else ()
    if config.grpc_port:
        ours = (*ours, EVENT_IDS)
    listed: dict[Mount, tuple[AgentExtension, ...]] = {mount: ours for mount in MOUNTS if not mount.fixed}
    for system in SYSTEMS:
        if system.mount is not None and system.extensions:
            listed[system.mount] = system.extensions
    return listed
