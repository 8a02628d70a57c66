"""The assembly of a server: every part of it, made once, in the order in which the parts need each other.

Invariant: nothing here runs or listens yet, and all of it outlives a reload. A part that the configuration leaves out
is None. Every call passes the admission, on a server without tasks too.
"""

import secrets
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from dragoman import __version__
from dragoman.admin.agents import KIND
from dragoman.agents.lifetimes import AgentLifetimes
from dragoman.agents.python.threads import Threads
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.attendance import Attendance
from dragoman.auth.authenticator import Authenticator
from dragoman.auth.issuers import IssuerEgress
from dragoman.auth.keys import make_key
from dragoman.auth.operator_token import new_token
from dragoman.auth.proxies import TrustedProxies
from dragoman.auth.sealing import read_secret_keys
from dragoman.auth.signatures import SigningRoom
from dragoman.bindings.cluster import ClusterWatch
from dragoman.bindings.http1.bounds import ConnectionBounds, ConnectionCounter
from dragoman.bindings.monitoring import Health, Metrics, Scraped
from dragoman.bindings.obstacles import Obstacles
from dragoman.bindings.optional import load_optional
from dragoman.bindings.parent import Parent
from dragoman.bindings.streams import Streams
from dragoman.bus.api import Bus
from dragoman.config import Config
from dragoman.engine.admin.administration import Administration
from dragoman.engine.api import Runner
from dragoman.engine.engine import Engine
from dragoman.engine.erasures import Erasures
from dragoman.engine.handler import Handler
from dragoman.engine.handlers.admission import Admission
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.handlers.no_store import NoStore
from dragoman.engine.handlers.tracing import Traced
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.policy import EngineSettings
from dragoman.engine.record_reader import RecordReader
from dragoman.engine.spending import spending_rules
from dragoman.net.address import Guard, Resolver
from dragoman.server.added_runners import AddedHosts, AddedRunners, MakeAdded, make_nothing
from dragoman.server.agent_book import AgentBook
from dragoman.server.budgets import BudgetWatch
from dragoman.server.callers import make_authenticator
from dragoman.server.erasures import ErasureWatch
from dragoman.server.errors import StartError
from dragoman.server.files import ServedFiles, open_files
from dragoman.server.jobs import Job
from dragoman.server.key_stops import KeyStopper
from dragoman.server.observation import Observation
from dragoman.server.replicas import bus_name, server_bus
from dragoman.server.retention import RetentionWatch
from dragoman.server.series import Series
from dragoman.server.usage import make_usage
from dragoman.server.webhooks import WebhookParts, make_webhooks
from dragoman.store.api import Store
from dragoman.store.path import store_path
from dragoman.telemetry.pulse import Pulse

if TYPE_CHECKING:
    from dragoman.server.console import ConsoleParts
    from dragoman.server.mcp import McpParts
    from dragoman.server.tls import ServerTls

POLL_S = 1.0
"""How often a replica reads what others wrote to the tasks that it follows or runs, as long as the bus brings no hints.
While it does, `EngineSettings.healthy_poll_s` counts."""


class Opened(Struct, frozen=True):
    """The things that a server reads and opens before it makes its parts. Any of them may refuse the start.

    `holder` is the name under which this process has the store open, which no other has. `token` is that of an operator
    on a server without authentication. `name` tells this server from others, also after a restart. `parent` is the
    application in which the server is mounted; None: it listens itself.
    """

    store: Store
    holder: str
    observation: Observation
    tls: "ServerTls | None"
    signing: SigningRoom
    issuers: IssuerEgress
    token: str
    authenticator: Authenticator
    files: ServedFiles
    webhooks: WebhookParts
    bus: Bus
    name: str
    records: RecordReader
    added: AddedRunners
    parent: Parent | None = None


