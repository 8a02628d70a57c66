"""The order in which a server starts and stops, from a configuration and agents.

Invariant: the entrance opens last, and the work that it serves ends first: no request meets a store that is not open.
Nothing that is closed within the time budget of a stop holds the server up longer than its grace period.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from dragoman.agents.lifespans import LifespanError
from dragoman.bindings.app import App, CurrentApp
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.model.ids import SystemClock, new_id
from dragoman.server.added_runners import MakeAdded, make_nothing
from dragoman.server.assembly import Assembly, Opened, open_parts
from dragoman.server.entrance import BoundEntrance, Entrance, SocketEntrance
from dragoman.server.errors import StartError
from dragoman.server.files import SWEEP_EVERY_S
from dragoman.server.front import make_app
from dragoman.server.jobs import Job
from dragoman.server.observation import open_observation
from dragoman.server.queues import QueueWatch
from dragoman.server.reloading import ReadConfigAgain, Reloading, nothing, served_agents
from dragoman.server.replicas import check_replicas, opened_bus
from dragoman.server.retention import sweep
from dragoman.server.sockets import server_url
from dragoman.store.api import Store
from dragoman.store.open import open_store
from dragoman.store.replicas import Heartbeat
from dragoman.telemetry.job_group import JobGroup

if TYPE_CHECKING:
    from dragoman.server.tls import ServerTls


log = logging.getLogger(__name__)

CLOSING_S = 3.0
"""The part of the grace period for everything after the runs. Normally that takes less than 0.5 s. In the worst case
agents that ignore their cancellation take 1 s of it, and answers, webhook calls and programs another second."""

REST_S = 0.8
"""The part of `CLOSING_S` that is reserved for the audit trail, the idle connections and the store."""

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
        return server_url(self.config)


def ignore(error: StartError) -> None:
    """Do nothing: the default for `on_refused`."""


@asynccontextmanager
async def running(
    config: Config,
    agents: Sequence[Runner],
    on_drained: Callable[[], None] = nothing,
    again: ReadConfigAgain | None = None,
    name: str = "",
    entrance: Entrance | None = None,
    on_refused: Callable[[StartError], None] = ignore,
    make_added: MakeAdded = make_nothing,
) -> AsyncIterator[ListeningServer]:
    """Run a server in the current event loop until the block ends; then it drains. A reload serves what `again` reads.

    `on_drained` is called when the server has stopped and its store is closed. Agents that ignore their cancellation
    may still run then. `on_refused` is called when what agents need cannot be opened: that may ignore its
    cancellation, too. `name` tells a replica from others in the access log. Without an `entrance` the server binds the
    port of the configuration. `make_added` makes the agents that operators add while it runs.
    Raises StartError, or StoreError if the store cannot be opened.
    """
    way = SocketEntrance() if entrance is None else entrance
    check_replicas(config)
    observation, tls = open_observation(config, name), _make_tls(config)
    holder = f"{socket.gethostname()}/{os.getpid()}/{new_id()}"
    async with _opened_store(config, holder) as store:  # it migrates before anyone can connect
        opened = await open_parts(config, agents, store, holder, observation, tls, way.parent, make_added)
        served = served_agents(opened, config, agents)
        server = _Server(config, agents, served, again, opened)
        with way.bind(config, server.assembly, server.current) as bound:
            server.take_entrance(bound)
            async with opened_bus(opened.bus), asyncio.TaskGroup() as tasks:
                group = JobGroup(tasks, observation.jobs)
                try:
                    await server.start_work(group, served)
                except StartError as error:
                    on_refused(error)
                    raise
                jobs = server.start_jobs(group)
                del agents, served  # so that agents that a reload replaces can be freed
                try:
                    await bound.open()
                    with bound.operator_token():
                        yield server.listening()
                finally:
                    shutdown = Shutdown(config.shutdown_grace_s)
                    await server.refuse_work(bound)
                    await server.end_runs(shutdown)
                    await server.end_answers(bound, shutdown)
                    for job in jobs:
                        job.cancel()
                    await server.close_connections(shutdown)
    on_drained()


@asynccontextmanager
async def serving(config: Config, agents: Sequence[Runner], make_added: MakeAdded = make_nothing) -> AsyncIterator[str]:
    """Run a server as `running` does, for tests and notebooks; yields its base URL.

    An agent that ignores its cancellation is left behind in the loop, which will not close before the agent ends.
    """
    async with running(config, agents, make_added=make_added) as listening:
        yield listening.url


class _Server:
    """An assembled server. Each method is a phase of its start or its stop; `running` calls them in their order."""

    def __init__(
        self,
        config: Config,
        agents: Sequence[Runner],
        served: Sequence[Runner],
        again: ReadConfigAgain | None,
        opened: Opened,
    ) -> None:
        self.config = config
        self.address = ""
        self.assembly = Assembly(config, served, opened)
        self.current = CurrentApp(self._make_app(served))
        self.reloading = Reloading(config, agents, served, again, self.assembly, self.current)
        opened.added.note_served({agent.profile.id: agent for agent in served})

    def _make_app(self, served: Sequence[Runner]) -> App:
        runners = {agent.profile.id: agent for agent in served}
        return make_app(self.assembly, self.config, runners, self.assembly.opened.added.find_removed(runners))

    # -- start, in this order ------------------------------------------------------------------------------------

    def take_entrance(self, bound: BoundEntrance) -> None:
        """Take the place where requests will arrive, which the URLs of this server name."""
        self.config, self.address = bound.config, bound.address
        self.assembly.opened.files.engine.serve_at(bound.base)

    async def start_work(self, group: JobGroup, agents: Sequence[Runner]) -> None:
        """Open the agents, recover what a previous process left behind, and send what webhooks are due.

        Raises StartError if what an agent needs cannot be opened, StoreError.
        """
        assembly = self.assembly
        assembly.lifetimes.serve(agents)
        assembly.lifetimes.withhold(assembly.opened.added.faults())
        try:
            await assembly.lifetimes.open(group, agents)
        except LifespanError as error:
            raise StartError(str(error)) from error
        try:  # the cards of agents that factories have made are known now
            self.current.replace(self._make_app(agents))
            await assembly.records.refresh()  # what operators have set holds for what is recovered, too
            await assembly.engine.start(group, self.address)
            await assembly.stopper.remove_webhooks()
            await assembly.erasing.look()
        except BaseException:
            await assembly.lifetimes.close()
            raise
        if self.config.push:
            assembly.opened.webhooks.courier.start(group)

    def start_jobs(self, group: JobGroup) -> list[asyncio.Task[None]]:
        """Start the work that goes on beside the requests, and return it. Reloading stops by itself."""
        config, assembly, opened = self.config, self.assembly, self.assembly.opened
        store, engine = opened.store, assembly.engine
        sweeping = Job(store, "sweep", engine)
        sweeping_files = Job(store, "sweep of files", engine, 2 * SWEEP_EVERY_S)
        figures, served = engine.operated.figures, assembly.lifetimes.served
        jobs: dict[str, Callable[[], Coroutine[None, None, None]]] = {
            "sweep": partial(sweep, store, store.clock, config, sweeping),
            "retention": assembly.retention.run,
            "budgets": assembly.budgets.run,
            "sweep of files": partial(opened.files.sweep, store, store.clock, sweeping_files),
            "acts of commands": assembly.trail.hear,
            "exchange of usage": _job_of(assembly.usage.exchange),
            "words about calls of MCP": _job_of(assembly.mcp),
            "attendance of workers": _job_of(assembly.attendance),
            "access log": _job_of(opened.observation.access),
            "queues": QueueWatch(figures, store.clock, served, config.queue_warn_s).run,
            "certificates": _job_of(opened.tls),
            "pulse": _job_of(assembly.pulse),
            "series": assembly.series.run,
            "changes": assembly.administration.run,
            "bulk acts": assembly.administration.bulk.run,
            "hints of changes": assembly.administration.hear,
            "watch of stopped keys": assembly.stopper.run,
            "stops of keys": assembly.stopper.work,
            "watch of deletions": assembly.erasing.run,
            "removed agents": assembly.book.run,
            "operators' records": assembly.records.run,
        }
        started = [group.keep(name, job) for name, job in jobs.items()]
        self.reloading.start(group)
        return started

    def listening(self) -> ListeningServer:
        """The server, as its owner sees it."""
        return ListeningServer(self.config, self.assembly.opened.authenticator.required, self._reload)

    # -- stop, in this order -------------------------------------------------------------------------------------

    async def refuse_work(self, bound: BoundEntrance) -> None:
        """Answer `/ready` with 503, let others take new requests if they can, and let streams without a task end."""
        assembly = self.assembly
        assembly.obstacles.stop()
        bound.retire(shared=assembly.opened.store.replicas.shared)
        await self.reloading.stop()
        assembly.lifetimes.stop_work()
        if assembly.mcp is not None:
            assembly.mcp.stop()
        assembly.administration.stop()
        if assembly.console is not None:
            assembly.console.stop()

    async def end_runs(self, shutdown: "Shutdown") -> None:
        """Refuse new work, end the streams of tasks, and give running tasks their time."""
        await self.assembly.engine.drain(shutdown.runs_s)

    async def end_answers(self, bound: BoundEntrance, shutdown: "Shutdown") -> None:
        """Let the answers and the webhook calls that are under way end, and close the agents and the entrance."""
        await asyncio.gather(
            bound.close(shutdown.answers_s),
            shutdown.within("a webhook call", self.assembly.opened.webhooks.close()),
            shutdown.within("an agent", self.assembly.lifetimes.close()),
        )

    async def close_connections(self, shutdown: "Shutdown") -> None:
        """Write what the logs still hold, and close every connection. Nothing is under way any more."""
        assembly, opened = self.assembly, self.assembly.opened
        shutdown.spend_rest()
        await asyncio.gather(
            shutdown.within("the way to an issuer of tokens", opened.issuers.close()),
            shutdown.within("the way to agents that operators try", _close(assembly.console)),
            shutdown.within("the DNS of added agents", opened.added.hosts.resolver.close()),
            shutdown.within("the audit trail", assembly.trail.stop()),
            shutdown.within("the series", assembly.series.close()),
            shutdown.within("the bus", opened.bus.close()),
            shutdown.within("the exchange of usage", assembly.usage.close()),
            shutdown.within("the streams of keys", assembly.stopper.close()),
            shutdown.within("the attendance of workers", _close(assembly.attendance)),
            shutdown.within("the store of files", opened.files.close()),
            shutdown.within("OpenTelemetry", opened.observation.flush()),
            shutdown.within("the access log", _close(opened.observation.access)),
        )

    def _reload(self) -> None:
        self.reloading.request()
        if self.assembly.opened.tls is not None:
            self.assembly.opened.tls.request()


class _Part(Protocol):
    async def run(self) -> None: ...


class _Closable(Protocol):
    async def close(self) -> None: ...


def _job_of(part: _Part | None) -> Callable[[], Coroutine[None, None, None]]:
    """Return the job of a part. That of a part that this server lacks has a name and nothing to do."""
    return _rest if part is None else part.run


async def _rest() -> None:
    """Do nothing."""


async def _close(part: _Closable | None) -> None:
    """Close a part, unless this server lacks it."""
    if part is not None:
        await part.close()


@asynccontextmanager
async def _opened_store(config: Config, holder: str) -> AsyncIterator[Store]:
    """Have the store open until the block ends. Raises StoreError."""
    store = open_store(config.store, SystemClock(), Heartbeat(config.replica_lease_s, config.replica_beat_s))
    await store.open(holder)
    try:
        yield store
    finally:
        await store.close()


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