async def open_parts(
    config: Config,
    agents: Sequence[Runner],
    store: Store,
    holder: str,
    observation: Observation,
    tls: "ServerTls | None",
    parent: Parent | None = None,
    make_added: MakeAdded = make_nothing,
) -> Opened:
    """Open all that can refuse, around an open store. Raises StartError for settings that cannot work, StoreError.

    `agents` are those of the file, and `make_added` makes the others.
    """
    issuers, token = IssuerEgress.over(Resolver()), new_token()
    known = [agent.profile.id for agent in agents]
    authenticator = await make_authenticator(config, known, store, issuers, token, parent)
    signing = SigningRoom(store.keys, store.clock)
    files = await open_files(config, store, signing, store.clock)
    webhooks = await make_webhooks(config, store.outbox, store.clock, signing, observation, files.engine)
    bus = await server_bus(config, store, signing)
    name = await _server_name(config, store, signing, holder)
    records = RecordReader(store, bus, shared=store.replicas.shared)
    added = _make_added(config, records, make_added)
    await records.refresh()
    added.take()
    return Opened(
        store=store,
        holder=holder,
        observation=observation,
        tls=tls,
        signing=signing,
        issuers=issuers,
        token=token,
        authenticator=authenticator,
        files=files,
        webhooks=webhooks,
        bus=bus,
        name=name,
        records=records,
        added=added,
        parent=parent,
    )


def _make_added(config: Config, records: RecordReader, make: MakeAdded) -> AddedRunners:
    """Make the agents that operators have added. Raises StartError for a key of secrets that is none."""
    try:
        keys = read_secret_keys(config.secret_key, config.secret_key_file, secrets.token_bytes)
    except ValueError as error:
        raise StartError(str(error)) from error
    hosts = AddedHosts(Guard(config.agents_api_allow_hosts), Resolver())
    return AddedRunners(records.open_feed(KIND), keys, make, hosts)


async def _server_name(config: Config, store: Store, signing: SigningRoom, holder: str) -> str:
    """In memory the name differs at each start. Replicas are one server: theirs is that of the key which they share."""
    if store.replicas.shared:
        return (await signing.signer()).kid
    path = store_path(config.store)
    return holder if path is None else f"{socket.gethostname()}/{path.absolute()}"


class Assembly:
    """The parts of a server. `a2a` answers A2A calls, `agents` chat completions, MCP and workers.

    Workers may finish the tasks of agents that are `leaving`, by agent id. `attendance` is what replicas know of each
    other's workers.
    """

    def __init__(self, config: Config, agents: Sequence[Runner], opened: Opened) -> None:
        store, observation, counts = opened.store, opened.observation, opened.observation.counts
        clock, bus, files, shared = store.clock, opened.bus, opened.files, store.replicas.shared
        runners = {agent.profile.id: agent for agent in agents}
        self.opened = opened
        self.records = opened.records
        self.book = AgentBook(store, opened.records, opened.added)
        self.threads = Threads(config.threads_max)
        self.trail = Trail(store.audit, config.audit, counts)
        engine = self.engine = Engine(
            store,
            runners,
            clock=clock,
            settings=_engine_settings(config, store),
            holder=opened.holder,
            observer=observation.make_observer(),
            announcer=opened.webhooks.announcer if config.push else None,
            identified=opened.authenticator.required_for,
            trail=self.trail,
            name=opened.name,
            files=files.engine,
            bus=bus,
            records=self.records,
            removed=opened.added.find_removed(runners),
            spending=spending_rules(config),
        )
        self.attendance = Attendance(store.shared) if shared else None
        self.lifetimes = AgentLifetimes(counts, engine.worker_tasks, self.threads, self.attendance, engine.switches)
        self.leaving: dict[str, WorkerAgent] = {}

        self.usage = make_usage(config, store, opened.holder)
        self.stops = KeyStops(store.shared, clock)
        self.erasures = Erasures(store.shared, clock)
        self.erasing = ErasureWatch(store.principals, self.erasures)
        admitted = self._admit(files.wrap_links(engine.operations))
        telemetry = observation.telemetry
        self.agents: Handler = admitted if telemetry is None else Traced(admitted, telemetry)
        self.a2a = self.agents if config.tasks else self._admit(NoStore(clock))

        self.streams = Streams(config.keepalive_s)
        self.connections = ConnectionCounter(_connection_bounds(config))
        mcp = load_optional("dragoman.server.mcp")
        self.mcp: McpParts | None = (
            None if mcp is None else mcp.McpParts(config, store, bus, self.usage, opened.signing)
        )

        figures = engine.operated.figures
        cluster = ClusterWatch(engine, store, bus, bus_name=bus_name(config), lease_s=config.replica_lease_s)
        self.obstacles = Obstacles(engine, self.threads, observation.jobs)
        self.health = Health(
            store, clock, self.obstacles.first, self.lifetimes.degraded, cluster.figures, observation.jobs.describe
        )
        self.retention = RetentionWatch(figures, clock, config)
        self.budgets = BudgetWatch(store, engine.spending, counts, opened.webhooks.budget_hook)
        self.traffic = observation.make_traffic(clock)
        self.pulse = None if counts is None else Pulse(counts, store.writing.commits)
        self.metrics = None
        if counts is not None:
            scraped = Scraped(
                writing=store.writing,
                streams=self.streams,
                connections=self.connections,
                figures=figures,
                agents=self.lifetimes.served,
                cluster=cluster.figures,
                job_failures=observation.jobs.counts,
                sweep_behind_s=self.retention.behind_s,
                breakers=self.lifetimes.breakers,
                switches=self.lifetimes.switches,
            )
            self.metrics = Metrics(counts, config.telemetry_prefix, __version__, clock, scraped)

        leads = Job(store, "series", engine).take
        self.series = Series(store, counts, opened.holder, config.prices, leads)
        self.administration = Administration(
            engine.operations,
            engine.operated,
            store,
            self.trail,
            partial(make_key, secrets.token_bytes),
            config.prices,
            files.linked,
            config.keepalive_s,
            self.pulse,
            bus,
            opened.webhooks.announcer,
            observation.jobs.describe,
            self.stops,
            self.erasures,
            files.blobs,
            {team.id: team.agents for team in config.teams},
            self.records,
            self.book.answers | self.series.answers,
            lambda: engine.spending.rules,
        )
        self.console = self._make_console(config)
        self.stopper = KeyStopper(
            store, self.stops, self.streams, self.administration, opened.holder, opened.authenticator
        )

    def _make_console(self, config: Config) -> "ConsoleParts | None":
        """Make the console, if the configuration asks for one. Raises StartError for contradictory settings."""
        if (console := load_optional("dragoman.server.console")) is None:
            return None
        opened = self.opened
        made: ConsoleParts | None = console.make_console(
            config, opened.store, self.trail, opened.authenticator, opened.issuers
        )
        return made

    def _admit(self, behind: Handler) -> Handler:
        usage = self.usage
        return Admission(
            behind,
            rates=usage.rates,
            streams=usage.streams,
            trail=self.trail,
            clock=self.opened.store.clock,
            exchange=usage.exchange,
            stops=self.stops,
            erasures=self.erasures,
        )


def _engine_settings(config: Config, store: Store) -> EngineSettings:
    return EngineSettings(
        blocking_timeout_s=config.blocking_timeout_s,
        cancel_grace_s=config.cancel_grace_s,
        keepalive_s=config.keepalive_s,
        suspend_max_s=config.suspend_max_s,
        suspend_after_s=config.suspend_after_s,
        max_steps=config.max_steps,
        agent_absent_s=config.agent_absent_s,
        max_open_tasks=config.max_open_tasks,
        max_daily_tasks=config.max_daily_tasks,
        max_page_bytes=config.max_page_bytes,
        max_text=config.max_text,
        max_tokens_per_report=config.max_tokens_per_report,
        poll_s=POLL_S if store.replicas.shared else 0.0,
        sharing_teams=frozenset(team.id for team in config.teams if team.shared != "none"),
    )


def _connection_bounds(config: Config) -> ConnectionBounds:
    proxies = TrustedProxies(config.trusted_proxies)
    return ConnectionBounds(config.max_connections, config.max_connections_per_address, proxies.trusts)
